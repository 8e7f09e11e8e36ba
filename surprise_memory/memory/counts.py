"""The count-based memory: a surprise is as new as its hash is rare.

The paper's SM (count), after Tang et al. (2017).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import OtherVersion, require, require_between, require_width
from surprise_memory.memory.base import Memory
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import double

TABLE = ("keys", "visits", "entered")


@dataclass(frozen=True)
class CountsConfig:
    """SimHash counts."""

    bits: int = 128
    """Width of the hash (k_h), in bits."""
    beta: float = 0.5
    """Factor of the bonus after scaling."""
    max_codes: int = 2_000_000
    """Codes in the table, 24 bytes each; beyond, those that entered first are forgotten."""


@dataclass(frozen=True)
class Pending:
    """Codes that were asked about and are not in the table yet."""

    keys: Tensor  # (P,) int64
    happened: Tensor  # (P,) bool: only these count


class Counts(Memory):
    """v = 1 / sqrt(c), where c counts the visits of the hash sign(G u), this one included.

    G is random and fixed. One table serves all environments and is never cleared; once it is full,
    the codes that entered first make room. Surprises drift
    while the generator learns, so what was seen long ago hashes to something new: these are counts
    of recent surprises more than of states.

    A code is kept as the sum, modulo 2^64, of a random number for each bit that is set. Two codes
    have the same sum with probability 2^-64; among two million, any two with 1e-7.
    """

    G: Tensor
    numbers: Tensor  # (bits,) int64, one for each bit
    keys: Tensor  # (S,) int64, sorted
    visits: Tensor  # (S,) int64
    entered: Tensor  # (S,) int64, when; the first that entered is the first to go
    power = 1
    shared = True

    def __init__(self, n: int, config: CountsConfig) -> None:
        super().__init__()
        require_width("counts.bits", config.bits)
        require(config.beta > 0, "counts.beta", config.beta, "above 0")
        require_between("counts.max_codes", config.max_codes, 1, 100_000_000)
        self.beta = config.beta
        self.max_codes = config.max_codes
        self.register_buffer("G", torch.randn(n, config.bits, device="cpu"))
        rng = torch.Generator().manual_seed(0)
        low, high = -(2**63), 2**63 - 1
        numbers = torch.randint(low, high, (config.bits,), generator=rng, device="cpu")
        self.register_buffer("numbers", numbers, persistent=False)
        for name in TABLE:
            empty = torch.zeros(0, dtype=torch.int64, device="cpu")
            self.register_buffer(name, empty, persistent=False)
        self.asked = 0  # codes that were ever counted, one after the other

    def start(self, num_envs: int) -> Pending:
        """Nothing pending."""
        nothing = self.keys.new_zeros(0)
        return Pending(nothing, nothing.bool())

    def fresh(self, num_envs: int, steps: int) -> None:
        """Replayed steps are in the table already: nothing is pending, nor will be."""
        return None

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Pending | None
    ) -> tuple[Tensor, Tensor, None, Pending | None]:
        """Count in time order, environment by environment within a step; replayed steps not."""
        bits = u.flatten(0, 1) @ self.G > 0
        keys = (bits * self.numbers).sum(1)
        if carry is None:
            count = self._in_table(keys).clamp(min=1)  # 1: its code has changed since
        else:
            happened = torch.cat([carry.happened, valid.flatten()])
            before = len(carry.keys)
            carry = Pending(torch.cat([carry.keys, keys]), happened)
            count = self._visits(carry)[before:]
        paid = (double(count.unflatten(0, valid.shape)) ** -0.5).float().to(u.device)
        return torch.where(valid, paid, 0.0)[..., None], u, None, carry

    def _visits(self, asked: Pending) -> Tensor:
        """How often each code (P,) was seen: in the table, and in the rows up to its own."""
        keys, order = asked.keys.sort(stable=True)  # equal ones side by side, in time order
        happened = asked.happened[order].long()
        total = happened.cumsum(0)
        begins = torch.ones_like(keys, dtype=torch.bool)
        begins[1:] = keys[1:] != keys[:-1]
        before = torch.where(begins, total - happened, 0).cummax(0).values  # of smaller codes
        visits = torch.empty_like(keys)
        visits[order] = total - before
        return visits + self._in_table(asked.keys)

    def _in_table(self, keys: Tensor) -> Tensor:
        """How often each code (P,) was seen, as far as the table knows."""
        place, known = self._find(keys)
        if not len(self.keys):
            return torch.zeros_like(keys)
        return torch.where(known, self.visits[place], 0)

    def _find(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where in the table codes (P,) are, and whether they are there at all."""
        if not len(self.keys):
            return torch.zeros_like(keys), torch.zeros_like(keys, dtype=torch.bool)
        place = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return place, self.keys[place] == keys

    @torch.no_grad()
    def commit(self, log: None, valid: Tensor, carry: Pending) -> Pending:
        """Count everything that is pending, on all ranks."""
        pending = ranks.gather(carry.keys[carry.happened])
        keys, which, visits = pending.unique(return_inverse=True, return_counts=True)
        place, known = self._find(keys)
        self.visits[place[known]] += visits[known]
        order = torch.arange(len(pending), device=pending.device)
        entered = torch.full_like(keys, len(pending)).scatter_reduce(0, which, order, "amin")
        self._insert(keys[~known], visits[~known], self.asked + entered[~known])
        self.asked += len(pending)
        return self.start(len(valid[0]))

    def _insert(self, keys: Tensor, visits: Tensor, entered: Tensor) -> None:
        """Add new codes (P,), sorted, to the table; those that entered first make room."""
        old = torch.ones(len(self.keys) + len(keys), dtype=torch.bool, device=keys.device)
        place = torch.searchsorted(self.keys, keys) + torch.arange(len(keys), device=keys.device)
        old[place] = False
        for name, new in zip(TABLE, (keys, visits, entered), strict=True):
            column = new.new_empty(len(old))
            column[old] = getattr(self, name)
            column[place] = new
            setattr(self, name, column)
        surplus = len(self.keys) - self.max_codes
        if surplus > 0:
            stays = self.entered >= self.entered.sort().values[surplus]
            for name in TABLE:
                setattr(self, name, getattr(self, name)[stays])

    def metrics(self, u: Tensor, v: Tensor, q: Tensor, valid: Tensor) -> dict[str, float]:
        """The table's size, and the share of steps whose code was new."""
        new = (v[valid] == 1).float().mean()
        return {"codes": float(len(self.keys)), "new_codes": float(new)}

    def get_extra_state(self) -> dict[str, Any]:
        """The table."""
        return {name: getattr(self, name).clone() for name in TABLE} | {"asked": self.asked}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The other half of get_extra_state."""
        if set(state) != {*TABLE, "asked"}:
            raise OtherVersion(
                "The table of codes of +counts was written by another version of surprise-memory: "
                f"it has {', '.join(state) or 'nothing'}, here {', '.join(TABLE)}. Load it with "
                "the version that wrote it, or train anew."
            )
        for name in TABLE:
            setattr(self, name, state[name].to(self.keys.device, torch.int64).clone())
        self.asked = int(state["asked"])
