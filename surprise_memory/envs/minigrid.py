"""MiniGrid and BabyAI through EnvPool's C++: the 7x7x3 view and the direction as 151 numbers, some 100,000 steps a second."""

from typing import Any

import numpy as np

from surprise_memory.envs.base import Array, AutoresetAdapter, Step, envpool
from surprise_memory.errors import UserError

# Tasks whose mission changes from episode to episode; elsewhere it is constant and carries nothing.
SPOKEN = (
    "BabyAI",
    "MiniGrid-Fetch",
    "MiniGrid-GoTo",
    "MiniGrid-PutNear",
    "MiniGrid-LockedRoom",
    "MiniGrid-KeyCorridor",
)
SIGHTS = ("key in view", "carrying", "closed door in view", "open door in view", "goal in view")
WORDS = 64  # buckets of the mission's hashed bag of words


def ids() -> list[str]:
    """Every MiniGrid and BabyAI id that EnvPool has; none where it is not installed."""
    try:
        return [
            name for name in envpool().list_all_envs() if name.startswith(("MiniGrid-", "BabyAI-"))
        ]
    except UserError:
        return []


def sights(obs: Array) -> dict[str, Array]:
    """What MiniGrid observations (K, >= 147) show, by name, each (K,) bool: the first 147 numbers are the (7, 7, 3) view."""
    view = obs[:, :147].reshape(len(obs), 7, 7, 3)
    own = view[:, 3, 6, 0]  # the agent's own cell shows what it carries
    around = view.reshape(len(obs), 49, 3)
    around = np.delete(around, 3 * 7 + 6, axis=1)
    kind, state = around[..., 0], around[..., 2]
    door = kind == 4
    shown = (
        kind == 5,
        np.isin(own, (5, 6, 7))[:, None],
        door & (state > 0),
        door & (state == 0),
        kind == 8,
    )
    return {name: where.any(1) for name, where in zip(SIGHTS, shown, strict=True)}


class MiniGrid:
    """B MiniGrid environments."""

    def __init__(
        self, env_id: str, num_envs: int, seed: int, threads: int = 1, render: bool = False
    ) -> None:
        self.num_envs, self.seed, self.spoken = num_envs, seed, env_id.startswith(SPOKEN)
        options: dict[str, Any] = {"num_envs": num_envs, "seed": seed, "num_threads": threads}
        options |= {"render_mode": "rgb_array"} if render else {}
        self.env = envpool().make(env_id, env_type="gymnasium", **options)
        self.action_space = self.env.action_space
        self.obs_shape: tuple[int, ...] = (151 + WORDS * self.spoken,)
        self.transitions = AutoresetAdapter(self.env, self.numbers)
        self.missions: dict[bytes, Array] = {}

    def numbers(self, obs: dict[str, Array]) -> Array:
        """(B, 151): the view, the direction one-hot; then the mission's words where they matter."""
        view, direction = (
            obs["image"].reshape(len(obs["image"]), -1),
            np.eye(4, dtype=np.float32)[obs["direction"]],
        )
        parts = [view.astype(np.float32), direction]
        if self.spoken:
            parts.append(np.stack([self.words(mission.tobytes()) for mission in obs["mission"]]))
        return np.concatenate(parts, 1)

    def words(self, mission: bytes) -> Array:
        """A mission as counts of its words in WORDS buckets."""
        if mission not in self.missions:
            vector = np.zeros(WORDS, np.float32)
            for word in mission.rstrip(b"\0").split():
                vector[sum(letter * 31**i for i, letter in enumerate(word)) % WORDS] += 1
            self.missions[mission] = vector
        return self.missions[mission]

    def reset(self) -> Array:
        """Start all episodes; EnvPool took its seed when it was made."""
        return self.transitions.reset(None)

    def step(self, action: Array) -> Step:
        """Act in all environments."""
        return self.transitions.step(action.astype(np.int32))

    def render(self) -> Array:
        """The first grid, drawn (H, W, 3)."""
        return np.asarray(self.env.render(env_ids=np.array([0]))[0])

    def close(self) -> None:
        """EnvPool's threads end with the process."""
