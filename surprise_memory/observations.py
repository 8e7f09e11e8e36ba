"""Observations of any space as arrays: one rule for our environments and for adapters.

| space                                  | one observation                                        |
|----------------------------------------|--------------------------------------------------------|
| Box of three axes                      | an image (C, H, W), dtype kept; (H, W, C) is turned    |
| any other Box                          | flattened, float32 (see `wide`)                        |
| Discrete                               | one-hot                                                |
| Dict, Tuple, MultiDiscrete and so on   | flattened as Gymnasium does, the same                  |
| Graph, Sequence                        | refused                                                |

No torch here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from surprise_memory.errors import UserError, choose

Array = np.ndarray[Any, Any]
Prepare = Callable[[Any], Array]


def to_arrays(
    space: gym.Space[Any], key: str | None = None, wide: bool = False
) -> tuple[tuple[int, ...], Prepare]:
    """The shape of one observation as an array, and a function that maps batches to arrays.

    `key` chooses one entry of a Dict space; otherwise all of it is flattened. With `wide`, numbers
    that float32 might round are kept as float64: a bonus whitens them, an agent's network cannot.
    """
    if key is not None:
        shape, prepare = to_arrays(_entry(space, key), wide=wide)
        return shape, lambda batch: prepare(batch[key])
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        first, second, third = space.shape
        if channels_last(space.shape):
            return (third, first, second), _channels_first
        return space.shape, np.asarray
    if isinstance(space, spaces.Box):
        dtype = _float_for(space, wide)
        return (int(np.prod(space.shape)),), lambda batch: _flat(batch, dtype)
    size = _size(space)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (size,), lambda batch: _one_hot(np.asarray(batch) - start, size)
    dtype = _float_for(space, wide)
    return (size,), lambda batch: _flatten(space, batch, dtype)


def _one_hot(batch: Array, size: int) -> Array:
    """(B,) numbers to (B, size)."""
    hot = np.zeros((len(batch), size), np.float32)
    hot[np.arange(len(batch)), batch] = 1
    return hot


def channels_last(shape: Sequence[int]) -> bool:
    """Whether an image is (H, W, C): its last axis is smaller than both others."""
    return shape[2] < min(shape[0], shape[1])


def stack(observations: list[Any]) -> Any:
    """Single observations to one batch, through dictionaries and tuples."""
    example = observations[0]
    if isinstance(example, dict):
        return {name: stack([obs[name] for obs in observations]) for name in example}
    if isinstance(example, tuple):
        return tuple(stack(list(part)) for part in zip(*observations, strict=True))
    return np.stack(observations)


def _entry(space: gym.Space[Any], key: str) -> gym.Space[Any]:
    """One entry of a Dict space."""
    if not isinstance(space, spaces.Dict):
        raise UserError(f"key = {key!r} chooses an entry of Dict observations, these are {space}.")
    return choose(space.spaces, key, "key")


def _size(space: gym.Space[Any]) -> int:
    """How many numbers Gymnasium flattens an observation to."""
    try:
        size = 0 if isinstance(space, spaces.OneOf) else spaces.flatdim(space)
    except (NotImplementedError, ValueError):
        size = 0
    if not size:
        raise UserError(
            f"Observations of {space} cannot be flattened to numbers: wrap the environment first."
        )
    return size


def _channels_first(batch: Any) -> Array:
    """(B, H, W, C) to (B, C, H, W)."""
    return np.ascontiguousarray(np.moveaxis(batch, -1, 1))


def _float_for(space: gym.Space[Any], wide: bool) -> Any:
    """float32, or float64 where that is wanted and float32 might round."""
    flat: Any = spaces.flatten_space(space)
    if wide and not np.can_cast(flat.dtype, np.float32):
        return np.float64
    return np.float32


def _flat(batch: Any, dtype: Any) -> Array:
    """(B, ...) to (B, k)."""
    with np.errstate(over="ignore"):  # an infinity is refused where it would be learnt from
        return np.reshape(batch, (len(batch), -1)).astype(dtype)


def _flatten(space: gym.Space[Any], batch: Any, dtype: Any) -> Array:
    """A batch of any space that Gymnasium can flatten, to (B, k)."""
    batched = gym.vector.utils.batch_space(space, _length(batch))
    rows = []
    for row in gym.vector.utils.iterate(batched, batch):
        rows.append(np.asarray(spaces.flatten(space, row), dtype))
    return np.stack(rows)


def _length(batch: Any) -> int:
    """B of a batch of a dictionary or tuple space."""
    while isinstance(batch, dict | tuple):
        parts = list(batch.values()) if isinstance(batch, dict) else batch
        batch = parts[0]
    return len(batch)
