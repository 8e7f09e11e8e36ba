"""What would remembering save? The novelty now, minus the novelty if M held this very surprise.

    gain = e - e_2,    e_2 = |W([u Q V, u]) - [u Q V, u]|^power

W is trained on recalls that really happen. What never recurs is never recalled, so W never learns
to rebuild it from its recall: remembering it would save nothing. A first sight of something that
recurs would be recognised. "If the agent meets the same surprise at two time steps, its surprise
novelty should decline": this is paid (`gain`), or used to tell kinds of sights apart (`gate`).

Single gains fluctuate around their mean, and the positive half of the fluctuations would be paid.
The gate therefore asks about the *kind* of sight: a small network learns E[gain / e | s'], and the
novelty passes unless that is clearly below zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn.nets import flat, in_pieces, mlp, weighted_mean
from surprise_memory.stages.base import Columns, Stage, Steps

WIDTH = 128


@dataclass(frozen=True)
class GateConfig:
    """The gate by what remembering would save."""

    temperature: float = 0.01
    """Width of the gate, in shares of the novelty."""
    margin: float = 0.2
    """Added to the expected gain: a kind whose gain is above minus this passes."""
    lr: float = 1e-3
    """Learning rate of the expected gain."""


class Gain(Stage):
    """The reward is the gain itself, signed: clipped at zero, it would pay noise's fluctuations."""

    asks_memory = True
    logged = ("gain",)

    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """The reward times (e - e_2) / e."""
        gain = relative_gain(steps)
        return reward * gain, {"gain": gain}, None


class Gate(Stage):
    """reward * sigmoid((E[gain / e | s'] + margin) / temperature)."""

    uses = ("next_obs",)
    filters = True
    asks_memory = True
    logged = ("gain", "gate")

    def __init__(self, shape: tuple[int, ...], config: GateConfig) -> None:
        super().__init__()
        require(config.temperature > 0, "gate.temperature", config.temperature, "above 0")
        require(config.lr > 0, "gate.lr", config.lr, "above 0")
        self.config = config
        self.lr = config.lr
        self.encoder, width = flat(shape, WIDTH)
        self.net = mlp([width, WIDTH, WIDTH, 1], nn.ReLU)
        output = self.net[-1]
        assert isinstance(output, nn.Linear)
        nn.init.zeros_(output.weight)  # every kind begins alike

    def expected(self, inputs: Columns) -> Tensor:
        """E[gain / e | s'] (K,)."""
        expected: Tensor = self.net(self.encoder(inputs["next_obs"])).squeeze(1)
        return expected

    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """Novelty of a kind that remembering helps with passes."""
        expected = in_pieces(self.expected, inputs).unflatten(0, reward.shape)
        gate = torch.sigmoid((expected + self.config.margin) / self.config.temperature)
        record = {"gain": known_gain(steps), "remembered": steps.remembered, "gate": gate}
        return reward * gate, record, None

    def losses(
        self, inputs: Columns, record: Columns, weight: Tensor | None, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """Squared error against the gain that was found, where there is one."""
        error = self.expected(inputs) - record["gain"]
        learns = record["remembered"].to(error.dtype)
        if weight is not None:
            learns = learns * weight
        return {"gate": weighted_mean(error.square(), learns)}


def relative_gain(steps: Steps) -> Tensor:
    """(e - e_2) / e (T, B)."""
    assert steps.e_if_remembered is not None
    return (steps.e - steps.e_if_remembered) / steps.e.clamp(min=1e-8)


def known_gain(steps: Steps) -> Tensor:
    """The relative gain within -1 and 1 (T, B), and 0 for steps that the memory was not shown.

    Of these it rebuilds nothing, and what remembering nothing would save says nothing of them.
    """
    return torch.where(steps.remembered, relative_gain(steps).clamp(-1, 1), 0.0)
