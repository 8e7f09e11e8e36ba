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

The reservoir also keeps what was not recognised, and remembers that: such points are `odd`. A sight
whose neighbours are odd is compared with odd points alone. Among them, noise is as far from the
nearest as from all others, however rare it has become. Compared with everything, rare noise would
be near to the other noise. A new place that was odd at first is near to its own earlier sights, and
is recognised.

What is not recognised is not remembered, either. Otherwise M would recall noise when it is asked
about the next real sight, W could not rebuild that, and the sight would be novel again: an agent
would turn the TV on to make the world around it new.

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
VOTES = 8  # nearest points that say whether a sight is of the odd kind


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
    filled: Tensor
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
        # Whether a point was not recognised when it came.
        odd = torch.zeros(c.reservoir, dtype=torch.bool, device="cpu")
        self.register_buffer("odd", odd)
        self.any_odd = False  # on the host, so that asking need not wait for a device
        self.register_load_state_dict_post_hook(note_odd)
        self.register_buffer("filled", torch.tensor(0, device="cpu"))
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
        number = int(self.filled)
        rho = point.new_ones(len(point), 2)
        if number:  # before the first rollout nothing can be recognised
            odd = self.odd[:number] if self.any_odd else None
            rho = recognised(point, self.points[:number], odd)
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
        """Replace the oldest of the reservoir by an even spread of the steps that happened."""
        happened = ranks.gather(valid, dim=1)  # (T, B) of all ranks
        rows = happened.flatten().nonzero().squeeze(1)
        if not len(rows):
            return
        size = len(self.points)
        number = min(len(rows), max(1, int(size * self.config.turnover)))
        numbers = torch.arange(number, device=rows.device) + self.added * number
        spread = (double(numbers + 1) * GOLDEN) % 1
        chosen = rows[(spread * len(rows)).long().to(rows.device)]
        place = numbers % size
        self.points[place] = rows_of_all(record["point"], chosen)
        self.odd[place] = rows_of_all(record["recognised"], chosen) < 0.5
        note_odd(self)
        self.filled.copy_(torch.clamp(self.filled + number, max=size))
        if self.added > 0:  # before, nothing was compared
            both = torch.stack([record["rho"][valid], record["local_rho"][valid]])
            self.usual.lerp_(ranks.gather(both, dim=1).quantile(QUANTILE, dim=1), 0.1)
        self.added += 1


def note_odd(stage: Any, _: Any = None) -> None:
    """Note whether any point is odd: after an update, and after a state was loaded."""
    stage.any_odd = bool(stage.odd.any())


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


def recognised(point: Tensor, known: Tensor, odd: Tensor | None = None, block: int = 512) -> Tensor:
    """Both rho (K, 2) of points (K, d) among known ones (R, d): the plain one, the local one.

    Points with mostly odd neighbours are compared with odd points alone, if `odd` (R,) is given.
    """
    step = max(1, len(known) // SAMPLE)
    k = max(1, int(NEIGHBOURS * len(known[::step])))
    found = []
    for some in point.split(block):
        distance = torch.cdist(some, known)
        around = distance[:, ::step].kthvalue(k, dim=1).values
        rho = both_rho(distance.amin(1), distance.mean(1), around)
        if odd is not None:
            among_odd = rho_among(distance, odd)
            rho = torch.where(mostly_odd(distance, odd)[:, None], among_odd, rho)
        found.append(rho)
    return torch.cat(found)


def both_rho(nearest: Tensor, mean: Tensor, around: Tensor) -> Tensor:
    """(K, 2) from distances (K,): to the nearest, on average, and around a point."""
    mean = mean.clamp(min=1e-8)
    # The usual sights fill a whole neighbourhood: both distances are zero there.
    around = torch.maximum(around, SAME * mean)
    return torch.stack([1 - nearest / mean, 1 - nearest / around], 1)


def mostly_odd(distance: Tensor, odd: Tensor) -> Tensor:
    """Whether most of the nearest points are odd: (K,) bool, from distances (K, R)."""
    votes = min(VOTES, len(odd))
    nearest = distance.topk(votes, dim=1, largest=False).indices
    return odd[nearest].sum(1) * 2 > votes


def rho_among(distance: Tensor, odd: Tensor) -> Tensor:
    """Both rho (K, 2) among the odd points, the local one relative to the eighth of them.

    An eighth of all might reach beyond the noise, which is rare once nobody watches.
    """
    far = float("inf")
    votes = min(VOTES, len(odd))
    nearest = distance.masked_fill(~odd, far).topk(votes, dim=1, largest=False).values
    around = nearest.masked_fill(nearest == far, 0.0).amax(1)  # there may be fewer than eight
    mean = (distance * odd).sum(1) / odd.sum()
    return both_rho(nearest.amin(1), mean, around)
