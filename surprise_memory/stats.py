"""Statistics of results; NumPy alone."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def mnir(reward: Array) -> Array:
    """Mean-normalised intrinsic reward of one episode (T,): (r - mean) / std, 0 where all are equal (appendix C)."""
    spread = reward.std()
    return (reward - reward.mean()) / spread if spread > 1e-12 else np.zeros_like(reward)


def smooth(values: Array, window: int) -> Array:
    """Running mean over the last `window` values (T,), shorter at the start."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    low = np.maximum(0, np.arange(1, len(values) + 1) - window)
    means: Array = (total[1:] - total[low]) / (np.arange(1, len(values) + 1) - low)
    return means
