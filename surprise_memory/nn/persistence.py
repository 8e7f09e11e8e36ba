"""Which features of an observation are noise: those that carry nothing over to the next step.

A feature x of something real resembles itself one step later: its autocorrelation

    r = 1 - E[(x' - x)^2] / (2 Var x)

is clearly above zero. Fresh noise has r = 0 and changes at nearly every step. A rare event, such as
a lamp that flashes once in an episode, has r = 0 as well, but it hardly ever changes. A feature is
noise if |r| is small and it changes at more than half of the steps.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surprise_memory.nn import ranks
from surprise_memory.nn.devices import HOST, double
from surprise_memory.nn.moments import Statistics

ENOUGH = 4096  # pairs of steps: chance alone then leaves |r| below 0.016
SAMPLE = 1024  # pairs taken of a rollout: more would say little more, and images are large
CARRIED = 0.05  # |r| of a feature that carries something over; Dynamic-Obstacles' least is 0.06
CHANGES = 0.5  # share of steps at which noise changes at least; a TV that is sometimes on: 0.26
MOST = 0.5  # share of the features: if more look like noise, steps are independent altogether


class Persistence(Statistics):
    """Sets the features that are noise to zero. Only `update` moves its statistics."""

    reference: Tensor
    sums: Tensor
    pairs: Tensor
    keep: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        zero = torch.zeros(shape, dtype=torch.float64, device=HOST)
        self.register_buffer("reference", zero)  # the first mean: sums of squares stay small
        # Of x - reference, its square, (x' - x)^2 / 2, and whether x changed.
        self.register_buffer("sums", torch.stack([zero] * 4))
        self.register_buffer("pairs", torch.tensor(0, device=HOST))
        keep = torch.ones(shape, dtype=torch.float32, device=HOST)
        self.register_buffer("keep", keep, persistent=False)
        self.ignored = 0  # features; on the host, so that asking need not wait for a device
        self.register_load_state_dict_post_hook(decide)

    def forward(self, seen: Tensor) -> Tensor:
        """Normalised observations (..., *shape) without the features that are noise."""
        if not self.ignored:
            return seen
        return seen * self.keep.to(seen.device)

    @torch.no_grad()
    def update(self, obs: Tensor, next_obs: Tensor) -> None:
        """Take in pairs of observations (K, *shape), one step apart."""
        # Not every so many rows: where that divides the number of environments, one would be seen.
        spread = torch.linspace(0, len(obs) - 1, min(len(obs), SAMPLE), device=HOST)
        rows = spread.long().to(obs.device)
        a = double(obs[rows])
        b = double(next_obs[rows])
        if not self.pairs:
            self.reference.copy_(ranks.moments(b).mean)
        x = b - self.reference
        change = b - a
        sums = torch.stack(
            [x.sum(0), x.square().sum(0), change.square().sum(0) / 2, (change != 0).sum(0)]
        )
        self.sums += ranks.total(sums)
        self.pairs += sum(ranks.everyones(len(a)))
        decide(self)

    def autocorrelation(self) -> Tensor:
        """R of each feature (*shape); 1 for one that never varied."""
        mean, square, change, _ = self.sums / self.pairs.clamp(min=1)
        var = square - mean.square()
        return torch.where(var > 1e-12, 1 - change / var.clamp(min=1e-12), 1.0)

    def noise(self) -> Tensor:
        """Which features (*shape) are noise; none as long as little was seen."""
        changes = self.sums[3] / self.pairs.clamp(min=1)
        noise = (self.autocorrelation().abs() < CARRIED) & (changes > CHANGES)
        told = (self.pairs >= ENOUGH) & (noise.double().mean() <= MOST)
        return noise & told


def with_persistence(state: Any, module: nn.Module) -> Any:
    """A state_dict for a module; one from before there were these statistics has seen nothing."""
    if not isinstance(state, Mapping):
        return state
    for name, part in module.named_modules():
        if isinstance(part, Persistence) and not any(key.startswith(name) for key in state):
            fresh = Persistence(tuple(part.reference.shape))
            state = {**state, **fresh.state_dict(prefix=f"{name}.")}
    return state


def decide(persistence: Any, _: Any = None) -> None:
    """Which features are kept: after an update, and after a state was loaded."""
    noise = persistence.noise()
    persistence.keep.copy_(~noise)
    persistence.ignored = int(noise.sum())
