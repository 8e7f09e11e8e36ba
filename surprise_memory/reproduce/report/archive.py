"""What a report needs of runs, small enough for version control.

There are no checkpoints, and metrics are thinned and rounded.
"""

import json
import shutil
from pathlib import Path

from surprise_memory.errors import UserError
from surprise_memory.reproduce.celldir import ARCHIVED_FILES
from surprise_memory.training.rundir import RunDir

ROWS = 250  # of metrics, about
ARCHIVED_METRICS = (  # what their names begin with
    "step",
    "charts/",
    "intrinsic/",
    "losses/entropy",
    "losses/td",
    "losses/pairs",
    "noisy_tv/",
    "rooms/visited",
)


def archive_runs(root: Path, target: Path) -> list[Path]:
    """Copy every finished run of a directory of `reproduce` into another one.

    Returns their new places.
    """
    if target.resolve() == root.resolve():
        raise UserError(f"{target} is where the runs are: archive them in another directory.")
    archived = []
    for done in sorted(root.glob("*/*/DONE")):
        run = done.parent
        if not (run / "cell.json").exists():
            continue
        place = target / run.parent.name / run.name
        place.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row) + "\n" for row in thin(run)]
        RunDir(place).metrics.write_text("".join(lines))
        for name in ARCHIVED_FILES:
            if (run / name).exists():
                shutil.copy(run / name, place / name)
        archived.append(place)
    return archived


def thin(run: Path) -> list[dict[str, float]]:
    """About ROWS rows, always with the last one, numbers to four digits."""
    rows = list(RunDir(run).rows())
    stride = max(1, len(rows) // ROWS)
    thinned = []
    for i, row in enumerate(rows):
        if i % stride == 0 or i == len(rows) - 1:
            thinned.append(archived_metrics(row))
    return thinned


def archived_metrics(row: dict[str, float]) -> dict[str, float]:
    """The metrics of a row that the report needs, rounded."""
    metrics = {}
    for name, value in row.items():
        if name.startswith(ARCHIVED_METRICS):
            metrics[name] = short(value)
    return metrics


def short(value: float) -> float:
    """Four significant digits. Counts stay as they are."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value
