"""A table as text, and how its numbers are written."""

import math
from dataclasses import dataclass

import numpy as np

from surprise_memory.reproduce.published import Score
from surprise_memory.tools.stats import bootstrap, cohens_d, iqm

MISSING = "missing"
BETTER = 0.5  # Cohen's d from which the paper calls SG+SM better than SG


@dataclass(frozen=True)
class Table:
    """A title, a head and rows, all text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def without_empty_columns(table: Table) -> Table:
    """A table without the columns in which no row has a word."""
    kept = [i for i in range(len(table.head)) if any(row[i] for row in table.rows)]
    rows = [[row[i] for i in kept] for row in table.rows]
    return Table(table.title, [table.head[i] for i in kept], rows)


def mean(values: list[float]) -> float:
    """The mean; nan of nothing."""
    if not values:
        return math.nan
    return float(np.mean(values))


def percent(share: float) -> str:
    """0.123 -> '12 %'; nothing for nan."""
    if math.isnan(share):
        return ""
    return f"{100 * share:.0f} %"


def printed(score: Score | None) -> str:
    """The paper's cell; empty where it has none."""
    if score is None:
        return ""
    mean_score, std = score
    if std is None:
        return number(mean_score)
    return f"{number(mean_score)} ± {std:g}"


def spread(scores: list[float]) -> str:
    """Mean and population std over the runs."""
    if not scores:
        return MISSING
    if len(scores) == 1:
        return number(scores[0])
    return f"{number(mean(scores))} ± {number(float(np.std(scores)))}"


def interval(strata: list[list[float]]) -> str:
    """The interquartile mean of all scores and its bootstrap interval.

    Empty unless every stratum (task) has the same number of runs, at least two: a task with more
    runs would count for more, and one with a single run as exactly known.
    """
    numbers = {len(runs) for runs in strata}
    if len(numbers) != 1 or min(numbers) < 2:
        return ""
    arrays = [np.asarray(runs, float) for runs in strata]
    low, high = bootstrap(arrays, iqm)
    return f"{number(iqm(np.concatenate(arrays)))} [{number(low)}, {number(high)}]"


def verdict(scores: list[float], alone: list[float]) -> str:
    """Cohen's d of the method with memory over the generator alone."""
    d = cohens_d(np.array(scores), np.array(alone))
    if math.isnan(d):
        return ""
    if d >= BETTER:
        return f"{d:.1f} (better)"
    if d <= -BETTER:
        return f"{d:.1f} (worse)"
    return f"{d:.1f}"


def number(value: float) -> str:
    """Three significant digits or one decimal, with commas for thousands; nothing for nan."""
    if math.isnan(value):
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 2 or value == 0:
        return f"{value:.1f}"
    return f"{value:.2f}"
