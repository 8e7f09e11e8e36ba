"""Pay only for what resembles something seen before: noise resembles nothing, not even other noise.

A reservoir holds observations of the last rollouts. For each new one, d_1 is the distance to the
nearest of them, d_k the distance within which an eighth of them lie, d_mean the mean distance, and

    rho = 1 - d_1 / d_mean        local rho = 1 - d_1 / d_k

say how well it is recognised. A sight that recurs has a near neighbour: both are close to 1. A rare
or first sight of something real still resembles some sights more than others. Independent noise in
many dimensions is about equally far from everything. Each rho alone can be wrong: grey noise is
nearer to noise than to real images, and a new thing before a usual background is equally far from
an eighth of all sights. A sight is paid that either of them recognises. Nothing has to be learnt,
so noise does not pay at the start either.

What is not recognised is kept apart, as `odd` points, and d_1 is the distance to the others.
Otherwise noise that has become rare would be near to the little other noise in the reservoir, and
count as recognised. To be recognised by an odd point, a sight must be twice as near to it: noise is
not, but a new place that was odd at first is near to its own earlier sights. The first points have
nothing to be compared with but each other.

What is not recognised is not remembered, either. Otherwise M would recall noise when it is asked
about the next real sight, W could not rebuild that, and the sight would be novel again: an agent
would turn the TV on to make the world around it new. Nor does it take a slot of M, or as many such
steps as M has slots would make M forget the episode.

Not resisted: noise that repeats itself (a TV with a few channels, or one that replays real frames)
is recognised. It is the memory's business to find a repeat less novel.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import require, require_between
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import double
from surprise_memory.stages.base import Columns, Stage, Steps

GOLDEN = 0.6180339887498949  # its multiples modulo 1 spread evenly, however many there are
PROJECTED = 1024  # numbers that stand for an observation of more than twice as many
QUANTILE = 0.9  # of rho in a rollout: what is recognised well here
NEIGHBOURS = 0.125  # share of the reservoir that d_k spans
SAMPLE = 256  # points that d_k is estimated from: sorting all of them takes long
SAME = 0.1  # of the mean distance: closer than this, distances say nothing
ODD = 0.25  # of the reservoir's size: how many odd points are kept
NEARER = 2.0  # times as near as a usual point: what recognises a sight by an odd one


@dataclass(frozen=True)
class RecogniseConfig:
    """What counts as recognised."""

    reservoir: int = 2048
    """Past observations that new ones are compared with."""
    turnover: float = 0.125
    """Share of the reservoir that each rollout replaces."""
    threshold: float = 0.45
    """rho at which half is paid, as a share of its running 90 % quantile."""
    local_threshold: float = 0.25
    """The same for the local rho."""
    temperature: float = 0.02
    """Width of both thresholds."""
    withhold: bool = True
    """Whether the memory neither keeps nor learns what is not recognised."""


class Recognise(Stage):
    """reward * sigmoid((rho - threshold) / temperature), with the rho that is further above."""

    uses = ("next_obs",)
    filters = True
    logged = ("rho", "local_rho", "recognised")

    points: Tensor
    odd: Tensor
    kept: Tensor
    added: Tensor
    usual: Tensor
    thresholds: Tensor

    def __init__(self, shape: tuple[int, ...], config: RecogniseConfig) -> None:
        super().__init__()
        c = config
        self.config = config
        require_between("recognise.reservoir", c.reservoir, 2, 1_000_000)
        require(0 < c.turnover <= 1, "recognise.turnover", c.turnover, "above 0 and at most 1")
        for name in ("threshold", "local_threshold"):
            value = getattr(c, name)
            require(0 < value < 1, f"recognise.{name}", value, "between 0 and 1")
        require(c.temperature > 0, "recognise.temperature", c.temperature, "above 0")
        size = torch.Size(shape).numel()
        width = size
        projection = torch.zeros(0, device="cpu")
        if size > 2 * PROJECTED:
            # A random projection keeps distances (Johnson and Lindenstrauss); images become small.
            width = PROJECTED
            projection = torch.randn(size, width, device="cpu") / width**0.5
        self.register_buffer("projection", projection)
        self.register_buffer("points", torch.zeros(c.reservoir, width, device="cpu"))
        self.register_buffer(
            "odd", torch.zeros(max(1, int(ODD * c.reservoir)), width, device="cpu")
        )
        # Points that ever came into each of the two; the second number is that of the odd ones.
        self.register_buffer("kept", torch.zeros(2, dtype=torch.int64, device="cpu"))
        self.filled = (0, 0)  # on the host, so that asking need not wait for a device
        self.register_load_state_dict_post_hook(note_filled)
        self.register_buffer("added", torch.tensor(0, device="cpu"))  # rollouts
        # Both rho of what is well recognised.
        self.register_buffer("usual", torch.ones(2, device="cpu"))
        thresholds = torch.tensor([c.threshold, c.local_threshold], device="cpu")
        self.register_buffer("thresholds", thresholds, persistent=False)

    @torch.no_grad()
    def prepare(self, seen: Columns) -> Columns:
        """The observation as one point (K, width), and its two rho (K, 2)."""
        point = seen["next_obs"].flatten(1)
        projection = self.get_buffer("projection")
        if len(projection):
            point = point @ projection
        usual, odd = self.filled
        rho = point.new_ones(len(point), 2)
        if usual:  # before the first rollout nothing can be recognised
            rho = recognised(point, self.points[:usual], self.odd[:odd])
        return {"point": point, "rho": rho}

    def above(self, inputs: Columns) -> Tensor:
        """How far (K,) the better rho is above its threshold."""
        above: Tensor = inputs["rho"] / self.usual.clamp(min=1e-3) - self.thresholds
        return above.amax(1)

    @torch.no_grad()
    def remembers(self, inputs: Columns) -> Tensor | None:
        """What is recognised, unless `withhold` is off."""
        if not self.config.withhold:
            return None
        return self.above(inputs) > 0

    @torch.no_grad()
    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """Full pay for what is recognised, next to none for what is not."""
        share = torch.sigmoid(self.above(inputs) / self.config.temperature)
        share = share.unflatten(0, reward.shape)
        rho = inputs["rho"]
        record = {
            "point": inputs["point"].unflatten(0, reward.shape),
            "rho": rho[:, 0].unflatten(0, reward.shape),
            "local_rho": rho[:, 1].unflatten(0, reward.shape),
            "recognised": share,
        }
        return reward * share, record, None

    @torch.no_grad()
    def update(self, record: Columns, valid: Tensor, warmup: bool) -> None:
        """Replace the oldest points by an even spread of the steps that happened."""
        chosen = self._choose(valid)
        if not len(chosen):
            return
        points = rows_of_all(record["point"], chosen)
        is_odd = rows_of_all(record["recognised"], chosen) < 0.5
        if self.added == 0:
            is_odd = self.above({"rho": among_each_other(points)}) < 0
        self.kept[0] += put(points[~is_odd], self.points, self.kept[0])
        self.kept[1] += put(points[is_odd], self.odd, self.kept[1])
        note_filled(self)
        if self.added > 0:  # before, nothing was compared
            both = torch.stack([record["rho"][valid], record["local_rho"][valid]])
            self.usual.lerp_(ranks.gather(both, dim=1).quantile(QUANTILE, dim=1), 0.1)
        self.added += 1

    def _choose(self, valid: Tensor) -> Tensor:
        """An even spread of the steps (T, B) that happened, as rows (K,) of all ranks' together."""
        happened = ranks.gather(valid, dim=1)
        rows = happened.flatten().nonzero().squeeze(1)
        number = max(1, int(len(self.points) * self.config.turnover))
        if number >= len(rows):  # a spread would hit some of them twice, and others never
            return rows
        numbers = torch.arange(number, device=rows.device) + self.added * number
        spread = (double(numbers + 1) * GOLDEN) % 1
        return rows[(spread * len(rows)).long().to(rows.device)]


def put(new: Tensor, ring: Tensor, kept: Tensor) -> int:
    """Replace the oldest of a ring by new points (K, d), after `kept` others; returns K."""
    place = (kept + torch.arange(len(new), device=ring.device)) % len(ring)
    newest = slice(-len(ring), None)  # more than fit would compete for places
    ring[place[newest]] = new[newest]
    return len(new)


def note_filled(stage: Any, _: Any = None) -> None:
    """Note how many points there are of each kind: after an update, and after a load."""
    usual, odd = stage.kept.tolist()
    stage.filled = (min(usual, len(stage.points)), min(odd, len(stage.odd)))


def rows_of_all(column: Tensor, rows: Tensor) -> Tensor:
    """Rows (K,) of the flattened (T, B, ...) that all ranks' columns (T, B of each, ...) are."""
    if ranks.world() == 1:
        return column.flatten(0, 1)[rows]
    sizes = ranks.everyones(column.shape[1])
    t = rows // sum(sizes)
    b = rows % sum(sizes) - sum(sizes[: ranks.rank()])
    own = (b >= 0) & (b < column.shape[1])
    found = column.new_zeros(len(rows), *column.shape[2:])
    found[own] = column[t[own], b[own]]
    return ranks.total(found)


def recognised(point: Tensor, usual: Tensor, odd: Tensor, block: int = 512) -> Tensor:
    """Both rho (K, 2) of points (K, d) among usual (R, d) and odd ones: plain, and local."""
    step = max(1, (len(usual) + len(odd)) // SAMPLE)
    found = []
    for some in point.split(block):
        to_usual = torch.cdist(some, usual)
        to_odd = torch.cdist(some, odd)
        distance = torch.cat([to_usual, to_odd], 1)
        mean = distance.mean(1).clamp(min=1e-8)
        rho, local = both_rho(to_usual.amin(1), mean, distance[:, ::step])
        if len(odd):
            rho = torch.maximum(rho, 1 - NEARER * to_odd.amin(1) / mean)
        found.append(torch.stack([rho, local], 1))
    return torch.cat(found)


def among_each_other(points: Tensor) -> Tensor:
    """Both rho (K, 2) of points (K, d), each among the others."""
    number = len(points)
    if number == 1:
        return points.new_ones(1, 2)
    others = ~torch.eye(number, dtype=torch.bool, device=points.device)
    distance = torch.cdist(points, points)[others].view(number, number - 1)
    mean = distance.mean(1).clamp(min=1e-8)
    return torch.stack(both_rho(distance.amin(1), mean, distance), 1)


def both_rho(nearest: Tensor, mean: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """Rho (K,) and local rho (K,) from d_1, d_mean and the distances (K, S) that d_k is one of."""
    around = sample.kthvalue(max(1, int(NEIGHBOURS * sample.shape[1])), dim=1).values
    # The usual sights fill a whole neighbourhood: both distances are zero there.
    around = torch.maximum(around, SAME * mean)
    return 1 - nearest / mean, 1 - nearest / around
