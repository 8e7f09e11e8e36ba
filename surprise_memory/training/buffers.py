"""The rollout buffer: it stores named columns and knows nothing else."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.types import Chunk


class RolloutBuffer:
    """T rows of B environments, filled in order, handed out as a Chunk. Refuses a column of another shape or dtype."""

    def __init__(self, length: int) -> None:
        self.length, self.filled = length, 0
        self.columns: dict[str, Tensor] = {}

    def add(self, **row: Any) -> None:
        """Append one vector step; each value is (B, ...). The first row fixes names, shapes and dtypes."""
        if self.filled == self.length:
            raise ValueError(
                f"The rollout is full at {self.length} rows: take its chunk before adding more."
            )
        tensors = {
            name: torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
            for name, x in row.items()
        }
        if not self.columns:
            self.columns = {
                name: x.new_empty((self.length, *x.shape)) for name, x in tensors.items()
            }
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

    def chunk(self) -> Chunk:
        """Everything added, and an empty buffer. Columns that are not transitions become the chunk's extras."""
        T, self.filled = self.filled, 0
        columns, self.columns = {name: column[:T] for name, column in self.columns.items()}, {}
        fixed = {
            name: columns.pop(name) for name in tuple(columns) if name in Chunk.__dataclass_fields__
        }
        return Chunk(**fixed, extras=columns)
