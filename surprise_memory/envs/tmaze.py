"""A T-maze: a sign at the start tells which way to turn at the far end (Bakker, 2002).

The sign is out of sight by then: a memoryless agent is correct half the time. The agent sees
whether it is at the start, in the corridor or at the junction, and the sign (+1 or -1) at the start
alone. The correct turn pays 1, the wrong one 0. Both end the episode.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from surprise_memory.envs.base import Array, Step, VecEnv

TMAZE = "ToyTMaze-v0"
LENGTH, CAP = 10, 40
FORWARD, UP, DOWN = range(3)


class TMaze(VecEnv):
    """B mazes. Ended ones restart at once, so every row is valid."""

    saves_state = True

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.obs_shape = (4,)
        self.action_space = spaces.Discrete(3)
        self.rng = np.random.default_rng(seed)
        self.cell = np.zeros(num_envs, int)
        self.age = np.zeros(num_envs, int)
        self.sign = np.ones(num_envs, int)

    def _observe(self) -> Array:
        """(B, 4): start, corridor, junction, sign."""
        start = self.cell == 0
        junction = self.cell == LENGTH
        sign = np.where(start, self.sign, 0)
        columns = [start, ~start & ~junction, junction, sign]
        return np.stack(columns, 1).astype(np.float32)

    def reset(self) -> Array:
        """Start all episodes."""
        self._restart(np.ones(self.num_envs, bool))
        return self._observe()

    def _restart(self, which: Array) -> None:
        self.cell[which] = 0
        self.age[which] = 0
        self.sign[which] = self.rng.choice([-1, 1], which.sum())

    def step(self, action: Array) -> Step:
        """Act in all mazes. A turn before the junction does nothing."""
        turned = (self.cell == LENGTH) & (action != FORWARD)
        correct = turned & (np.where(action == UP, 1, -1) == self.sign)
        self.cell = np.minimum(self.cell + (action == FORWARD), LENGTH)
        self.age += 1
        truncated = (self.age >= CAP) & ~turned
        next_obs = self._observe()
        self._restart(turned | truncated)
        return Step(
            next_obs=next_obs,
            obs=self._observe(),
            reward=correct.astype(np.float32),
            terminated=turned,
            truncated=truncated,
            valid=np.ones(self.num_envs, bool),
        )

    def render(self) -> Array:
        """The first maze (30, 10 * (LENGTH + 1), 3): agent red, the sign green while it is seen."""
        cells = np.full((3, LENGTH + 1, 3), 90, np.uint8)
        cells[1] = 230
        cells[:, LENGTH] = 230
        if self.cell[0] == 0:
            cells[1 - self.sign[0], 0] = (80, 200, 80)
        cells[1, self.cell[0]] = (220, 40, 40)
        return cells.repeat(10, 0).repeat(10, 1)

    def get_state(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {
            "cell": self.cell.tolist(),
            "age": self.age.tolist(),
            "sign": self.sign.tolist(),
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        self.cell = np.array(state["cell"])
        self.age = np.array(state["age"])
        self.sign = np.array(state["sign"])
        self.rng.bit_generator.state = state["rng"]
