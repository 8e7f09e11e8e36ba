"""A run directory: the only format between training, evaluation and reports. No torch here.

config.json (everything, resolved) - metrics.jsonl - checkpoint.pt - eval.json - versions.txt - DONE at the end.
Every file that is rewritten is written beside its name, synced and renamed, so a killed process leaves the old or the new
one and never half of either. A lock keeps a second process out.
"""

import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import NEW, read_json, write_atomically, write_json

TAIL = 2**16  # bytes, many rows


class Locked(UserError):
    """Another process is at work in a run's directory."""


class RunDir:
    """One run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics, self.checkpoint = (
            path / "config.json",
            path / "metrics.jsonl",
            path / "checkpoint.pt",
        )
        self.done, self.eval = path / "DONE", path / "eval.json"
        self._lock: Any = None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    def open(self, config: dict[str, Any], resume: bool) -> None:
        """Begin a run here or continue the one that is here; refuse to touch another."""
        self._refuse_another(config, resume)
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
                f"Another process is training in {self.path}: wait for it, or choose another --run-dir."
            ) from error
        self.done.unlink(missing_ok=True)
        write_json(self.config, config)
        write_atomically(self.path / "versions.txt", lambda f: f.write(versions().encode()))

    def _refuse_another(self, config: dict[str, Any], resume: bool) -> None:
        if not self.exists:
            if resume and not self.path.exists():
                raise UserError(
                    f"Nothing to resume: {self.path} does not exist. Leave --resume out to begin there."
                )
            ours = (".lock", "cell.json")
            if self.path.exists() and any(
                p.name not in ours and not p.name.endswith(NEW) for p in self.path.iterdir()
            ):
                raise UserError(
                    f"{self.path} holds other files and no run: choose an empty or a new --run-dir."
                )
            return
        if not resume:
            raise UserError(
                f"{self.path} already holds a run: add --resume to continue it, or choose another --run-dir."
            )
        old = read_json(self.config)
        changed = [
            k
            for k, v in flatten(config).items()
            if flatten(old).get(k, v) != v and k not in ("steps", "threads")
        ]
        if changed:
            raise UserError(
                f"{self.path} holds another run: {', '.join(changed[:5])} differ (it has "
                f"{', '.join(repr(flatten(old)[k]) for k in changed[:5])}). Use its settings or choose another --run-dir."
            )

    def log(self, row: dict[str, Any]) -> None:
        """Append one row of metrics."""
        with open(self.metrics, "a") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The metrics so far; a last line torn by a crash is passed over."""
        if not self.metrics.exists():
            return
        for line in self.metrics.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def last_row(self) -> dict[str, Any]:
        """The newest row of metrics, read from the end of the file; empty where there is none yet."""
        if not self.metrics.exists():
            return {}
        with open(self.metrics, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
        for line in reversed(lines):
            try:
                row: dict[str, Any] = json.loads(line)
                return row
            except ValueError:  # torn by a crash, or by where we began to read
                continue
        return {}

    def rewind(self, step: int) -> None:
        """Forget metrics after the checkpoint that a run resumes from."""
        kept = [row for row in self.rows() if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomically(self.metrics, lambda f: f.write(text.encode()))

    def finish(self) -> None:
        """Mark the run as complete."""
        write_atomically(self.done, lambda f: None)

    def close(self) -> None:
        """Let another process in."""
        if self._lock:
            self._lock.close()


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"ppo": {"lr": 1}} to {"ppo.lr": 1}."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= (
            flatten(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {prefix + name: value}
        )
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
