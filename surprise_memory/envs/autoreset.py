"""Gymnasium's three ways of resetting ended environments, made one.

Only this file knows the modes of `metadata["autoreset_mode"]`:

NEXT_STEP  the step after an end ignores its action and returns the reset frame: it is not `valid`
SAME_STEP  the end already returns the reset frame; the true successor is in `info["final_obs"]`
DISABLED   we reset the ended environments ourselves
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from surprise_memory.envs.base import Array, Step
from surprise_memory.errors import UserError

Prepare = Callable[[Any], Array]


class AutoresetAdapter:
    """Turns the steps of a Gymnasium vector environment of any autoreset mode into `Step`s."""

    def __init__(self, env: Any, prepare: Prepare) -> None:
        """`prepare` maps a batch of its observations to an array (B, ...)."""
        self.env = env
        self.prepare = prepare
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.mode = AutoresetMode(mode)
        self.ended: Array = np.zeros(env.num_envs, dtype=bool)
        self.info: dict[str, Any] = {}  # of the last step

    def reset(self, seed: int | None) -> Array:
        """Start all episodes."""
        self.ended[:] = False
        if seed is None:
            obs, _ = self.env.reset()
        else:
            obs, _ = self.env.reset(seed=seed)
        return np.asarray(self.prepare(obs))

    def step(self, action: Array) -> Step:
        """One step of the environment, in our convention."""
        raw, reward, terminated, truncated, self.info = self.env.step(action)
        obs = self.prepare(raw)
        next_obs = obs
        valid = np.ones(len(obs), dtype=bool)
        if self.mode == AutoresetMode.NEXT_STEP:
            # A row that never happened has no reward and cannot end an episode.
            valid = ~self.ended
            reward = reward * valid
            terminated = terminated & valid
            truncated = truncated & valid
        done = terminated | truncated
        if done.any() and self.mode == AutoresetMode.SAME_STEP:
            next_obs = self._put_final_obs(obs, done)
        elif done.any() and self.mode == AutoresetMode.DISABLED:
            raw, _ = self.env.reset(options={"reset_mask": done})
            obs = self.prepare(raw)
        self.ended = done
        return Step(
            next_obs=next_obs,
            obs=obs,
            reward=np.asarray(reward, np.float32),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )

    def _put_final_obs(self, obs: Array, done: Array) -> Array:
        """A copy of `obs` that has the true successor where an episode ended."""
        if "final_obs" not in self.info:
            raise UserError(
                "This SAME_STEP vector environment ends episodes without info['final_obs']: "
                "use NEXT_STEP."
            )
        finals = [self.info["final_obs"][i] for i in np.flatnonzero(done)]
        next_obs = obs.copy()
        next_obs[done] = self.prepare(_stack(finals))
        return next_obs


def _stack(observations: list[Any]) -> Any:
    """Single observations to one batch, through dictionaries and tuples."""
    example = observations[0]
    if isinstance(example, dict):
        return {name: _stack([obs[name] for obs in observations]) for name in example}
    if isinstance(example, tuple):
        return tuple(_stack(list(part)) for part in zip(*observations, strict=True))
    return np.stack(observations)


def to_arrays(space: gym.Space[Any]) -> tuple[tuple[int, ...], Prepare]:
    """The shape of one observation as an array, and a function that maps batches to arrays.

    Images become (B, C, H, W) and keep their dtype. All else is flattened to float32 (B, k).
    """
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        height, width, channels = space.shape
        if channels <= 4 and height > 4:  # channels last, as Gymnasium's renderers return them
            return (channels, height, width), _channels_first
        return space.shape, np.asarray
    if isinstance(space, spaces.Box):
        return (int(np.prod(space.shape)),), _flat
    try:
        size = spaces.flatdim(space)
    except NotImplementedError as error:
        raise UserError(
            f"Observations of {space} cannot be flattened to numbers: wrap the environment first."
        ) from error
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (size,), lambda batch: np.eye(size, dtype=np.float32)[np.asarray(batch) - start]
    return (size,), lambda batch: _flatten(space, batch)


def _channels_first(batch: Any) -> Array:
    """(B, H, W, C) to (B, C, H, W)."""
    return np.ascontiguousarray(np.moveaxis(batch, -1, 1))


def _flat(batch: Any) -> Array:
    """(B, ...) to (B, k)."""
    return np.reshape(batch, (len(batch), -1)).astype(np.float32)


def _flatten(space: gym.Space[Any], batch: Any) -> Array:
    """A batch of any space that Gymnasium can flatten, to (B, k)."""
    batched = gym.vector.utils.batch_space(space, _length(batch))
    rows = []
    for row in gym.vector.utils.iterate(batched, batch):
        rows.append(np.asarray(spaces.flatten(space, row), np.float32))
    return np.stack(rows)


def _length(batch: Any) -> int:
    """B of a batch of a dictionary or tuple space."""
    while isinstance(batch, dict | tuple):
        parts = list(batch.values()) if isinstance(batch, dict) else batch
        batch = parts[0]
    return len(batch)
