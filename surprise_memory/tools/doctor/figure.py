"""Draw a diagnosis: one picture of four panels."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.errors import need
from surprise_memory.tools.doctor.diagnosis import Diagnosis, Estimate, titles
from surprise_memory.tools.plots import INK, NORM, NOVELTY
from surprise_memory.tools.stats import Array

PALE = "#e6e9ed"  # grids and the warm-up
SPINES = "#9aa5b1"
COLOURS = {"norm": NORM, "novelty": NOVELTY}
LABELS = {
    "noise_z": "injected noise",
    "first_z": "first sight\nin an episode",
    "repeat_z": "the same again",
}


def plot_diagnosis(diagnosis: Diagnosis, path: Path | str) -> None:
    """Write one PNG.

    Its panels: the bonus against visits, z-scores of events and noise, the spectrum of u, the bonus
    while learning.
    """
    agg = need("matplotlib.backends.backend_agg", extra="report")
    figure = need("matplotlib.figure", extra="report").Figure(
        figsize=(12, 8.6), layout="constrained", facecolor="white"
    )
    agg.FigureCanvasAgg(figure)  # no pyplot: it keeps global state and may want a display
    panels = (_visits, _events, _spectrum, _learning)
    for axis, draw in zip(figure.subplots(2, 2).flat, panels, strict=True):
        draw(axis, diagnosis)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(SPINES)
        axis.tick_params(colors=INK, labelsize=9)
        axis.title.set(color=INK, fontsize=11.5, fontweight="bold", ha="left", position=(0, 1))
    title = f"{diagnosis.method} on {diagnosis.env}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=15, fontweight="bold", color=INK)
    figure.supxlabel(_wrapped(diagnosis.verdict), x=0.01, ha="left", fontsize=9.5, color=INK)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _wrapped(sentences: list[str]) -> str:
    """A bulleted list."""
    lines = []
    for sentence in sentences:
        lines += textwrap.wrap("• " + sentence, 165, subsequent_indent="   ")
    return "\n".join(lines)


def _visits(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 1."""
    bins = len(diagnosis.curves["visits/norm"][0])
    _draw_curves(axis, diagnosis, "visits", 2 ** np.arange(bins))
    axis.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    _powers_of_two(axis)
    axis.set(title="Does it follow rarity?", ylabel="bonus / its mean")
    axis.set_xlabel(f"visits of the observation ({diagnosis.counting} counts), rare to common")


def _events(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 2."""
    measures = []
    labels = []
    for name in diagnosis.measures:
        if name.startswith("event/") or name in LABELS:
            measures.append(name)
            labels.append(LABELS.get(name, name.removeprefix("event/")))
    columns = titles(diagnosis)
    height = 0.8 / len(columns)
    for i, (column, name) in enumerate(columns.items()):
        offset = (i - (len(columns) - 1) / 2) * height
        places = np.arange(len(measures)) + offset
        found = [diagnosis.measures[measure][column] for measure in measures]
        means = [estimate.mean or 0.0 for estimate in found]
        label = f"{name} ({column})"
        axis.barh(places, means, height * 0.92, color=COLOURS[column], label=label)
        for place, estimate in zip(places, found, strict=True):
            _draw_seeds(axis, place, estimate)
    axis.set_yticks(range(len(measures)), labels)
    axis.invert_yaxis()
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.grid(axis="x", color=PALE)
    axis.set_axisbelow(True)
    axis.set(title="What does it pay for?", xlabel="mean z-score of the bonus (ticks: seeds)")
    axis.legend(frameon=False, fontsize=9, loc="best")


def _draw_seeds(axis: Any, place: float, estimate: Estimate) -> None:
    """A tick for each seed of a bar that was measured."""
    values = [value for value in estimate.seeds if value is not None]
    axis.plot(values, [place] * len(values), "|", color=INK, markersize=5)


def _spectrum(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 3."""
    cumulative = _seeds(diagnosis.curves["spectrum"]).cumsum(1)
    mean = cumulative.mean(0)
    n = len(mean)
    x = np.arange(1, n + 1)
    axis.plot(x, cumulative.T, color=NORM, alpha=0.3, linewidth=1)
    axis.plot(x, mean, color=NORM, linewidth=2.2, label="surprise u")
    axis.plot(x, x / n, color=INK, linewidth=0.9, linestyle=":", label="flat: nothing to compress")
    for k, above, align in ((1, 14, "left"), (8, 8, "right"), (32, 8, "right")):
        if k <= n:
            share = mean[k - 1]
            axis.plot(k, share, "o", color=INK, markersize=5)
            axis.annotate(
                f"{100 * share:.0f} % in {k}",
                (k, share),
                (0, above),
                textcoords="offset points",
                fontsize=9,
                ha=align,
                color=INK,
            )
    _powers_of_two(axis)
    axis.set_ylim(0, 1.05)
    axis.grid(axis="y", color=PALE)
    axis.set(title="Can a memory compress the surprise?", ylabel="share of energy")
    axis.set_xlabel(f"largest directions of u (of {n})")
    axis.legend(frameon=False, fontsize=9, loc="upper left")


def _learning(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 4."""
    rollouts = len(diagnosis.curves["rollouts/norm"][0])
    if diagnosis.warmup_rollouts:
        axis.axvspan(0.5, diagnosis.warmup_rollouts + 0.5, color=PALE, label="warm-up")
    _draw_curves(axis, diagnosis, "rollouts", np.arange(1, rollouts + 1))
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.yaxis.set_minor_formatter(_minor_tick)
    axis.set(title="Does it settle while learning?", xlabel="rollout", ylabel="|u| and |v|, mean")


def _draw_curves(axis: Any, diagnosis: Diagnosis, curves: str, x: Array) -> None:
    """Mean over seeds of both columns, each seed as a thin line behind it."""
    for column, name in titles(diagnosis).items():
        seeds = _seeds(diagnosis.curves[f"{curves}/{column}"])
        some = np.isfinite(seeds).any(0)  # points that at least one seed has
        mean = np.nanmean(seeds[:, some], axis=0)
        style = {"color": COLOURS[column], "label": f"{name} ({column})"}
        axis.plot(x[some], seeds[:, some].T, color=COLOURS[column], alpha=0.25, linewidth=1)
        axis.plot(x[some], mean, linewidth=2.2, marker="o", markersize=3.5, **style)
    axis.grid(axis="y", color=PALE)
    axis.legend(frameon=False, fontsize=9)


def _seeds(curves: list[list[float | None]]) -> Array:
    """Curves of all seeds as an array (S, points), with nan for None."""
    return np.array(curves, dtype=float)


def _powers_of_two(axis: Any) -> None:
    """A doubling x axis with plain numbers on it."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def _minor_tick(x: float, _position: int) -> str:
    """Label 2 and 5 of each decade."""
    if f"{x:e}"[0] in "25":
        return f"{x:g}"
    return ""
