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
    """An action space as `width` numbers: choices one-hot, Box scaled by its bounds to [-1, 1].

    Discrete is one choice, MultiDiscrete one on each axis. `choices` is what each begins at and how
    many there are; a Box has none.
    """

    low: Tensor
    high: Tensor
    radius: Tensor
    middle: Tensor

    def __init__(self, space: Space[Any] | None) -> None:
        super().__init__()
        if space is None:
            raise UserError(
                "This method models actions: pass an action_space to Bonus, such as "
                "envs.single_action_space."
            )
        self.choices: list[tuple[int, int]] = []
        self.shape: tuple[int, ...] = ()  # of one action
        if isinstance(space, spaces.Discrete):
            self.choices = [(int(space.start), int(space.n))]
        elif isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
            self.choices = list(zip(space.start.tolist(), space.nvec.tolist(), strict=True))
            self.shape = space.shape
        elif isinstance(space, spaces.Box) and len(space.shape) == 1:
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
                "This method models Discrete, MultiDiscrete and Box actions of one axis, "
                f"this environment has {space}. Choose one that models none, such as "
                "rnd+sm+recognise."
            )
        self.counts = [count for _, count in self.choices]
        self.width = sum(self.counts) if self.choices else sum(self.shape)

    def encode(self, action: Tensor) -> Tensor:
        """(K,) or (K, A) actions to (K, A) floats."""
        if self.choices:
            columns = action.long().reshape(len(action), len(self.choices)).unbind(1)
            hot = []
            for column, (first, count) in zip(columns, self.choices, strict=True):
                hot.append(F.one_hot(column - first, count).float())
            return torch.cat(hot, 1)
        return (action.float().clamp(self.low, self.high) - self.middle) / self.radius

    def inverse_loss(self, guess: Tensor, action: Tensor, weight: Tensor | None = None) -> Tensor:
        """How badly outputs (K, A) predict encoded actions (K, A); `weight` (K,) weighs the rows.

        Cross-entropy for choices, added up over the axes, and squared error for Box.
        """
        if not self.choices:
            return weighted_mean((guess - action).square().sum(1), weight)
        losses = []
        parts = zip(guess.split(self.counts, 1), action.split(self.counts, 1), strict=True)
        for logits, told in parts:
            if weight is None:
                losses.append(F.cross_entropy(logits, told))
            else:
                each = F.cross_entropy(logits, told, reduction="none")
                losses.append(weighted_mean(each, weight))
        return torch.stack(losses).sum()
