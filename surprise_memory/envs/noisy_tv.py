"""NoisyTV/<id>: one action turns on a television, and what the agent sees of that step is noise."""

import ast
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Step, VecEnv
from surprise_memory.types import UserError

PREFIX = "NoisyTV/"


class NoisyTV:
    """The last action is the remote control: it does what it always did, but its outcome looks like fresh N(0, 1) noise.

    In most MiniGrid tasks that action ("done") does nothing, so watching costs a step and teaches nothing. In images, +-3 of
    the noise is mapped onto the range of a byte. The frame after a reset is never noise.
    """

    def __init__(self, env: VecEnv, seed: int) -> None:
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise UserError(f"A noisy TV needs an action to turn it on: its actions must be Discrete, not {env.action_space}.")
        self.env, self.num_envs, self.obs_shape = env, env.num_envs, env.obs_shape
        self.action_space: gym.Space[Any] = env.action_space
        self.tv_action = int(env.action_space.n) - 1
        self.rng = np.random.default_rng(seed)
        if hasattr(env, "get_state"):
            self.get_state, self.set_state = self._get_state, self._set_state

    def reset(self) -> Array:
        """Start all episodes."""
        return self.env.reset()

    def step(self, action: Array) -> Step:
        """Act; where the TV was turned on, put noise in place of the outcome."""
        step = self.env.step(action)
        watched = (action == self.tv_action) & step.valid & ~(step.terminated | step.truncated)
        if not watched.any():
            return step
        next_obs, obs = step.next_obs.copy(), step.obs.copy()
        next_obs[watched] = obs[watched] = self.noise(int(watched.sum()), obs.dtype)
        return step._replace(next_obs=next_obs, obs=obs)

    def noise(self, rows: int, dtype: Any) -> Array:
        """(rows, *obs_shape) of the dtype."""
        z = self.rng.standard_normal((rows, *self.obs_shape), dtype=np.float32)
        return z if dtype != np.uint8 else ((z.clip(-3, 3) + 3) / 6 * 255).round().astype(np.uint8)

    def render(self) -> Array:
        """The first environment as it is."""
        return self.env.render()

    def close(self) -> None:
        """Close the environments behind it."""
        self.env.close()

    def _get_state(self) -> dict[str, Any]:
        return {"env": self.env.get_state(), "rng": str(self.rng.bit_generator.state)}  # type: ignore[attr-defined]

    def _set_state(self, state: dict[str, Any]) -> None:
        self.env.set_state(state["env"])  # type: ignore[attr-defined]
        self.rng.bit_generator.state = ast.literal_eval(state["rng"])
