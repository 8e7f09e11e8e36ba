"""Pictures of a study: curves as the mean over seeds and a band of one standard deviation, as in the paper, and bars."""

import io
from typing import Any

import numpy as np

from surprise_memory.plots import plotting
from surprise_memory.report.gather import Result, Study
from surprise_memory.sights import kind_bars
from surprise_memory.stats import Array, smooth

POINTS = 100  # of a curve
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
            drawn[title] = draw(study, name)
    for env in study.grid.envs:
        found = {e.name: [r.answers["mnir"] for r in study.of(env, e.name) if "mnir" in r.answers] for e in study.grid.entries}
        if any(found.values()):
            drawn["MNIR by kind of state"] = png(kind_bars({name: runs for name, runs in found.items() if runs}, env))
    return drawn


def draw(study: Study, name: str) -> bytes:
    """One measure over steps."""
    plt, envs = plotting(), study.grid.envs
    across = min(3, len(envs))
    down = -(-len(envs) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.6 * across + 1.5, 3.2 * down), layout="constrained", squeeze=False)
    colours = plt.get_cmap("tab10" if len(study.grid.entries) <= 10 else "viridis")
    many = max(1, len(study.grid.entries) - 1)
    for axis, env in zip(axes.flat, envs, strict=False):
        for i, entry in enumerate(study.grid.entries):
            runs = study.of(env, entry.name)
            colour = colours(i if len(study.grid.entries) <= 10 else i / many)
            band(axis, [curve(r, name) for r in runs], entry.name, colour)
        axis.set_title(study.grid.short.get(env, env), fontsize=9)
        axis.set_xlabel("steps")
    for axis in axes.flat[len(envs) :]:
        axis.set_axis_off()
    handles = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    axes.flat[0].legend(handles.values(), handles, frameon=False, fontsize=7)
    return png(figure)


def curve(result: Result, name: str) -> tuple[Array, Array] | None:
    """(steps, smoothed values) of one run; None where it logged none."""
    paired = np.array([[row["step"], row[name]] for row in result.rows if name in row])
    return (paired[:, 0], smooth(paired[:, 1], max(1, len(paired) // 50))) if len(paired) else None


def band(axis: Any, found: list[tuple[Array, Array] | None], label: str, colour: Any) -> None:
    """Mean and one std over the runs, where all of them have come."""
    runs = [run for run in found if run is not None]
    if not runs:
        return
    x = np.linspace(max(run[0][0] for run in runs), min(run[0][-1] for run in runs), POINTS)
    y = np.stack([np.interp(x, *run) for run in runs])
    axis.plot(x, y.mean(0), color=colour, lw=1.6, label=label)
    if len(runs) > 1:
        axis.fill_between(x, y.mean(0) - y.std(0), y.mean(0) + y.std(0), color=colour, alpha=0.15, lw=0)


def png(figure: Any) -> bytes:
    """A figure as bytes; it is closed."""
    file = io.BytesIO()
    figure.savefig(file, dpi=90, format="png")
    plotting().close(figure)
    return file.getvalue()
