"""A run that is killed and resumed: its lives, and what must hold between and after them."""

import itertools
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture.commands import checkpoint

WAIT = 120.0  # seconds for a process to go after a signal that asks it to


@dataclass
class Patient:
    """One command that is run again and again in one directory."""

    argv: list[str]  # without --resume
    folder: Path  # of the run
    resumable: bool = True  # whether the command has --resume, and needs it the second time
    pid: int = 0
    log: Path = field(default_factory=lambda: Path("life.txt"))

    def start(self) -> None:
        """Fork a process that runs the command: as the real one, without the time of the import."""
        argv = list(self.argv)
        if self.resumable and (self.folder / "config.json").exists():
            argv.append("--resume")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(argv)

    def _live(self, argv: list[str]) -> None:
        out = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have told us to ignore it
        from surprise_memory import __main__

        sys.argv[1:] = argv
        code = 1
        try:
            code = __main__.main()
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def ended(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still lives after so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            code = self.ended()
            if code is not None:
                return code
            time.sleep(0.002)
        return None

    def said(self) -> str:
        """What its last life printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self, number: int) -> int | None:
        """Send a signal; the exit code, or None if it did not go."""
        os.kill(self.pid, number)
        code = self.wait(WAIT)
        if code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        return code


def wait_for_rows(patient: Patient, rows: int, seconds: float = 60.0) -> int | None:
    """Wait for more rows of metrics; the exit code if the process ended before."""
    path = patient.folder / "metrics.jsonl"
    want = count_lines(path) + rows
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        code = patient.ended()
        if code is not None:
            return code
        if count_lines(path) >= want:
            return None
        time.sleep(0.002)
    return None


def count_lines(path: Path) -> int:
    """Lines of a file; 0 if there is none."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def random_moment(patient: Patient, rng: random.Random) -> int | None:
    """Wait for a random moment: somewhere in the start, or between two rows."""
    if rng.random() < 0.4:
        return patient.wait(rng.uniform(0.0, 1.0))
    code = wait_for_rows(patient, rng.randrange(1, 8))
    if code is not None:
        return code
    return patient.wait(rng.uniform(0.0, 0.05))


def wrong_between(folder: Path, config: Any) -> str:
    """What is broken in a run's directory after a kill; '' if it can be resumed."""
    from surprise_memory.errors import UserError

    if (folder / "config.json").exists():
        found = json.loads((folder / "config.json").read_text())
        if config is not None and found != config:
            return "config.json has changed"
    if (folder / "checkpoint.pt").exists():
        try:
            checkpoint(folder)
        except UserError as error:
            return f"the checkpoint cannot be read: {error}"
    return wrong_rows(folder)


def wrong_rows(folder: Path) -> str:
    """Gaps, repetitions and cut lines in metrics.jsonl; a last line may be cut."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return ""
    steps = []
    lines = path.read_bytes().split(b"\n")
    for i, line in enumerate(lines):
        if not line and i == len(lines) - 1:
            continue
        try:
            steps.append(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            if i < len(lines) - 1:
                return f"line {i + 1} of metrics.jsonl is cut"
    strides = {b - a for a, b in itertools.pairwise(steps)}
    if len(strides) > 1:
        return f"rows of metrics.jsonl have gaps or repeat: strides {sorted(strides)}"
    return ""


def lost(folder: Path) -> str:
    """What a run that said it saved did not save; '' if nothing."""
    lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    saved = checkpoint(folder)["runner"]["steps"]
    last = json.loads(lines[-1])["step"] if lines else 0
    return f"it saved step {saved}, its last row is of step {last}" if last > saved else ""


def wrong_at_the_end(folder: Path, steps: int) -> str:
    """What a finished run lacks; '' if nothing."""
    for name in ("DONE", "eval.json", "checkpoint.pt", "config.json"):
        if not (folder / name).exists():
            return f"{name} is missing"
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    if last < steps:
        return f"the last row is of step {last}"
    leftovers = [path.name for path in folder.iterdir() if path.name.endswith(".new")]
    if leftovers:
        return f"{leftovers[0]} was left behind"
    return wrong_rows(folder)
