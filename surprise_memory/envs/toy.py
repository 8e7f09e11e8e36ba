"""A key, a door and a goal in a corridor: sparse, partially seen, vectorised in NumPy, needing no other package.

The corridor has `LENGTH` cells. The agent starts in the middle and sees its cell (one-hot), whether it carries the key and
whether the door stands open. The key lies at the left end, the door before the right end; the goal behind it pays 1 - 0.9
t / cap, as in MiniGrid. Its state can be saved, so that a resumed run continues bit for bit.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from surprise_memory.envs.base import Array, Step

LENGTH, CAP = 11, 200
LEFT, RIGHT, PICK, OPEN = range(4)


class Toy:
    """B corridors; ended ones restart at once, so every row is valid."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.obs_shape: tuple[int, ...] = (LENGTH + 2,)
        self.action_space: spaces.Space[Any] = spaces.Discrete(4)
        self.rng = np.random.default_rng(seed)
        self.cell, self.age = np.full(num_envs, LENGTH // 2), np.zeros(num_envs, int)
        self.key, self.open = np.zeros(num_envs, bool), np.zeros(num_envs, bool)

    def see(self) -> Array:
        """(B, LENGTH + 2)."""
        cells = np.eye(LENGTH, dtype=np.float32)[self.cell]
        return np.concatenate([cells, self.key[:, None], self.open[:, None]], 1, dtype=np.float32)

    def reset(self) -> Array:
        """Start all episodes."""
        self._restart(np.ones(self.num_envs, bool))
        return self.see()

    def _restart(self, which: Array) -> None:
        self.cell[which] = LENGTH // 2 + self.rng.integers(-1, 2, which.sum())
        self.age[which], self.key[which], self.open[which] = 0, False, False

    def step(self, action: Array) -> Step:
        """Act in all corridors."""
        door = LENGTH - 2
        wall = (self.cell == door - 1) & ~self.open
        move = np.where(action == LEFT, -1, np.where((action == RIGHT) & ~wall, 1, 0))
        self.cell = np.clip(self.cell + move, 0, LENGTH - 1)
        self.key |= (action == PICK) & (self.cell == 0)
        self.open |= (action == OPEN) & (self.cell == door - 1) & self.key
        self.age += 1
        terminated = self.cell == LENGTH - 1
        truncated = (self.age >= CAP) & ~terminated
        reward = np.where(terminated, 1 - 0.9 * self.age / CAP, 0).astype(np.float32)
        next_obs = self.see()
        self._restart(terminated | truncated)
        return Step(
            next_obs, self.see(), reward, terminated, truncated, np.ones(self.num_envs, bool)
        )

    def render(self) -> Array:
        """The first corridor: agent red, key yellow, door brown or open, goal green (10, 10 * LENGTH, 3)."""
        cells = np.full((1, LENGTH, 3), 230, np.uint8)
        cells[0, LENGTH - 1], cells[0, LENGTH - 2] = (
            (80, 200, 80),
            (230, 200, 170) if self.open[0] else (120, 70, 20),
        )
        if not self.key[0]:
            cells[0, 0] = (240, 200, 0)
        cells[0, self.cell[0]] = (220, 40, 40)
        return cells.repeat(10, 0).repeat(10, 1)

    def close(self) -> None:
        """Nothing to let go of."""

    def get_state(self) -> dict[str, Any]:
        """All of it, as plain values."""
        arrays = {name: getattr(self, name).tolist() for name in ("cell", "age", "key", "open")}
        return arrays | {"rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """The other half of get_state."""
        for name in ("cell", "age", "key", "open"):
            setattr(self, name, np.array(state[name]))
        self.rng.bit_generator.state = state["rng"]
