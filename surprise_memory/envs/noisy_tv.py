"""NoisyTV/<id>: one action turns on a TV, and what the agent sees of that step is noise.

| id                        | what the TV shows                                                   |
|---------------------------|---------------------------------------------------------------------|
| NoisyTV/<id>              | fresh noise                                                         |
| NoisyTV:channels=8/<id>   | one of 8 fixed random images, drawn each time (Burda et al., 2018)   |
| NoisyTV:replay=1000/<id>  | one of the last 1000 real frames of any of the environments          |
| NoisyTV:sticky=4/<id>     | the same for 4 steps, whatever the agent does meanwhile              |
"""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Place, Step, VecEnv
from surprise_memory.errors import UserError, require

PREFIX = "NoisyTV/"


@dataclass(frozen=True)
class TVOptions:
    """What a TV shows and for how long."""

    channels: int = 0
    """Fixed random images; 0 is fresh noise."""
    replay: int = 0
    """Real frames that are kept and shown; 0 is none."""
    sticky: int = 1
    """Steps that it stays on."""


class NoisyTV(VecEnv):
    """An environment with a TV: fresh N(0, 1) noise in place of the newest frame.

    Where the environment has a `noop` (MiniWorld, Atari), the TV gets an action of its own, and the
    noop is taken underneath. Elsewhere the last action also turns on the TV and still does what it
    always did; in most MiniGrid tasks that is "done", which does nothing. In images, noise from -3
    to 3 is mapped to the range of a byte. It stays in a stack of frames like any other frame. The
    frame after a reset is never noise.
    """

    def __init__(self, env: VecEnv, seed: int, options: TVOptions | None = None) -> None:
        options = options or TVOptions()
        require(options.channels >= 0, "NoisyTV's channels", options.channels, "at least 0")
        require(options.replay >= 0, "NoisyTV's replay", options.replay, "at least 0")
        require(options.sticky >= 1, "NoisyTV's sticky", options.sticky, "at least 1")
        both = options.channels > 0 and options.replay > 0
        require(not both, "NoisyTV's channels, replay", options, "one of them")
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
        plain = options == TVOptions()
        self.saves_state = env.saves_state and plain and not stacked
        actions = int(env.action_space.n)
        self.action_names = env.action_names
        if self.noop is not None:
            actions += 1
            self.action_names = ()
        self.action_space = gym.spaces.Discrete(actions)
        self.tv_action = actions - 1
        self.rng = np.random.default_rng(seed)
        self.channels_rng = self.rng
        self.static_rng = np.random.default_rng([seed, 1])  # drawing must not move the noise
        self.options = options
        self.left: Array = np.zeros(env.num_envs, int)  # steps that the TV stays on
        self.watched: Array = np.zeros(env.num_envs, bool)
        self.frames: Array | None = None  # channels, or real frames to replay
        self.stored = 0
        self.obs: Array = np.zeros((env.num_envs, *env.obs_shape), np.float32)

    def reset(self) -> Array:
        """Start all episodes."""
        self.obs = self.env.reset()
        self.left[:] = 0
        self.watched[:] = False
        return self.obs

    def step(self, action: Array) -> Step:
        """Act; where the TV was turned on, put noise in place of the newest frame."""
        turned_on = action == self.tv_action
        if self.noop is not None:
            action = np.where(turned_on, self.noop, action)
        step = self.env.step(action)
        done = step.terminated | step.truncated
        # An action that only resets does not turn it on.
        self.left = np.where(turned_on & step.valid, self.options.sticky, self.left)
        self.watched = (self.left > 0) & step.valid & ~done
        self.left = np.maximum(self.left - 1, 0)
        self.left[done] = 0
        frame = step.next_obs[:, -self.newest_channels :].copy()
        self._store(frame[~self.watched & step.valid])
        frame[self.watched] = self.noise(int(self.watched.sum()), frame.dtype)
        next_obs = np.concatenate([self.obs[:, self.newest_channels :], frame], 1)
        next_obs[~step.valid] = step.next_obs[~step.valid]
        self.obs = next_obs.copy()
        opened = done | ~step.valid  # an episode begins: its first frame is the environment's own
        self.obs[opened] = step.obs[opened]
        info: dict[str, Array] = {**step.info, "watched": self.watched}
        return step._replace(next_obs=next_obs, obs=self.obs, info=info)

    def noise(self, rows: int, dtype: Any) -> Array:
        """One frame for each of some rows, of the dtype."""
        shape = (self.newest_channels, *self.obs_shape[1:])
        if self.options.channels and self.frames is None:
            self.frames = draw_noise(self.channels_rng, (self.options.channels, *shape), dtype)
            self.stored = self.options.channels
        if self.frames is None or not self.stored:
            return draw_noise(self.rng, (rows, *shape), dtype)
        kept = min(self.stored, len(self.frames))
        return self.frames[self.rng.integers(0, kept, rows)]

    def _store(self, real: Array) -> None:
        """Keep real frames (K, ...) where the TV replays them, over the oldest."""
        size = self.options.replay
        if not size:
            return
        if self.frames is None:
            self.frames = np.zeros((size, *real.shape[1:]), real.dtype)
        for frame in real:
            self.frames[self.stored % size] = frame
            self.stored += 1

    def events(self, obs: Array) -> dict[str, Array]:
        """What the environment names. Noise may look like an event: `info` tells where it is."""
        return self.env.events(obs)

    def render(self) -> Array:
        """The first environment, or static while the agent watches."""
        picture = self.env.render()
        if self.watched[0]:
            picture = self.static_rng.integers(0, 256, picture.shape, np.uint8)
        return picture

    def place(self) -> Place | None:
        """For the environment behind it."""
        return self.env.place()

    def keep_fixed(self, first_seed: int) -> None:
        """The channels are those of the run's start."""
        self.channels_rng = np.random.default_rng(first_seed)
        self.env.keep_fixed(first_seed)

    def share_layouts(self, seed: int) -> None:
        """For the environment behind it: the noise is each one's own."""
        self.env.share_layouts(seed)

    def limit_time(self, seconds: float) -> None:
        """For the environment behind it."""
        self.env.limit_time(seconds)

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


def draw_noise(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """N(0, 1) noise; as bytes, -3 to 3 are mapped to 0 to 255."""
    z: Array = rng.standard_normal(shape, dtype=np.float32)
    if dtype == np.uint8:
        z = ((z.clip(-3, 3) + 3) / 6 * 255).round().astype(np.uint8)
    return z
