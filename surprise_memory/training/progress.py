"""What a person sees of a run: a live line in a terminal, or a plain line now and then."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from surprise_memory.bonus.metrics import IDLE_CORRELATION
from surprise_memory.errors import need

PATIENCE = 50  # rollouts in a row that give cause for a warning
SILENCE = 15  # seconds between two plain lines


def literal(text: object) -> str:
    """Text that Rich prints as it is: a path may have square brackets, which are its markup."""
    escaped: str = need("rich.markup", extra="cli").escape(str(text))
    return escaped


def rich_console() -> Any:
    """Rich's console, or how to get it."""
    return need("rich.console", extra="cli").Console()


@contextlib.contextmanager
def status(title: str) -> Iterator[Callable[[str, float], None]]:
    """Show what a long command is at, called with words and the share that is done.

    A live line in a terminal; elsewhere a line on standard error for each quarter.
    """
    console = rich_console()
    began = time.monotonic()
    if console.is_terminal:
        with console.status(title) as shown:
            yield lambda what, share: shown.update(f"{what} {share:.0%}{rest(began, share)}")
        return
    told = -1

    def tell(what: str, share: float) -> None:
        nonlocal told
        quarter = int(4 * share)
        if quarter > told:
            told = quarter
            words = f"{title}: {25 * quarter} % ({what}){rest(began, share)}"
            print(words, file=sys.stderr, flush=True)

    yield tell


def rest(began: float, share: float) -> str:
    """How long the rest takes at the pace so far; nothing before the start and at the end."""
    if not 0 < share < 1:
        return ""
    passed = time.monotonic() - began
    return f", {left(passed * (1 - share) / share)}"


def left(seconds: float) -> str:
    """The time that is left, in words.

    >>> left(50), left(100), left(9000)
    ('50 s left', '2 min left', '2.5 h left')
    """
    if seconds < 60:
        return f"{seconds:.0f} s left"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds / 3600:.1f} h left"


def line(row: dict[str, Any]) -> str:
    """The numbers worth watching, in one line."""
    parts = [f"{row['charts/SPS']:,} steps/s"]
    if "charts/return_128" in row:
        parts.append(f"return {row['charts/return_128']:.3f}")
    elif "charts/episodic_return" in row:
        parts.append(f"return {row['charts/episodic_return']:.3f} (first episodes)")
    if "intrinsic/novelty" in row:
        parts.append(f"surprise {row['intrinsic/surprise_norm']:.3f}")
        parts.append(f"novelty {row['intrinsic/novelty']:.3f}")
    return " · ".join(parts)


def idle_memory(row: dict[str, Any]) -> str | None:
    """What to say if the memory changes nothing."""
    corr = row.get("intrinsic/novelty_norm_corr", 0.0)
    if "intrinsic/recall_ratio" not in row or corr <= IDLE_CORRELATION:
        return None
    return (
        f"The memory is idle: novelty is {corr:.3f} correlated with the surprise norm. Give it a "
        "wider W (--bonus.memory.w-hidden) or a higher learning rate (--bonus.memory-lr); see "
        "docs/methods.md."
    )


def moves_by_chance(row: dict[str, Any]) -> str | None:
    """What to say if remembering has not been seen to help."""
    if row.get("intrinsic/trust", 1.0) > 0:
        return None
    return (
        f"Much here seems to move by chance: remembering saves {row['intrinsic/gain']:.0%} of the "
        "novelty. Only what is unexpected is paid; see docs/noise.md."
    )


WARNINGS = (idle_memory, moves_by_chance)


class Progress:
    """Use it as a context and call it with every row of metrics."""

    def __init__(self, name: str, steps: int) -> None:
        progress = need("rich.progress", extra="cli")
        self.name = name
        self.steps = steps
        self.console = rich_console()
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[line]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task(name, total=steps, line="warming up")
        self.spoke = -math.inf  # when a plain line was printed
        self.cause = dict.fromkeys(WARNINGS, 0)  # rollouts in a row

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def __call__(self, row: dict[str, Any]) -> None:
        """Show one row."""
        self.bar.update(self.task, completed=row["step"], line=line(row))
        seconds = max(0, self.steps - row["step"]) / max(1, row["charts/SPS"])
        self._print(row["step"], f"{line(row)}  {left(seconds)}")
        self._warn(row)

    def at(self, step: int, doing: str) -> None:
        """Show a step that has no numbers yet."""
        self.bar.update(self.task, completed=step, line=doing)
        self._print(step, doing)

    def _print(self, step: int, words: str) -> None:
        """One plain line, for logs, if the last one was some time ago."""
        if self.console.is_terminal or time.monotonic() - self.spoke <= SILENCE:
            return
        self.spoke = time.monotonic()
        print(f"{self.name}  {step:,} of {self.steps:,}  {words}", flush=True)

    def _warn(self, row: dict[str, Any]) -> None:
        """Say each warning once, when there has been cause for it for fifty rollouts."""
        for warning in WARNINGS:
            sentence = warning(row)
            if self.cause[warning] >= PATIENCE:
                continue
            if sentence is None:
                self.cause[warning] = 0
                continue
            self.cause[warning] += 1
            if self.cause[warning] == PATIENCE:
                self.console.print(f"[yellow]{sentence}[/]")
