"""A T-maze: the sign at the start tells which way to turn at the end, and is out of sight by then (Bakker, 2002).

Who does not remember turns right half of the time. The agent sees whether it is at the start, in the corridor or at the
junction, and the sign (+1 or -1) at the start alone. The right turn pays 1, the wrong one 0; both end the episode.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from surprise_memory.envs.base import Array, Step

LENGTH, CAP = 10, 40
FORWARD, UP, DOWN = range(3)


class TMaze:
    """B mazes; ended ones restart at once, so every row is valid."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.obs_shape: tuple[int, ...] = (4,)
        self.action_space: spaces.Space[Any] = spaces.Discrete(3)
        self.rng = np.random.default_rng(seed)
        self.cell, self.age, self.sign = (
            np.zeros(num_envs, int),
            np.zeros(num_envs, int),
            np.ones(num_envs, int),
        )

    def see(self) -> Array:
        """(B, 4): start, corridor, junction, sign."""
        start, junction = self.cell == 0, self.cell == LENGTH
        return np.stack([start, ~start & ~junction, junction, start * self.sign], 1).astype(
            np.float32
        )

    def reset(self) -> Array:
        """Start all episodes."""
        self._restart(np.ones(self.num_envs, bool))
        return self.see()

    def _restart(self, which: Array) -> None:
        self.cell[which], self.age[which] = 0, 0
        self.sign[which] = self.rng.choice([-1, 1], which.sum())

    def step(self, action: Array) -> Step:
        """Act in all mazes; turning elsewhere than at the junction does nothing."""
        turned = (self.cell == LENGTH) & (action != FORWARD)
        right = turned & (np.where(action == UP, 1, -1) == self.sign)
        self.cell = np.minimum(self.cell + (action == FORWARD), LENGTH)
        self.age += 1
        truncated = (self.age >= CAP) & ~turned
        next_obs = self.see()
        self._restart(turned | truncated)
        return Step(
            next_obs,
            self.see(),
            right.astype(np.float32),
            turned,
            truncated,
            np.ones(self.num_envs, bool),
        )

    def render(self) -> Array:
        """The first maze: agent red, the sign's way green while it can be seen (30, 10 * (LENGTH + 1), 3)."""
        cells = np.full((3, LENGTH + 1, 3), 90, np.uint8)
        cells[1], cells[:, LENGTH] = 230, 230
        if self.cell[0] == 0:
            cells[1 - self.sign[0], 0] = (80, 200, 80)
        cells[1, self.cell[0]] = (220, 40, 40)
        return cells.repeat(10, 0).repeat(10, 1)

    def close(self) -> None:
        """Nothing to let go of."""

    def get_state(self) -> dict[str, Any]:
        """All of it, as plain values."""
        arrays = {name: getattr(self, name).tolist() for name in ("cell", "age", "sign")}
        return arrays | {"rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """The other half of get_state."""
        for name in ("cell", "age", "sign"):
            setattr(self, name, np.array(state[name]))
        self.rng.bit_generator.state = state["rng"]
