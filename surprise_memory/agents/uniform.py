"""Uniform actions, whatever is seen: what a bonus has to beat where there is no task reward."""

from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.types import Chunk


class Uniform(Agent):
    """Acts as the other agents do, and learns nothing."""

    def __init__(self, action_space: Space[Any], seed: int = 0) -> None:
        if isinstance(action_space, spaces.Box):
            self.low = torch.as_tensor(action_space.low, device="cpu")
            self.high = torch.as_tensor(action_space.high, device="cpu")
            bounded = bool((self.high - self.low).isfinite().all())
        else:
            bounded = isinstance(action_space, spaces.Discrete)
        if not bounded:
            raise UserError(
                "A random agent acts in Discrete and bounded Box spaces, this environment has "
                f"{action_space}."
            )
        self.space = action_space
        self.rng = torch.Generator().manual_seed(seed)

    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,) or (B, A) for observations (B, *obs), the same in every mode."""
        if isinstance(self.space, spaces.Discrete):
            number = int(self.space.n)
            drawn = torch.randint(number, obs.shape[:1], generator=self.rng, device="cpu")
            return int(self.space.start) + drawn, {}, state
        shape = obs.shape[:1] + self.low.shape
        drawn = torch.rand(shape, generator=self.rng, device="cpu")
        return self.low + drawn * (self.high - self.low), {}, state

    def update(self, chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
        """There is nothing to learn."""
        return {}

    def synchronise(self) -> None:
        """Each rank draws actions of its own."""
        self.load_state_dict(ranks.from_first(self.state_dict()))
        ranks.own_stream(self.rng)

    def state_dict(self) -> dict[str, Any]:
        """Its random stream."""
        return {"rng": self.rng.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.rng.set_state(state["rng"])
