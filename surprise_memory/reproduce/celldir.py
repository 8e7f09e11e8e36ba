"""A cell's directory: a run directory, cell.json, and a JSON file for each probe. No torch here."""

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import read_json

PROBE_NAMES = ("mnir", "doctor")  # `probes` has a function for each
# What the report reads beside the metrics. DONE is the last to be copied.
ARCHIVED_FILES = (
    "cell.json",
    "config.json",
    "eval.json",
    "versions.txt",
    *(f"{probe}.json" for probe in PROBE_NAMES),
    "DONE",
)


def read_cell(path: Path) -> dict[str, Any]:
    """What cell.json says about a cell."""
    about: dict[str, Any] = read_json(path / "cell.json")
    if "probes" not in about:
        raise UserError(
            f"{path / 'cell.json'} was written by an earlier version. "
            'Rename its key "asks" to "probes" to read it.'
        )
    return about


def probe_path(path: Path, probe: str) -> Path:
    """Where a probe's result is."""
    return path / f"{probe}.json"


def probe_results(path: Path, probes: Iterable[str]) -> dict[str, Any]:
    """The results that are there, by the probe's name."""
    found = {}
    for probe in probes:
        if probe_path(path, probe).exists():
            found[probe] = read_json(probe_path(path, probe))
    return found


def missing_probes(path: Path, probes: Iterable[str]) -> list[str]:
    """The probes that are still to be made.

    MNIR needs the checkpoint, which an archived run no longer has.
    """
    archived = not (path / "checkpoint.pt").exists()
    missing = []
    for probe in probes:
        impossible = probe == "mnir" and archived
        if not impossible and not probe_path(path, probe).exists():
            missing.append(probe)
    return missing


def in_use(path: Path) -> bool:
    """Whether a living process holds the run's lock."""
    try:
        file = open(path / ".lock")  # noqa: SIM115 (closed below)
    except OSError:  # nobody was ever here
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
