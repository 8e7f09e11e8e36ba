"""Any Gymnasium id, through Gymnasium's own vector API."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from surprise_memory.envs.base import Array, AutoresetAdapter, Step, to_arrays
from surprise_memory.errors import UserError


def ids() -> list[str]:
    """Every id that Gymnasium knows here."""
    return list(gym.registry)


class Gymnasium:
    """B copies of a Gymnasium environment, stepped in this process. Box actions are clipped to their bounds."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        render: bool = False,
        mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        options: dict[str, Any] = {"vector_kwargs": {"autoreset_mode": mode}}
        options |= {"render_mode": "rgb_array"} if render else {}
        try:
            self.env: Any = gym.make_vec(env_id, num_envs, vectorization_mode="sync", **options)
        except (gym.error.Error, ImportError) as error:
            raise UserError(
                f"Gymnasium cannot make '{env_id}': {str(error).rstrip('.')}."
            ) from error
        self.num_envs, self.seed = num_envs, seed
        self.action_space: gym.Space[Any] = self.env.single_action_space
        self.start = 0
        if isinstance(self.action_space, gym.spaces.Discrete):  # agents count from zero
            self.start, self.action_space = (
                int(self.action_space.start),
                gym.spaces.Discrete(int(self.action_space.n)),
            )
        self.obs_shape, prepare = to_arrays(self.env.single_observation_space)
        self.transitions = AutoresetAdapter(self.env, prepare)

    def reset(self) -> Array:
        """Start all episodes; environment i has seed + i."""
        return self.transitions.reset(self.seed)

    def step(self, action: Array) -> Step:
        """Act in all environments."""
        if isinstance(self.action_space, gym.spaces.Box):
            action = np.clip(action, self.action_space.low, self.action_space.high)
        return self.transitions.step(action + self.start if self.start else action)

    def render(self) -> Array:
        """The first environment, drawn (H, W, 3)."""
        return np.asarray(self.env.render()[0])

    def close(self) -> None:
        """Close every copy."""
        self.env.close()
