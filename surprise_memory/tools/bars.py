"""Bars by kind of state, as in the paper's chart of MNIR. No torch here: reports draw them, too."""

from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.tools.plots import COLOURS, INK, plotting


def draw_kinds(found: dict[str, list[dict[str, float]]], path: Path, title: str) -> None:
    """Bars by kind, into a file."""
    figure = kind_bars(found, title)
    figure.savefig(path, dpi=120)
    plotting().close(figure)


def kind_bars(found: dict[str, list[dict[str, float]]], title: str) -> Any:
    """Bars by kind, one colour per method; the height is the mean of its runs, a dot is one run."""
    plt = plotting()
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    figure, axis = plt.subplots(figsize=(1.6 + 1.3 * len(names), 3.6), layout="constrained")
    width = 0.8 / len(found)
    colours = (
        COLOURS
        if len(found) <= len(COLOURS)
        else [plt.get_cmap("tab20")(i % 20) for i in range(len(found))]
    )
    for i, (method, runs) in enumerate(found.items()):
        for j, name in enumerate(names):
            values = [run[name] for run in runs if name in run]
            place = j + (i - (len(found) - 1) / 2) * width
            label = method if j == 0 else None
            axis.bar(
                place,
                np.mean(values) if values else 0.0,
                width * 0.92,
                color=colours[i],
                label=label,
            )
            axis.plot([place] * len(values), values, ".", color=INK, ms=4)
    axis.axhline(0, color=INK, lw=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set_title(title, fontsize=9)
    axis.set_ylabel("mean MNIR (std)")
    axis.legend(frameon=False, fontsize=8)
    return figure


def averages(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Method -> kind -> mean over its runs that met the kind."""
    return {
        method: {
            name: float(np.mean([run[name] for run in runs if name in run]))
            for name in dict.fromkeys(n for r in runs for n in r)
        }
        for method, runs in found.items()
    }
