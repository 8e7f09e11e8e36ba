"""Pay only the excess over the bonus that was to be expected from state and action.

Noise is new every time, so the memory of an episode never holds it. But *that* it is new is no
news: an agent that turns on the TV can predict how novel the next frame will look. A small network
learns E[r | s, a], and max(r - E, 0) is paid. A first sight in an episode still stands out, because
the network does not know what the episode has already shown.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import flat, in_pieces, mlp, weighted_mean
from surprise_memory.stages.base import Columns, Stage, Steps

WIDTH = 128


@dataclass(frozen=True)
class ExpectConfig:
    """The expected bonus."""

    lr: float = 5e-3
    """Learning rate of the expectation."""


class Expect(Stage):
    """E[r | s, a] by least squares; the reward is what exceeds it."""

    uses = ("obs", "action")
    logged: tuple[str, ...] = ("expected",)

    def __init__(self, shape: tuple[int, ...], actions: Actions, config: ExpectConfig) -> None:
        super().__init__()
        require(config.lr > 0, "expect.lr", config.lr, "above 0")
        self.lr = config.lr
        self.encoder, width = flat(shape, WIDTH)
        self.net = mlp([width + actions.width, WIDTH, WIDTH, 1], nn.LeakyReLU)

    def expected(self, inputs: Columns) -> Tensor:
        """E[r | s, a] (K,) of normalised states (K, *shape) and encoded actions (K, A)."""
        x = torch.cat([self.encoder(inputs["obs"]), inputs["action"]], 1)
        expected: Tensor = self.net(x).squeeze(1)
        return expected

    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """max(r - E, 0)."""
        expected = in_pieces(self.expected, inputs).unflatten(0, reward.shape)
        record = {"found": reward, "expected": expected}
        return (reward - expected).clamp(min=0), record, None

    def losses(
        self, inputs: Columns, record: Columns, weight: Tensor | None, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """Squared error against the bonus that was found."""
        error = self.expected(inputs) - record["found"]
        return {"expect": weighted_mean(error.square(), weight)}
