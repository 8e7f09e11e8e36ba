"""How much bonus was to be expected here? What is paid beyond that is news; the rest is the habit of a place or an action.

Noise is new every time, so a memory of this episode never has it; but *that* it is new is no news: who turns on the
television can tell beforehand how novel it will look. A small network learns E[e | s, a], and only the excess max(e - E, 0)
is paid. A first sight in an episode still stands out: the network does not know what the episode has already shown.
"""

import torch
from torch import Tensor, nn

from surprise_memory.nn.nets import is_image, mlp
from surprise_memory.surprise.base import Actions, encoder

WIDTH = 128


class Expectation(nn.Module):
    """E[e | s, a] by least squares, from the normalised state and the action as numbers."""

    def __init__(self, shape: tuple[int, ...], actions: Actions) -> None:
        super().__init__()
        self.look: nn.Module = nn.Identity()
        width = shape[0]
        if is_image(shape):
            self.look, width = (
                nn.Sequential(encoder(shape, [], WIDTH, nn.LeakyReLU), nn.ReLU()),
                WIDTH,
            )
        self.net = mlp([width + actions.width, WIDTH, WIDTH, 1], nn.ReLU)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """(K, *shape) and (K, A) to (K,)."""
        expected: Tensor = self.net(torch.cat([self.look(obs), action], 1)).squeeze(1)
        return expected

    def loss(self, obs: Tensor, action: Tensor, e: Tensor) -> Tensor:
        """Mean squared error against the bonus e (K,) that was found."""
        error: Tensor = self(obs, action) - e
        return error.square().mean()
