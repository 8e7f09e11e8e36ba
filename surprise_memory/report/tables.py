"""Tables as rows of text: ours beside the paper's, with intervals; what is missing is shown as missing."""

import math
from dataclasses import dataclass

import numpy as np

from surprise_memory.report.gather import Study
from surprise_memory.reproduce.published import ATARI_MEAN_MEDIAN, GAMES, HUMAN, RANDOM, Score
from surprise_memory.stats import bootstrap, cohens_d, human_normalised, iqm

MISSING = "missing"
BETTER = 0.5  # Cohen's d from which the paper calls SG+SM better than SG


@dataclass(frozen=True)
class Table:
    """A title, a head and rows, all text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def tables(study: Study) -> list[Table]:
    """One for each environment; for Atari the normalised scores, too."""
    made = [score_table(study, env) for env in study.grid.envs]
    if set(GAMES) <= set(study.grid.envs):
        made.append(human_table(study))
    if any("noisy_tv/share" in row for r in study.results for row in r.rows[-1:]):
        made.append(tv_table(study))
    return made


def score_table(study: Study, env: str) -> Table:
    """Each entry's score by the paper and by us."""
    head = ["method", "the paper", "here, mean ± std", "IQM [95 %]", "Cohen's d over its generator", "seeds", "by seed"]
    rows = []
    for entry in study.grid.entries:
        scores = study.scores(env, entry.name)
        generator, _, memory = entry.name.partition("+")
        alone = study.scores(env, generator) if memory else []
        rows.append(
            [
                entry.name,
                printed(study.grid.published.get((env, entry.name))),
                spread(scores),
                interval(scores),
                verdict(scores, alone),
                f"{len(scores)}",
                ", ".join(number(x) for x in scores) or MISSING,
            ]
        )
    return Table(study.grid.short.get(env, env), head, rows)


def human_table(study: Study) -> Table:
    """Mean and median over the games of the human-normalised score; ours where every game was run."""
    head = ["method", "the paper: mean", "median", "here: mean", "median"]
    rows = []
    for method in dict.fromkeys([*ATARI_MEAN_MEDIAN, *(entry.name for entry in study.grid.entries)]):
        theirs = [number(x) for x in ATARI_MEAN_MEDIAN.get(method, ())] or ["", ""]
        each = [study.scores(game, method) for game in GAMES]
        ours = [MISSING, MISSING] if method in {e.name for e in study.grid.entries} else ["", ""]
        if all(each):
            human = HUMAN["paper"]
            normal = [human_normalised(float(np.mean(s)), r, h) for s, r, h in zip(each, RANDOM, human, strict=True)]
            ours = [number(float(np.mean(normal))), number(float(np.median(normal)))]
        rows.append([method, *theirs, *ours])
    return Table("human-normalised, over the six games", head, rows)


def tv_table(study: Study) -> Table:
    """How much of the last quarter of training was spent before the noisy TV, by seed."""
    rows = []
    for env in study.grid.envs:
        for entry in study.grid.entries:
            mine = [r for r in study.results if (r.env, r.entry) == (env, entry.name)]
            shares = [[row["noisy_tv/share"] for row in r.rows if "noisy_tv/share" in row] for r in mine]
            ends = [float(np.mean(s[-max(1, len(s) // 4) :])) for s in shares if s]
            rows.append([env, entry.name, ", ".join(f"{100 * x:.0f} %" for x in ends) or MISSING])
    return Table("steps before the noisy TV, last quarter", ["environment", "method", "by seed"], rows)


def printed(score: Score | None) -> str:
    """The paper's cell; empty where it has none."""
    if score is None:
        return ""
    mean, std = score
    return number(mean) if std is None else f"{number(mean)} ± {std:g}"


def spread(scores: list[float]) -> str:
    """Mean and population std over the runs, as the paper gives them."""
    if not scores:
        return MISSING
    return f"{number(float(np.mean(scores)))} ± {number(float(np.std(scores)))}" if len(scores) > 1 else number(scores[0])


def interval(scores: list[float]) -> str:
    """The interquartile mean and its bootstrap interval; one run has none."""
    if not scores:
        return MISSING
    low, high = bootstrap([np.array(scores)], iqm)
    return number(iqm(np.array(scores))) + ("" if math.isnan(low) else f" [{number(low)}, {number(high)}]")


def verdict(scores: list[float], alone: list[float]) -> str:
    """Cohen's d of the method with memory over the generator alone."""
    d = cohens_d(np.array(scores), np.array(alone)) if scores and alone else math.nan
    return "" if math.isnan(d) else f"{d:.1f}" + (" (better)" if d >= BETTER else " (worse)" if d <= -BETTER else "")


def number(value: float) -> str:
    """Three significant digits or one decimal, thousands marked."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 2 or value == 0 else f"{value:.2f}"
