"""The scale of the intrinsic reward: of rollouts, in order of time, and of replayed steps."""

import torch
from torch import Tensor

from surprise_memory.errors import require
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import HOST, double
from surprise_memory.nn.moments import RunningMoments, Statistics
from surprise_memory.nn.returns import discounted_filter

LEVEL_STEPS = 4096  # newest steps that say how large a reward is
LEAST_SPREAD = 0.1  # of the intrinsic return, in its mean: what hardly varies is not blown up
FALLING = 0.85  # of the level before a rollout: below this, surprises have not settled
MOST = 10.0  # paid for one step; a usual return is about 1


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
        # A short window never holds as many.
        return self.moments.count >= min(LEVEL_STEPS, self.moments.most_past(LEVEL_STEPS))

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
