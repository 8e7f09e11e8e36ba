"""All runs of a grid in one small file, DIR/WHAT/runs.jsonl: a line for each, and a first line.

| key of a line      | what it holds                                                     |
|--------------------|-------------------------------------------------------------------|
| name               | the name that its directory had                                   |
| cell, config       | cell.json; config.json where it is not the same as the cell's run |
| done, eval         | whether it is finished; eval.json                                 |
| versions           | versions.txt                                                      |
| probes             | the probes' results, by name                                      |
| metrics            | name -> a value for each row, null where the row has none         |

A run's directory becomes such a record, and the report is made of records alone. So it is the same
whichever of the two a run is kept as.
"""

import functools
import json
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import read_json, write_atomically, write_json
from surprise_memory.reproduce.celldir import (
    PROBE_NAMES,
    probe_path,
    probe_results,
    read_cell,
    what_is_wrong,
)
from surprise_memory.training.rundir import RunDir, is_row

FILE = "runs.jsonl"
FORMAT = {"format": "surprise-memory runs 1"}
Record = dict[str, Any]
Rows = list[dict[str, Any]]
# Keys beside name, cell and metrics, and what they are if they are there.
OPTIONAL = {"config": dict, "done": bool, "eval": dict, "versions": str, "probes": dict}


def record_of(path: Path, rows: Rows | None = None) -> Record:
    """A run's directory as a record, with its rows of metrics or with others given."""
    out = RunDir(path)
    if rows is None:
        rows = list(out.rows())
    cell = read_cell(path)
    record: Record = {"name": path.name, "cell": cell, "done": out.done.exists()}
    if record["done"] and out.eval.exists():
        record["eval"] = read_json(out.eval)
    versions = path / "versions.txt"
    if versions.exists():
        record["versions"] = versions.read_text()
    record["probes"] = probe_results(path, PROBE_NAMES)
    record["metrics"] = as_columns(rows)
    return record


def unpack(record: Record, path: Path) -> None:
    """What a finished run has left behind, in the directory of another cell with its settings."""
    if "eval" in record:
        write_json(path / "eval.json", record["eval"], indent=None)
    if "versions" in record:
        (path / "versions.txt").write_text(record["versions"])
    for probe, result in record.get("probes", {}).items():
        write_json(probe_path(path, probe), result)
    rows = as_rows(record["metrics"])
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_columns(rows: Rows) -> dict[str, list[Any]]:
    """[{"step": 1}, {"step": 2, "x": 3}] to {"step": [1, 2], "x": [None, 3]}.

    >>> as_columns([{"step": 1}, {"step": 2, "x": 3}])
    {'step': [1, 2], 'x': [None, 3]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(columns: dict[str, list[Any]]) -> Rows:
    """The other half of `as_columns`."""
    rows = []
    for values in zip(*columns.values(), strict=True):
        pairs = zip(columns, values, strict=True)
        rows.append({name: value for name, value in pairs if value is not None})
    return rows


def read_records(file: Path) -> list[Record]:
    """All records of a file; none if there is no file. It may be somebody else's."""
    if not file.exists():
        return []
    lines = file.read_bytes().splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{file} is damaged at line {number}: put it back.") from error
        if number == 1:
            if record != FORMAT:
                raise UserError(f"{file} is not a '{FORMAT['format']}': it is from elsewhere.")
            continue
        wrong = what_is_wrong_with(record)
        if wrong:
            raise UserError(f"{file} is damaged at line {number}: {wrong}.")
        records.append(record)
    return records


def finished_names(file: Path) -> frozenset[str]:
    """The names of the finished runs in a file; none if there is no file."""
    if not file.exists():
        return frozenset()
    about = file.stat()
    return _finished_names(file, about.st_mtime_ns, about.st_size)


@functools.lru_cache
def _finished_names(file: Path, _changed: int, _size: int) -> frozenset[str]:
    """Read once for as long as the file stays the same: a running grid asks again and again."""
    return frozenset(record["name"] for record in read_records(file) if record.get("done"))


def what_is_wrong_with(record: Any) -> str:
    """Why this is no record of a run; empty if it is one."""
    if not isinstance(record, dict):
        return "it is no table of keys"
    name = record.get("name")
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".."):
        return f"its name is {name!r}"
    wrong = what_is_wrong(record.get("cell"))
    if wrong:
        return f"in its cell, {wrong}"
    for key, kind in OPTIONAL.items():
        if key in record and not isinstance(record[key], kind):
            return f"its '{key}' is no {kind.__name__}"
    for probe, result in record.get("probes", {}).items():
        if probe not in PROBE_NAMES or not isinstance(result, dict):
            return f"it has a probe {probe!r}"
    columns = record.get("metrics")
    if not isinstance(columns, dict) or not all(isinstance(x, list) for x in columns.values()):
        return "its metrics are no columns"
    if len({len(x) for x in columns.values()}) > 1 or not all(map(is_row, as_rows(columns))):
        return "its metrics are no rows"
    return ""


def write_records(file: Path, records: list[Record]) -> None:
    """The records by name, in place of whatever the file held."""
    lines = [FORMAT, *sorted(records, key=lambda record: str(record["name"]))]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda f: f.write(text.encode()))
