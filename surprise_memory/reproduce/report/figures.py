"""Pictures of a study: bars, and curves as mean and std over seeds, as in the paper."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from surprise_memory.reproduce.grid import Entry
from surprise_memory.reproduce.report.doctor_table import MEMORY_COLUMNS, doctor_mean
from surprise_memory.reproduce.report.gather import Result, Study
from surprise_memory.reproduce.report.table import mean
from surprise_memory.reproduce.report.tables import CUMULATIVE
from surprise_memory.tools.bars import event_bars
from surprise_memory.tools.plots import GENERATORS, NO_BONUS, NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, smooth

POINTS = 100  # of a curve
MANY = 10  # entries in one panel
W_HIDDEN = "bonus.memory.w_hidden"
W_RATE = "bonus.memory_lr"
RETURN = "charts/return_128"
CURVES = {
    RETURN: "task return, last 128 episodes",
    "intrinsic/reward_norm": "scaled bonus per step",
    "noisy_tv/share": "share of steps watching the TV",
}
Curve = tuple[Array, Array]  # million steps (K,), values (K,)


def figures(study: Study) -> dict[str, bytes]:
    """PNGs by title: curves of the runs' metrics, and the results of their probes."""
    drawn = {}
    for metric, title in curves(study).items():
        if study.has_metric(metric):
            drawn[title] = draw_curves(study, metric, title)
    for env in study.grid.envs:
        found = mnir_of_entries(study, env)
        if found:
            title = "MNIR by kind of state"
            if len(study.grid.envs) > 1:
                title += f", {env}"
            drawn[title] = png(event_bars(found, env))
    if sized(study, next(iter(MEMORY_COLUMNS))):
        drawn["effect of the size of W"] = draw_sizes(study)
    return drawn


def curves(study: Study) -> dict[str, str]:
    """The metrics that are drawn, and their titles. What counts most comes first."""
    drawn = CURVES
    if not study.has_metric(RETURN):  # such short runs that fewer episodes ended
        drawn = {"charts/episodic_return": "task return of a rollout's episodes"} | CURVES
    if study.grid.cumulative:
        drawn = {CUMULATIVE: "task reward collected so far"} | drawn
    return drawn


def mnir_of_entries(study: Study, env: str) -> dict[str, list[dict[str, float]]]:
    """Entry -> MNIR by kind of state, for each seed that has it."""
    found = {}
    for entry in study.grid.entries:
        results = study.probe_results(env, entry.name, "mnir")
        if results:
            found[entry.name] = results
    return found


# --- curves ---------------------------------------------------------------------------------------


def draw_curves(study: Study, metric: str, title: str) -> bytes:
    """One metric over steps."""
    shown = panels(study, metric)
    by_generator = bool(shown[0].generator)
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure, axes = plotting().subplots(
        down,
        across,
        figsize=(4.4 * across + 1.6, 3.2 * down),
        layout="constrained",
        squeeze=False,
        sharey=by_generator,
    )
    for axis, panel in zip(axes.flat, shown, strict=False):
        for i, entry in enumerate(panel.entries):
            runs = study.of(panel.env, entry.name)
            draw_band(axis, curves_of(runs, metric), entry.name, style_of(entry, i, by_generator))
        axis.set_title(panel.generator or study.grid.short.get(panel.env, panel.env), fontsize=9)
        axis.set_xlabel("million steps")
        if by_generator and axis.lines:  # some methods lack the metric
            axis.legend(frameon=False, fontsize=7)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    # On the left, clear of a legend that is outside on the right.
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    if not by_generator:
        common_legend(figure, axes)
    return png(figure)


def common_legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, outside of them."""
    lines: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    figure.legend(lines.values(), lines, frameon=False, fontsize=8, loc="outside right upper")


@dataclass(frozen=True)
class Panel:
    """What is drawn together: entries on one environment."""

    env: str
    entries: list[Entry]
    generator: str = ""  # of all the entries, where a panel for each generator is drawn


def panels(study: Study, metric: str) -> list[Panel]:
    """One panel for each environment where the metric was logged.

    With one environment and many entries: one for each generator, and no bonus in all of them.
    """
    entries = list(study.grid.entries)
    envs = study.grid.envs
    generators = {entry.generator for entry in entries if entry.generator != "none"}
    if len(envs) > 1 or len(entries) <= MANY or len(generators) == 1:
        present = {result.env for result in study.results if result.last(metric, 1.0)}
        return [Panel(env, entries) for env in envs if env in present]
    by_generator = []
    for generator in dict.fromkeys(entry.generator for entry in entries):
        if generator != "none":
            mine = [entry for entry in entries if entry.generator in (generator, "none")]
            by_generator.append(Panel(envs[0], mine, generator))
    return by_generator


def style_of(entry: Entry, i: int, one_generator: bool) -> dict[str, Any]:
    """How an entry's line is drawn.

    Grey without a bonus. In a panel of one generator the colour tells whether there is a memory,
    elsewhere the colour tells the generator and a dashed line that it is alone. Entries with
    options or another memory take other colours in turn, then the same ones in other lines.
    """
    if entry.options or entry.memory not in ("", "sm"):
        line = ("-", "--", ":", "-.")[i // 8 % 4]
        return {"color": plotting().get_cmap("Set2")(i % 8), "ls": line}
    if entry.generator == "none":
        return {"color": NO_BONUS}
    alone = entry.memory == ""
    if one_generator:
        return {"color": NORM if alone else NOVELTY}
    return {"color": GENERATORS.get(entry.generator, NO_BONUS), "ls": "--" if alone else "-"}


def curves_of(runs: list[Result], metric: str) -> list[Curve]:
    """The smoothed curve of each run that has logged the metric."""
    found = []
    for run in runs:
        points = [(row["step"] / 1e6, row[metric]) for row in run.rows if metric in row]
        if points:
            steps, values = np.array(points).T
            found.append((steps, smooth(values, max(1, len(values) // 50))))
    return found


def draw_band(axis: Any, curves: list[Curve], label: str, style: dict[str, Any]) -> None:
    """Mean and one std over the runs; a thin line where not all of them have a value."""
    if not curves:
        return
    x, centre, std = band(curves)
    shared = x >= max(steps[0] for steps, _ in curves)
    shared &= x <= min(steps[-1] for steps, _ in curves)
    axis.plot(x, np.where(shared, centre, np.nan), lw=1.6, label=label, **style)
    axis.plot(x, np.where(shared, np.nan, centre), lw=0.6, **style)
    if len(curves) > 1:
        low, high = centre - std, centre + std
        axis.fill_between(x, low, high, where=shared, color=style["color"], alpha=0.15, lw=0)


def band(curves: list[Curve]) -> tuple[Array, Array, Array]:
    """Steps (POINTS,), and mean and std over the runs that have a value there."""
    first = min(steps[0] for steps, _ in curves)
    last = max(steps[-1] for steps, _ in curves)
    x = np.linspace(first, last, POINTS)
    found = []
    for steps, values in curves:
        found.append(np.interp(x, steps, values, left=np.nan, right=np.nan))
    y = np.ma.masked_invalid(np.stack(found))  # (runs, POINTS)
    return x, y.mean(0).filled(np.nan), y.std(0).filled(np.nan)


# --- the size of W --------------------------------------------------------------------------------


def draw_sizes(study: Study) -> bytes:
    """The memory's numbers over W's hidden units.

    A colour for each generator, a kind of line for each learning rate of W.
    """
    columns = [name for name in MEMORY_COLUMNS if name != "share paid for noise"] + ["return"]
    hidden = set()
    for entry in filter(is_sized, study.grid.entries):
        hidden.add(dict(entry.options)[W_HIDDEN])
    ticks = sorted(hidden)
    figure, axes = plotting().subplots(2, 4, figsize=(13, 5.6), layout="constrained")
    for axis, column in zip(axes.flat, columns, strict=False):
        for (generator, rate), points in sized(study, column).items():
            x, y = np.array(sorted(points)).T
            label = f"{generator}, {rate:g}"
            style = "-" if rate >= 1e-3 else "--"
            colour = GENERATORS[generator]
            axis.plot(x, y, label=label, ls=style, marker="o", ms=3, color=colour)
        axis.set(title=column, xlabel="W's hidden units", xscale="log")
        axis.set_xticks(ticks, map(str, ticks))
        axis.minorticks_off()
    legend = axes.flat[-1]
    legend.set_axis_off()
    lines, labels = axes.flat[0].get_legend_handles_labels()
    legend.legend(lines, labels, frameon=False, fontsize=8, title="generator, W's learning rate")
    return png(figure)


def is_sized(entry: Entry) -> bool:
    """Whether an entry sets W's size and learning rate."""
    return {W_HIDDEN, W_RATE} <= dict(entry.options).keys()


def sized(study: Study, column: str) -> dict[tuple[str, float], list[tuple[int, float]]]:
    """(generator, W's learning rate) -> (W's hidden units, the number) of entries that have it."""
    lines: dict[tuple[str, float], list[tuple[int, float]]] = {}
    env = study.grid.envs[0]
    for entry in filter(is_sized, study.grid.entries):
        if column == "return":
            value = mean(study.scores(env, entry.name))
        else:
            found = study.probe_results(env, entry.name, "doctor")
            value = doctor_mean(found, MEMORY_COLUMNS[column], "novelty")
        if not np.isnan(value):
            options = dict(entry.options)
            line = lines.setdefault((entry.generator, options[W_RATE]), [])
            line.append((options[W_HIDDEN], value))
    return lines


def png(figure: Any) -> bytes:
    """A figure as bytes. It is closed."""
    file = io.BytesIO()
    figure.savefig(file, dpi=90, format="png")
    plotting().close(figure)
    return file.getvalue()
