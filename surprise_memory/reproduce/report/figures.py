"""Pictures of a study: curves as the mean over seeds and a band of one standard deviation, as in the paper, and bars."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from surprise_memory.bonus.methods import split_method
from surprise_memory.reproduce.grids import Entry
from surprise_memory.reproduce.report.gather import Result, Study
from surprise_memory.reproduce.report.tables import MEMORY_COLUMNS, asked
from surprise_memory.tools.bars import event_bars
from surprise_memory.tools.plots import NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, smooth

POINTS = 100  # of a curve
MANY = 10  # entries in one panel
PLAIN = "#777777"
W_HIDDEN, W_RATE = "bonus.memory.w_hidden", "bonus.memory_lr"
GENERATORS = {
    "rnd": "#1b6fc4",
    "icm": "#c46a1b",
    "ngu": "#2f8f5b",
    "ae": "#7a4fb5",
    "disagreement": "#8a6d3b",
    "lwm": "#b5424f",
}
CURVES = {
    "charts/return_128": "task return, last 128 episodes",
    "intrinsic/reward_norm": "scaled bonus per step",
    "noisy_tv/share": "steps before the noisy TV",
}


def figures(study: Study) -> dict[str, bytes]:
    """PNGs by title: curves of what the runs have logged, a panel for each environment, and what their bonuses were asked."""
    drawn = {}
    for name, title in CURVES.items():
        if any(name in row for r in study.results for row in r.rows):
            drawn[title] = draw(study, name, title)
    for env in study.grid.envs:
        found = {
            e.name: answers
            for e in study.grid.entries
            if (answers := study.answers(env, e.name, "mnir"))
        }
        if found:
            where = f", {env}" if len(study.grid.envs) > 1 else ""
            drawn[f"MNIR by kind of state{where}"] = png(event_bars(found, env))
    if sized(study, next(iter(MEMORY_COLUMNS))):
        drawn["what W's size does"] = draw_sizes(study)
    return drawn


def draw(study: Study, name: str, title: str) -> bytes:
    """One measure over steps."""
    plt, together = plotting(), panels(study)
    across = min(3, len(together))
    down = -(-len(together) // across)
    size, same = (4.4 * across + 1.6, 3.2 * down), bool(together[0].generator)
    figure, axes = plt.subplots(
        down, across, figsize=size, layout="constrained", squeeze=False, sharey=same
    )
    for axis, panel in zip(axes.flat, together, strict=False):
        for i, entry in enumerate(panel.entries):
            runs = [curve(r, name) for r in study.of(panel.env, entry.name)]
            band(axis, runs, entry.name, style_of(entry, i, same))
        axis.set_title(panel.generator or study.grid.short.get(panel.env, panel.env), fontsize=9)
        axis.set_xlabel("million steps")
        if panel.generator:
            axis.legend(frameon=False, fontsize=7)
    for axis in axes.flat[len(together) :]:
        axis.set_axis_off()
    figure.suptitle(
        title, fontsize=10, x=0.01, ha="left"
    )  # beside a legend that stands outside on the right
    if not same:
        named = {
            label: line
            for axis in axes.flat
            for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(named.values(), named, frameon=False, fontsize=8, loc="outside right upper")
    return png(figure)


@dataclass(frozen=True)
class Panel:
    """What is drawn together: all entries on an environment, or those of one generator where they would be too many."""

    env: str
    entries: list[Entry]
    generator: str = ""


def panels(study: Study) -> list[Panel]:
    """One for each environment; with one environment and many entries, one for each generator, no bonus in all of them."""
    entries, envs = list(study.grid.entries), study.grid.envs
    generators = list(
        dict.fromkeys(split_method(entry.method)[0] for entry in entries if entry.method != "none")
    )
    if len(envs) > 1 or len(entries) <= MANY:
        return [Panel(env, entries) for env in envs if any(r.env == env for r in study.results)]
    return [
        Panel(envs[0], [e for e in entries if split_method(e.method)[0] in (g, "none")], g)
        for g in generators
    ]


def style_of(entry: Entry, i: int, one_generator: bool) -> dict[str, Any]:
    """Grey without a bonus; by colour (or, among several generators, dashed) alone, and with the memory; others in turn."""
    generator, memory, _ = split_method(entry.method)
    if entry.options or memory not in ("none", "sm"):
        return {"color": plotting().get_cmap("Set2")(i % 8)}
    if generator == "none":
        return {"color": PLAIN}
    if one_generator:
        return {"color": NOVELTY if memory == "sm" else NORM}
    return {"color": GENERATORS.get(generator, PLAIN), "ls": "-" if memory == "sm" else "--"}


def draw_sizes(study: Study) -> bytes:
    """The memory's numbers over W's hidden units, a colour for each generator, a line for each of W's rates."""
    plt = plotting()
    shown = [name for name in MEMORY_COLUMNS if name != "noise's pay"] + ["return"]
    figure, axes = plt.subplots(2, 4, figsize=(13, 5.6), layout="constrained")
    for axis, column in zip(axes.flat, shown, strict=False):
        for (generator, rate), points in sized(study, column).items():
            style = {
                "ls": "-" if rate >= 1e-3 else "--",
                "marker": "o",
                "ms": 3,
                "color": GENERATORS[generator],
            }
            axis.plot(*zip(*sorted(points), strict=True), label=f"{generator}, {rate:g}", **style)
        axis.set(title=column, xlabel="W's hidden units", xscale="log")
        ticks = sorted(
            {dict(entry.options)[W_HIDDEN] for entry in study.grid.entries if is_sized(entry)}
        )
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
    axes.flat[-1].set_axis_off()
    axes.flat[-1].legend(
        *axes.flat[0].get_legend_handles_labels(),
        frameon=False,
        fontsize=8,
        title="generator, W's rate",
    )
    return png(figure)


def is_sized(entry: Entry) -> bool:
    """Whether an entry sets W's size and rate."""
    return {W_HIDDEN, W_RATE} <= dict(entry.options).keys()


def sized(study: Study, column: str) -> dict[tuple[str, float], list[tuple[int, float]]]:
    """(generator, W's rate) -> (W's hidden units, the number) of every entry that has it."""
    lines: dict[tuple[str, float], list[tuple[int, float]]] = {}
    for entry in filter(is_sized, study.grid.entries):
        cell = study.grid.envs[0], entry.name
        if column == "return":
            scores = study.scores(*cell)
            value = float(np.mean(scores)) if scores else np.nan
        else:
            value = asked(study.answers(*cell, "doctor"), MEMORY_COLUMNS[column], "novelty")
        if not np.isnan(value):
            options = dict(entry.options)
            key = split_method(entry.method)[0], options[W_RATE]
            lines.setdefault(key, []).append((options[W_HIDDEN], value))
    return lines


def curve(result: Result, name: str) -> tuple[Array, Array] | None:
    """(million steps, smoothed values) of one run; None where it logged none."""
    paired = np.array([[row["step"] / 1e6, row[name]] for row in result.rows if name in row])
    return (paired[:, 0], smooth(paired[:, 1], max(1, len(paired) // 50))) if len(paired) else None


def band(
    axis: Any, found: list[tuple[Array, Array] | None], label: str, style: dict[str, Any]
) -> None:
    """Mean and one std over the runs, where all of them have come."""
    runs = [run for run in found if run is not None]
    if not runs:
        return
    x = np.linspace(max(run[0][0] for run in runs), min(run[0][-1] for run in runs), POINTS)
    y = np.stack([np.interp(x, *run) for run in runs])
    axis.plot(x, y.mean(0), lw=1.6, label=label, **style)
    if len(runs) > 1:
        axis.fill_between(
            x, y.mean(0) - y.std(0), y.mean(0) + y.std(0), color=style["color"], alpha=0.15, lw=0
        )


def png(figure: Any) -> bytes:
    """A figure as bytes; it is closed."""
    file = io.BytesIO()
    figure.savefig(file, dpi=90, format="png")
    plotting().close(figure)
    return file.getvalue()
