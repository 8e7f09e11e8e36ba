"""Where a grid's cells stand, and how long they will take: a live table, or a line for each."""

import time
from collections.abc import Collection
from typing import Any

from surprise_memory.reproduce.cells import Cell
from surprise_memory.reproduce.local import GridProgress
from surprise_memory.training.progress import rich_console
from surprise_memory.training.rundir import RunDir

REDRAW = 2.0  # seconds between tables: each reads the end of every unfinished run's metrics
START = 3.0  # seconds that a process needs to begin and to evaluate, whatever its steps
UNKNOWN_SPEED = 1000.0  # steps a second of a cell that nothing is known about


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
