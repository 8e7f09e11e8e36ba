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
    """An action space as `width` numbers: Discrete one-hot, Box scaled by its bounds to [-1, 1]."""

    def __init__(self, space: Space[Any] | None) -> None:
        if space is None:
            raise UserError(
                "This generator models actions: pass an action_space to Bonus, such as "
                "envs.single_action_space."
            )
        self.discrete = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.width = int(space.n)
            self.shape: tuple[int, ...] = ()  # of one action
            self.first = int(space.start)
        elif isinstance(space, spaces.Box) and len(space.shape) == 1:
            self.width = int(space.shape[0])
            self.shape = space.shape
            width = space.high.astype(np.float64) - space.low
            bounded = (width > 0) & (width < 1e30)
            half = np.where(bounded, width / 2, 1.0)
            middle = np.where(bounded, space.low, -1.0) + half  # unbounded actions pass as they are
            self.half = torch.as_tensor(half, dtype=torch.float32)
            self.middle = torch.as_tensor(middle, dtype=torch.float32)
            self.low = torch.as_tensor(space.low, dtype=torch.float32)
            self.high = torch.as_tensor(space.high, dtype=torch.float32)
        else:
            raise UserError(
                "This generator models Discrete and one-dimensional Box actions, "
                f"this environment has {space}."
            )

    def encode(self, action: Tensor) -> Tensor:
        """(K,) or (K, A) actions to (K, A) floats."""
        if self.discrete:
            return F.one_hot(action.long() - self.first, self.width).float()
        return (action.float().clamp(self.low, self.high) - self.middle) / self.half

    def inverse_loss(self, guess: Tensor, action: Tensor, weight: Tensor | None = None) -> Tensor:
        """How badly outputs (K, A) predict encoded actions (K, A); `weight` (K,) weighs the rows.

        Cross-entropy for Discrete actions, squared error for Box.
        """
        if not self.discrete:
            return weighted_mean((guess - action).square().sum(1), weight)
        if weight is None:
            return F.cross_entropy(guess, action)
        return weighted_mean(F.cross_entropy(guess, action, reduction="none"), weight)
