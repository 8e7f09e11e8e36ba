"""A key, a door and a goal in a corridor: sparse reward, partial view, NumPy alone.

The corridor has `LENGTH` cells. The agent starts in the middle. It sees its cell (one-hot), whether
it carries the key and whether the door is open. The key lies at the left end. The door is next to
the right end, and the goal behind it pays 1 - 0.9 t / cap, as in MiniGrid. Its state can be saved,
so a resumed run continues bit for bit.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from surprise_memory.envs.base import Array, Family, Step, VecEnv
from surprise_memory.envs.tmaze import TMAZE, TMaze

TOY = "ToyKeyDoor-v0"
LENGTH, CAP = 11, 200
LEFT, RIGHT, PICK, OPEN = range(4)
DOOR = LENGTH - 2  # the cell of the door; the goal is behind it


class Toy(VecEnv):
    """B corridors. Ended ones restart at once, so every row is valid."""

    saves_state = True

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.obs_shape = (LENGTH + 2,)
        self.action_space = spaces.Discrete(4)
        self.rng = np.random.default_rng(seed)
        self.cell = np.full(num_envs, LENGTH // 2)
        self.age = np.zeros(num_envs, int)
        self.key = np.zeros(num_envs, bool)
        self.open = np.zeros(num_envs, bool)

    def _observe(self) -> Array:
        """(B, LENGTH + 2)."""
        cells = np.eye(LENGTH, dtype=np.float32)[self.cell]
        return np.concatenate([cells, self.key[:, None], self.open[:, None]], 1, dtype=np.float32)

    def reset(self) -> Array:
        """Start all episodes."""
        self._restart(np.ones(self.num_envs, bool))
        return self._observe()

    def _restart(self, which: Array) -> None:
        self.cell[which] = LENGTH // 2 + self.rng.integers(-1, 2, which.sum())
        self.age[which] = 0
        self.key[which] = False
        self.open[which] = False

    def step(self, action: Array) -> Step:
        """Act in all corridors."""
        blocked = (self.cell == DOOR - 1) & ~self.open
        right = (action == RIGHT) & ~blocked
        left = action == LEFT
        self.cell = np.clip(self.cell + right.astype(int) - left.astype(int), 0, LENGTH - 1)
        self.key |= (action == PICK) & (self.cell == 0)
        self.open |= (action == OPEN) & (self.cell == DOOR - 1) & self.key
        self.age += 1
        terminated = self.cell == LENGTH - 1
        truncated = (self.age >= CAP) & ~terminated
        reward = np.where(terminated, 1 - 0.9 * self.age / CAP, 0).astype(np.float32)
        next_obs = self._observe()
        self._restart(terminated | truncated)
        return Step(
            next_obs=next_obs,
            obs=self._observe(),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=np.ones(self.num_envs, bool),
        )

    def render(self) -> Array:
        """The first corridor (10, 10 * LENGTH, 3): agent red, key yellow, goal green."""
        cells = np.full((1, LENGTH, 3), 230, np.uint8)
        cells[0, LENGTH - 1] = (80, 200, 80)
        cells[0, DOOR] = (120, 70, 20)
        if self.open[0]:
            cells[0, DOOR] = (230, 200, 170)
        if not self.key[0]:
            cells[0, 0] = (240, 200, 0)
        cells[0, self.cell[0]] = (220, 40, 40)
        return cells.repeat(10, 0).repeat(10, 1)

    def get_state(self) -> dict[str, Any]:
        """All of it, as plain values."""
        return {
            "cell": self.cell.tolist(),
            "age": self.age.tolist(),
            "key": self.key.tolist(),
            "open": self.open.tolist(),
            "rng": self.rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        self.cell = np.array(state["cell"])
        self.age = np.array(state["age"])
        self.key = np.array(state["key"])
        self.open = np.array(state["open"])
        self.rng.bit_generator.state = state["rng"]


TOYS: dict[str, type[Toy | TMaze]] = {TOY: Toy, TMAZE: TMaze}


def ids() -> list[str]:
    """Both toys."""
    return list(TOYS)


def owns(env_id: str) -> bool:
    """By the full id."""
    return env_id in TOYS


def make(env_id: str, num_envs: int, seed: int, threads: int, render: bool) -> VecEnv:
    """B copies; they need no threads and can always be drawn."""
    return TOYS[env_id](num_envs, seed)


FAMILY = Family(about="small tasks in NumPy", ids=ids, owns=owns, make=make)
