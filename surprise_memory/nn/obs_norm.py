"""How observations are normalised before a generator sees them: whitened, or by a fixed scale."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from surprise_memory.nn import ranks
from surprise_memory.nn.devices import double
from surprise_memory.nn.moments import PRIOR, RunningMoments

FAR = 1000.0  # from zero: beyond bytes, where the prior and float32 would spoil the whitening
LEAST_STD = 1e-4  # of an observation's feature: what varies by less counts as constant


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
