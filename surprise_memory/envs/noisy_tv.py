"""NoisyTV/<id>: one action turns on a TV, and what the agent sees of that step is noise."""

from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Step, VecEnv
from surprise_memory.errors import UserError

PREFIX = "NoisyTV/"


class NoisyTV(VecEnv):
    """An environment with a TV: fresh N(0, 1) noise in place of the newest frame.

    Where the environment has a `noop` (MiniWorld, Atari), the TV gets an action of its own, and the
    noop is taken underneath. Elsewhere the last action also turns on the TV and still does what it
    always did; in most MiniGrid tasks that is "done", which does nothing. In images, noise from -3
    to 3 is mapped to the range of a byte. It stays in a stack of frames like any other frame. The
    frame after a reset is never noise.
    """

    def __init__(self, env: VecEnv, seed: int) -> None:
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise UserError(
                "A noisy TV needs an action to turn it on: "
                f"its actions must be Discrete, not {env.action_space}."
            )
        self.env = env
        self.num_envs = env.num_envs
        self.obs_shape = env.obs_shape
        self.noop = env.noop
        self.frame_channels = env.frame_channels
        self.in_processes = env.in_processes
        stacked = self.newest_channels < self.obs_shape[0]  # noise in it would have to be saved
        self.saves_state = env.saves_state and not stacked
        actions = int(env.action_space.n)
        if self.noop is not None:
            actions += 1
        self.action_space = gym.spaces.Discrete(actions)
        self.tv_action = actions - 1
        self.rng = np.random.default_rng(seed)
        self.watched: Array = np.zeros(env.num_envs, bool)
        self.obs: Array = np.zeros((env.num_envs, *env.obs_shape), np.float32)

    def reset(self) -> Array:
        """Start all episodes."""
        self.obs = self.env.reset()
        return self.obs

    def step(self, action: Array) -> Step:
        """Act; where the TV was turned on, put noise in place of the newest frame."""
        turned_on = action == self.tv_action
        if self.noop is not None:
            action = np.where(turned_on, self.noop, action)
        step = self.env.step(action)
        done = step.terminated | step.truncated
        self.watched = turned_on & step.valid & ~done
        frame = step.next_obs[:, -self.newest_channels :].copy()
        frame[self.watched] = self.noise(int(self.watched.sum()), frame.dtype)
        next_obs = np.concatenate([self.obs[:, self.newest_channels :], frame], 1)
        next_obs[~step.valid] = step.next_obs[~step.valid]
        self.obs = next_obs.copy()
        opened = done | ~step.valid  # an episode begins: its first frame is the environment's own
        self.obs[opened] = step.obs[opened]
        return step._replace(next_obs=next_obs, obs=self.obs)

    def noise(self, rows: int, dtype: Any) -> Array:
        """One frame for each of some rows, of the dtype."""
        shape = (rows, self.newest_channels, *self.obs_shape[1:])
        z: Array = self.rng.standard_normal(shape, dtype=np.float32)
        if dtype == np.uint8:
            z = ((z.clip(-3, 3) + 3) / 6 * 255).round().astype(np.uint8)
        return z

    def events(self, obs: Array) -> dict[str, Array]:
        """What the environment names. Noise may look like an event: callers know `tv_action`."""
        return self.env.events(obs)

    def render(self) -> Array:
        """The first environment, or static while the agent watches."""
        picture = self.env.render()
        if self.watched[0]:
            picture = np.random.default_rng().integers(0, 256, picture.shape, np.uint8)
        return picture

    def close(self) -> None:
        """Close the environment behind the TV."""
        self.env.close()

    def get_state(self) -> dict[str, Any]:
        """The environment's state and the noise's random stream."""
        if not self.saves_state:
            return super().get_state()
        return {"env": self.env.get_state(), "rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        if not self.saves_state:
            super().set_state(state)
        self.env.set_state(state["env"])
        self.rng.bit_generator.state = state["rng"]
