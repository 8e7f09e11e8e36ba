"""How well the task pays so far. PPO's bonus fades with it, and so do random actions.

    p = the task's mean return / its best return so far, in [0, 1]

A task that only punishes has not paid, so p is 0. The best return is one of a step that was paid:
before the first of them, a return is only the critic's guess.
"""

from typing import Any

from torch import Tensor

from surprise_memory.nn import ranks
from surprise_memory.types import Chunk


class TaskPay:
    """The share p of its best return that a task pays on average, and whether it ever punished."""

    def __init__(self) -> None:
        self.best = 0.0
        self.share = 0.0
        self.punished = False

    def update(self, chunk: Chunk, returns: Tensor) -> None:
        """Take in a rollout and its returns (T, B) of the task, those that the critic learns."""
        valid = chunk.valid
        happened = returns[valid]
        paid = returns[valid & (chunk.reward > 0)]
        here = (
            max(paid.tolist(), default=0.0),
            happened.sum().item(),
            len(happened),
            bool((chunk.reward[valid] < 0).any()),
        )
        best, total, rows, punished = zip(*ranks.everyones(here), strict=True)
        self.best = max(self.best, *best)
        self.share = share_of_best(sum(total) / max(1, sum(rows)), self.best)
        self.punished = self.punished or any(punished)

    def state_dict(self) -> dict[str, Any]:
        """What lasts."""
        return {"best": self.best, "share": self.share, "punished": self.punished}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.best = state["best"]
        self.share = state["share"]
        self.punished = state["punished"]


def share_of_best(mean: float, best: float) -> float:
    """How near the mean return is to the best one, in [0, 1]; 0 as long as the best is 0.

    >>> share_of_best(0.4, best=0.8), share_of_best(-0.5, best=1.0), share_of_best(0.2, best=0.0)
    (0.5, 0.0, 0.0)
    """
    if best <= 0:
        return 0.0
    return min(1.0, max(0.0, mean / best))
