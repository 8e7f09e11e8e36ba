"""What the doctor measures: one pure function for each question, NumPy only.

K is a number of steps, S a number of seeds. A measure without an answer is nan, never a made-up
number: a constant has no correlation, an event that never happened has no bonus.
"""

import numpy as np

from surprise_memory.tools.stats import Array, zscores

VISIT_BINS = 20  # powers of two: the last bin starts at half a million visits
# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
    2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
)  # fmt: skip
T975_BEYOND = 2.1  # beyond the table: a little too wide


def t_interval(values: Array) -> tuple[float, float]:
    """Mean, and half the width of the 95 % t interval, of the finite values among (S,).

    Either is nan where there are too few. Not a bootstrap: resampling two or three seeds gives
    intervals that are far too narrow.
    """
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if len(x) < 2:
        return mean_of(x), np.nan
    freedom = len(x) - 1
    t = T975_BEYOND
    if freedom <= len(T975):
        t = T975[freedom - 1]
    return float(x.mean()), float(t * x.std(ddof=1) / np.sqrt(len(x)))


def mean_of(values: Array) -> float:
    """The mean of (K,); of nothing it is nan, without a warning."""
    if not len(values):
        return np.nan
    return float(np.mean(values))


def pearson(a: Array, b: Array) -> float:
    """Correlation of a (K,) and b (K,); nan if either is constant."""
    za = zscores(a)
    zb = zscores(b)
    if not za.any() or not zb.any():
        return np.nan
    return float((za * zb).mean())


def average_ranks(x: Array) -> Array:
    """Ranks 1 ... K of (K,); equal values share their mean rank."""
    _, inverse, count = np.unique(x, return_inverse=True, return_counts=True)
    ranks: Array = (count.cumsum() - (count - 1) / 2)[inverse]
    return ranks


def spearman(a: Array, b: Array) -> float:
    """Rank correlation of a (K,) and b (K,): Pearson's of the average ranks, correct with ties."""
    return pearson(average_ranks(a), average_ranks(b))


def size_of(x: Array) -> dict[str, float]:
    """Is a bonus (K,) alive? Its mean and spread, its zeros, and what is not a number."""
    finite = x[np.isfinite(x)]
    mean = mean_of(finite)
    std = np.nan
    if len(finite):
        std = float(finite.std())
    cv = np.nan
    if mean:
        cv = std / abs(mean)
    return {
        "mean": mean,
        "std": std,
        "cv": cv,  # coefficient of variation
        "zeros": mean_of(finite == 0),
        "nonfinite": float(len(x) - len(finite)),
    }


def energy_shares(second_moment: Array) -> Array:
    """Share of the energy in each principal direction (n,), largest first.

    They are the eigenvalues of the second moment sum x x^T (n, n), which is not centred.
    """
    if not np.isfinite(second_moment).all():
        return np.full(len(second_moment), np.nan)
    eigenvalues: Array = np.linalg.eigvalsh(second_moment)[::-1].clip(min=0)
    return eigenvalues / max(float(eigenvalues.sum()), 1e-300)


def participation_ratio(shares: Array) -> float:
    """Effective dimension (sum s)^2 / sum s^2 of energies (n,): n if equal, 1 if one has all."""
    return float(shares.sum() ** 2 / max((shares**2).sum(), 1e-300))


def visit_counts(keys: Array) -> Array:
    """How often each key (K,) occurs among all of them, (K,)."""
    _, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    counts: Array = count[inverse]
    return counts


def by_visits(value: Array, counts: Array) -> Array:
    """Mean of value (K,) over observations with 1, 2-3, 4-7, ... visits, (VISIT_BINS,)."""
    bins = np.log2(counts).astype(int).clip(max=VISIT_BINS - 1)
    return np.array([mean_of(value[bins == i]) for i in range(VISIT_BINS)])


def first_and_repeats(value: Array, keys: Array, first: Array, valid: Array) -> tuple[float, float]:
    """Mean value where an observation is first seen in its episode, and where it is seen again.

    keys, first and valid are (T, B). `value` (H, B) covers the last H rows; what an episode showed
    before them still counts as seen. Only observations that are first seen within those rows and
    seen again later are compared, each with the same weight. So both means are about the same
    observations: a bonus that depends on nothing but the observation has no difference at all.
    """
    since = len(keys) - len(value)
    t, b = np.nonzero(valid)
    episode = first.cumsum(0)[t, b]
    key = keys[t, b]
    order = np.lexsort((t, key, episode, b))
    t = t[order]
    b = b[order]
    new_key = np.diff(key[order]) != 0
    new_episode = np.diff(episode[order]) != 0
    new_env = np.diff(b) != 0
    opens = np.ones(len(t), bool)  # where a new (environment, episode, observation) begins
    opens[1:] = new_env | new_episode | new_key
    start = np.flatnonzero(opens)
    size = np.diff(np.append(start, len(t)))
    compared = (size >= 2) & (t[start] >= since)
    if not compared.any():
        return np.nan, np.nan
    x = np.where(t >= since, value[(t - since).clip(min=0), b], 0.0)
    first_time = x[start]
    again = (np.add.reduceat(x, start) - first_time) / np.maximum(size - 1, 1)
    return float(first_time[compared].mean()), float(again[compared].mean())


def uniform_noise(like: Array, low: Array, high: Array, rng: np.random.Generator) -> Array:
    """Uniform noise shaped and typed as `like` (K, *obs), each feature in [low, high] (*obs)."""
    low = low.astype(np.float32)  # bytes would overflow
    high = high.astype(np.float32)
    width = high - low
    if like.dtype.kind in "ui":
        width = width + 1  # the cast below floors
    noise: Array = low + rng.random(like.shape, dtype=np.float32) * width
    clipped: Array = np.minimum(noise, high).astype(like.dtype)
    return clipped
