"""Statistics of results, with NumPy alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def zscores(x: Array) -> Array:
    """(x - mean) / std over (K,). A constant has zeros everywhere."""
    spread = 0.0
    if len(x):
        spread = x.std()
    if spread > 1e-12:
        z: Array = (x - x.mean()) / spread
        return z
    return np.zeros_like(x)


def mnir(reward: Array) -> Array:
    """Mean-normalised intrinsic reward of one episode (T,): its z-scores (appendix C)."""
    return zscores(reward)


def smooth(values: Array, window: int) -> Array:
    """Running mean (T,) over the last `window` values, or over fewer at the start."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    low = np.maximum(0, np.arange(1, len(values) + 1) - window)
    means: Array = (total[1:] - total[low]) / (np.arange(1, len(values) + 1) - low)
    return means


def iqm(scores: Array) -> float:
    """Interquartile mean: without the lowest and highest quarter, rounded down as in rliable."""
    ordered = np.sort(np.asarray(scores, float).ravel())
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap(
    strata: list[Array], statistic: Callable[[Array], float], resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % percentile interval of a statistic over all scores.

    The runs of each stratum (task) are resampled on their own. With one run in every stratum there
    is nothing to resample, and both ends are nan.
    """
    if max(map(len, strata), default=0) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    resampled = []
    for stratum in strata:
        runs = np.asarray(stratum, float)
        picks = rng.integers(0, len(runs), (resamples, len(runs)))
        resampled.append(runs[picks])
    values = [statistic(row) for row in np.concatenate(resampled, 1)]
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def cohens_d(better: Array, worse: Array) -> float:
    """(mean - mean) / pooled std, with n - 1 in each.

    nan with fewer than two runs on a side, +-inf where nothing varies.
    """
    a = np.asarray(better, float)
    b = np.asarray(worse, float)
    if min(len(a), len(b)) < 2:
        return float("nan")
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2)
    return effect(float(a.mean() - b.mean()), float(pooled) ** 0.5)


def effect(difference: float, spread: float) -> float:
    """Difference / spread. With a spread of zero it is 0 or +-inf."""
    if spread > 0:
        return difference / spread
    if difference == 0:
        return 0.0
    return float(np.copysign(np.inf, difference))


def human_normalised(score: float, random: float, human: float) -> float:
    """0 is a random agent's score, 100 a human's."""
    return 100 * (score - random) / (human - random)
