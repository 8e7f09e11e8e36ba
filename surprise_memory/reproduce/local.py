"""Cells in parallel processes on this machine, one thread each, with one live table.

Another `reproduce` may be at work in the same directory. Its cells are left to it, and are waited
for while their locks are held.
"""

import multiprocessing
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.reproduce.celldir import in_use
from surprise_memory.reproduce.cells import BUSY, Cell, main, prepare
from surprise_memory.training.progress import rich_console
from surprise_memory.training.rundir import RunDir

POLL = 0.2  # seconds between looks at the processes
REDRAW = 2.0  # seconds between tables: each reads the end of every unfinished run's metrics
START = 3.0  # seconds that a process needs to begin and to evaluate, whatever its steps
UNKNOWN_SPEED = 1000.0  # steps a second of a cell that nothing is known about
# Imported before the first cell. What is not installed is passed over.
LOADED = ["surprise_memory.reproduce.cells", "envpool.registration"]


@dataclass
class GridProgress:
    """What has become of every cell."""

    cells: list[Cell]
    waiting: list[Cell] = field(default_factory=list)
    running: dict[Any, Cell] = field(default_factory=dict)  # process -> cell
    elsewhere: list[Cell] = field(default_factory=list)  # waiting, as another process has them
    done: list[Cell] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # cell's name -> why

    @staticmethod
    def of(cells: list[Cell]) -> "GridProgress":
        """Finished cells are done and never made again."""
        progress = GridProgress(cells)
        for cell in cells:
            if cell.finished:
                progress.done.append(cell)
            else:
                progress.waiting.append(cell)
        return progress


def run_local(cells: list[Cell], jobs: int, show: Callable[[GridProgress], None]) -> GridProgress:
    """Make all cells that are not finished, `jobs` at a time.

    A cell that fails does not stop the others.
    """
    progress = GridProgress.of(cells)
    try:
        while progress.waiting or progress.running:
            start_cells(progress, jobs)
            settle_ended(progress)
            show(progress)
            time.sleep(POLL)
    finally:  # Ctrl-C: let them save
        for process in progress.running:
            process.terminate()
        for process in progress.running:
            process.join()
    return progress


def start_cells(progress: GridProgress, jobs: int) -> None:
    """Give every free place to the first cell that no other process has."""
    if len(progress.running) == jobs:
        return
    progress.elsewhere = []
    for cell in list(progress.waiting):
        if cell.finished:  # by another process, meanwhile
            progress.waiting.remove(cell)
            progress.done.append(cell)
        elif in_use(cell.path):
            progress.elsewhere.append(cell)
        elif len(progress.running) < jobs:
            progress.waiting.remove(cell)
            try:
                progress.running[start(cell)] = cell
            except (OSError, UserError) as error:
                progress.failed[cell.name] = f"could not begin: {error}"


def start(cell: Cell) -> Any:
    """The process of a cell.

    It is forked from one that has imported everything and done nothing: importing takes seconds.
    """
    prepare(cell)
    log_path(cell).parent.mkdir(exist_ok=True)
    log_path(cell).write_bytes(b"")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=main, args=(cell.path, log_path(cell)))
    process.start()
    return process


def settle_ended(progress: GridProgress) -> None:
    """Settle every cell whose process has ended."""
    for process, cell in list(progress.running.items()):
        if process.exitcode is not None:
            del progress.running[process]
            settle(progress, cell, process.exitcode)


def settle(progress: GridProgress, cell: Cell, code: int) -> None:
    """Done, or waiting again, or failed and why: the last line of its output."""
    if code == BUSY:  # another process was faster
        progress.waiting.insert(0, cell)
        return
    if code == 0 and cell.finished:
        progress.done.append(cell)
        return
    ended = f"exit code {code}"
    if code < 0:
        ended = f"killed by signal {-code}"
    last_line = "it printed nothing"
    for line in log_path(cell).read_text(errors="replace").splitlines():
        if line.strip():
            last_line = line
    progress.failed[cell.name] = f"{ended}: {last_line} ({log_path(cell)})"


def log_path(cell: Cell) -> Path:
    """Where a cell's output goes."""
    return cell.path.parent / "logs" / f"{cell.path.name}.log"


def speeds(cells: list[Cell]) -> dict[tuple[str, str], float]:
    """Steps a second by (environment, entry), as the runs themselves have measured."""
    known = {}
    for cell in cells:
        speed = RunDir(cell.path).last_row().get("charts/SPS")
        if speed:
            known[cell.env, cell.entry] = speed
    return known


def hours(
    cells: list[Cell],
    known: dict[tuple[str, str], float],
    otherwise: float,
    jobs: int,
    failed: Collection[str] = (),
) -> float:
    """About how long the unfinished cells will take.

    Those of unknown speed are taken to make `otherwise` steps a second.
    """
    seconds = 0.0
    unfinished = 0
    for cell in cells:
        if cell.finished or cell.name in failed:
            continue
        unfinished += 1
        reached = RunDir(cell.path).last_row().get("step", 0)
        speed = known.get((cell.env, cell.entry), otherwise)
        seconds += START + max(0, cell.run.steps - reached) / speed
    return seconds / max(1, min(jobs, unfinished)) / 3600


def in_words(time: float) -> str:
    """Hours, in the unit that fits.

    >>> in_words(0.001), in_words(0.02), in_words(0.5), in_words(3), in_words(60)
    ('1 minute', '1 minute', '30 minutes', '3.0 hours', '2.5 days')
    """
    minutes = max(1, round(60 * time))
    if minutes == 1:
        return "1 minute"
    if time < 1:
        return f"{minutes} minutes"
    if time < 48:
        return f"{time:.1f} hours"
    return f"{time / 24:.1f} days"


class Live:
    """A table that stands still in a terminal. Elsewhere, a line for each cell that ends."""

    def __init__(self, jobs: int) -> None:
        self.console = rich_console()
        self.jobs = jobs
        self.ended: set[str] = set()  # cells about which a line was printed
        self.elsewhere: set[str] = set()  # likewise
        self.drawn = 0.0
        self.live: Any = None
        if self.console.is_terminal:
            from rich.live import Live as RichLive

            self.live = RichLive(console=self.console, refresh_per_second=2)

    def __enter__(self) -> "Live":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, progress: GridProgress) -> None:
        """Show where everything stands."""
        if not self.live:
            self.print_elsewhere(progress)
            self.print_ended(progress)
        elif time.monotonic() - self.drawn > REDRAW:
            self.drawn = time.monotonic()
            self.live.update(self.table(progress))

    def print_elsewhere(self, progress: GridProgress) -> None:
        """A line for each cell that another process was found to have."""
        for cell in progress.elsewhere:
            if cell.name not in self.elsewhere:
                self.elsewhere.add(cell.name)
                print(f"{cell.name} is trained by another process: waiting for it", flush=True)

    def print_ended(self, progress: GridProgress) -> None:
        """A line for each cell that has ended since the last call, and the time that is left."""
        ended = {cell.name: "finished" for cell in progress.done}
        ended |= dict.fromkeys(progress.failed, "failed")
        new = [name for name in ended if name not in self.ended]
        if not new:
            return
        left = self.time_left(progress, progress.done)
        for name in new:
            self.ended.add(name)
            count = f"{len(self.ended)} of {len(progress.cells)}"
            print(f"{count}: {name} {ended[name]}, about {left} left", flush=True)

    def table(self, progress: GridProgress) -> Any:
        """Running cells with their progress, those of other processes, and how many wait."""
        from rich.table import Table

        running = list(progress.running.values())
        left = self.time_left(progress, progress.done + running)
        counts = (
            f"{len(progress.done)} of {len(progress.cells)} done, {len(progress.failed)} failed, "
            f"{len(progress.waiting)} waiting, about {left} left"
        )
        table = Table("cell", "steps", "return", "steps/s", title=counts)
        for cell in running:
            table.add_row(cell.name, *progress_columns(cell))
        for cell in progress.elsewhere:
            table.add_row(f"{cell.name} (another process)", *progress_columns(cell))
        return table

    def time_left(self, progress: GridProgress, measured: list[Cell]) -> str:
        """About how long it will take, at the speeds of the measured cells."""
        known = speeds(measured)
        left = hours(progress.cells, known, UNKNOWN_SPEED, self.jobs, progress.failed)
        return in_words(left)


def progress_columns(cell: Cell) -> tuple[str, str, str]:
    """Steps, mean return and speed of a cell so far, as text."""
    row = RunDir(cell.path).last_row()
    mean = ""
    if "charts/return_128" in row:
        mean = f"{row['charts/return_128']:.3f}"
    steps = f"{row.get('step', 0):,} of {cell.run.steps:,}"
    return steps, mean, f"{row.get('charts/SPS', 0):,}"
