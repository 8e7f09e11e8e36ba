"""NoisyTV/<id>: one action turns on a television, and what the agent sees of that step is noise."""

from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Step, VecEnv
from surprise_memory.errors import UserError

PREFIX = "NoisyTV/"


class NoisyTV:
    """A remote control among the actions: what it shows is fresh N(0, 1) noise in place of the newest frame.

    Where an environment knows an action that moves nothing (`noop`: MiniWorld, Atari), the remote control is a further
    action and that one is taken underneath. Elsewhere the last action doubles as it and does what it always did; in most
    MiniGrid tasks that is "done", which does nothing. In images, +-3 of the noise is mapped onto the range of a byte; it
    stays in a stack of frames like any frame. The frame after a reset is never noise.
    """

    def __init__(self, env: VecEnv, seed: int) -> None:
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise UserError(
                f"A noisy TV needs an action to turn it on: its actions must be Discrete, not {env.action_space}."
            )
        self.env, self.num_envs, self.obs_shape = env, env.num_envs, env.obs_shape
        self.noop: int | None = getattr(env, "noop", None)
        actions = int(env.action_space.n) + (self.noop is not None)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(actions)
        self.tv_action = actions - 1
        self.frame_channels: int = getattr(env, "frame_channels", self.obs_shape[0])
        self.rng = np.random.default_rng(seed)
        self.watched: Array = np.zeros(env.num_envs, bool)
        self.obs: Array = np.zeros((env.num_envs, *env.obs_shape), np.float32)
        if (
            hasattr(env, "get_state") and self.frame_channels == self.obs_shape[0]
        ):  # a stack would have to be saved, too
            self.get_state, self.set_state = self._get_state, self._set_state

    def reset(self) -> Array:
        """Start all episodes."""
        self.obs = self.env.reset()
        return self.obs

    def step(self, action: Array) -> Step:
        """Act; where the TV was turned on, put noise in place of the newest frame."""
        asked = action == self.tv_action
        step = self.env.step(action if self.noop is None else np.where(asked, self.noop, action))
        done = step.terminated | step.truncated
        frame = step.next_obs[:, -self.frame_channels :].copy()
        self.watched = watched = asked & step.valid & ~done
        frame[watched] = self.noise(int(watched.sum()), frame.dtype)
        next_obs = np.concatenate([self.obs[:, self.frame_channels :], frame], 1)
        opened = done | ~step.valid  # what is acted on next is the environment's own
        next_obs[~step.valid] = step.next_obs[~step.valid]
        self.obs = np.where(opened.reshape(-1, *[1] * (next_obs.ndim - 1)), step.obs, next_obs)
        return step._replace(next_obs=next_obs, obs=self.obs)

    def noise(self, rows: int, dtype: Any) -> Array:
        """One frame for each of some rows, of the dtype."""
        z = self.rng.standard_normal(
            (rows, self.frame_channels, *self.obs_shape[1:]), dtype=np.float32
        )
        return z if dtype != np.uint8 else ((z.clip(-3, 3) + 3) / 6 * 255).round().astype(np.uint8)

    def render(self) -> Array:
        """The first environment, or static while it watches."""
        picture = self.env.render()
        return (
            np.random.default_rng().integers(0, 256, picture.shape, np.uint8)
            if self.watched[0]
            else picture
        )

    def close(self) -> None:
        """Close the environments behind it."""
        self.env.close()

    def _get_state(self) -> dict[str, Any]:
        return {"env": self.env.get_state(), "rng": self.rng.bit_generator.state}  # type: ignore[attr-defined]

    def _set_state(self, state: dict[str, Any]) -> None:
        self.env.set_state(state["env"])  # type: ignore[attr-defined]
        self.rng.bit_generator.state = state["rng"]
