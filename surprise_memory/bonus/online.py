"""What `Bonus.step` keeps between calls, for loops that are not ours: the rows since the last update and the running memory."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from surprise_memory.types import Chunk, rebuild


class Shell:
    """Single vector steps on their way to becoming a chunk."""

    def __init__(self) -> None:
        self.rows: list[Chunk] = []
        self.first: Tensor | None = None
        self.carry: Any = None
        self.opening: Any = None  # the memory before the first of the rows

    def record(self, obs: Any, action: Any, next_obs: Any, done: Any, valid: Any) -> Chunk:
        """Turn one vector step into a chunk of T = 1 and keep it. Copies, since many loops fill their arrays again."""
        ended = torch.as_tensor(done, dtype=torch.bool).clone()
        happened = (
            torch.ones_like(ended)
            if valid is None
            else torch.as_tensor(valid, dtype=torch.bool).clone()
        )
        columns = [torch.as_tensor(x)[None].clone() for x in (obs, action, next_obs)]
        no = torch.zeros_like(ended)[None]
        assert self.first is not None
        row = Chunk(
            columns[0],
            columns[1],
            no.float(),
            columns[2],
            ended[None],
            no,
            self.first[None],
            happened[None],
            {},
        )
        # After an end comes a first; a row that never happened stands between them and hands `first` on.
        self.first = ended | ~happened
        self.rows.append(row)
        return row

    def interrupt(self) -> None:
        """The running episodes are given up: the next step is the first of new ones."""
        if self.first is not None:
            self.first = torch.ones_like(self.first)

    def chunk(self) -> Chunk:
        """All rows since the last update as one chunk."""
        names = self.rows[0].columns()
        return Chunk(
            **{name: torch.cat([row.columns()[name] for row in self.rows]) for name in names},
            extras={},
        )

    def state(self) -> dict[str, Any] | None:
        """All of it as plain values, None before the first step."""
        if self.first is None:
            return None
        rows = [row.columns() for row in self.rows]
        return {"rows": rows, "first": self.first} | {
            name: dataclasses.asdict(getattr(self, name)) for name in ("carry", "opening")
        }

    def load(self, state: dict[str, Any] | None, empty: Any) -> None:
        """The other half of `state`; `empty` is a carry to put the memories into."""
        self.__init__()  # type: ignore[misc]
        if state is not None:
            self.rows, self.first = (
                [Chunk(**row, extras={}) for row in state["rows"]],
                state["first"],
            )
            self.carry, self.opening = (
                rebuild(empty, state["carry"]),
                rebuild(empty, state["opening"]),
            )
