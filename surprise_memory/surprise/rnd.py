"""Random network distillation (Burda et al., 2018): how badly do I predict a random network?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require_width
from surprise_memory.nn.nets import conv, freeze, is_image, mlp, orthogonal
from surprise_memory.surprise.base import Inputs, Surprise


@dataclass(frozen=True)
class RNDConfig:
    """Random network distillation."""

    n: int = 64
    """Width of the surprise; 512 in the paper."""
    hidden: int = 512
    """Width of the hidden layers."""


class RND(Surprise):
    """u = P(s) - f(s): P learns, f is random and frozen. Both see the whitened successor state.

    Vectors: both are 3 linear layers with tanh between them. Images: both are the Nature
    convolutions with leaky ReLU; the predictor has two more hidden layers, so that it can fit any
    target.
    """

    def __init__(self, shape: tuple[int, ...], config: RNDConfig) -> None:
        super().__init__()
        require_width("rnd.n", config.n)
        require_width("rnd.hidden", config.hidden)
        n = config.n
        h = config.hidden
        self.n = n
        if is_image(shape):
            net, width = conv(shape, nn.LeakyReLU)
            self.predictor: nn.Module = nn.Sequential(net, mlp([width, h, h, n], nn.ReLU))
            net, _ = conv(shape, nn.LeakyReLU)
            self.target = freeze(nn.Sequential(net, orthogonal(nn.Linear(width, n))))
        else:
            (width,) = shape
            self.predictor = mlp([width, h, h, n], nn.Tanh)
            self.target = freeze(mlp([width, h, h, n], nn.Tanh))

    @torch.no_grad()
    def prepare(self, seen: Inputs) -> Inputs:
        """The successor state as seen, and its frozen features."""
        return {"state": seen["next_obs"], "target": self.target(seen["next_obs"])}

    def forward(self, inputs: Inputs) -> Tensor:
        """u_t (K, n), equation 1."""
        u: Tensor = self.predictor(inputs["state"]) - inputs["target"]
        return u
