"""What a report needs of runs, small enough for version control: one file for each grid.

There are no checkpoints, and metrics are thinned and rounded.
"""

from pathlib import Path

from surprise_memory.errors import UserError
from surprise_memory.reproduce.celldir import ARCHIVED_FILES, PROBE_NAMES, in_use
from surprise_memory.reproduce.report.compact import (
    FILE,
    Record,
    read_records,
    record_of,
    write_records,
)
from surprise_memory.training.rundir import RunDir, read_config

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
# Files of a run's directory that the archive has all of, or that say nothing.
KEPT = {*ARCHIVED_FILES, "metrics.jsonl", ".lock"}


def archive_runs(root: Path, target: Path) -> list[str]:
    """Add the runs of a directory of `reproduce` to the files target/WHAT/runs.jsonl.

    Finished runs are copied, in place of earlier ones of the same name. Where `target` is `root`,
    all runs without a checkpoint are moved instead, and their directories are removed. Returns the
    names WHAT/RUN.
    """
    move = target.resolve() == root.resolve()
    runs: dict[str, list[Path]] = {}  # by grid
    for cell in sorted(root.glob("*/*/cell.json")):
        run = cell.parent
        if movable(run) if move else (run / "DONE").exists():
            runs.setdefault(run.parent.name, []).append(run)
    archived = []
    for what, paths in runs.items():
        file = target / what / FILE
        records = {record["name"]: record for record in read_records(file)}
        for run in paths:
            records[run.name] = archived_record(run)
            archived.append(f"{what}/{run.name}")
        write_records(file, list(records.values()))
        if move:
            for run in paths:
                remove(run)
    return archived


def archived_record(run: Path) -> Record:
    """A run's directory as a record, thinned; with its config where the cell has another."""
    record = record_of(run, thin(run))
    config = RunDir(run).config
    if config.exists() and (options := read_config(config)) != record["cell"]["run"]:
        record["config"] = options
    return record


def movable(run: Path) -> bool:
    """Whether a run has ended and its directory holds nothing that the archive would lose.

    Probes come after a run, so one that has probes has ended, or was never more than them.
    """
    files = {path.name for path in run.iterdir()}
    ended = "DONE" in files or any(f"{probe}.json" in files for probe in PROBE_NAMES)
    return ended and files <= KEPT and not in_use(run)


def remove(run: Path) -> None:
    """Delete a run's directory, which holds the files of the archive alone."""
    for path in run.iterdir():
        if path.name not in KEPT:
            raise UserError(
                f"{path} has appeared meanwhile: {run} is archived and was not removed."
            )
    for path in run.iterdir():
        path.unlink()
    run.rmdir()


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
