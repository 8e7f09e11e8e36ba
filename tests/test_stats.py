"""Statistics against numbers worked out by hand, and the paper's own numbers against each other."""

import numpy as np
import pytest

from surprise_memory.reproduce.published import (
    ATARI,
    ATARI_MEAN_MEDIAN,
    HUMAN,
    MINIGRID,
    RANDOM,
    TABLE_1,
)
from surprise_memory.tools.stats import bootstrap, cohens_d, human_normalised, iqm


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side():
    without_two = iqm(np.array([100.0, 1, 2, 3, 4, 5, 6, -50]))  # without -50, 1 and 6, 100
    assert without_two == pytest.approx(3.5)
    assert iqm(np.array([9.0, 1, 2, 3, 4])) == pytest.approx(3.0)  # one on each side of five
    assert iqm(np.array([1.0, 2, 6])) == pytest.approx(3.0)  # none of three
    assert iqm(np.array([[1.0, 2], [3, 40]])) == pytest.approx(2.5)


def test_cohens_d_by_hand():
    # Means 4 and 2, variances 4 and 1, pooled (2 * 4 + 2 * 1) / 4 = 2.5.
    assert cohens_d(np.array([2.0, 4, 6]), np.array([1.0, 2, 3])) == pytest.approx(2 / 2.5**0.5)
    # Unequal numbers: variances 2 (two runs) and 1 (three): pooled (1 * 2 + 2 * 1) / 3.
    assert cohens_d(np.array([1.0, 3.0]), np.array([1.0, 2, 3])) == pytest.approx(0)
    d = cohens_d(np.array([5.0, 7.0]), np.array([1.0, 2, 3]))
    assert d == pytest.approx(4 / (4 / 3) ** 0.5)
    assert cohens_d(np.array([1.0, 1]), np.array([0.0, 0])) == np.inf
    assert cohens_d(np.array([0.0, 0]), np.array([1.0, 1])) == -np.inf
    assert cohens_d(np.array([0.0, 0]), np.array([0.0, 0])) == 0
    assert np.isnan(cohens_d(np.array([1.0]), np.array([0.0, 0])))


def test_the_bootstrap_resamples_each_task_by_itself():
    def mean(x):
        return float(np.mean(x))

    # Pooled, the interval would reach from about 0 to 10.
    assert bootstrap([np.zeros(3), np.full(3, 10.0)], mean) == (5.0, 5.0)
    assert all(np.isnan(bootstrap([np.array([1.0]), np.array([3.0])], mean)))
    low, high = bootstrap([np.array([1.0, 3.0]), np.array([7.0])], mean)
    assert low == pytest.approx((1 + 1 + 7) / 3)
    assert high == pytest.approx((3 + 3 + 7) / 3)


def test_the_bootstraps_width_is_that_of_the_normal_law():
    x = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap([x], lambda values: float(values.mean()), resamples=4000)
    assert high - low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.08)
    assert low < x.mean() < high
    assert bootstrap([x], iqm, seed=1) == bootstrap([x], iqm, seed=1) != bootstrap([x], iqm, seed=2)


def test_human_normalised_scores_recompute_the_papers_table():
    """From its printed scores, up to rounding. Three of 22 numbers do not follow from them."""
    off = set()
    for method, scores in ATARI.items():
        normal = normalised(scores, HUMAN["paper"])
        mean, median = ATARI_MEAN_MEDIAN[method]
        if abs(np.mean(normal) - mean) > 0.11:
            off.add((method, "mean"))
        if abs(np.median(normal) - median) > 0.11:
            off.add((method, "median"))
    assert off == {("lwm (prior)", "median"), ("lwm", "mean"), ("rnd", "mean")}
    assert human_normalised(65.2, 65.2, 4334.7) == 0
    assert human_normalised(4334.7, 65.2, 4334.7) == pytest.approx(100)


def normalised(scores, human):
    """Human-normalised scores of the six games."""
    return [human_normalised(*score) for score in zip(scores, RANDOM, human, strict=True)]


def test_the_other_human_scores_do_not_give_the_papers_numbers():
    assert abs(np.mean(normalised(ATARI["lwm+sm"], HUMAN["57 games"])) - 97.0) > 1


def test_the_papers_table_of_minigrid_is_whole_and_its_italics_follow_from_it():
    assert len(TABLE_1) == 27
    for env in {env for env, _ in TABLE_1}:
        for generator in ("rnd", "icm", "ngu", "ae"):
            (m1, s1), (m0, s0) = TABLE_1[env, f"{generator}+sm"], TABLE_1[env, generator]
            d = (m1 - m0) / ((s1**2 + s0**2) / 2) ** 0.5
            italic = (generator, "DoorKey" in env) != ("icm", True)  # the one cell that is not
            assert (d >= 0.5) == italic, (env, generator, d)
    assert TABLE_1["MiniGrid-LavaCrossingS11N5-v0", "icm+sm"] == (84.6, 1) and MINIGRID[0] == "none"
