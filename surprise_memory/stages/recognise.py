"""Pay only for what resembles something seen before: noise resembles nothing, not even other noise.

A reservoir holds observations of the last rollouts. For each new one, d_min is the distance to the
nearest of them and d_mean the mean distance to all of them, and

    rho = 1 - d_min / d_mean

says how well it is recognised. A sight that recurs has a near neighbour, so rho is close to 1. A
rare or first sight of something real still resembles other sights: 0.4 to 0.7 on MiniGrid.
Independent noise in many dimensions is about as far from its nearest neighbour as from everything
else: 0.1. The reward is multiplied by sigmoid((rho - threshold) / temperature). Nothing has to be
learnt, so noise does not pay at the start either.

Not resisted: noise that repeats itself (a TV with a few channels, or one that replays real frames)
is recognised. It is the memory's business to find a repeat less novel.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from surprise_memory.errors import require, require_between
from surprise_memory.stages.base import Columns, Stage, Steps

GOLDEN = 0.6180339887498949  # its multiples modulo 1 spread evenly, however many there are
PROJECTED = 128  # numbers that stand for an observation of more than twice as many
QUANTILE = 0.9  # of rho in a rollout: what is recognised well here


@dataclass(frozen=True)
class RecogniseConfig:
    """What counts as recognised."""

    reservoir: int = 2048
    """Past observations that new ones are compared with."""
    turnover: float = 0.125
    """Share of the reservoir that each rollout replaces."""
    threshold: float = 0.3
    """rho at which half is paid, as a share of rho's running 90 % quantile."""
    temperature: float = 0.02
    """Width of the threshold, in rho."""


class Recognise(Stage):
    """reward * sigmoid((rho - threshold) / temperature)."""

    uses = ("next_obs",)
    filters = True
    logged = ("rho", "recognised")

    points: Tensor
    filled: Tensor
    added: Tensor
    usual: Tensor

    def __init__(self, shape: tuple[int, ...], config: RecogniseConfig) -> None:
        super().__init__()
        c = config
        self.config = config
        require_between("recognise.reservoir", c.reservoir, 2, 1_000_000)
        require(0 < c.turnover <= 1, "recognise.turnover", c.turnover, "above 0 and at most 1")
        require(0 < c.threshold < 1, "recognise.threshold", c.threshold, "between 0 and 1")
        require(c.temperature > 0, "recognise.temperature", c.temperature, "above 0")
        size = torch.Size(shape).numel()
        width = size
        projection = torch.zeros(0)
        if size > 2 * PROJECTED:
            # A random projection keeps distances (Johnson and Lindenstrauss); images become small.
            width = PROJECTED
            projection = torch.randn(size, width) / width**0.5
        self.register_buffer("projection", projection)
        self.register_buffer("points", torch.zeros(c.reservoir, width))
        self.register_buffer("filled", torch.tensor(0))
        self.register_buffer("added", torch.tensor(0))  # rollouts
        self.register_buffer("usual", torch.tensor(1.0))  # rho of what is well recognised

    @torch.no_grad()
    def prepare(self, seen: Columns) -> Columns:
        """The observation as one point (K, width)."""
        point = seen["next_obs"].flatten(1)
        projection = self.get_buffer("projection")
        if len(projection):
            point = point @ projection
        return {"point": point}

    @torch.no_grad()
    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """Full pay for what is recognised, next to none for what is not."""
        c = self.config
        point = inputs["point"].unflatten(0, reward.shape)
        known = self.points[: int(self.filled)]
        rho = torch.ones_like(reward)
        if len(known):  # before the first rollout nothing can be recognised
            rho = recognised(inputs["point"], known).unflatten(0, reward.shape)
        share = torch.sigmoid((rho - c.threshold * self.usual) / c.temperature)
        record = {"point": point, "rho": rho, "recognised": share}
        return reward * share, record, None

    @torch.no_grad()
    def update(self, record: Columns, valid: Tensor, warmup: bool) -> None:
        """Replace the oldest of the reservoir by an even spread of the steps that happened."""
        rows = record["point"][valid]
        if not len(rows):
            return
        size = len(self.points)
        number = min(len(rows), max(1, int(size * self.config.turnover)))
        spread = ((torch.arange(number) + 1 + self.added * number).double() * GOLDEN) % 1
        chosen = rows[(spread * len(rows)).long()]
        place = (torch.arange(number) + self.added * number) % size
        self.points[place] = chosen
        self.filled.copy_(torch.clamp(self.filled + number, max=size))
        if self.added > 0:  # before, nothing was compared
            now = record["rho"][valid].quantile(QUANTILE)
            self.usual.lerp_(now, 0.1)
        self.added += 1


def recognised(point: Tensor, known: Tensor, block: int = 2048) -> Tensor:
    """The rho (K,) of points (K, d) among known ones (R, d): 1 - nearest / mean distance."""
    found = []
    for some in point.split(block):
        distance = torch.cdist(some, known)
        found.append(1 - distance.amin(1) / distance.mean(1).clamp(min=1e-8))
    return torch.cat(found)
