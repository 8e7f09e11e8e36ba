"""What `doctor` measures, one pure function for each question; NumPy only. K is a number of steps, S of seeds.

A measure that has no answer (a constant column, an event that never happened) is nan, never a made-up number.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VISIT_BINS = 20  # powers of two: the last bin starts at half a million visits
# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom; 2.1 beyond the table is a little too wide.
_T = "12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131 2.120 2.110"
T975 = tuple(float(x) for x in _T.split())


def t_interval(values: Array) -> tuple[float, float]:
    """(mean, half width of the 95 % t interval) of the finite values (S,); nan where there are too few.

    Not a bootstrap: resampling two or three seeds gives intervals that are far too narrow.
    """
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return (float(x[0]) if len(x) else np.nan), np.nan
    t = T975[len(x) - 2] if len(x) - 2 < len(T975) else 2.1
    return float(x.mean()), float(t * x.std(ddof=1) / np.sqrt(len(x)))


def mean_of(values: Array) -> float:
    """The mean of (K,), nan without a warning when there is nothing."""
    return float(np.mean(values)) if len(values) else np.nan


def zscores(x: Array) -> Array:
    """(x - mean) / std over (K,); a constant has zero everywhere."""
    spread = x.std() if len(x) else 0.0
    return (x - x.mean()) / spread if spread > 1e-12 else np.zeros_like(x)


def pearson(a: Array, b: Array) -> float:
    """Correlation of a (K,) and b (K,); nan when either is constant."""
    za, zb = zscores(a), zscores(b)
    return float((za * zb).mean()) if za.any() and zb.any() else np.nan


def average_ranks(x: Array) -> Array:
    """Ranks 1 ... K of (K,), equal values sharing their mean rank."""
    _, inverse, count = np.unique(x, return_inverse=True, return_counts=True)
    ranks: Array = (count.cumsum() - (count - 1) / 2)[inverse]
    return ranks


def spearman(a: Array, b: Array) -> float:
    """Rank correlation of a (K,) and b (K,): Pearson of the average ranks, which is right with ties."""
    return pearson(average_ranks(a), average_ranks(b))


def size_of(x: Array) -> dict[str, float]:
    """Is it alive? Mean, std, coefficient of variation, share of zeros, number of non-finite values of a bonus (K,)."""
    finite = x[np.isfinite(x)]
    mean, std = mean_of(finite), float(finite.std()) if len(finite) else np.nan
    cv = std / abs(mean) if mean else np.nan
    return {
        "mean": mean,
        "std": std,
        "cv": cv,
        "zeros": mean_of(finite == 0),
        "nonfinite": float(len(x) - len(finite)),
    }


def energy_shares(second_moment: Array) -> Array:
    """Share of energy in each principal direction, largest first: eigenvalues of sum x x^T (n, n), not centred, to (n,)."""
    if not np.isfinite(second_moment).all():
        return np.full(len(second_moment), np.nan)
    eigenvalues: Array = np.linalg.eigvalsh(second_moment)[::-1].clip(min=0)
    return eigenvalues / max(float(eigenvalues.sum()), 1e-300)


def participation_ratio(shares: Array) -> float:
    """The effective dimension (sum s)^2 / sum s^2 of energies (n,): n when all are equal, 1 when one has all."""
    return float(shares.sum() ** 2 / max((shares**2).sum(), 1e-300))


def visit_counts(keys: Array) -> Array:
    """How often each key (K,) occurs among all of them, (K,)."""
    _, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    counts: Array = count[inverse]
    return counts


def by_visits(value: Array, counts: Array) -> Array:
    """Mean of value (K,) among observations with 1, 2-3, 4-7, ... visits, (VISIT_BINS,)."""
    bins = np.log2(counts).astype(int).clip(max=VISIT_BINS - 1)
    return np.array([mean_of(value[bins == i]) for i in range(VISIT_BINS)])


def first_and_repeats(value: Array, keys: Array, first: Array, valid: Array) -> tuple[float, float]:
    """Mean value where an observation occurs first in its episode, and where it comes again. keys, first, valid (T, B).

    `value` (H, B) covers the last H rows; what an episode showed before them still counts as shown. Only observations that
    occur first within those rows and again later are compared, each weighing the same, so both means are about the same
    observations: a bonus that only looks at the observation has no difference at all.
    """
    since = len(keys) - len(value)
    t, b = np.nonzero(valid)
    episode = first.cumsum(0)[t, b]
    key = keys[t, b]
    order = np.lexsort((t, key, episode, b))
    t, b, episode, key = t[order], b[order], episode[order], key[order]
    opens = np.ones(len(t), bool)  # where a new (environment, episode, observation) begins
    opens[1:] = (np.diff(b) != 0) | (np.diff(episode) != 0) | (np.diff(key) != 0)
    start = np.flatnonzero(opens)
    size = np.diff(np.append(start, len(t)))
    kept = (size >= 2) & (t[start] >= since)
    if not kept.any():
        return np.nan, np.nan
    x = np.where(t >= since, value[(t - since).clip(min=0), b], 0.0)
    begin = x[start]
    later = (np.add.reduceat(x, start) - begin) / np.maximum(size - 1, 1)
    return float(begin[kept].mean()), float(later[kept].mean())


def uniform_noise(like: Array, low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Fresh uniform noise shaped and typed as `like` (K, *obs), each feature within its observed range low, high (*obs)."""
    low, high = low.astype(np.float32), high.astype(np.float32)  # bytes would overflow
    whole = (
        like.dtype.kind in "ui"
    )  # the cast below floors, so integers need a range that is one wider
    noise: Array = low + rng.random(like.shape, dtype=np.float32) * (high - low + whole)
    kept: Array = np.minimum(noise, high).astype(like.dtype)
    return kept
