"""What passes between the parts of a bonus: columns, what episodes carry along, what was seen."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from surprise_memory.nn.at_once import each
from surprise_memory.stages import Stage
from surprise_memory.surprise import Surprise

Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Carry:
    """What lasts between the steps of an episode, part by part; None for a part without a state."""

    surprise: Any
    memory: Any
    stages: dict[str, Any]


@dataclass(frozen=True)
class StageTrace:
    """What a stage was given, what it wrote down and what it paid."""

    inputs: Columns  # flattened (T*B, ...)
    record: Columns  # (T, B, ...)
    reward: Tensor  # (T, B) after it


@dataclass(frozen=True)
class Trace:
    """What a bonus saw on a chunk: everything that metrics, figures and training need."""

    u: Tensor
    q: Tensor
    v: Tensor
    e: Tensor
    unfiltered: Tensor  # (T, B) the reward before the first stage that only filters
    inputs: Columns  # of the generator, flattened (T*B, ...)
    remembered: Tensor  # (T, B) bool: the steps that the memory saw
    log: Any  # of the memory
    stages: dict[str, StageTrace]

    @property
    def surprise_norm(self) -> Tensor:
        """|u| (T, B), what the generator alone would pay."""
        norm: Tensor = vector_norm(self.u, dim=-1)
        return norm

    @property
    def novelty(self) -> Tensor:
        """|v| (T, B), what the memory leaves of it."""
        norm: Tensor = vector_norm(self.v, dim=-1)
        return norm


def prepare(part: Surprise | Stage, pieces: list[Columns]) -> Columns:
    """A part's inputs (T*B, ...), from the columns that it uses."""
    seen = [{name: piece[name] for name in part.uses} for piece in pieces]
    prepared = each(part.prepare, seen)
    return {name: torch.cat([piece[name] for piece in prepared]) for name in prepared[0]}


def take(columns: Columns, rows: Tensor) -> Columns:
    """Some rows (K,) of each column."""
    # Not column[rows], which takes two to four times as long.
    return {name: column.index_select(0, rows) for name, column in columns.items()}


def merge(found: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """The losses of all parts in one table; of two with one name, the later gets its part's too."""
    losses: dict[str, Tensor] = {}
    for part, more in found.items():
        for name, loss in more.items():
            if name in losses:
                name = f"{part}_{name}"
            losses[name] = loss
    return losses
