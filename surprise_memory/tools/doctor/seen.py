"""What the doctor keeps of a stream of rollouts; never the observations themselves."""

from typing import Any

import numpy as np
from torch import Tensor

from surprise_memory.bonus import Trace
from surprise_memory.tools.doctor.measures import visit_counts
from surprise_memory.tools.stats import Array
from surprise_memory.types import Chunk


class Seen:
    """The keys of all rows, and the bonuses of the held-out rows. H is the number of those."""

    def __init__(self) -> None:
        # Of every rollout, each (T, B).
        self.keys: list[Array] = []
        self.first: list[Array] = []
        self.valid: list[Array] = []
        # Of the rollouts that were learnt from.
        self.rollouts: dict[str, list[float]] = {"norm": [], "novelty": []}  # means
        self.seconds: dict[str, list[float]] = {"ask": [], "train": []}
        # Of the held-out rollouts, each (T, B).
        self.bonus: dict[str, list[Array]] = {"norm": [], "novelty": []}
        self.noise: list[Array] = []
        self.events: dict[str, list[Array]] = {}
        # Sums over the held-out rows.
        self.moments: dict[str, Any] = {"norm": 0.0, "novelty": 0.0}  # of u u^T and of v v^T
        self.energy = np.zeros(2)  # of |v|^2 and of |q|^2

    def record_rollout(self, chunk: Chunk, keys: Array) -> None:
        """Every rollout; keys (T*B,) of its successors."""
        self.keys.append(keys.reshape(chunk.shape))
        self.first.append(chunk.first.numpy())
        self.valid.append(chunk.valid.numpy())

    def record_update(self, metrics: dict[str, float], seconds: float) -> None:
        """A rollout that was learnt from."""
        self.seconds["train"].append(seconds)
        self.rollouts["norm"].append(metrics["intrinsic/surprise_norm"])
        self.rollouts["novelty"].append(metrics["intrinsic/novelty"])

    def record_question(self, seconds: float) -> None:
        """How long the bonus took to answer for a held-out rollout."""
        self.seconds["ask"].append(seconds)

    def record_held_out(
        self,
        chunk: Chunk,
        norm: Tensor,
        novelty: Tensor,
        trace: Trace,
        noise: Array,
        events: dict[str, Array],
    ) -> None:
        """A held-out rollout.

        norm (T, B) is what the generator alone pays, novelty (T, B) what the method pays, noise
        (T, B) where there is noise, events (T*B,) what the rollout shows without it.
        """
        self.bonus["norm"].append(norm.double().numpy())
        self.bonus["novelty"].append(novelty.double().numpy())
        self.noise.append(noise)
        u = trace.u[chunk.valid].double().numpy()
        q = trace.q[chunk.valid].double().numpy()
        v = trace.v[chunk.valid].double().numpy()
        self.moments["norm"] += u.T @ u
        self.moments["novelty"] += v.T @ v
        if v.shape == q.shape:  # v is a residual of q, unlike a count
            self.energy += [(v**2).sum(), (q**2).sum()]
        for name, where in events.items():
            self.events.setdefault(name, []).append(where.reshape(chunk.shape))

    def column(self, name: str) -> Array:
        """(H, B): the held-out bonuses."""
        return np.concatenate(self.bonus[name])

    def event(self, name: str) -> Array:
        """(H, B) bool: held-out rows that show an event."""
        return np.concatenate(self.events[name])

    @property
    def happened(self) -> Array:
        """(H, B) bool: held-out rows that are valid."""
        return np.concatenate(self.valid[-len(self.noise) :])

    @property
    def rows(self) -> Array:
        """(H, B) bool: held-out rows that are valid and whose bonuses are finite."""
        finite = np.isfinite(self.column("norm")) & np.isfinite(self.column("novelty"))
        return self.happened & finite

    def counts(self) -> Array:
        """Visits, over the whole stream, of what each of `rows` (K,) shows."""
        keys = np.concatenate(self.keys)
        valid = np.concatenate(self.valid)
        visits = np.zeros(keys.shape, int)
        visits[valid] = visit_counts(keys[valid])
        rows = self.rows
        return visits[-len(rows) :][rows]
