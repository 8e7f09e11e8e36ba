"""Figures of a run: its learning curve, and how surprising and novel one of its episodes was."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.tools.episode import play, trained
from surprise_memory.tools.plots import NORM, NOVELTY, RETURN, plotting
from surprise_memory.tools.stats import Array, mnir, smooth
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir

FRAMES = 8  # of an episode that are shown


def draw_run(config: RunConfig, out: RunDir, seed: int) -> Path:
    """Write show.png into the run's directory."""
    path = out.path / "show.png"
    figure = run_figure(config, out, seed)
    figure.savefig(path, dpi=110)
    plotting().close(figure)
    return path


def run_figure(config: RunConfig, out: RunDir, seed: int) -> Any:
    """The learning curve, and one episode: its surprise, its novelty, some of its frames."""
    plt = plotting()
    agent, bonus = trained(config, out, seed)
    chunk, frames = play(config.env, agent, seed, bonus=bonus, fixed_seed=config.fixed_seed)
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=[1.1, 1.1, 1])
    title = f"{config.env} · {config.method} · {config.steps:,} steps, seed {config.seed}"
    figure.suptitle(title, fontsize=11)
    draw_curve(top.subplots(1, 2), whole_rows(out))
    axis = middle.subplots()
    if bonus is None:
        shown = np.linspace(0, len(frames) - 1, min(FRAMES, len(frames))).astype(int)
        axis.set_axis_off()
    else:
        _, trace, _ = bonus(chunk, bonus.start(1))
        norm = trace.surprise_norm[:, 0].numpy()
        novelty = trace.novelty[:, 0].numpy()
        shown = draw_episode(axis, norm, novelty)
    draw_frames(bottom.subplots(1, len(shown), squeeze=False)[0], frames, shown)
    return figure


def whole_rows(out: RunDir) -> list[dict[str, Any]]:
    """The rows of a run whose checkpoint was loaded; says if the newest of them are lost."""
    rows = list(out.rows())
    last = rows[-1]["step"] if rows else 0
    if last < out.logged:
        warnings.warn(
            f"{out.metrics} ends at step {last:,}, the run had rows until {out.logged:,}: "
            "the curves are cut.",
            stacklevel=2,
        )
    return rows


def draw_curve(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Task return on the left, surprise and novelty on the right, over steps."""
    left, right = axes
    steps, returns = column(rows, "charts/episodic_return")
    left.plot(steps, returns, color=RETURN, alpha=0.25, lw=1)
    left.plot(steps, smooth(returns, 10), color=RETURN, lw=2)
    left.set(title="task return of training episodes", xlabel="steps")
    right.set(title="surprise and novelty per step", xlabel="steps")
    for name, label, colour in (
        ("intrinsic/surprise_norm", "surprise norm", NORM),
        ("intrinsic/novelty", "novelty", NOVELTY),
    ):
        steps, values = column(rows, name)
        right.plot(steps, values, color=colour, label=label)
    if len(steps):
        right.set_yscale("log")
        right.legend(frameon=False)


def column(rows: list[dict[str, Any]], name: str) -> tuple[Array, Array]:
    """Steps (K,) and values (K,) of the rows that have a metric."""
    points = [(row["step"], row[name]) for row in rows if name in row]
    steps, values = np.array(points).reshape(-1, 2).T
    return steps, values


def draw_episode(axis: Any, norm: Array, novelty: Array) -> Array:
    """Draw the MNIR of both (T,) along an episode; returns the steps worth showing."""
    axis.plot(mnir(norm), color=NORM, lw=1.3, label="surprise norm")
    axis.plot(mnir(novelty), color=NOVELTY, lw=1.8, label="surprise novelty")
    shown = peaks(mnir(novelty), FRAMES)
    axis.plot(shown, mnir(novelty)[shown], "o", color=NOVELTY, ms=5)
    title = "one episode: surprise norm and novelty, standardised over it (MNIR)"
    axis.set(title=title, xlabel="step", ylabel="std")
    axis.legend(frameon=False, loc="upper right", ncols=2)
    return shown


def peaks(values: Array, number: int) -> Array:
    """The steps of the highest values (T,), at most `number`, no two close together, in order."""
    apart = max(1, len(values) // (2 * number))
    chosen: list[int] = []
    for step in np.argsort(-values):
        crowded = any(abs(step - other) < apart for other in chosen)
        if not crowded and len(chosen) < number:
            chosen.append(int(step))
    return np.array(sorted(chosen))


def draw_frames(axes: Any, frames: list[Array], shown: Array) -> None:
    """The frames in which the agent acted at some steps."""
    for axis, step in zip(axes, shown, strict=True):
        axis.imshow(frames[step])
        axis.set_title(f"step {step}", fontsize=8)
        axis.set_axis_off()
