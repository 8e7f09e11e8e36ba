"""Print a diagnosis: a table with norm and novelty side by side, and the verdict below it."""

import math
from typing import Any

from surprise_memory.errors import need
from surprise_memory.tools.doctor.diagnosis import Diagnosis, Estimate, get, titles
from surprise_memory.training.progress import literal

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
        "price_noise": "a step of noise, in usual steps",
        "price_first": "a first sight among noise",
        "price_repeat": "a repeat among noise",
    },
}
COSTS = {"ask_us": "asking", "learn_us": "learning"}
Line = tuple[str, dict[str, str]]  # a heading and {}, or a label and column -> text


def number(estimate: Estimate | None, percent: bool = False) -> str:
    """A mean and half its interval, such as '0.42 ± 0.03'; empty where nothing was measured."""
    if estimate is None:
        return ""
    if estimate.mean is None:
        return "-"
    mean = estimate.mean
    half = estimate.half or 0.0
    unit = ""
    if percent:
        mean = 100 * mean
        half = 100 * half
        unit = " %"
    if half < 5e-4:
        return f"{mean:.3g}{unit}"
    # Two digits of the half width: the mean is not printed finer than it is known.
    decimals = min(3, max(0, 1 - math.floor(math.log10(half))))
    rounded = round(mean, decimals) + 0.0  # no minus zero
    return f"{rounded:.{decimals}f} ± {half:.{decimals}f}{unit}"


def sections_of(diagnosis: Diagnosis) -> dict[str, dict[str, str]]:
    """SECTIONS with the events that this diagnosis has, and the costs."""
    events = {}
    among_noise = {}
    for measure in diagnosis.measures:
        if measure.startswith("event/"):
            name = measure.removeprefix("event/")
            label = name
            share = get(diagnosis.measures, f"share/{name}", "all")
            if share is not None:
                label = f"{name} ({100 * share:.2g} % of steps)"
            events[measure] = label
            among_noise[f"noisy/{name}"] = name
    sections = dict(SECTIONS)
    if events:
        sections["What does it pay for? (mean z-score)"] = events
        sections["The same among noise"] = among_noise
    sections["What does it cost here? (µs per step)"] = COSTS
    return sections


def lines(diagnosis: Diagnosis) -> list[Line]:
    """The table in order, headings included; what belongs to neither column is in column `all`."""
    table: list[Line] = []
    for heading, rows in sections_of(diagnosis).items():
        table.append((heading, {}))
        for measure, label in rows.items():
            cells = {}
            for column, estimate in diagnosis.measures.get(measure, {}).items():
                cells[column] = number(estimate, measure in PERCENT)
            if cells:
                table.append((label, cells))
    return table


def print_diagnosis(diagnosis: Diagnosis, console: Any) -> None:
    """The table, norm and novelty side by side, and the verdict below it."""
    rich_table = need("rich.table", extra="cli")
    names = titles(diagnosis)
    table = rich_table.Table(
        title=f"{diagnosis.method} on {diagnosis.env}, preset {diagnosis.preset}",
        caption=caption(diagnosis),
        title_style="bold",
        header_style="bold",
    )
    table.add_column("")
    for column, name in names.items():
        table.add_column(f"{name}\n{column}", justify="right", no_wrap=True)
    for label, cells in lines(diagnosis):
        if cells:
            table.add_row("  " + literal(label), *row_texts(cells, list(names)))
        else:
            table.add_section()
            table.add_row(f"[bold]{literal(label)}[/]", *[""] * len(names))
    console.print(table)
    for sentence in diagnosis.verdict:
        console.print(f"• {literal(sentence)}")


def row_texts(cells: dict[str, str], columns: list[str]) -> list[str]:
    """The cells of a row; what belongs to neither column goes to the last, the whole method's."""
    texts = [cells.get(column, "") for column in columns]
    if "all" in cells:
        texts[-1] = cells["all"]
    return texts


def caption(diagnosis: Diagnosis) -> str:
    """How much was measured, and how."""
    d = diagnosis
    seeds = "one seed, so no interval"
    if d.seeds > 1:
        seeds = f"mean ± 95 % interval over {d.seeds} seeds"
    steps = f"{d.steps:,} steps learnt from, {d.held_out:,} held out"
    return f"{steps}; visits counted: {d.counting}; {seeds}"
