"""Cells in parallel processes on this machine, one thread each.

Another `reproduce` may be at work in the same directory. Its cells are left to it, and are waited
for while their locks are held.
"""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.reproduce.celldir import in_use
from surprise_memory.reproduce.cells import BUSY, Cell, main, prepare

POLL = 0.2  # seconds between looks at the processes
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
