"""No generator: the method `none`, which pays zero. The baseline of every comparison."""

import torch
from torch import Tensor

from surprise_memory.surprise.base import Inputs, Surprise


class Nothing(Surprise):
    """u = 0, and nothing to learn."""

    n = 1

    def forward(self, inputs: Inputs) -> Tensor:
        """Zeros (K, 1)."""
        return inputs["next_obs"].new_zeros(len(inputs["next_obs"]), 1)

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """None."""
        return self(inputs), {}
