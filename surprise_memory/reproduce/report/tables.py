"""Tables as rows of text: ours beside the paper's, with intervals; what is missing is shown as missing."""

import math
from dataclasses import dataclass

import numpy as np

from surprise_memory.bonus.methods import split_method
from surprise_memory.reproduce.grids import Entry
from surprise_memory.reproduce.published import ATARI_MEAN_MEDIAN, GAMES, HUMAN, RANDOM, Score
from surprise_memory.reproduce.report.gather import Result, Study
from surprise_memory.tools.stats import bootstrap, cohens_d, human_normalised, iqm

MISSING = "missing"
BETTER = 0.5  # Cohen's d from which the paper calls SG+SM better than SG


@dataclass(frozen=True)
class Table:
    """A title, a head and rows, all text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def tables(study: Study) -> list[Table]:
    """One for each environment, one over all of them, and what else the runs have to tell."""
    made = [score_table(study, env) for env in study.grid.envs]
    if set(GAMES) <= set(study.grid.envs):
        made.append(human_table(study))
    if study.grid.comparable:
        made.append(overall_table(study))
    if any(r.later("noisy_tv/share", 1.0) for r in study.results):
        made.append(tv_table(study))
    if any("doctor" in r.answers for r in study.results):
        made.append(memory_table(study))
    return made


def score_table(study: Study, env: str) -> Table:
    """Each entry's score by the paper and by us."""
    head, enough = (
        ["method", "the paper", "here, mean ± std", "IQM [95 %]", "d over generator", "by seed"],
        study.grid.solved,
    )
    rows = []
    for entry in study.grid.entries:
        scores = study.scores(env, entry.name)
        solved = [
            solved_at(r, enough)
            for r in study.of(env, entry.name)
            if r.score is not None and enough is not None
        ]
        rows.append(
            [
                entry.name,
                printed(study.grid.published.get((env, entry.name))),
                spread(scores),
                interval([scores]),
                verdict(scores, study.scores(env, counterpart(entry))),
                ", ".join(number(x) for x in scores) or MISSING,
                *([", ".join(solved)] if enough is not None else []),
            ]
        )
    head += [f"solved ({enough:g}) at"] if enough is not None else []
    return Table(study.grid.short.get(env, env), head, rows)


def counterpart(entry: Entry) -> str:
    """The generator alone that a method is to be compared with; none where more than the memory differs between them."""
    generator, memory, _ = split_method(entry.method)
    same = all(name.startswith("bonus.memory") for name, _ in entry.options)
    return generator if memory != "none" and same else ""


def solved_at(result: Result, enough: float) -> str:
    """Steps until the last 128 training episodes returned `enough`; a run's first tenth has too few episodes to count."""
    for row in result.rows:
        if row["step"] > result.steps / 10 and row.get("charts/return_128", -math.inf) >= enough:
            return f"{row['step'] / 1e6:.2f} M"
    return "-"


def overall_table(study: Study) -> Table:
    """Over all environments: the interquartile mean of all runs, resampled within each environment."""
    rows = []
    for entry in study.grid.entries:
        strata = [study.scores(env, entry.name) for env in study.grid.envs]
        theirs = [study.grid.published.get((env, entry.name)) for env in study.grid.envs]
        paper = [score[0] for score in theirs if score is not None]
        whole = all(strata)
        mean = number(float(np.mean([np.mean(s) for s in strata]))) if whole else MISSING
        rows.append(
            [
                entry.name,
                number(float(np.mean(paper))) if len(paper) == len(theirs) else "",
                mean,
                interval(strata) if whole else MISSING,
            ]
        )
    return Table(
        "all tasks together",
        ["method", "the paper: mean", "here: mean", "IQM [95 %, stratified]"],
        rows,
    )


def human_table(study: Study) -> Table:
    """Mean and median over the games of the human-normalised score; ours where every game was run."""
    head = ["method", "the paper: mean", "median", "here: mean", "median"]
    rows = []
    for method in dict.fromkeys(
        [*ATARI_MEAN_MEDIAN, *(entry.name for entry in study.grid.entries)]
    ):
        theirs = [number(x) for x in ATARI_MEAN_MEDIAN.get(method, ())] or ["", ""]
        each = [study.scores(game, method) for game in GAMES]
        ours = [MISSING, MISSING] if method in {e.name for e in study.grid.entries} else ["", ""]
        if all(each):
            human = HUMAN["paper"]
            normal = [
                human_normalised(float(np.mean(s)), r, h)
                for s, r, h in zip(each, RANDOM, human, strict=True)
            ]
            ours = [number(float(np.mean(normal))), number(float(np.median(normal)))]
        rows.append([method, *theirs, *ours])
    return Table("human-normalised, over the six games", head, rows)


def tv_table(study: Study) -> Table:
    """How much of the last quarter of training was spent before the noisy TV, and what drew the agent there."""
    head = [
        "method",
        "steps watched, by seed",
        "bonus there, first rollout (std)",
        "share of all bonus",
    ]
    rows = []
    for env in study.grid.envs:
        for entry in study.grid.entries:
            mine = [r for r in study.of(env, entry.name) if r.rows]
            watched = [float(np.mean(r.later("noisy_tv/share", 0.25))) for r in mine]
            first = [z[0] for r in mine if (z := r.later("noisy_tv/z", 1.0))]
            pay = [float(np.mean(p)) for r in mine if (p := r.later("noisy_tv/pay_share", 0.25))]
            cells = [", ".join(percent(x) for x in watched) or MISSING]
            cells += [
                number(float(np.mean(first))) if first else "",
                percent(float(np.mean(pay))) if pay else "",
            ]
            rows.append([entry.name, *cells])
    return Table("before the noisy TV, last quarter", head, rows)


# The doctor's numbers that are shown, by the column's name.
MEMORY_COLUMNS = {
    "corr. with norm": "corr",
    "energy left": "energy_left",
    "z first sight": "first_z",
    "z its repeats": "repeat_z",
    "z rarest event": "rarest",
    "z noise": "noise_z",
    "noise's pay": "noise_pay",
}
Answer = dict[
    str, dict[str, float | None]
]  # of the doctor: measure -> norm, novelty or all -> number


def memory_table(study: Study) -> Table:
    """What each memory does to its generator's surprise, by the doctor (a random policy), beside the run's return."""
    rows, shown = list[list[str]](), set[str]()
    for env in study.grid.envs:
        for entry in study.grid.entries:
            found = study.answers(env, entry.name, "doctor")
            generator, _, _ = split_method(entry.method)
            if found and generator not in shown:
                shown.add(generator)
                rows.append(
                    [
                        f"{generator}, its norm",
                        *(number(asked(found, m, "norm")) for m in MEMORY_COLUMNS.values()),
                        "",
                    ]
                )
            if found:
                cells = [
                    number(asked(found, measure, "novelty")) for measure in MEMORY_COLUMNS.values()
                ]
                rows.append([entry.name, *cells, spread(study.scores(env, entry.name))])
    return Table("what the memory does", ["method", *MEMORY_COLUMNS, "return"], rows)


def asked(found: list[Answer], measure: str, column: str) -> float:
    """Mean over runs of one of the doctor's numbers, about the norm or the novelty; nan where none has it."""
    values = []
    for answer in found:
        about = rarest(answer) if measure == "rarest" else answer.get(measure, {})
        values += [
            x
            for x in (about.get(column), about.get("all") if column == "novelty" else None)
            if x is not None
        ]
    return float(np.mean(values)) if values else math.nan


def rarest(answer: Answer) -> dict[str, float | None]:
    """The numbers of the event with the smallest share of the steps."""
    shares = {
        name.removeprefix("share/"): about["all"]
        for name, about in answer.items()
        if name.startswith("share/")
    }
    seen = {name: share for name, share in shares.items() if share}
    return answer[f"event/{min(seen, key=lambda name: seen[name] or 0.0)}"] if seen else {}


def percent(share: float) -> str:
    """0.123 -> '12 %'."""
    return f"{100 * share:.0f} %"


def printed(score: Score | None) -> str:
    """The paper's cell; empty where it has none."""
    if score is None:
        return ""
    mean, std = score
    return number(mean) if std is None else f"{number(mean)} ± {std:g}"


def spread(scores: list[float]) -> str:
    """Mean and population std over the runs."""
    if not scores:
        return MISSING
    return (
        f"{number(float(np.mean(scores)))} ± {number(float(np.std(scores)))}"
        if len(scores) > 1
        else number(scores[0])
    )


def interval(strata: list[list[float]]) -> str:
    """The interquartile mean of all scores and its bootstrap interval; single runs have none."""
    scores = np.concatenate([np.asarray(runs, float) for runs in strata])
    if not len(scores):
        return MISSING
    low, high = bootstrap([np.array(runs) for runs in strata], iqm)
    return number(iqm(scores)) + ("" if math.isnan(low) else f" [{number(low)}, {number(high)}]")


def verdict(scores: list[float], alone: list[float]) -> str:
    """Cohen's d of the method with memory over the generator alone."""
    d = cohens_d(np.array(scores), np.array(alone)) if scores and alone else math.nan
    return (
        ""
        if math.isnan(d)
        else f"{d:.1f}" + (" (better)" if d >= BETTER else " (worse)" if d <= -BETTER else "")
    )


def number(value: float) -> str:
    """Three significant digits or one decimal, thousands marked; nothing for nan."""
    if math.isnan(value):
        return ""
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.1f}"
        if abs(value) >= 2 or value == 0
        else f"{value:.2f}"
    )
