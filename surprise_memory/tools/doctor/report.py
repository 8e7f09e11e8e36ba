"""Show a diagnosis: a table and a verdict on the terminal, one picture of four panels."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surprise_memory.bonus.methods import split_method
from surprise_memory.errors import UserError
from surprise_memory.tools.doctor.verdict import Diagnosis, Estimate

if TYPE_CHECKING:
    from rich.console import Console

PERCENT = ("zeros", "energy_left", "top1", "top8", "top32", "noise_pay")
SECTIONS = {  # heading -> measure -> its label
    "Is it alive?": {
        "mean": "raw bonus, mean",
        "std": "raw bonus, std",
        "cv": "spread: std / mean",
        "zeros": "steps with zero bonus",
        "nonfinite": "NaN or infinite",
        "reward_scale": "reward scale (divisor)",
        "scaled_mean": "bonus per step, scaled",
        "scale_over_today": "scale / what today needs",
    },
    "Does the memory change anything?": {
        "corr": "correlation with the norm",
        "energy_left": "energy the memory leaves",
        "top1": "energy in top 1 direction",
        "top8": "energy in top 8",
        "top32": "energy in top 32",
        "dimension": "effective dimension",
    },
    "Does it follow rarity?": {
        "rarity": "rank correlation with rarity",
        "first_z": "z, first sight in an episode",
        "repeat_z": "z, the same seen again",
    },
    "Is it fooled by noise?": {
        "noise_z": "z of noise (at most 2.65)",
        "noise_pay": "paid for noise (12.5 % of steps)",
    },
}
NORM, NOVELTY, INK, PALE = "#7f8c9b", "#d1495b", "#22303c", "#e6e9ed"


def titles(diagnosis: Diagnosis) -> dict[str, str]:
    """Column -> what to call it: the generator's name, the method's name."""
    names = {"norm": split_method(diagnosis.method)[0], "novelty": diagnosis.method}
    return {column: name for column, name in names.items() if column in diagnosis.measures["mean"]}


def number(estimate: Estimate | None, percent: bool = False) -> str:
    """A mean and half its interval, such as '0.42 ± 0.03'; empty where nothing was measured."""
    if estimate is None:
        return ""
    if estimate.mean is None:
        return "-"
    by = 100 if percent else 1
    end = " %" if percent else ""
    mean, half = by * estimate.mean, by * (estimate.half or 0.0)
    if half < 5e-4:
        return f"{mean:.3g}{end}"
    # As many decimals as leave the half width two digits, so that the mean is not printed finer than it is known.
    decimals = min(3, max(0, 1 - math.floor(math.log10(half))))
    return f"{round(mean, decimals) + 0.0:.{decimals}f} ± {half:.{decimals}f}{end}"  # + 0.0: no minus zero


def lines(diagnosis: Diagnosis) -> list[tuple[str, dict[str, str]]]:
    """The table as (heading, {}) and (label, {column: text}) in order; what neither column owns is in column `all`."""
    events = [
        name.removeprefix("event/") for name in diagnosis.measures if name.startswith("event/")
    ]
    sections = dict(SECTIONS)
    if events:
        sections["What does it pay for? (mean z-score)"] = {
            f"event/{name}": name for name in events
        }
        sections["The same among noise"] = {f"noisy/{name}": name for name in events}
    sections["What does it cost here? (µs per step)"] = {"ask_us": "asking", "learn_us": "learning"}
    table: list[tuple[str, dict[str, str]]] = []
    for heading, rows in sections.items():
        table.append((heading, {}))
        for name, label in rows.items():
            found = diagnosis.measures.get(name, {})
            share = (
                diagnosis.measures.get(name.replace("event/", "share/"), {}).get("all")
                if "event/" in name
                else None
            )
            if share is not None and share.mean is not None:
                label = f"{label} ({100 * share.mean:.2g} % of steps)"
            if found:
                table.append(
                    (label, {column: number(x, name in PERCENT) for column, x in found.items()})
                )
    return table


def print_diagnosis(diagnosis: Diagnosis, console: "Console") -> None:
    """The table, norm and novelty side by side, and the verdict below it."""
    try:
        from rich.markup import escape
        from rich.table import Table
    except ImportError as error:
        raise UserError("rich is not installed: pip install 'surprise-memory[cli]'.") from error
    d, names = diagnosis, titles(diagnosis)
    about = (
        f"{d.steps:,} steps learnt from, {d.held_out:,} held out; visits counted: {d.counting}; "
    )
    about += (
        f"mean ± 95 % interval over {d.seeds} seeds" if d.seeds > 1 else "one seed, so no interval"
    )
    table = Table(
        title=f"{d.method} on {d.env}, preset {d.preset}",
        caption=about,
        title_style="bold",
        header_style="bold",
    )
    table.add_column("")
    for column, name in names.items():
        table.add_column(f"{name}\n{column}", justify="right", no_wrap=True)
    for label, cells in lines(diagnosis):
        if not cells:
            table.add_section()
            table.add_row(f"[bold]{escape(label)}[/]", *[""] * len(names))
        else:
            # What belongs to neither column stands in the last one: there the whole method is.
            last = list(names)[-1]
            table.add_row(
                "  " + escape(label),
                *[cells.get(c, cells.get("all", "") if c == last else "") for c in names],
            )
    console.print(table)
    console.print("\n".join(f"• {escape(sentence)}" for sentence in d.verdict))


# --- the picture ------------------------------------------------------------------------------------------------------


def plot_diagnosis(diagnosis: Diagnosis, path: Path | str) -> None:
    """Write one PNG: bonus against visits, z-scores of events and noise, the spectrum of u, the bonus while learning."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "matplotlib is not installed: pip install 'surprise-memory[report]'."
        ) from error
    figure = Figure(figsize=(12, 8.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)  # no pyplot: it keeps global state and may want a display
    axes = figure.subplots(2, 2)
    for axis, draw in zip(axes.flat, (_visits, _events, _spectrum, _learning), strict=True):
        draw(axis, diagnosis)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color("#9aa5b1")
        axis.tick_params(colors=INK, labelsize=9)
        axis.title.set(color=INK, fontsize=11.5, fontweight="bold", ha="left", position=(0, 1))
    figure.suptitle(
        f"{diagnosis.method} on {diagnosis.env}",
        x=0.01,
        ha="left",
        fontsize=15,
        fontweight="bold",
        color=INK,
    )
    figure.supxlabel(
        "\n".join(_wrapped(diagnosis.verdict)), x=0.01, ha="left", fontsize=9.5, color=INK
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _wrapped(sentences: list[str]) -> list[str]:
    import textwrap

    return [
        line for s in sentences for line in textwrap.wrap("• " + s, 165, subsequent_indent="   ")
    ]


def _seeds(curves: list[list[float | None]]) -> Any:
    """Curves of all seeds as an array (S, points) with nan for None."""
    import numpy as np

    return np.array([[np.nan if x is None else x for x in curve] for curve in curves])


def _lines(axis: Any, diagnosis: Diagnosis, prefix: str, x: Any) -> None:
    """Mean over seeds of both columns, each seed as a thin line behind it."""
    import numpy as np

    for (column, name), colour in zip(titles(diagnosis).items(), (NORM, NOVELTY), strict=False):
        seeds = _seeds(diagnosis.curves[f"{prefix}/{column}"])
        some = np.isfinite(seeds).any(0)  # points that at least one seed has
        mean = np.nanmean(seeds[:, some], axis=0)
        axis.plot(np.asarray(x)[some], seeds[:, some].T, color=colour, alpha=0.25, linewidth=1)
        axis.plot(
            np.asarray(x)[some],
            mean,
            color=colour,
            linewidth=2.2,
            marker="o",
            markersize=3.5,
            label=f"{name} ({column})",
        )
    axis.grid(axis="y", color=PALE)
    axis.legend(frameon=False, fontsize=9)


def _powers_of_two(axis: Any) -> None:
    """A doubling x axis with plain numbers on it."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def _visits(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 1."""
    bins = len(diagnosis.curves["visits/norm"][0])
    _lines(axis, diagnosis, "visits", [2**i for i in range(bins)])
    axis.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    _powers_of_two(axis)
    axis.set(title="Does it follow rarity?", ylabel="bonus / its mean")
    axis.set_xlabel(f"visits of the observation ({diagnosis.counting} counts), rare to common")


def _events(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 2."""
    names = [
        name
        for name in diagnosis.measures
        if name.startswith("event/") or name in ("noise_z", "first_z", "repeat_z")
    ]
    label = {
        "noise_z": "injected noise",
        "first_z": "first sight\nin an episode",
        "repeat_z": "the same again",
    }
    columns = titles(diagnosis)
    height = 0.8 / len(columns)
    for i, ((column, name), colour) in enumerate(
        zip(columns.items(), (NORM, NOVELTY), strict=False)
    ):
        found = [diagnosis.measures[m][column] for m in names]
        place = [row + (i - (len(columns) - 1) / 2) * height for row in range(len(names))]
        means = [x.mean or 0.0 for x in found]
        axis.barh(place, means, height * 0.92, color=colour, label=f"{name} ({column})")
        for y, estimate in zip(place, found, strict=True):
            axis.plot(
                [x or 0.0 for x in estimate.seeds],
                [y] * len(estimate.seeds),
                "|",
                color=INK,
                markersize=5,
            )
    axis.set_yticks(range(len(names)), [label.get(n, n.removeprefix("event/")) for n in names])
    axis.invert_yaxis()
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.grid(axis="x", color=PALE)
    axis.set_axisbelow(True)
    axis.set(title="What does it pay for?", xlabel="mean z-score of the bonus (ticks: seeds)")
    axis.legend(frameon=False, fontsize=9, loc="best")


def _spectrum(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 3."""
    import numpy as np

    cumulative = _seeds(diagnosis.curves["spectrum"]).cumsum(1)
    n = cumulative.shape[1]
    x = np.arange(1, n + 1)
    axis.plot(x, cumulative.T, color=NORM, alpha=0.3, linewidth=1)
    axis.plot(x, cumulative.mean(0), color=NORM, linewidth=2.2, label="surprise u")
    axis.plot(x, x / n, color=INK, linewidth=0.9, linestyle=":", label="flat: nothing to compress")
    for k in (k for k in (1, 8, 32) if k <= n):
        share, align = cumulative.mean(0)[k - 1], "left" if k == 1 else "right"
        axis.plot(k, share, "o", color=INK, markersize=5)
        axis.annotate(
            f"{100 * share:.0f} % in {k}",
            (k, share),
            (0, 8 + 6 * (k == 1)),
            textcoords="offset points",
            fontsize=9,
            ha=align,
            color=INK,
        )
    _powers_of_two(axis)
    axis.set_ylim(0, 1.05)
    axis.grid(axis="y", color=PALE)
    axis.set(
        title="Can a memory compress the surprise?",
        xlabel=f"largest directions of u (of {n})",
        ylabel="share of energy",
    )
    axis.legend(frameon=False, fontsize=9, loc="upper left")


def _learning(axis: Any, diagnosis: Diagnosis) -> None:
    """Panel 4."""
    rollouts = len(diagnosis.curves["rollouts/norm"][0])
    if diagnosis.warmup_rollouts:
        axis.axvspan(0.5, diagnosis.warmup_rollouts + 0.5, color=PALE, label="warm-up")
    _lines(axis, diagnosis, "rollouts", range(1, rollouts + 1))
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.yaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")
    axis.set(title="Does it settle while learning?", xlabel="rollout", ylabel="|u| and |v|, mean")
