"""The autoencoder baseline: how badly can I reconstruct this state?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require_width
from surprise_memory.nn.nets import encoder, freeze, is_image, mlp
from surprise_memory.surprise.base import Inputs, Surprise


@dataclass(frozen=True)
class AEConfig:
    """Autoencoder."""

    n: int = 64
    """Width of an image's embedding and of its surprise; a vector is its own embedding."""
    hidden: int = 512
    """Width of the hidden layers."""


class AE(Surprise):
    """u = AE(x) - x. x is the whitened vector, or a frozen random encoder's view of the image.

    The embedding must not learn: it would become constant, which is easy to reconstruct.
    """

    def __init__(self, shape: tuple[int, ...], config: AEConfig) -> None:
        super().__init__()
        require_width("ae.n", config.n)
        require_width("ae.hidden", config.hidden)
        if is_image(shape):
            self.n = config.n
            self.embed = freeze(encoder(shape, [], config.n, nn.LeakyReLU))
        else:
            (self.n,) = shape
            self.embed = nn.Identity()
        self.autoencoder = mlp([self.n, config.hidden, config.hidden, self.n], nn.Tanh)

    @torch.no_grad()
    def prepare(self, seen: Inputs) -> Inputs:
        """The successor state's embedding x (K, n)."""
        return {"x": self.embed(seen["next_obs"])}

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n)."""
        u: Tensor = self.autoencoder(inputs["x"]) - inputs["x"]
        return u
