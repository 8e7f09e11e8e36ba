"""MiniGrid and BabyAI through EnvPool's C++, some 100,000 steps a second.

An observation is the 7 x 7 x 3 view and the direction: 151 numbers.
"""

from typing import Any

import numpy as np

from surprise_memory.envs.autoreset import AutoresetAdapter
from surprise_memory.envs.base import (
    Array,
    Family,
    Place,
    Step,
    VecEnv,
    envpool,
    envpool_seed,
    missing_envpool,
)

PREFIXES = ("MiniGrid-", "BabyAI-")
# Tasks whose mission changes from episode to episode; elsewhere it is constant and says nothing.
MISSIONS_VARY = (
    "BabyAI",
    "MiniGrid-Fetch",
    "MiniGrid-GoTo",
    "MiniGrid-PutNear",
    "MiniGrid-LockedRoom",
    "MiniGrid-KeyCorridor",
    "MiniGrid-UnlockPickup",
    "MiniGrid-BlockedUnlockPickup",
)
VIEW = 7 * 7 * 3
WORDS = 64  # buckets of the mission's hashed bag of words
EVENTS = ("key in view", "carrying", "closed door in view", "open door in view", "goal in view")
DOOR, KEY, BALL, BOX, GOAL = 4, 5, 6, 7, 8  # MiniGrid's numbers for objects
OPEN = 0  # and for a door's state
ACTIONS = ("turn left", "turn right", "forward", "pick up", "drop", "toggle", "done")
TILE = 32  # pixels of a cell in EnvPool's picture


def ids() -> list[str]:
    """Every MiniGrid and BabyAI id that EnvPool has; none where it is not installed."""
    if missing_envpool() is not None:
        return []
    return [name for name in envpool().list_all_envs() if name.startswith(PREFIXES)]


def owns(env_id: str) -> bool:
    """What EnvPool lacks may still be in Gymnasium's registry."""
    return env_id in ids()


def missing(env_id: str) -> str | None:
    """EnvPool, where it is not installed."""
    if not env_id.startswith(PREFIXES):
        return None
    return missing_envpool()


def events(obs: Array) -> dict[str, Array]:
    """What observations (K, >= 147) show, by name, each (K,) bool.

    The first 147 numbers are the (7, 7, 3) view: object, colour and state of each cell.
    """
    view = obs[:, :VIEW].reshape(len(obs), 7, 7, 3)
    carried = view[:, 3, 6, 0]  # the agent's own cell shows what it carries
    around = np.delete(view.reshape(len(obs), 49, 3), 3 * 7 + 6, axis=1)
    kind = around[..., 0]
    state = around[..., 2]
    door = kind == DOOR
    shown = (
        (kind == KEY).any(1),
        np.isin(carried, (KEY, BALL, BOX)),
        (door & (state != OPEN)).any(1),
        (door & (state == OPEN)).any(1),
        (kind == GOAL).any(1),
    )
    return dict(zip(EVENTS, shown, strict=True))


class MiniGrid(VecEnv):
    """B MiniGrid environments."""

    action_names = ACTIONS

    def __init__(
        self, env_id: str, num_envs: int, seed: int, threads: int = 1, render: bool = False
    ) -> None:
        self.num_envs = num_envs
        self.env_id = env_id
        self.options: dict[str, Any] = {"num_envs": num_envs, "num_threads": threads}
        if render:
            self.options["render_mode"] = "rgb_array"
        self._make(envpool_seed(seed, num_envs))
        self.action_space = self.env.action_space
        self.reads_mission = env_id.startswith(MISSIONS_VARY)
        size = VIEW + 4
        if self.reads_mission:
            size += WORDS
        self.obs_shape = (size,)
        self.missions: dict[bytes, Array] = {}  # mission -> its words, computed once

    def _make(self, seed: int | list[int]) -> None:
        """EnvPool takes its seeds when it is made: of the first environment, or of each."""
        self.env = envpool().make(self.env_id, env_type="gymnasium", seed=seed, **self.options)
        self.adapter = AutoresetAdapter(self.env, self._vectors)

    def share_layouts(self, seed: int) -> None:
        """One seed for all."""
        self.env.close()
        self._make([envpool_seed(seed, 1)] * self.num_envs)

    def _vectors(self, obs: dict[str, Array]) -> Array:
        """(B, k): the view, the direction one-hot, and the mission's words where they vary."""
        view = obs["image"].reshape(len(obs["image"]), -1).astype(np.float32)
        direction = np.eye(4, dtype=np.float32)[obs["direction"]]
        parts = [view, direction]
        if self.reads_mission:
            parts.append(np.stack([self._words(mission.tobytes()) for mission in obs["mission"]]))
        return np.concatenate(parts, 1)

    def _words(self, mission: bytes) -> Array:
        """A mission as counts of its words in WORDS buckets."""
        if mission not in self.missions:
            counts = np.zeros(WORDS, np.float32)
            for word in mission.rstrip(b"\0").split():
                counts[bucket(word)] += 1
            self.missions[mission] = counts
        return self.missions[mission]

    def reset(self) -> Array:
        """Start all episodes; EnvPool took its seed when it was made."""
        return self.adapter.reset(None)

    def step(self, action: Array) -> Step:
        """Act in all environments.

        EnvPool calls an end that the task judges a time limit where both come in the same step.
        """
        step = self.adapter.step(action.astype(np.int32))
        judged = step.truncated & (step.reward != 0)
        return step._replace(
            terminated=step.terminated | judged, truncated=step.truncated & ~judged
        )

    def events(self, obs: Array) -> dict[str, Array]:
        """Key, door and goal in view, and whether something is carried."""
        return events(obs)

    def render(self) -> Array:
        """The first grid, drawn (H, W, 3)."""
        return np.asarray(self.env.render(env_ids=np.array([0]))[0])

    def place(self) -> Place:
        """The first agent's cell. Drawing is how EnvPool tells the size of a grid."""
        column, row = self.adapter.info["agent_pos"][0].tolist()
        height, width = self.render().shape[:2]
        return Place(column, row, columns=width // TILE, rows=height // TILE)


def bucket(word: bytes) -> int:
    """The bucket of a word: the same in every process, unlike Python's own hash."""
    number = 0
    factor = 1
    for letter in word:
        number += letter * factor
        factor *= 31
    return number % WORDS


FAMILY = Family(about="MiniGrid and BabyAI", ids=ids, owns=owns, make=MiniGrid, missing=missing)
