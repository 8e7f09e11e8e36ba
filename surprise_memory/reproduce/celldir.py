"""A cell's directory: a run directory, cell.json, and a JSON file for each probe. No torch here."""

import fcntl
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import read_json
from surprise_memory.reproduce.grid import BUDGETS

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
CELL_KEYS = {  # of cell.json
    "grid": str,
    "entry": str,
    "env": str,
    "seed": int,
    "budget": str,
    "probes": list,
    "run": dict,
}


def read_cell(path: Path) -> dict[str, Any]:
    """What cell.json says about a cell. It may be somebody else's, so nothing in it is trusted."""
    file = path / "cell.json"
    about: dict[str, Any] = read_json(file)
    if isinstance(about, dict) and "asks" in about:
        raise UserError(
            f"{file} was written by an earlier version. "
            'Rename its key "asks" to "probes" to read it.'
        )
    wrong = what_is_wrong(about)
    if wrong:
        raise UserError(f"{file} is damaged, or not from this program: {wrong}.")
    return about


def what_is_wrong(about: Any) -> str:
    """Why this cannot be the content of a cell.json; empty if it can."""
    if not isinstance(about, dict):
        return "it is no table of keys"
    for name, kind in CELL_KEYS.items():
        if not isinstance(about.get(name), kind):
            return f"its '{name}' is missing or no {kind.__name__}"
    steps = about["run"].get("steps")
    if not isinstance(steps, int):
        return f"its number of steps is {steps!r}"
    # The rest become parts of files' names.
    words = {"preset": about["run"].get("preset")}
    words["precision"] = about["run"].get("precision", "float32")  # it came later
    for name, word in words.items():
        if not isinstance(word, str) or not re.fullmatch(r"[\w-]+", word):
            return f"its {name} is {word!r}"
    if about["budget"] not in BUDGETS:
        return f"its budget is {about['budget']!r}"
    for probe in about["probes"]:
        if probe not in PROBE_NAMES:
            return f"it has a probe {probe!r}"
    return ""


def probe_path(path: Path, probe: str) -> Path:
    """Where a probe's result is."""
    return path / f"{probe}.json"


def probe_results(path: Path, probes: Iterable[str]) -> dict[str, Any]:
    """The results that are there, by the probe's name."""
    found = {}
    for probe in probes:
        if probe_path(path, probe).exists():
            found[probe] = read_json(probe_path(path, probe))
            if not isinstance(found[probe], dict):
                raise UserError(f"{probe_path(path, probe)} is damaged: it is no table of keys.")
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
