"""What a report needs of runs, small enough to keep under version control: no checkpoints, metrics thinned and rounded."""

import json
import shutil
from pathlib import Path

from surprise_memory.errors import UserError
from surprise_memory.reproduce.cells import KEPT_FILES
from surprise_memory.training.rundir import RunDir

ROWS = 250  # of metrics, about
KEPT = (
    "step",
    "charts/",
    "intrinsic/",
    "losses/entropy",
    "losses/td",
    "losses/pairs",
    "noisy_tv/",
    "rooms/visited",
)


def keep(root: Path, target: Path) -> list[Path]:
    """Copy every finished run of a directory of `reproduce` into another one; returns their new places."""
    if target.resolve() == root.resolve():
        raise UserError(f"{target} is where the runs are: keep them in another directory.")
    kept = []
    for done in sorted(root.glob("*/*/DONE")):
        run = done.parent
        if not (run / "cell.json").exists():
            continue
        place = target / run.parent.name / run.name
        place.mkdir(parents=True, exist_ok=True)
        RunDir(place).metrics.write_text("".join(json.dumps(row) + "\n" for row in thin(run)))
        for name in KEPT_FILES:  # DONE is the last
            if (run / name).exists():
                shutil.copy(run / name, place / name)
        kept.append(place)
    return kept


def thin(run: Path) -> list[dict[str, float]]:
    """About ROWS rows, the last one among them, numbers to four digits."""
    rows = list(RunDir(run).rows())
    step = max(1, len(rows) // ROWS)
    chosen = [row for i, row in enumerate(rows) if i % step == 0 or i == len(rows) - 1]
    return [{k: short(v) for k, v in row.items() if k.startswith(KEPT)} for row in chosen]


def short(value: float) -> float:
    """Four significant digits; counts stay as they are."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
