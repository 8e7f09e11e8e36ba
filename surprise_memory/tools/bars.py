"""Bars by event, from numbers alone: method -> its runs -> event -> mean MNIR. No torch."""

from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.tools.plots import COLOURS, INK, plotting

Found = dict[str, list[dict[str, float]]]


def draw_event_bars(found: Found, path: Path, title: str) -> None:
    """Bars by event, into a file."""
    figure = event_bars(found, title)
    figure.savefig(path, dpi=120)
    plotting().close(figure)


def event_bars(found: Found, title: str) -> Any:
    """Bars by event, one colour per method; the height is the mean over its runs, a dot one run."""
    plt = plotting()
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    figure, axis = plt.subplots(figsize=(1.6 + 1.3 * len(names), 3.6), layout="constrained")
    width = 0.8 / len(found)
    for i, (method, runs) in enumerate(found.items()):
        offset = (i - (len(found) - 1) / 2) * width
        heights = []
        for j, name in enumerate(names):
            values = [run[name] for run in runs if name in run]
            heights.append(np.mean(values) if values else 0.0)
            axis.plot([j + offset] * len(values), values, ".", color=INK, ms=4)
        colour = COLOURS[i] if len(found) <= len(COLOURS) else plt.get_cmap("tab20")(i % 20)
        places = np.arange(len(names)) + offset
        axis.bar(places, heights, width * 0.92, color=colour, label=method)
    axis.axhline(0, color=INK, lw=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set_title(title, fontsize=9)
    axis.set_ylabel("mean MNIR (std)")
    axis.legend(frameon=False, fontsize=8)
    return figure


def averages(found: Found) -> dict[str, dict[str, float]]:
    """Method -> event -> mean over its runs that met the event."""
    means: dict[str, dict[str, float]] = {}
    for method, runs in found.items():
        values: dict[str, list[float]] = {}
        for run in runs:
            for name, value in run.items():
                values.setdefault(name, []).append(value)
        means[method] = {name: float(np.mean(numbers)) for name, numbers in values.items()}
    return means
