"""Action spaces as numbers, for generators and stages that model actions."""

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.errors import UserError
from surprise_memory.nn.nets import weighted_mean


class Actions(nn.Module):
    """An action space as `width` numbers: Discrete one-hot, Box scaled by its bounds to [-1, 1]."""

    low: Tensor
    high: Tensor
    radius: Tensor
    middle: Tensor

    def __init__(self, space: Space[Any] | None) -> None:
        super().__init__()
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
            radius = np.where(bounded, width / 2, 1.0)
            # Unbounded actions pass as they are.
            middle = np.where(bounded, space.low, -1.0) + radius
            bounds = {"low": space.low, "high": space.high, "radius": radius, "middle": middle}
            for name, values in bounds.items():
                buffer = torch.as_tensor(values, dtype=torch.float32, device="cpu")
                self.register_buffer(name, buffer.clone(), persistent=False)
        else:
            raise UserError(
                "This generator models Discrete and one-dimensional Box actions, "
                f"this environment has {space}."
            )

    def encode(self, action: Tensor) -> Tensor:
        """(K,) or (K, A) actions to (K, A) floats."""
        if self.discrete:
            return F.one_hot(action.long() - self.first, self.width).float()
        return (action.float().clamp(self.low, self.high) - self.middle) / self.radius

    def inverse_loss(self, guess: Tensor, action: Tensor, weight: Tensor | None = None) -> Tensor:
        """How badly outputs (K, A) predict encoded actions (K, A); `weight` (K,) weighs the rows.

        Cross-entropy for Discrete actions, squared error for Box.
        """
        if not self.discrete:
            return weighted_mean((guess - action).square().sum(1), weight)
        if weight is None:
            return F.cross_entropy(guess, action)
        return weighted_mean(F.cross_entropy(guess, action, reduction="none"), weight)
