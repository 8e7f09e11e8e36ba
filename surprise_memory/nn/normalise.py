"""Running statistics: the whitening of observations and the scale of the intrinsic reward.

All statistics are float64 and part of the state_dict. Only `update` moves them.
"""

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn.returns import discounted_filter

FAR = 1000.0  # from zero: beyond bytes, where the prior and float32 would spoil the whitening
PRIOR = 1e-4  # observations that the prior, mean 0 and variance 1, counts as; as in the RND code


class RunningMoments(nn.Module):
    """Mean and variance of everything seen, merged batch by batch without loss (Chan et al.)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = (), momentum: float | None = None) -> None:
        """`momentum` caps the past's weight at momentum / (1 - momentum) batches."""
        super().__init__()
        allowed = "between 0 and 1, or None for all of the past"
        require(momentum is None or 0 < momentum < 1, "scale_momentum", momentum, allowed)
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(PRIOR, dtype=torch.float64))

    @torch.no_grad()
    def update(self, batch: Tensor) -> None:
        """Take in a batch (K, *shape); an empty one changes nothing."""
        if batch.shape[0] == 0:
            return
        batch = batch.double()
        size = batch.shape[0]
        past = self.count
        if self.momentum is not None:
            past = past.clamp(max=size * self.momentum / (1 - self.momentum))
        total = past + size
        delta = batch.mean(0) - self.mean
        spread = self.var * past + batch.var(0, correction=0) * size
        spread = spread + delta**2 * past * size / total
        self.mean.copy_(self.mean + delta * size / total)
        self.var.copy_(spread / total)
        self.count.copy_(total)


class ObsWhitener(nn.Module):
    """x -> clip((x - mean) / std, +-5) per feature. For generators, never for the policy.

    A feature whose first values lie far from zero starts from them instead of from the prior: at an
    offset of 1e7 the prior would add 1e14 to a sum of squares, and hide a spread of 1 for ever.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = 5.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *shape) to float32 of the same shape."""
        mean = self.moments.mean
        std = (self.moments.var + 1e-8).sqrt().float()
        if bool((mean.abs() > FAR).any()):
            centred = (obs.double() - mean).float()  # float32 would round away what varies
        else:
            centred = obs.float() - mean.float()
        return (centred / std).clamp(-self.clip, self.clip)

    def update(self, obs: Tensor) -> None:
        """Take in (K, *shape) observations."""
        if self.moments.count == PRIOR and len(obs):
            self._start_far(obs.double())
        self.moments.update(obs)

    @torch.no_grad()
    def _start_far(self, first: Tensor) -> None:
        """Let far features start from the first batch (K, *shape)."""
        mean = first.mean(0)
        far = mean.abs() > FAR
        self.moments.mean[far] = mean[far]
        self.moments.var[far] = first.var(0, correction=0)[far]


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


class RewardScaler(nn.Module):
    """Divide by the running std of the discounted intrinsic return.

    Appendix C of the paper, after Burda et al. (2018). The return is filtered forward in time, per
    environment. It is never reset: not at episode ends, not between rollouts. No mean is subtracted
    and nothing is clipped.
    """

    filtered: Tensor

    def __init__(self, num_envs: int, gamma: float, momentum: float | None = None) -> None:
        super().__init__()
        require(0 <= gamma < 1, "gamma", gamma, "in [0, 1)")
        self.gamma = gamma
        self.moments = RunningMoments(momentum=momentum)
        self.register_buffer("filtered", torch.zeros(num_envs, dtype=torch.float64))

    @property
    def std(self) -> Tensor:
        """The divisor: scalar, float64."""
        return (self.moments.var + 1e-8).sqrt()

    def forward(self, reward: Tensor) -> Tensor:
        """Scale rewards of any shape with the statistics as they are."""
        return (reward.double() / self.std).float()

    @torch.no_grad()
    def update(self, reward: Tensor, valid: Tensor, warmup: bool = False) -> None:
        """Take in the raw rewards (T, B) of one rollout, before they are scaled.

        A warm-up fills the filter and leaves the statistics alone. Otherwise its climb from zero,
        about a hundred steps, would be most of the spread that is ever measured.
        """
        returns, last = discounted_filter(reward.double(), self.filtered, valid, self.gamma)
        self.filtered.copy_(last)
        if not warmup:
            self.moments.update(returns[valid])


class Standardiser(nn.Module):
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
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("spread", torch.zeros((), dtype=torch.float64))
        self.register_buffer("batches", torch.tensor(0))

    @property
    def std(self) -> Tensor:
        """The divisor: scalar, float64."""
        return self.spread.clamp(min=1e-8)

    def forward(self, reward: Tensor) -> Tensor:
        """Standardise rewards of any shape; zero before anything is known."""
        scaled = ((reward.double() - self.mean) / self.std).clamp(-self.clip, self.clip)
        return torch.where(self.batches > 0, scaled, 0.0).float()

    @torch.no_grad()
    def update(self, reward: Tensor) -> None:
        """Take in the raw rewards (K,) of one batch."""
        if not len(reward):
            return
        keep = min(self.momentum, 1 - 1 / (int(self.batches) + 1))
        self.mean.copy_(keep * self.mean + (1 - keep) * reward.double().mean())
        self.spread.copy_(keep * self.spread + (1 - keep) * reward.double().std(correction=0))
        self.batches += 1
