"""What every other file speaks: a Chunk of experience, the axis letters, one time convention.

Axes: `T` time, `B` environments, `n` surprise width, `N` memory slots, `d` slot width.
Arrays are time-major, `(T, B, ...)`.

Time: `first[t]` says that `obs[t]` opens an episode. `reward[t]`, `terminated[t]`, `truncated[t]`
and `next_obs[t]` follow the action taken at t. `next_obs[t]` is its true successor, also at an
episode's end, and never the frame after a reset.

Rows with `valid[t] = False` never happened (a vector environment's automatic reset). They stand
only between episodes, and they reach no loss, no statistic and no memory.
"""

import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import UserError

NO_COLUMNS = ("extras", "after")  # fields of a chunk that are not (T, B, ...)


@dataclass(frozen=True)
class Chunk:
    """T x B transitions as named, time-major columns.

    `extras` is what the agent wrote down while acting.
    """

    obs: Tensor  # (T, B, *obs)
    action: Tensor  # (T, B) or (T, B, actions)
    reward: Tensor  # (T, B) task reward, unclipped
    next_obs: Tensor  # (T, B, *obs)
    terminated: Tensor  # (T, B) bool
    truncated: Tensor  # (T, B) bool
    first: Tensor  # (T, B) bool
    valid: Tensor  # (T, B) bool
    extras: dict[str, Tensor]  # each (T, B, ...)
    # (B, *obs), what is acted on next: not next_obs[-1] where the last row ends an episode and the
    # environment has begun another. None where nobody told.
    after: Tensor | None = None

    def __post_init__(self) -> None:
        for name, column in self.columns().items():
            if not isinstance(column, Tensor) or column.dim() < 2:
                raise UserError(f"Chunk.{name} must be a tensor (T, B, ...).")
        T, B = self.shape
        for name, column in self.columns().items():
            if column.shape[:2] != (T, B):
                shape = tuple(column.shape)
                raise UserError(
                    f"Chunk.{name} has shape {shape}: it must start with (T, B) = {(T, B)}."
                )
        for name in ("terminated", "truncated", "first", "valid"):
            dtype = getattr(self, name).dtype
            if dtype != torch.bool:
                raise UserError(f"Chunk.{name} has dtype {dtype}: it must be torch.bool.")

    @property
    def shape(self) -> tuple[int, int]:
        """(T, B)."""
        return int(self.obs.shape[0]), int(self.obs.shape[1])

    @property
    def done(self) -> Tensor:
        """(T, B) bool: the episode ended with this transition, either way."""
        return self.terminated | self.truncated

    def columns(self) -> dict[str, Tensor]:
        """The fixed columns by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NO_COLUMNS}

    def to(self, device: torch.device) -> "Chunk":
        """The same on a device; columns that are there already are not copied."""
        columns = {name: usable(x.to(device)) for name, x in self.columns().items()}
        extras = {name: usable(x.to(device)) for name, x in self.extras.items()}
        after = None
        if self.after is not None:
            after = usable(self.after.to(device))
        return Chunk(**columns, extras=extras, after=after)

    def blanked(self) -> "Chunk":
        """The same with zeros in the rows that never happened, which may hold NaN."""
        never = ~self.valid
        return replace(
            self,
            obs=zero_where(never, self.obs),
            next_obs=zero_where(never, self.next_obs),
            reward=zero_where(never, self.reward),
            extras={name: zero_where(never, x) for name, x in self.extras.items()},
        )

    def valid_rows(self) -> Tensor:
        """Indices into the flattened (T*B) axis of the transitions that happened."""
        return self.valid.flatten().nonzero().squeeze(1)


def zero_where(mask: Tensor, x: Tensor) -> Tensor:
    """Put zeros into x (T, B, ...) where the mask (T, B) is set; x itself, no copy, if nowhere."""
    if not mask.any():
        return x
    while mask.dim() < x.dim():
        mask = mask.unsqueeze(-1)
    return x.masked_fill(mask, 0)


def episode_ages(
    first: Tensor, valid: Tensor, age: Tensor, counted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """How many steps of its episode came before each step: (T, B) int64.

    The second result (B,) is the same for the step after the last. `age` (B,) is that of the first.
    With `counted` (T, B) bool only those steps count.
    """
    if counted is None:
        counted = valid
    before = torch.empty(first.shape, dtype=torch.int64, device=first.device)
    for t in range(len(first)):
        before[t] = torch.where(first[t], 0, age)
        age = torch.where(valid[t], before[t] + counted[t], 0)
    return before, age


def usable(x: Tensor) -> Tensor:
    """A copy of a tensor from inference mode, from which nothing learns; others as they are."""
    if x.is_inference() and not torch.is_inference_mode_enabled():
        return x.clone()
    return x


def moved(content: Any, device: torch.device | str) -> Any:
    """Tensors in nested containers and dataclasses, on a device; everything else as it is."""
    if isinstance(content, Tensor):
        return content.to(device)
    if isinstance(content, dict):
        found = copy.copy(content)  # of its own kind: a state_dict has a version
        for name, value in content.items():
            found[name] = moved(value, device)
        return found
    if isinstance(content, list | tuple):
        return type(content)([moved(value, device) for value in content])
    if is_dataclass(content) and not isinstance(content, type):
        values = {f.name: moved(getattr(content, f.name), device) for f in fields(content)}
        return replace(content, **values)
    return content


def rebuild(empty: Any, saved: Any) -> Any:
    """`saved`, which went through `dataclasses.asdict`, in the dataclasses of `empty`."""
    if isinstance(empty, dict):
        return {name: rebuild(value, saved[name]) for name, value in empty.items()}
    if not is_dataclass(empty):
        return saved
    kind: Any = type(empty)
    values = {}
    for f in fields(empty):
        values[f.name] = rebuild(getattr(empty, f.name), saved[f.name])
    return kind(**values)
