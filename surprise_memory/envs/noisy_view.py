"""NoisyView/<id>: a part of what is seen is noise, at every step and whatever the agent does."""

from dataclasses import dataclass

import numpy as np

from surprise_memory.envs.base import Array, Place, Step, VecEnv
from surprise_memory.envs.noisy_tv import draw_noise
from surprise_memory.errors import require


@dataclass(frozen=True)
class ViewOptions:
    """NoisyView:share=0.25/<id>."""

    share: float = 0.25
    """Of a vector's numbers, or of an image's columns from the left."""


class NoisyView(VecEnv):
    """The last numbers of a vector, or the left columns of every new frame, are fresh noise."""

    def __init__(self, env: VecEnv, seed: int, options: ViewOptions) -> None:
        share = options.share
        require(0 < share < 1, "NoisyView's share", share, "between 0 and 1")
        self.env = env
        self.num_envs = env.num_envs
        self.obs_shape = env.obs_shape
        self.action_space = env.action_space
        self.noop = env.noop
        self.action_names = env.action_names
        self.frame_channels = env.frame_channels
        self.in_processes = env.in_processes
        self.width = max(1, round(share * env.obs_shape[-1]))
        self.rng = np.random.default_rng(seed)
        self.obs: Array = np.zeros(0)

    def reset(self) -> Array:
        """Start all episodes."""
        self.obs = self._spoil(self.env.reset(), every_frame=True)
        return self.obs

    def step(self, action: Array) -> Step:
        """Act; the newest frame gets fresh noise, older ones keep theirs."""
        step = self.env.step(action)
        channels = self.newest_channels
        next_obs = step.next_obs.copy()
        next_obs[:, :-channels] = self.obs[:, channels:]
        next_obs = self._spoil(next_obs, every_frame=False)
        self.obs = next_obs.copy()
        opened = step.terminated | step.truncated | ~step.valid
        if opened.any():
            self.obs[opened] = self._spoil(step.obs[opened], every_frame=True)
        return step._replace(next_obs=next_obs, obs=self.obs)

    def _spoil(self, obs: Array, every_frame: bool) -> Array:
        """A copy with noise in its part of the newest frame, or of the whole stack."""
        obs = obs.copy()
        frames = obs if every_frame else obs[:, -self.newest_channels :]
        if obs.ndim == 2:
            part = frames[:, -self.width :]
        else:
            part = frames[..., : self.width]
        part[...] = draw_noise(self.rng, part.shape, obs.dtype)
        return obs

    def events(self, obs: Array) -> dict[str, Array]:
        """What the environment names; a vector's last numbers are noise and may say anything."""
        return self.env.events(obs)

    def render(self) -> Array:
        """The first environment, without the noise."""
        return self.env.render()

    def place(self) -> Place | None:
        """For the environment behind it."""
        return self.env.place()

    def keep_fixed(self, first_seed: int) -> None:
        """For the environment behind it: the noise is fresh."""
        self.env.keep_fixed(first_seed)

    def share_layouts(self, seed: int) -> None:
        """For the environment behind it: the noise is each one's own."""
        self.env.share_layouts(seed)

    def limit_time(self, seconds: float) -> None:
        """For the environment behind it."""
        self.env.limit_time(seconds)

    def close(self) -> None:
        """Close the environment behind it."""
        self.env.close()
