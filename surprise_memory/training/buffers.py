"""The rollout buffer: it stores named columns and knows nothing else."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.nn.devices import HOST
from surprise_memory.types import Chunk


class RolloutBuffer:
    """T rows of B environments on one device, filled in order, handed out as a Chunk.

    Refuses a column of another shape or dtype.
    """

    def __init__(self, length: int, device: torch.device = HOST) -> None:
        self.length = length
        self.device = device
        self.filled = 0
        self.columns: dict[str, Tensor] = {}

    def add(self, **row: Any) -> None:
        """Append one vector step of values (B, ...).

        The first row fixes names, shapes and dtypes.
        """
        if self.filled == self.length:
            raise ValueError(
                f"The rollout is full at {self.length} rows: take its chunk before adding more."
            )
        tensors = {name: as_tensor(x) for name, x in row.items()}
        if not self.columns:
            for name, x in tensors.items():
                shape = (self.length, *x.shape)
                self.columns[name] = torch.empty(shape, dtype=x.dtype, device=self.device)
        if tensors.keys() != self.columns.keys():
            raise ValueError(
                f"Row has columns {sorted(tensors)}, the rollout has {sorted(self.columns)}."
            )
        for name, x in tensors.items():
            column = self.columns[name]
            if x.shape != column.shape[1:] or x.dtype != column.dtype:
                want = f"{tuple(column.shape[1:])} {column.dtype}"
                raise ValueError(
                    f"Column '{name}' got {tuple(x.shape)} {x.dtype}, it holds {want}."
                )
            column[self.filled] = x
        self.filled += 1

    def chunk(self, after: Tensor | None = None) -> Chunk:
        """Everything that was added; the buffer is empty then.

        Columns that are not transitions become the chunk's extras. `after` (B, *obs) is what is
        acted on next.
        """
        transitions = {}
        extras = {}
        for name, column in self.columns.items():
            rows = column[: self.filled]
            if name in Chunk.__dataclass_fields__:
                transitions[name] = rows
            else:
                extras[name] = rows
        self.filled = 0
        self.columns = {}
        return Chunk(**transitions, extras=extras, after=after)


def as_tensor(x: Any) -> Tensor:
    """A tensor as it is, anything else by way of NumPy."""
    if isinstance(x, Tensor):
        return x
    return torch.as_tensor(np.asarray(x), device="cpu")
