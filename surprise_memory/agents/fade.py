"""The bonus's weight in PPO, which fades as the task pays.

The reward's scale follows what novelty is left, so a bonus would never fade by itself, and an agent
that has solved its task would go on exploring:

    weight = int_coef (1 - fade p)    p = the task's mean return / its best return so far, in [0, 1]

A task that only punishes has not paid: then there is all the more to explore.
"""

from typing import Any

from torch import Tensor

from surprise_memory.nn import ranks
from surprise_memory.types import Chunk


class FadingWeight:
    """int_coef (1 - fade p); with a fade of 0 the task's returns are not looked at."""

    def __init__(self, int_coef: float, fade: float) -> None:
        self.int_coef = int_coef
        self.fade = fade
        self.best = 0.0
        self.p = 0.0

    def now(self) -> float:
        """The weight, from the rollouts so far."""
        return self.int_coef * (1 - self.fade * self.p)

    def update(self, chunk: Chunk, returns: Tensor) -> None:
        """Take in the task's returns (T, B) of a rollout, those that the critic learns.

        The best return is one of a step that was paid: before, a return is the critic's guess.
        """
        if self.fade == 0:
            return
        happened = returns[chunk.valid]
        paid = returns[chunk.valid & (chunk.reward > 0)]
        here = (max(paid.tolist(), default=0.0), happened.sum().item(), len(happened))
        best, total, rows = zip(*ranks.everyones(here), strict=True)
        self.best = max(self.best, *best)
        self.p = share_of_best(sum(total) / max(1, sum(rows)), self.best)

    def state_dict(self) -> dict[str, Any]:
        """What lasts."""
        return {"best": self.best, "p": self.p}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.best = state["best"]
        self.p = state["p"]


def share_of_best(mean: float, best: float) -> float:
    """How near the mean return is to the best one, in [0, 1]; 0 as long as the best is 0.

    >>> share_of_best(0.4, best=0.8), share_of_best(-0.5, best=1.0), share_of_best(0.2, best=0.0)
    (0.5, 0.0, 0.0)
    """
    if best <= 0:
        return 0.0
    return min(1.0, max(0.0, mean / best))
