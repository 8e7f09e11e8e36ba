"""Prioritised replay of sequences: a ring of blocks of T steps of B environments.

It stores, draws and knows nothing else. All of it is on the host. Observations are stored once, as
they come (bytes stay bytes): 10^6 Atari steps of one 84 x 84 frame are 7.1 GB. A sequence is
`length` rows from the beginning of a block on, and reaches into the next block. It can be drawn
once that block is there. The successor of a row is the row after it, except at an episode's end:
its last observation is kept apart.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import UserError, require
from surprise_memory.types import Chunk

Finals = dict[tuple[int, int], Tensor]  # (row, b) -> last observation of the episode ending there
STORED = ("obs", "action", "reward", "terminated", "truncated", "first", "valid")


@dataclass(frozen=True)
class Sequences:
    """K drawn sequences: their `length` - 1 transitions, and what off-policy learning needs."""

    chunk: Chunk  # (length - 1, K, ...); its extras are the stored ones
    last: dict[str, Tensor]  # obs and extras of the row after the last transition, (1, K, ...)
    initial_state: Tensor  # (K, H), the agent's state before the first row, as it was then
    index: Tensor  # (K,), for `set_priority`
    weight: Tensor  # (K,), importance weights, the largest is 1


class Replay:
    """A ring of blocks. The first block reserves the storage."""

    def __init__(
        self, capacity: int, num_envs: int, unroll: int, length: int, alpha: float, beta: float
    ) -> None:
        """`capacity` counts steps over all environments.

        Priorities are raised to alpha, importance weights to beta.
        """
        allowed = f"within two blocks of {unroll} steps"
        require(unroll < length <= 2 * unroll, "length of a sequence", length, allowed)
        self.blocks = capacity // (num_envs * unroll)
        if self.blocks < 3:
            need = 3 * num_envs * unroll
            raise UserError(
                f"A replay of {capacity:,} steps is too small: "
                f"{num_envs} environments need {need:,} at least."
            )
        self.B = num_envs
        self.unroll = unroll
        self.length = length
        self.alpha = alpha
        self.beta = beta
        self.columns: dict[str, Tensor] = {}  # each (blocks * unroll, B, ...)
        self.initial_state = torch.empty(0, device="cpu")  # (blocks, B, H)
        self.finals: dict[int, Finals] = {}  # by block
        # Priority 0 is never drawn.
        self.priority = torch.zeros(self.blocks, num_envs, dtype=torch.float64, device="cpu")
        self.written = 0  # blocks so far, those that were overwritten included
        # (B, *obs), successors of the newest block's last row.
        self.tail = torch.empty(0, device="cpu")

    @property
    def filled(self) -> int:
        """Rows that hold something, (B,) steps each."""
        return min(self.written, self.blocks) * self.unroll

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        return self.filled * self.B

    @property
    def ready(self) -> bool:
        """Whether there is a whole sequence."""
        return bool(self.priority.any())

    @property
    def bytes_per_step(self) -> int:
        """Bytes that one step takes in memory; 0 before the first block, when it is not known."""
        if not self.columns:
            return 0
        size = 0
        for column in self.columns.values():
            size += column[0, 0].numel() * column.element_size()
        state = self.initial_state[0, 0].numel() * self.initial_state.element_size()  # of a block
        return int(size + state / self.unroll)

    def add(self, chunk: Chunk, initial_state: Tensor) -> None:
        """Append a block: a chunk of `unroll` steps, and the agent's state (B, H) before it."""
        if chunk.shape != (self.unroll, self.B):
            wanted = (self.unroll, self.B)
            raise ValueError(
                f"The replay takes blocks of (T, B) = {wanted}, this chunk has {chunk.shape}."
            )
        rows = {name: getattr(chunk, name) for name in STORED} | chunk.extras
        if not self.columns:
            for name, x in rows.items():
                self.columns[name] = x.new_empty(self.blocks * self.unroll, *x.shape[1:])
            self.initial_state = initial_state.new_empty(self.blocks, *initial_state.shape)
        slot = self.written % self.blocks
        start = slot * self.unroll
        self._end_cut_episodes(chunk.first[0])
        for name, x in rows.items():
            self.columns[name][start : start + self.unroll] = x
        self.initial_state[slot] = initial_state
        self.finals[slot] = {}
        for t, b in chunk.done.nonzero().tolist():
            self.finals[slot][start + t, b] = chunk.next_obs[t, b].clone()
        self.tail = chunk.next_obs[-1].clone()
        self.priority[slot] = 0.0  # its sequence ends in a block that is not there yet
        if self.written:  # the block before is complete now; new sequences are drawn soon
            self.priority[slot - 1] = max(1.0, float(self.priority.max()))
        self.written += 1

    def _end_cut_episodes(self, first: Tensor) -> None:
        """Mark episodes as truncated that the newest block does not end, though new ones begin.

        This happens when a run is resumed. first (B,) is that of the block to come.
        """
        if not self.written:
            return
        slot = (self.written - 1) % self.blocks
        row = (slot + 1) * self.unroll - 1
        over = self.columns["terminated"][row] | self.columns["truncated"][row]
        over = over | ~self.columns["valid"][row]
        for b in (first & ~over).nonzero().flatten().tolist():
            self.columns["truncated"][row, b] = True
            self.finals[slot][row, b] = self.tail[b].clone()

    def sample(self, number: int, rng: torch.Generator) -> Sequences:
        """Draw sequences, each with probability priority^alpha / sum."""
        share = (self.priority.flatten() ** self.alpha) * (self.priority.flatten() > 0)
        edges = share.cumsum(0)
        points = torch.rand(number, generator=rng, dtype=torch.float64, device="cpu") * edges[-1]
        index = torch.searchsorted(edges, points, right=True).clamp(max=len(edges) - 1)
        chance = share[index] / edges[-1]
        assert (chance > 0).all()
        weight = ((share > 0).sum() * chance) ** -self.beta
        slot = index // self.B
        env = index % self.B
        rows = slot * self.unroll + torch.arange(self.length, device="cpu")[:, None]  # (length, K)
        rows = rows % (self.blocks * self.unroll)
        columns = {name: x[rows, env] for name, x in self.columns.items()}
        next_obs = columns["obs"][1:].clone()
        for t, k in (columns["terminated"] | columns["truncated"])[:-1].nonzero().tolist():
            row = int(rows[t, k])
            next_obs[t, k] = self.finals[row // self.unroll][row, int(env[k])]
        last = {name: columns[name][-1:] for name in ("obs", "first", "valid")}
        fixed = {name: columns.pop(name)[:-1] for name in STORED}
        extras = {}
        for name, x in columns.items():
            extras[name] = x[:-1]
            last[name] = x[-1:]
        return Sequences(
            chunk=Chunk(**fixed, next_obs=next_obs, extras=extras),
            last=last,
            initial_state=self.initial_state[slot, env],
            index=index,
            weight=(weight / weight.max()).float(),
        )

    def set_priority(self, index: Tensor, priority: Tensor) -> None:
        """Give sequences (K,) new priorities (K,), except those overwritten since the draw."""
        index = index.cpu()
        priority = priority.cpu()
        there = self.priority.view(-1)[index] > 0
        self.priority.view(-1)[index[there]] = priority[there].double().clamp(min=1e-6)

    def pairs(self, number: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """About `number` pairs of observations one or two steps apart in one episode."""
        filled = self.filled
        oldest = 0
        if self.written > self.blocks:
            oldest = self.written % self.blocks * self.unroll
        draw = torch.rand(3, number, generator=rng, device="cpu")
        age = (draw[0] * (filled - 1)).long()  # rows since the oldest
        env = (draw[1] * self.B).long()
        apart = torch.where(age + 2 < filled, 1 + (draw[2] * 2).long(), 1)
        rows = self.blocks * self.unroll
        a = (oldest + age) % rows
        next_row = (oldest + age + 1) % rows
        b = (oldest + age + apart) % rows
        first = self.columns["first"]
        same_episode = ~(first[next_row, env] | first[b, env])
        obs = self.columns["obs"]
        env = env[same_episode]
        return obs[a[same_episode], env], obs[b[same_episode], env]

    def state_dict(self) -> dict[str, Any]:
        """All of it: as large as the replay."""
        filled = self.filled
        return {
            "columns": {name: x[:filled].clone() for name, x in self.columns.items()},
            "initial_state": self.initial_state[: filled // self.unroll].clone(),
            "tail": self.tail.clone(),
            "finals": {slot: dict(ends) for slot, ends in self.finals.items()},
            "priority": self.priority.clone(),
            "written": self.written,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.written = state["written"]
        self.tail = state["tail"].clone()
        self.finals = {slot: dict(ends) for slot, ends in state["finals"].items()}
        self.priority.copy_(state["priority"])
        for name, x in state["columns"].items():
            self.columns[name] = x.new_empty(self.blocks * self.unroll, *x.shape[1:])
            self.columns[name][: len(x)] = x
        saved = state["initial_state"]
        self.initial_state = saved.new_empty(self.blocks, *saved.shape[1:])
        self.initial_state[: len(saved)] = saved
