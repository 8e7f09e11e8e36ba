"""Cells in parallel processes on this machine, each on one thread, with one live table; what failed is said at the end."""

import multiprocessing
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.reproduce.cells import Cell, main, prepare
from surprise_memory.training.progress import rich_console
from surprise_memory.training.rundir import RunDir

POLL = 0.2  # seconds between looks at the processes
REDRAW = 2.0  # seconds between tables: each reads the end of every unfinished run's metrics
START = 3.0  # seconds that a process needs to begin and to evaluate, whatever its steps
# Before the first cell; what is not installed is passed over.
LOADED = ["surprise_memory.reproduce.cells", "envpool.registration"]


@dataclass
class Board:
    """What has become of every cell."""

    cells: list[Cell]
    waiting: list[Cell] = field(default_factory=list)
    running: dict[Any, Cell] = field(default_factory=dict)  # process -> cell
    done: list[Cell] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # cell's name -> why

    @staticmethod
    def of(cells: list[Cell]) -> "Board":
        """Finished cells are kept and never made again."""
        return Board(
            cells, [c for c in cells if not c.finished], {}, [c for c in cells if c.finished]
        )


def run_local(cells: list[Cell], jobs: int, show: Callable[[Board], None]) -> Board:
    """Make all cells that are not finished, `jobs` at a time. A cell that fails does not stop the others."""
    board = Board.of(cells)
    try:
        while board.waiting or board.running:
            while board.waiting and len(board.running) < jobs:
                cell = board.waiting.pop(0)
                try:
                    board.running[start(cell)] = cell
                except (OSError, UserError) as error:
                    board.failed[cell.name] = f"could not begin: {error}"
            for process, cell in list(board.running.items()):
                if process.exitcode is not None:
                    del board.running[process]
                    settle(board, cell, process.exitcode)
            show(board)
            time.sleep(POLL)
    finally:  # Ctrl-C: let them save
        for process in board.running:
            process.terminate()
        for process in board.running:
            process.join()
    return board


def start(cell: Cell) -> Any:
    """The process of a cell, forked from one that has loaded everything and done nothing: importing takes seconds."""
    prepare(cell)
    log_of(cell).parent.mkdir(exist_ok=True)
    log_of(cell).write_bytes(b"")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=main, args=(cell.path, log_of(cell)))
    process.start()
    return process


def settle(board: Board, cell: Cell, code: int) -> None:
    """Finished, or failed and why: the last line that it said."""
    if code == 0 and cell.finished:
        board.done.append(cell)
        return
    said = [line for line in log_of(cell).read_text(errors="replace").splitlines() if line.strip()]
    killed = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    board.failed[cell.name] = (
        f"{killed}: {said[-1] if said else 'it said nothing'} ({log_of(cell)})"
    )


def log_of(cell: Cell) -> Path:
    """Where a cell's output goes."""
    return cell.path.parent / "logs" / f"{cell.path.name}.log"


def speeds(cells: list[Cell]) -> dict[tuple[str, str], float]:
    """Steps a second by (environment, entry), as the runs themselves have measured."""
    rows = [(c, RunDir(c.path).last_row()) for c in cells]
    return {(c.env, c.entry): row["charts/SPS"] for c, row in rows if row.get("charts/SPS")}


def hours(
    cells: list[Cell],
    known: dict[tuple[str, str], float],
    otherwise: float,
    jobs: int,
    failed: Collection[str] = (),
) -> float:
    """About how long the unfinished cells will take; those of unknown speed go at `otherwise` steps a second."""
    seconds = 0.0
    for cell in cells:
        if not cell.finished and cell.name not in failed:
            reached = RunDir(cell.path).last_row().get("step", 0)
            seconds += START + max(0, cell.run.steps - reached) / known.get(
                (cell.env, cell.entry), otherwise
            )
    return seconds / jobs / 3600


class Live:
    """The table that stands still in a terminal; elsewhere, a line for each cell that ends."""

    def __init__(self, jobs: int) -> None:
        from rich.live import Live as RichLive

        self.console, self.jobs, self.told, self.drawn = rich_console(), jobs, set[str](), 0.0
        self.live = (
            RichLive(console=self.console, refresh_per_second=2)
            if self.console.is_terminal
            else None
        )

    def __enter__(self) -> "Live":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, board: Board) -> None:
        """Show where everything stands."""
        if self.live and time.monotonic() - self.drawn > REDRAW:
            self.drawn = time.monotonic()
            self.live.update(self.table(board))
        if not self.live:
            self.tell(board)

    def tell(self, board: Board) -> None:
        """A line for each cell that has ended since the last call, and the hours that are left."""
        ended = {cell.name: "finished" for cell in board.done} | dict.fromkeys(
            board.failed, "failed"
        )
        news = [name for name in ended if name not in self.told]
        left = (
            hours(board.cells, speeds(board.done), 1000.0, self.jobs, board.failed) if news else 0.0
        )
        for name in news:
            self.told.add(name)
            print(
                f"{len(self.told)} of {len(board.cells)}: {name} {ended[name]}, about {left:.1f} hours left",
                flush=True,
            )

    def table(self, board: Board) -> Any:
        """Running cells with their progress, and how many wait."""
        from rich.table import Table

        left = hours(
            board.cells,
            speeds(board.done + list(board.running.values())),
            1000.0,
            self.jobs,
            board.failed,
        )
        ended = f"{len(board.done)} of {len(board.cells)} done, {len(board.failed)} failed, {len(board.waiting)} waiting"
        table = Table(
            "cell", "steps", "return", "steps/s", title=f"{ended}, about {left:.1f} hours left"
        )
        for cell in board.running.values():
            row = RunDir(cell.path).last_row()
            mean = f"{row['charts/return_128']:.3f}" if "charts/return_128" in row else ""
            table.add_row(
                cell.name,
                f"{row.get('step', 0):,} of {cell.run.steps:,}",
                mean,
                f"{row.get('charts/SPS', 0):,}",
            )
        return table
