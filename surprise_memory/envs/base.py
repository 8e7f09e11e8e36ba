"""What the trainer needs of a vector of environments, and the three ways in which Gymnasium resets them made one.

`step` returns a `Step` whose `next_obs` is the true successor of what was acted on and whose `obs` is what to act on next.
They differ only at an episode's end. Gymnasium's modes (`metadata["autoreset_mode"]`) are told apart here and nowhere else:

NEXT_STEP  the step after an end ignores the action and returns the reset frame: that row is not `valid`
SAME_STEP  the end already returns the reset frame; the true successor is in `info["final_obs"]`
DISABLED   we reset the ended environments ourselves
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from surprise_memory.errors import UserError

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """One vector step; everything is (B, ...)."""

    next_obs: Array
    obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    info: Mapping[str, Array] = MappingProxyType(
        {}
    )  # what some environments tell beside it, such as Montezuma's room


class VecEnv(Protocol):
    """B environments as the trainer sees them: vectors are float32 (k,), images are (C, H, W)."""

    num_envs: int
    obs_shape: tuple[int, ...]
    action_space: gym.Space[Any]

    def reset(self) -> Array:
        """All environments start an episode; returns (B, *obs_shape)."""

    def step(self, action: Array) -> Step:
        """Act in all environments."""

    def render(self) -> Array:
        """The first environment as an image (H, W, 3); it must have been made with `render=True`."""

    def close(self) -> None:
        """Let go of threads and processes."""


class AutoresetAdapter:
    """Turns a Gymnasium vector environment of any autoreset mode into `Step`s. `prepare` maps its observations to arrays."""

    def __init__(self, env: Any, prepare: Any) -> None:
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.env, self.prepare, self.mode = env, prepare, AutoresetMode(mode)
        self.ended: Array = np.zeros(env.num_envs, dtype=bool)
        self.info: dict[str, Any] = {}  # of the last step

    def reset(self, seed: int | None) -> Array:
        """Start all episodes."""
        self.ended[:] = False
        obs, _ = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        return np.asarray(self.prepare(obs))

    def step(self, action: Array) -> Step:
        """One step of the environment, in our convention."""
        raw, reward, terminated, truncated, info = self.env.step(action)
        self.info = info
        next_obs = obs = self.prepare(raw)
        valid = np.ones(len(obs), dtype=bool)
        done = terminated | truncated
        if self.mode == AutoresetMode.NEXT_STEP:
            valid = ~self.ended
            # A row that never happened has no reward and cannot end an episode.
            reward, terminated, truncated = reward * valid, terminated & valid, truncated & valid
            done = done & valid
        elif done.any() and self.mode == AutoresetMode.SAME_STEP:
            if "final_obs" not in info:
                raise UserError(
                    "This SAME_STEP vector environment ends episodes without info['final_obs']: use NEXT_STEP."
                )
            next_obs = obs.copy()
            finals = [info["final_obs"][i] for i in np.flatnonzero(done)]
            next_obs[done] = self.prepare(_stack(finals))
        elif done.any():
            obs = self.prepare(self.env.reset(options={"reset_mask": done})[0])
        self.ended = done
        return Step(next_obs, obs, np.asarray(reward, np.float32), terminated, truncated, valid)


def _stack(observations: list[Any]) -> Any:
    """Single observations to one batch, through dictionaries."""
    if isinstance(observations[0], dict):
        return {name: _stack([o[name] for o in observations]) for name in observations[0]}
    return np.stack(observations)


def to_arrays(space: gym.Space[Any]) -> tuple[tuple[int, ...], Any]:
    """(shape, function from batches): images to (B, C, H, W) with their dtype, everything else flattened to float32."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        height, width, channels = space.shape
        if channels <= 4 and height > 4:  # channels last, as Gymnasium's renderers give them
            return (channels, height, width), lambda batch: np.ascontiguousarray(
                np.moveaxis(batch, -1, 1)
            )
        return space.shape, np.asarray
    if isinstance(space, spaces.Box):
        return (int(np.prod(space.shape)),), lambda batch: np.reshape(
            batch, (len(batch), -1)
        ).astype(np.float32)
    try:
        width = spaces.flatdim(space)
    except NotImplementedError as error:
        raise UserError(
            f"Observations of {space} cannot be flattened to numbers: wrap the environment first."
        ) from error
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (width,), lambda batch: np.eye(width, dtype=np.float32)[np.asarray(batch) - start]

    def flatten(batch: Any) -> Array:
        rows = gym.vector.utils.iterate(gym.vector.utils.batch_space(space, _length(batch)), batch)
        return np.stack([np.asarray(spaces.flatten(space, row), np.float32) for row in rows])

    return (width,), flatten


def _length(batch: Any) -> int:
    """B of a batch of a dictionary or tuple space."""
    while isinstance(batch, dict | tuple):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch)


def envpool() -> Any:
    """The EnvPool module, which has MiniGrid and Atari, or how to get it."""
    try:
        import envpool as pool
    except ImportError as error:
        raise UserError(
            "EnvPool is not installed: pip install 'surprise-memory[minigrid,atari]'."
        ) from error
    return pool
