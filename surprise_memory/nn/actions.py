"""Action spaces as numbers, for generators and stages that model actions."""

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional as F

from surprise_memory.errors import UserError
from surprise_memory.nn.nets import weighted_mean


class Actions:
    """An action space as numbers: `width` of them, Discrete one-hot, Box scaled by its bounds to about one."""

    def __init__(self, space: Space[Any] | None) -> None:
        if space is None:
            raise UserError(
                "This generator models actions: pass action_space, such as envs.single_action_space, to Bonus."
            )
        self.discrete = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.width, self.first = int(space.n), int(space.start)
        elif isinstance(space, spaces.Box) and len(space.shape) == 1:
            self.width = int(space.shape[0])
            width = space.high.astype(np.float64) - space.low
            bounded = (width > 0) & (width < 1e30)
            half, low = np.where(bounded, width / 2, 1.0), np.where(bounded, space.low, -1.0)
            self.half, self.middle = (
                torch.as_tensor(x, dtype=torch.float32) for x in (half, low + half)
            )
            self.low, self.high = (
                torch.as_tensor(x, dtype=torch.float32) for x in (space.low, space.high)
            )
        else:
            raise UserError(
                f"This generator models Discrete and one-dimensional Box actions, this environment has {space}."
            )

    def encode(self, action: Tensor) -> Tensor:
        """(K,) or (K, A) actions to (K, A) floats."""
        if self.discrete:
            return F.one_hot(action.long() - self.first, self.width).float()
        return (action.float().clamp(self.low, self.high) - self.middle) / self.half

    def inverse_loss(self, guess: Tensor, action: Tensor, weight: Tensor | None = None) -> Tensor:
        """How badly (K, A) outputs tell the encoded action (K, A), each row counting `weight` (K,).

        Cross-entropy for Discrete actions, squared error for Box.
        """
        if not self.discrete:
            return weighted_mean((guess - action).square().sum(1), weight)
        if weight is None:
            return F.cross_entropy(guess, action)
        return weighted_mean(F.cross_entropy(guess, action, reduction="none"), weight)
