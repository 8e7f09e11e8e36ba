"""Running statistics: the whitening of observations and the scale of the intrinsic reward.

All statistics are float64 and part of the state_dict. Only `update` moves them. They stay on the
host where a device has no float64.
"""

import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import HOST, double, float64_device
from surprise_memory.nn.returns import discounted_filter

LEVEL_STEPS = 4096  # newest steps that say how large a reward is
LEAST_SPREAD = 0.1  # of the intrinsic return, in its mean: what hardly varies is not blown up
FALLING = 0.85  # of the level before a rollout: below this, surprises have not settled
MOST = 10.0  # paid for one step; a usual return is about 1
FAR = 1000.0  # from zero: beyond bytes, where the prior and float32 would spoil the whitening
LEAST_STD = 1e-4  # of an observation's feature: what varies by less counts as constant
PRIOR = 1e-4  # observations that the prior, mean 0 and variance 1, counts as; as in the RND code


class Statistics(nn.Module):
    """Base of what holds float64."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move as any module does, but only to where there is float64."""
        target = fn(torch.empty(0, device=HOST)).device
        if target != float64_device(target):
            fn = stay_on_host
        super()._apply(fn, recurse)
        return self


def stay_on_host(x: Tensor) -> Tensor:
    """What a device without float64 does to it."""
    return x.to(HOST)


class RunningMoments(Statistics):
    """Mean and variance of everything seen, merged batch by batch without loss (Chan et al.)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(
        self, shape: tuple[int, ...] = (), momentum: float | None = None, least: int = 1
    ) -> None:
        """`momentum` caps the past's weight at momentum / (1 - momentum) batches.

        A batch below `least` rows counts as that many there.
        """
        super().__init__()
        allowed = "between 0 and 1, or None for all of the past"
        require(momentum is None or 0 < momentum < 1, "scale_momentum", momentum, allowed)
        self.momentum = momentum
        self.least = least
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64, device=HOST))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64, device=HOST))
        count = torch.tensor(PRIOR, dtype=torch.float64, device=HOST)
        self.register_buffer("count", count)

    def update(self, batch: Tensor) -> None:
        """Take in a batch (K, *shape), all ranks' at once; an empty one changes nothing."""
        self.merge(ranks.moments(double(batch)))

    @torch.no_grad()
    def merge(self, batch: ranks.Moments) -> None:
        """Take in a batch by its moments."""
        size = batch.size
        if size == 0:
            return
        past = self.count
        if self.momentum is not None:
            batch_size = max(size, self.least)
            past = past.clamp(max=batch_size * self.momentum / (1 - self.momentum))
        total = past + size
        delta = batch.mean - self.mean
        spread = self.var * past + batch.var * size
        spread = spread + delta**2 * past * size / total
        self.mean.copy_(self.mean + delta * size / total)
        self.var.copy_(spread / total)
        self.count.copy_(total)

    def restart(self) -> None:
        """Let the next batch count as the first one."""
        self.count.fill_(PRIOR)


class ObsWhitener(nn.Module):
    """x -> clip((x - mean) / std, +-5) per feature. For generators, never for the policy.

    A feature whose first values lie far from zero starts from them instead of from the prior: at an
    offset of 1e7 the prior would add 1e14 to a sum of squares, and hide a spread of 1 for ever.

    What varies by less than LEAST_STD is not blown up: mostly it is rounding. It is named once.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = 5.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip
        self.is_far = False  # any feature; on the host, so that asking need not wait for a device
        self.register_load_state_dict_post_hook(note_far)

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *shape) to float32 of the same shape."""
        mean = self.moments.mean
        std = (self.moments.var + LEAST_STD**2).sqrt().float().to(obs.device)
        if self.is_far:
            centred = (double(obs) - mean).float().to(obs.device)  # float32 would round it away
        else:
            centred = obs.float() - mean.float().to(obs.device)
        return (centred / std).clamp(-self.clip, self.clip)

    def update(self, obs: Tensor) -> None:
        """Take in (K, *shape) observations."""
        seen = ranks.moments(double(obs))
        if self.moments.count == PRIOR and seen.size:
            self._start_far(seen)
            warn_of_small(seen)
        self.moments.merge(seen)
        note_far(self)

    @torch.no_grad()
    def _start_far(self, first: ranks.Moments) -> None:
        """Let far features start from the first batch."""
        far = first.mean.abs() > FAR
        self.moments.mean[far] = first.mean[far]
        self.moments.var[far] = first.var[far]


def warn_of_small(first: ranks.Moments) -> None:
    """Name a feature that varies, but too little to be seen; not in images, whose pixels may."""
    std = first.var.sqrt()
    varies = std > 1e-12 * first.mean.abs()  # beyond what float64 makes of a constant
    small = (varies & (std < LEAST_STD)).nonzero()
    if std.dim() == 1 and len(small):
        feature = int(small[0])
        warnings.warn(
            f"Feature {feature} of the observations varies by {float(std[feature]):.1g} only: a "
            f"bonus takes what varies by less than {LEAST_STD:g} for constant. Multiply it if it "
            "matters.",
            stacklevel=2,
        )


def note_far(whitener: Any, _: Any = None) -> None:
    """Note whether any mean is far from zero: after an update, and after a state was loaded."""
    whitener.is_far = bool((whitener.moments.mean.abs() > FAR).any())


class ObsScale(nn.Module):
    """x -> factor * x + offset, fixed.

    For observations whose size means something, such as MiniGrid's small integers.
    """

    def __init__(self, factor: float, offset: float = 0.0) -> None:
        super().__init__()
        self.factor = factor
        self.offset = offset

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *shape) to float32 of the same shape."""
        return obs.float() * self.factor + self.offset

    def update(self, obs: Tensor) -> None:
        """Nothing to learn."""


class RewardScaler(Statistics):
    """Divide by the running std of the discounted intrinsic return.

    Appendix C of the paper, after Burda et al. (2018). The return is filtered forward in time, per
    environment. It is never reset: not at episode ends, not between rollouts. No mean is taken off.

    Surprises shrink while the networks learn, at first tenfold from one rollout to the next. A
    return that adds up rewards of different sizes spreads by that decline alone. With
    `follows_level` the returns are therefore measured in units of `level`, the mean size of the
    newest rewards, and the divisor is their std times the level. Otherwise the level stays 1. As
    long as the level falls fast, it is too high for the rewards that come next: what was measured
    until then is dropped, and the divisor is not `settled`.
    """

    filtered: Tensor
    level: Tensor
    seen: Tensor

    def __init__(
        self,
        num_envs: int,
        gamma: float,
        momentum: float | None = None,
        follows_level: bool = False,
    ) -> None:
        super().__init__()
        require(0 <= gamma < 1, "gamma", gamma, "in [0, 1)")
        self.gamma = gamma
        self.follows_level = follows_level
        least = 1
        start = 0.0
        if follows_level:
            least = LEVEL_STEPS
            start = 1 / (1 - gamma)  # the mean return of rewards whose mean is 1: no climb from 0
        self.moments = RunningMoments(momentum=momentum, least=least)
        filtered = torch.full((num_envs,), start, dtype=torch.float64, device=HOST)
        self.register_buffer("filtered", filtered)
        self.register_buffer("level", torch.ones((), dtype=torch.float64, device=HOST))
        # Steps that the level is the mean of.
        self.register_buffer("seen", torch.tensor(0, device=HOST))

    @property
    def std(self) -> Tensor:
        """The divisor: scalar, float64."""
        mean_return = 1 / (1 - self.gamma)  # of rewards whose mean is 1
        spread = (self.moments.var + 1e-8).sqrt()
        if not self.follows_level:
            return spread
        return self.level * spread.clamp(min=LEAST_SPREAD * mean_return)

    @property
    def settled(self) -> Tensor:
        """Whether enough steps were taken in for the divisor to mean anything: scalar, bool."""
        return self.moments.count >= LEVEL_STEPS

    def forward(self, reward: Tensor) -> Tensor:
        """Scale rewards of any shape with the statistics as they are.

        Nothing is paid before a reward above zero was taken in: its size means nothing yet.
        """
        scaled = (double(reward) / self.std).clamp(-MOST, MOST)
        return torch.where(self.level == 0, 0.0, scaled).float().to(reward.device)

    @torch.no_grad()
    def update(self, reward: Tensor, valid: Tensor, warmup: bool = False) -> None:
        """Take in the raw rewards (T, B) of one rollout, before they are scaled.

        A warm-up fills the filter and leaves the statistics alone. Otherwise its climb from zero,
        about a hundred steps, would be most of the spread that is ever measured.
        """
        reward = double(reward)
        valid = valid.to(reward.device)
        if self.follows_level:
            before = torch.where(self.seen > 0, self.level, 0.0)
            self._follow_level(reward[valid], warmup)
            if not self.settled and self.level < FALLING * before:
                self.moments.restart()
        if self.level == 0:
            return
        units = reward / self.level
        returns, last = discounted_filter(units, self.filtered, valid, self.gamma)
        self.filtered.copy_(last)
        if not warmup:
            self.moments.update(returns[valid])

    def _follow_level(self, reward: Tensor, warmup: bool) -> None:
        """The mean size of the newest rewards, (K,) and earlier ones if those are few.

        Those of a warm-up, from untrained networks, count only until there are others.
        """
        size = sum(ranks.everyones(len(reward)))
        if not size:
            return
        past = self.seen.clamp(max=max(0, LEVEL_STEPS - size))
        level = (self.level * past + ranks.total(reward.abs().sum())) / (past + size)
        self.level.copy_(level)
        self.seen.copy_(past + size)
        if warmup:
            self.seen.zero_()


class Standardiser(Statistics):
    """(r - m) / s, clipped, for replayed rewards (Ermolov and Sebe, 2020).

    Their returns have no order in time. m and s are exponential averages of the batches' means and
    standard deviations. Until there are as many batches as such an average spans, they are plain
    averages: otherwise the first batches, from untrained networks, would dominate for long.
    """

    mean: Tensor
    spread: Tensor
    batches: Tensor

    def __init__(self, momentum: float = 0.999, clip: float = 10.0) -> None:
        super().__init__()
        self.momentum = momentum
        self.clip = clip
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64, device=HOST))
        self.register_buffer("spread", torch.zeros((), dtype=torch.float64, device=HOST))
        self.register_buffer("batches", torch.tensor(0, device=HOST))

    @property
    def std(self) -> Tensor:
        """The divisor: scalar, float64."""
        return self.spread.clamp(min=1e-8)

    def forward(self, reward: Tensor) -> Tensor:
        """Standardise rewards of any shape; zero before anything is known."""
        scaled = ((double(reward) - self.mean) / self.std).clamp(-self.clip, self.clip)
        return torch.where(self.batches > 0, scaled, 0.0).float().to(reward.device)

    @torch.no_grad()
    def update(self, reward: Tensor) -> None:
        """Take in the raw rewards (K,) of one batch."""
        if not len(reward):
            return
        reward = double(reward)
        keep = min(self.momentum, 1 - 1 / (int(self.batches) + 1))
        self.mean.copy_(keep * self.mean + (1 - keep) * reward.mean())
        self.spread.copy_(keep * self.spread + (1 - keep) * reward.std(correction=0))
        self.batches += 1
