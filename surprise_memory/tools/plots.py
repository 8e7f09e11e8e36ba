"""What all pictures share: pyplot without a screen, and the one table of colours. No torch here."""

from pathlib import Path
from typing import Any

from surprise_memory.errors import need, require

BLUE = "#1b6fc4"
BROWN = "#8a6d3b"
GREEN = "#2f8f5b"
GREY = "#8a8a8a"
ORANGE = "#c46a1b"
PURPLE = "#7a4fb5"
RED = "#b5424f"

INK = "#333333"  # axes, dots, text
NORM = ORANGE  # the size of a surprise
NOVELTY = BLUE  # what the memory leaves of it
RETURN = GREEN  # the task's return
NO_BONUS = "#777777"
GENERATORS = {
    "rnd": BLUE,
    "icm": ORANGE,
    "ngu": GREEN,
    "ae": PURPLE,
    "disagreement": BROWN,
    "lwm": RED,
}
KINDS = (".png", ".jpg", ".pdf", ".svg")  # of pictures that a user may name
COLOURS = (ORANGE, BLUE, GREEN, PURPLE, GREY, RED)  # of bars, in turn


def plotting() -> Any:
    """Pyplot without a screen, or how to get it."""
    matplotlib = need("matplotlib", extra="report")
    matplotlib.use("Agg")
    plt = need("matplotlib.pyplot", extra="report")
    plt.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.size": 9,
            "axes.edgecolor": INK,
        }
    )
    return plt


def check_picture(path: Path) -> None:
    """Refuse a file that cannot become a picture, before the work on it."""
    allowed = f"a file whose name ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}"
    require(path.suffix.lower() in KINDS, "out", str(path), allowed)
