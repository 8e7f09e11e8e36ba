"""Running mean and variance, in float64.

They are part of the state_dict, and only `update` moves them. They stay on the host where a device
has no float64.
"""

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import HOST, double, float64_device

PRIOR = 1e-4  # rows that the prior, mean 0 and variance 1, counts as; as in the RND code


class Statistics(nn.Module):
    """Base of what holds float64."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move as any module does, but only to where there is float64, and never to float32."""
        target = float64_device(fn(torch.empty(0, device=HOST)).device)
        super()._apply(lambda x: x.to(target), recurse)
        return self


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

    def most_past(self, rows: int) -> float:
        """How many rows all of the past may count as, beside a batch of so many."""
        if self.momentum is None:
            return math.inf
        return rows * self.momentum / (1 - self.momentum)

    def update(self, batch: Tensor) -> None:
        """Take in a batch (K, *shape), all ranks' at once; an empty one changes nothing."""
        self.merge(ranks.moments(double(batch)))

    @torch.no_grad()
    def merge(self, batch: ranks.Moments) -> None:
        """Take in a batch by its moments."""
        size = batch.size
        if size == 0:
            return
        past = self.count.clamp(max=self.most_past(max(size, self.least)))
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
