"""Several runs in the same episode, one below the other: frames, and when each watched its TV."""

from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.tools.episode import play, same_world, trained
from surprise_memory.tools.plots import BLUE, INK, RED, plotting
from surprise_memory.tools.stats import Array
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir

FRAMES = 8  # of an episode that are shown


def draw_beside(runs: list[tuple[RunConfig, RunDir]], seed: int, path: Path) -> Path:
    """Write one PNG with a row for each run, all in the same layout of one environment."""
    same_world([config for config, _ in runs])
    plt = plotting()
    figure = plt.figure(figsize=(11, 2.2 * len(runs)), layout="constrained")
    rows = np.atleast_1d(figure.subfigures(len(runs), 1, hspace=0.04))
    for row, (config, out) in zip(rows, runs, strict=True):
        agent, bonus = trained(config, out, seed)
        chunk, frames = play(config.env, agent, seed, bonus=bonus, fixed_seed=config.fixed_seed)
        watched = None
        if "watched" in chunk.extras:
            watched = chunk.extras["watched"][:, 0].numpy()
        total = float(chunk.reward.sum())
        said = sentence(config.method, total, len(frames), watched)
        row.suptitle(said, x=0.01, ha="left", fontsize=11)
        draw_row(row, frames, watched)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def sentence(method: str, total: float, steps: int, watched: Array | None) -> str:
    """What came out of an episode, in words; `watched` is None where there is no TV."""
    said = f"{method}: return {total:.2f} in {steps} steps"
    if watched is None:
        return said
    return f"{said}, {100 * watched.mean():.0f} % of them watching the TV"


def draw_row(figure: Any, frames: list[Array], watched: Array | None) -> None:
    """Evenly spread frames, and below them a bar that is red while the TV is on."""
    shown = np.linspace(0, len(frames) - 1, min(FRAMES, len(frames))).astype(int)
    grid = figure.add_gridspec(2, len(shown), height_ratios=[12, 1])
    for i, step in enumerate(shown):
        axis = figure.add_subplot(grid[0, i])
        axis.imshow(frames[step])
        axis.set(xticks=[], yticks=[])
        colour = INK
        if watched is not None and watched[step]:
            colour = RED
        for spine in axis.spines.values():
            spine.set(visible=True, color=colour, linewidth=2.5)
        axis.set_title(f"step {step}", fontsize=8, color=colour)
    if watched is None:
        return
    bar = figure.add_subplot(grid[1, :])
    bar.bar(np.arange(len(watched)), 1, width=1, color=np.where(watched, RED, BLUE))
    bar.set(xlim=(-0.5, len(watched) - 0.5), ylim=(0, 1), yticks=[])
    bar.set_xlabel("step (red: watching the TV)", fontsize=8)
