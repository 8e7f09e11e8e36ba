"""The count-based memory: a surprise is as new as its hash is rare.

The paper's SM (count), after Tang et al. (2017).
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.errors import UserError, require, require_between, require_width
from surprise_memory.memory.base import Memory


@dataclass(frozen=True)
class CountsConfig:
    """SimHash counts."""

    bits: int = 128
    """Width of the hash (k_h), in bits."""
    beta: float = 0.5
    """Factor of the bonus after scaling."""
    max_codes: int = 2_000_000
    """Codes in the table, about 120 bytes each; beyond, those that entered first are forgotten."""


@dataclass(frozen=True)
class Pending:
    """Codes that were asked about and are not in the table yet."""

    codes: Tensor  # (P, bytes) uint8


class Counts(Memory):
    """v = 1 / sqrt(c), where c counts the visits of the hash sign(G u), this one included.

    G is random and fixed. One table serves all environments and is never cleared; once it is full,
    the codes that entered first make room. Surprises drift
    while the generator learns, so what was seen long ago hashes to something new: these are counts
    of recent surprises more than of states.
    """

    G: Tensor
    power = 1
    shared = True

    def __init__(self, n: int, config: CountsConfig) -> None:
        super().__init__()
        require_width("counts.bits", config.bits)
        require(config.beta > 0, "counts.beta", config.beta, "above 0")
        require_between("counts.max_codes", config.max_codes, 1, 100_000_000)
        self.beta = config.beta
        self.max_codes = config.max_codes
        self.register_buffer("G", torch.randn(n, config.bits))
        self.width = (config.bits + 7) // 8  # bytes of a code
        self.table: dict[bytes, int] = {}

    def start(self, num_envs: int) -> Pending:
        """Nothing pending."""
        return Pending(torch.zeros(0, self.width, dtype=torch.uint8))

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Pending
    ) -> tuple[Tensor, Tensor, Tensor, Pending]:
        """Count in time order, environment by environment within a step."""
        codes = torch.from_numpy(np.packbits((u[valid] @ self.G > 0).numpy(), axis=1))
        asked = torch.cat([carry.codes, codes])
        count = self._visits(asked.numpy())[len(carry.codes) :]
        v = torch.zeros(*u.shape[:2], 1)
        v[valid] = torch.from_numpy(count**-0.5).float()[:, None]
        return v, u, codes, Pending(asked)

    def _visits(self, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """How often each code (P, bytes) was seen: in the table, and in the rows up to its own."""
        if not len(codes):
            return np.zeros(0)
        keys = np.ascontiguousarray(codes).view(f"V{codes.shape[1]}")[:, 0]
        unique, which = np.unique(keys, return_inverse=True)
        order = which.argsort(kind="stable")
        starts = np.searchsorted(which[order], np.arange(len(unique)))
        rank = np.empty(len(keys))
        rank[order] = np.arange(len(keys)) - starts[which[order]] + 1  # 1 for its first row
        before = np.array([self.table.get(key.tobytes(), 0) for key in unique])
        visits: np.ndarray[Any, Any] = rank + before[which]
        return visits

    def commit(self, log: Tensor, valid: Tensor, carry: Pending) -> Pending:
        """Count everything that is pending."""
        for code in carry.codes.numpy():
            key = code.tobytes()
            self.table[key] = self.table.get(key, 0) + 1
        surplus = max(0, len(self.table) - self.max_codes)
        for key in list(islice(self.table, surplus)):  # the first that entered
            del self.table[key]
        return self.start(len(valid[0]))

    def metrics(self, u: Tensor, v: Tensor, q: Tensor) -> dict[str, float]:
        """The table's size, and the share of steps whose code was new."""
        return {"codes": float(len(self.table)), "new_codes": (v == 1).float().mean().item()}

    def get_extra_state(self) -> dict[str, Tensor]:
        """The table as tensors."""
        codes = np.frombuffer(b"".join(self.table), np.uint8).reshape(len(self.table), self.width)
        return {
            "codes": torch.from_numpy(codes.copy()),
            "visits": torch.tensor(list(self.table.values()), dtype=torch.int64),
        }

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """The other half of get_extra_state."""
        if state["codes"].shape[1:] != (self.width,):
            raise UserError(f"the table's codes have not {self.width} bytes each")
        codes = [code.tobytes() for code in state["codes"].numpy()]
        self.table = dict(zip(codes, state["visits"].tolist(), strict=True))
