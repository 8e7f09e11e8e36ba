"""The tables of a study: our scores beside the paper's, with intervals and gaps marked."""

import math

import numpy as np

from surprise_memory.reproduce.grid import Entry
from surprise_memory.reproduce.published import (
    ATARI_MEAN_MEDIAN,
    GAMES,
    HUMAN,
    PRIOR,
    RANDOM,
    Score,
)
from surprise_memory.reproduce.report.doctor_table import memory_table
from surprise_memory.reproduce.report.gather import Result, Study
from surprise_memory.reproduce.report.table import (
    MISSING,
    Table,
    interval,
    mean,
    number,
    percent,
    printed,
    spread,
    verdict,
)
from surprise_memory.tools.stats import human_normalised

CUMULATIVE = "charts/task_reward_total"  # task reward since the run began, warm-up included


def tables(study: Study) -> list[Table]:
    """One for each environment, one over all of them, and one for each other measurement."""
    empty = study.empty_envs
    made = [score_table(study, env) for env in study.grid.envs if env not in empty]
    if study.grid.cumulative:
        made.append(cumulative_table(study))
    if set(GAMES) <= set(study.grid.envs):
        made.append(human_table(study))
    if study.grid.comparable:
        made.append(overall_table(study))
    if study.has_metric("noisy_tv/share"):
        made.append(tv_table(study))
    if any("doctor" in r.probe_results for r in study.results):
        made.append(memory_table(study))
    return made


def score_table(study: Study, env: str) -> Table:
    """Each entry's score in the paper and here."""
    head = ["method", "the paper", "here, mean ± std", "IQM [95 %]", "d over generator", "by seed"]
    enough = study.grid.solved
    if enough is not None:
        head.append(f"solved ({enough:g}) at")
    rows = []
    for entry in study.grid.entries:
        scores = study.scores(env, entry.name)
        row = [
            entry.name,
            printed(study.grid.published.get((env, entry.name))),
            spread(scores),
            interval([scores]),
            verdict(scores, study.scores(env, counterpart(entry))),
            ", ".join(map(number, scores)) or MISSING,
        ]
        if enough is not None:
            finished = [r for r in study.of(env, entry.name) if r.score is not None]
            row.append(", ".join(solved_at(result, enough) for result in finished))
        rows.append(row)
    for method, score in quoted(study, env).items():
        row = [method, printed(score)]
        rows.append(row + [""] * (len(head) - len(row)))
    return Table(study.grid.short.get(env, env), head, rows)


def quoted(study: Study, env: str) -> dict[str, Score]:
    """Scores that the paper itself quotes from elsewhere, of methods that are not run here."""
    found = {}
    for (where, method), score in study.grid.published.items():
        if where == env and method.endswith(PRIOR):
            found[method] = score
    return found


def counterpart(entry: Entry) -> str:
    """The generator alone that a method is to be compared with.

    Empty where more than the memory differs between the two.
    """
    if not entry.memory or "+" in entry.memory:  # no memory, or stages behind it
        return ""
    for name, _ in entry.options:
        if not name.startswith("bonus.memory"):
            return ""
    return entry.generator


def solved_at(result: Result, enough: float) -> str:
    """Steps until the last 128 training episodes returned `enough`.

    The first tenth of a run has too few episodes to count.
    """
    for row in result.rows:
        if row["step"] > result.steps / 10 and row.get("charts/return_128", -math.inf) >= enough:
            return f"{row['step'] / 1e6:.2f} M"
    return "-"


def cumulative_table(study: Study) -> Table:
    """Task reward collected over all of training, by finished runs; they have equally many steps.

    Runs of versions that did not count it are left out.
    """
    head = ["method", "environment", "mean ± std", "per 1,000 steps", "by seed"]
    rows = []
    for env in study.grid.envs:
        for entry in study.grid.entries:
            totals = []
            rates = []
            for result in study.of(env, entry.name):
                if result.score is not None and result.last(CUMULATIVE, 1.0):
                    totals.append(result.last(CUMULATIVE, 1.0)[-1])
                    rates.append(1000 * totals[-1] / result.reached)
            by_seed = ", ".join(map(number, totals)) or MISSING
            name = study.grid.short.get(env, env)
            rows.append([entry.name, name, spread(totals), number(mean(rates)), by_seed])
    return Table("task reward collected over training", head, rows)


def overall_table(study: Study) -> Table:
    """Over all environments: the mean of their means, and the IQM, resampled within each."""
    head = ["method", "the paper: mean", "here: mean", "IQM [95 %, stratified]"]
    rows = []
    for entry in study.grid.entries:
        published = []
        strata = []
        for env in study.grid.envs:
            score = study.grid.published.get((env, entry.name))
            if score is not None:
                published.append(score[0])
            strata.append(study.scores(env, entry.name))
        row = [entry.name, "", MISSING, MISSING]
        if len(published) == len(strata):
            row[1] = number(mean(published))
        if all(strata):
            row[2] = number(mean([mean(scores) for scores in strata]))
            row[3] = interval(strata)
        rows.append(row)
    return Table("all tasks together", head, rows)


def human_table(study: Study) -> Table:
    """Mean and median over the games of the human-normalised score; ours if every game was run."""
    head = ["method", "the paper: mean", "median", "here: mean", "median"]
    own = study.grid.entry_names
    rows = []
    for method in dict.fromkeys([*ATARI_MEAN_MEDIAN, *own]):
        row = [method, "", "", "", ""]
        if method in ATARI_MEAN_MEDIAN:
            row[1:3] = map(number, ATARI_MEAN_MEDIAN[method])
        normalised = normalised_by_humans(study, method)
        if normalised:
            row[3:] = [number(mean(normalised)), number(float(np.median(normalised)))]
        elif method in own:
            row[3:] = [MISSING, MISSING]
        rows.append(row)
    return Table("human-normalised, over the six games", head, rows)


def normalised_by_humans(study: Study, method: str) -> list[float]:
    """A method's human-normalised score in each game; empty unless every game was run."""
    normalised = []
    for game, random, human in zip(GAMES, RANDOM, HUMAN["paper"], strict=True):
        scores = study.scores(game, method)
        if not scores:
            return []
        normalised.append(human_normalised(mean(scores), random, human))
    return normalised


def tv_table(study: Study) -> Table:
    """Share of steps watching the TV in the last quarter, and what drew the agent there."""
    head = [
        "method",
        "steps watching, by seed",
        "bonus there, first rollout (std)",
        "share of all bonus",
    ]
    rows = []
    having = [r for r in study.results if r.last("noisy_tv/share", 1.0)]
    envs = [env for env in study.grid.envs if env in {r.env for r in having}]
    for env in envs:
        for entry in study.grid.entries:
            watched = []
            first = []
            paid = []
            for result in study.of(env, entry.name):
                if not result.last("noisy_tv/share", 1.0):
                    continue
                watched.append(mean(result.last("noisy_tv/share", 0.25)))
                first += result.last("noisy_tv/z", 1.0)[:1]
                shares = result.last("noisy_tv/pay_share", 0.25)
                if shares:
                    paid.append(mean(shares))
            by_seed = ", ".join(map(percent, watched)) or MISSING
            name = entry.name
            if len(envs) > 1:
                name += f", {study.grid.short.get(env, env)}"
            rows.append([name, by_seed, number(mean(first)), percent(mean(paid))])
    return Table("watching the TV, last quarter of training", head, rows)
