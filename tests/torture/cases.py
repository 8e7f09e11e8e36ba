"""One case of the torture test: a call in a process of its own, a time limit, and a verdict.

Every case runs in a forked child, in its own process group and an empty directory. A child that
hangs is killed with its group. The parent never computes with torch: a forked thread pool would
hang.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REFUSED, HARMLESS = "refused", "harmless"
TRACEBACK, SILENT, HANG = "traceback", "silent", "hang"
OUTCOMES = (REFUSED, HARMLESS, TRACEBACK, SILENT, HANG)
BAD = (TRACEBACK, SILENT, HANG)
MEMORY = 8 * 2**30  # bytes a child may map: a huge size must not take the machine down
OUTPUT = "output.txt"  # in a case's directory: all that it printed
PATIENCE = 4.0  # a case that computes little may take so many limits: others may use the machine
TICKS = os.sysconf("SC_CLK_TCK")
PACKAGE = f"{os.sep}surprise_memory{os.sep}"


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and why that is bad."""

    outcome: str
    why: str = ""


@dataclass(frozen=True)
class Case:
    """A call that must be refused or do no harm.

    `name` is the exact command or call. `run` judges itself, or raises, which is judged here.
    """

    family: str
    name: str
    run: Callable[[], Verdict]
    limit: float = 30.0  # seconds of CPU time, and PATIENCE times as many on the clock
    endless: bool = False  # it was told to work for ever: reaching the limit is no hang


@dataclass(frozen=True)
class Ended:
    """A case and its verdict."""

    case: Case
    verdict: Verdict
    seconds: float


def judge(error: BaseException) -> Verdict:
    """Refused if this package said no in a sentence, else a traceback."""
    from surprise_memory.errors import UserError

    said = str(error).strip()
    refusal = isinstance(error, UserError)
    if isinstance(error, ValueError | TypeError):  # `Chunk` is strict without being user-facing
        refusal = refusal or raised_by_us(error)
    if refusal and " " in said:
        return Verdict(REFUSED, said)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return Verdict(TRACEBACK, f"{type(error).__name__}: {said[:160]} ({place})")


def raised_by_us(error: BaseException) -> bool:
    """Whether the error comes from a `raise` in this package."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return PACKAGE in frame.filename and (frame.line or "").lstrip().startswith("raise")


# --- in the child ---------------------------------------------------------------------------------


def be_the_child(case: Case, folder: Path) -> None:
    """Run the case and write its verdict; never returns."""
    os.setsid()
    os.chdir(folder)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have told us to ignore it
    out = os.open(OUTPUT, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        verdict = case.run()
    except BaseException as error:
        verdict = judge(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    Path("verdict.json").write_text(json.dumps([verdict.outcome, verdict.why]))
    os._exit(0)


def printed() -> str:
    """All that this case printed so far."""
    sys.stdout.flush()
    sys.stderr.flush()
    return Path(OUTPUT).read_text(errors="replace")


# --- in the parent --------------------------------------------------------------------------------


@dataclass
class Running:
    """A child at work."""

    case: Case
    pid: int
    folder: Path
    began: float


def start(case: Case) -> Running:
    """Fork a child for a case."""
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        be_the_child(case, folder)
    return Running(case, pid, folder, time.monotonic())


def look(child: Running) -> Ended | None:
    """How a child ended, or None while it works. A child over its limit is killed."""
    seconds = time.monotonic() - child.began
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid == 0 and not over(child, seconds):
        return None
    end_group(child.pid)
    if pid == 0:
        os.waitpid(child.pid, 0)
        verdict = Verdict(HANG, f"still running after {seconds:.0f} s")
        if child.case.endless:
            verdict = Verdict(HARMLESS)
    else:
        verdict = read_verdict(child.folder, os.waitstatus_to_exitcode(status))
    shutil.rmtree(child.folder, ignore_errors=True)
    return Ended(child.case, verdict, seconds)


def over(child: Running, seconds: float) -> bool:
    """Whether a child is over its limit. One that others keep from computing is not."""
    limit = child.case.limit
    if seconds < limit:
        return False
    return seconds >= PATIENCE * limit or cpu_seconds(child.pid) >= limit


def cpu_seconds(group: int) -> float:
    """The CPU time of a group's living processes."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            total += sum(int(ticks) for ticks in fields[11:15])  # its dead children's, too
    return total / TICKS


def end_group(group: int) -> None:
    """Kill what is left of a case's processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def read_verdict(folder: Path, code: int) -> Verdict:
    """What the child wrote; one that wrote nothing has crashed."""
    try:
        return Verdict(*json.loads((folder / "verdict.json").read_text()))
    except (OSError, ValueError):
        return Verdict(TRACEBACK, f"the process died with exit code {code}")


def run_all(cases: Iterable[Case], jobs: int, until: float) -> Iterator[Ended]:
    """All cases, `jobs` at a time, until a moment of time.monotonic()."""
    waiting = iter(cases)
    running: list[Running] = []
    more = True
    while more or running:
        while more and len(running) < jobs:
            case = next(waiting, None)
            more = case is not None and time.monotonic() < until
            if case is not None and more:
                running.append(start(case))
        for child in list(running):
            ended = look(child)
            if ended is not None:
                running.remove(child)
                yield ended
        time.sleep(0.005)
