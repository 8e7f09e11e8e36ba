"""Prioritised replay of sequences: blocks of T steps of B environments in a ring. It stores, rng and knows nothing else.

Observations are stored once, as they come (bytes stay bytes): 10^6 Atari steps of one 84 x 84 frame are 7.1 GB. A sequence
is `length` rows from the beginning of a block on, reaching into the next; it can be drawn once that one is there. The
successor of a row is the row after it, except at an episode's end, whose last observation is kept apart.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import UserError, require
from surprise_memory.types import Chunk

STORED = ("obs", "action", "reward", "terminated", "truncated", "first", "valid")


@dataclass(frozen=True)
class Sequences:
    """K drawn sequences: their `length` - 1 transitions, and what only off-policy learning needs."""

    chunk: Chunk  # (length - 1, K, ...); its extras are the stored ones
    last: dict[str, Tensor]  # obs and extras of the row after the last transition, (1, K, ...)
    initial_state: Tensor  # (K, H), the agent's state before the first row, as it was then
    index: Tensor  # (K,), for `set_priority`
    weight: Tensor  # (K,), importance weights, the largest is 1


class Replay:
    """A ring of blocks. Storage is reserved at the first block and filled as it goes."""

    def __init__(
        self, capacity: int, num_envs: int, unroll: int, length: int, alpha: float, beta: float
    ) -> None:
        """`capacity` counts steps over all environments; priorities are raised to alpha, importance weights to beta."""
        require(
            unroll < length <= 2 * unroll,
            "length of a sequence",
            length,
            f"within two blocks of {unroll} steps",
        )
        self.blocks = capacity // (num_envs * unroll)
        if self.blocks < 3:
            need = 3 * num_envs * unroll
            raise UserError(
                f"A replay of {capacity:,} steps is too small: {num_envs} environments need {need:,} at least."
            )
        self.B, self.unroll, self.length, self.alpha, self.beta = (
            num_envs,
            unroll,
            length,
            alpha,
            beta,
        )
        self.columns: dict[str, Tensor] = {}  # each (blocks * unroll, B, ...)
        self.initial_state = torch.empty(0)  # (blocks, B, H)
        self.finals: dict[
            int, dict[tuple[int, int], Tensor]
        ] = {}  # block -> (row, b) -> the episode's last observation
        self.priority = torch.zeros(
            self.blocks, num_envs, dtype=torch.float64
        )  # 0: cannot be drawn
        self.written = 0  # blocks so far, those that were overwritten included
        self.tail = torch.empty(0)  # (B, *obs), successors of the newest block's last row

    @property
    def filled(self) -> int:
        """Rows that hold something, (B,) steps each."""
        return min(self.written, self.blocks) * self.unroll

    @property
    def steps(self) -> int:
        """Steps it holds."""
        return self.filled * self.B

    @property
    def ready(self) -> bool:
        """Whether there is a whole sequence."""
        return bool(self.priority.any())

    @property
    def bytes_per_step(self) -> int:
        """Bytes one step takes in memory; 0 before the first block tells what a step is."""
        if not self.columns:
            return 0
        state = self.initial_state[0, 0].numel() * self.initial_state.element_size() / self.unroll
        return int(sum(x[0, 0].numel() * x.element_size() for x in self.columns.values()) + state)

    def add(self, chunk: Chunk, initial_state: Tensor) -> None:
        """Append a block: a chunk of exactly `unroll` steps, and the agent's state (B, H) before it."""
        if chunk.shape != (self.unroll, self.B):
            raise ValueError(
                f"The replay takes blocks of (T, B) = {(self.unroll, self.B)}, this chunk has {chunk.shape}."
            )
        rows = {name: getattr(chunk, name) for name in STORED} | chunk.extras
        if not self.columns:
            self.columns = {
                name: x.new_empty(self.blocks * self.unroll, *x.shape[1:])
                for name, x in rows.items()
            }
            self.initial_state = initial_state.new_empty(self.blocks, *initial_state.shape)
        slot = self.written % self.blocks
        self._mend(chunk.first[0])
        for name, x in rows.items():
            self.columns[name][slot * self.unroll : (slot + 1) * self.unroll] = x
        self.initial_state[slot] = initial_state
        ends = chunk.done.nonzero().tolist()
        self.finals[slot] = {
            (slot * self.unroll + t, b): chunk.next_obs[t, b].clone() for t, b in ends
        }
        self.tail = chunk.next_obs[-1].clone()
        self.priority[slot] = 0.0  # its sequence ends in a block that is not there yet
        if self.written:
            self.priority[slot - 1] = max(
                1.0, float(self.priority.max())
            )  # new ones are drawn soon
        self.written += 1

    def _mend(self, first: Tensor) -> None:
        """Where episodes begin anew though the block before did not end them (a resumed run), they were cut off there."""
        if not self.written:
            return
        slot = (self.written - 1) % self.blocks
        row = (slot + 1) * self.unroll - 1
        over = (
            self.columns["terminated"][row]
            | self.columns["truncated"][row]
            | ~self.columns["valid"][row]
        )
        for b in (first & ~over).nonzero().flatten().tolist():
            self.columns["truncated"][row, b] = True
            self.finals[slot][row, b] = self.tail[b].clone()

    def sample(self, number: int, rng: torch.Generator) -> Sequences:
        """Draw sequences, each with probability priority^alpha / sum."""
        share = (self.priority.flatten() ** self.alpha) * (self.priority.flatten() > 0)
        edges = share.cumsum(0)
        points = torch.rand(number, generator=rng, dtype=torch.float64) * edges[-1]
        index = torch.searchsorted(edges, points, right=True).clamp(max=len(edges) - 1)
        chance, available = share[index] / edges[-1], (share > 0).sum()
        weight = (available * chance) ** -self.beta
        slot, env = index // self.B, index % self.B
        rows = (slot * self.unroll + torch.arange(self.length)[:, None]) % (
            self.blocks * self.unroll
        )  # (length, K)
        columns = {name: x[rows, env] for name, x in self.columns.items()}
        assert (chance > 0).all()
        next_obs = columns["obs"][1:].clone()
        for t, k in (columns["terminated"] | columns["truncated"])[:-1].nonzero().tolist():
            row = int(rows[t, k])
            next_obs[t, k] = self.finals[row // self.unroll][row, int(env[k])]
        fixed = {name: columns[name][:-1] for name in STORED}
        extras = {name: x[:-1] for name, x in columns.items() if name not in STORED}
        last = {
            name: x[-1:]
            for name, x in columns.items()
            if name not in STORED or name in ("obs", "first", "valid")
        }
        return Sequences(
            Chunk(**fixed, next_obs=next_obs, extras=extras),
            last,
            self.initial_state[slot, env],
            index,
            (weight / weight.max()).float(),
        )

    def set_priority(self, index: Tensor, priority: Tensor) -> None:
        """Give sequences (K,) new priorities (K,); those that were overwritten since they were drawn stay away."""
        there = self.priority.view(-1)[index] > 0
        self.priority.view(-1)[index[there]] = priority[there].double().clamp(min=1e-6)

    def pairs(self, number: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """About `number` pairs of observations one or two steps apart in one episode."""
        filled = self.filled
        oldest = self.written % self.blocks * self.unroll if self.written > self.blocks else 0
        draw = torch.rand(3, number, generator=rng)
        age, env = (draw[0] * (filled - 1)).long(), (draw[1] * self.B).long()
        apart = torch.where(age + 2 < filled, 1 + (draw[2] * 2).long(), 1)
        row = [(oldest + age + k) % (self.blocks * self.unroll) for k in range(3)]
        first = self.columns["first"]
        whole = ~(first[row[1], env] | ((apart == 2) & first[row[2], env]))
        other = torch.where(apart == 1, row[1], row[2])
        obs = self.columns["obs"]
        return obs[row[0][whole], env[whole]], obs[other[whole], env[whole]]

    def state_dict(self) -> dict[str, Any]:
        """All of it, for those who ask for it: as large as the replay."""
        filled = self.filled
        columns = {name: x[:filled].clone() for name, x in self.columns.items()}
        parts = {
            "columns": columns,
            "initial_state": self.initial_state[: filled // self.unroll].clone(),
            "tail": self.tail.clone(),
        }
        finals = {slot: dict(ends) for slot, ends in self.finals.items()}
        return parts | {
            "finals": finals,
            "priority": self.priority.clone(),
            "written": self.written,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.written, self.tail = state["written"], state["tail"].clone()
        self.finals = {slot: dict(ends) for slot, ends in state["finals"].items()}
        self.priority.copy_(state["priority"])
        for name, x in state["columns"].items():
            self.columns[name] = x.new_empty(self.blocks * self.unroll, *x.shape[1:])
            self.columns[name][: len(x)] = x
        saved = state["initial_state"]
        self.initial_state = saved.new_empty(self.blocks, *saved.shape[1:])
        self.initial_state[: len(saved)] = saved
