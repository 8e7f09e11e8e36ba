"""A run directory: the only format between training, evaluation and reports. No torch here.

It holds config.json (every option), metrics.jsonl, checkpoint.pt, the checkpoint before it,
eval.json, versions.txt, and DONE at the end. A file that is rewritten is written under another
name, synced and renamed: a killed process leaves the old or the new one, never half of either. A
lock keeps a second process out.
"""

import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import NEW, cannot_write, read_json, write_atomically, write_json
from surprise_memory.training.options import refuse_other_options, with_later

TAIL = 2**16  # bytes at the end of metrics.jsonl that are read for its last row

OURS = (".lock", "cell.json")  # files that may be there before a run


class Locked(UserError):
    """Another process is at work in a run's directory."""


class RunDir:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.pt"
        self.previous = path / "checkpoint.previous.pt"  # the one before
        self.eval = path / "eval.json"
        self.done = path / "DONE"
        self.logged = 0  # step of the newest row, as the run or its checkpoint knows it
        self.rewound = 0  # step that this process took the run back to
        self._lock: Any = None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    def open(self, config: dict[str, Any], resume: bool) -> None:
        """Begin a run here or continue the one that is here; refuse to touch another."""
        self.refuse_another(config, resume)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 (held as long as the run)
        except OSError as error:
            raise UserError(
                f"Cannot write to {self.path}: {error.strerror}. Choose another --run-dir."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Locked(
                f"Another process is training in {self.path}: wait for it, "
                "or choose another --run-dir."
            ) from error
        for path in self.path.glob(f"*{NEW}"):  # a killed process left them
            path.unlink(missing_ok=True)
        self.done.unlink(missing_ok=True)
        write_json(self.config, config)
        write_atomically(self.path / "versions.txt", lambda f: f.write(versions().encode()))

    def refuse_another(self, config: dict[str, Any], resume: bool) -> None:
        """Refuse to begin where something is, or to continue what is not this run."""
        if not self.exists:
            self._refuse_other_files(resume)
            return
        if not resume:
            raise UserError(
                f"{self.path} already holds a run: add --resume to continue it, "
                "or choose another --run-dir."
            )
        old = flatten(with_later(read_config(self.config)))
        refuse_other_options(self.path, old, flatten(config))

    def _refuse_other_files(self, resume: bool) -> None:
        if not self.path.exists():
            if resume:
                raise UserError(
                    f"Nothing to resume: {self.path} does not exist. "
                    "Leave --resume out to begin there."
                )
            return
        if not self.path.is_dir():
            raise UserError(f"{self.path} is a file: choose another --run-dir.")
        for path in self.path.iterdir():
            if path.name not in OURS and not path.name.endswith(NEW):
                raise UserError(
                    f"{self.path} holds other files and no run: choose an empty or a new --run-dir."
                )

    def log(self, row: dict[str, Any]) -> None:
        """Append one row of metrics."""
        self.logged = row["step"]
        try:
            with open(self.metrics, "a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise cannot_write(self.metrics, error) from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """The metrics so far; a last line that a crash cut off is skipped."""
        if not self.metrics.exists():
            return
        content = self.metrics.read_bytes()
        lines = content.splitlines()
        whole = content.endswith(b"\n")
        step = -1
        for number, line in enumerate(lines, 1):
            row = parse_row(line)
            if row is not None and row["step"] > step:
                step = row["step"]
                yield row
            elif number < len(lines) or whole:
                raise UserError(
                    f"{self.metrics} is damaged at line {number}: delete that line, "
                    f"such as by `sed -i {number}d {quote(str(self.metrics))}`."
                )

    def last_row(self) -> dict[str, Any]:
        """The newest row of metrics, read from the end of the file; empty if there is none yet."""
        if not self.metrics.exists():
            return {}
        with open(self.metrics, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
        for line in reversed(lines):
            row = parse_row(line)
            if row is not None:  # else cut off by a crash, or by where we began to read
                return row
        return {}

    def rewind(self, step: int) -> None:
        """Forget metrics after the checkpoint that a run resumes from."""
        self.rewound = step
        kept = [row for row in self.rows() if row["step"] <= step]
        self.logged = max([row["step"] for row in kept], default=0)
        text = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomically(self.metrics, lambda f: f.write(text.encode()))

    def finish(self) -> None:
        """Mark the run as complete."""
        write_atomically(self.done, lambda f: None)

    def close(self) -> None:
        """Let another process in."""
        if self._lock:
            self._lock.close()


class NoRunDir(RunDir):
    """What a process has that writes nothing: rank 0 of the same run does."""

    def log(self, row: dict[str, Any]) -> None:
        """Rank 0 logs the same row."""

    def rewind(self, step: int) -> None:
        """Only know how far the metrics go."""
        self.logged = step

    def finish(self) -> None:
        """Rank 0 says so."""


def parse_row(line: bytes) -> dict[str, Any] | None:
    """A row of metrics, that is numbers and a step, or None where the line is none."""
    try:
        row = json.loads(line)
    except ValueError:  # not JSON, or not text
        return None
    if not is_row(row):
        return None
    found: dict[str, Any] = row
    return found


def is_row(row: Any) -> bool:
    """Whether this can be a row of metrics: numbers by name, one of them the step."""
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return False
    for value in row.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
    return True


def read_config(path: Path) -> dict[str, Any]:
    """What config.json holds, or a sentence if that are no options."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(
            f"{path} is damaged, it holds no options: put it back, or train again elsewhere."
        )
    return config


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"ppo": {"lr": 1}} to {"ppo.lr": 1}."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def versions() -> str:
    """Python, machine, and every package that a number may depend on."""
    lines = [
        f"python {sys.version.split()[0]}",
        f"machine {platform.machine()} {platform.system()}, {os.cpu_count()} cores",
    ]
    for name in ("surprise-memory", "torch", "numpy", "gymnasium", "envpool", "minigrid"):
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    return "\n".join(lines) + "\n"
