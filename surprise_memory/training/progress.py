"""What a person sees of a run: a live line in a terminal, or a plain line now and then.

The same numbers go to TensorBoard.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from surprise_memory.bonus.model import IDLE_CORRELATION
from surprise_memory.errors import how_to_install, need
from surprise_memory.files import cannot_write
from surprise_memory.training.rundir import RunDir

PATIENCE = 50  # rollouts with an idle memory before a warning
SILENCE = 15  # seconds between two plain lines


def rich_console() -> Any:
    """Rich's console, or how to get it."""
    return need("rich.console", extra="cli").Console()


@contextlib.contextmanager
def status(title: str) -> Iterator[Callable[[str, float], None]]:
    """Show what a long command is at, called with words and the share that is done.

    A live line in a terminal; elsewhere a line on standard error for each quarter.
    """
    console = rich_console()
    if console.is_terminal:
        with console.status(title) as shown:
            yield lambda what, share: shown.update(f"{what} {share:.0%}")
        return
    told = -1

    def tell(what: str, share: float) -> None:
        nonlocal told
        quarter = int(4 * share)
        if quarter > told:
            told = quarter
            print(f"{title}: {25 * quarter} % ({what})", file=sys.stderr, flush=True)

    yield tell


def line(row: dict[str, Any]) -> str:
    """The numbers worth watching, in one line."""
    parts = [f"{row['charts/SPS']:,} steps/s"]
    if "charts/return_128" in row:
        parts.append(f"return {row['charts/return_128']:.3f}")
    if "intrinsic/novelty" in row:
        parts.append(f"surprise {row['intrinsic/surprise_norm']:.3f}")
        parts.append(f"novelty {row['intrinsic/novelty']:.3f}")
    return " · ".join(parts)


class Progress:
    """Use it as a context and call it with every row of metrics."""

    def __init__(self, name: str, steps: int, out: RunDir) -> None:
        progress = need("rich.progress", extra="cli")
        self.name = name
        self.steps = steps
        self.out = out
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
        self.spoke = time.monotonic()
        self.idle_rollouts = 0  # in a row
        self.warned = False
        self.tensorboard: Any = None
        self.make_writer = summary_writer()  # None without TensorBoard

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()
        if self.tensorboard:
            with contextlib.suppress(OSError):  # its rows are in metrics.jsonl
                self.tensorboard.close()

    def __call__(self, row: dict[str, Any]) -> None:
        """Show one row, and write it for TensorBoard."""
        self.bar.update(self.task, completed=row["step"], line=line(row))
        if not self.console.is_terminal and time.monotonic() - self.spoke > SILENCE:
            self.spoke = time.monotonic()
            self._print(row)
        self._warn(row)
        self._write(row)

    def log_score(self, mean: float, step: int) -> None:
        """Write the evaluation's mean return for TensorBoard."""
        self._write({"step": step, "charts/eval_return": mean})

    def _write(self, row: dict[str, Any]) -> None:
        """One row for TensorBoard.

        What a killed process wrote at this step and later is to be forgotten: the run goes on from
        its checkpoint.
        """
        step = row["step"]
        try:
            if self.make_writer and not self.tensorboard:
                self.tensorboard = self.make_writer(str(self.out.path), purge_step=step)
            if self.tensorboard:
                for name, value in row.items():
                    if name != "step":
                        self.tensorboard.add_scalar(name, value, step)
        except OSError as error:
            raise cannot_write(self.out.path / "events.out.tfevents", error) from error

    def _print(self, row: dict[str, Any]) -> None:
        """One plain line, for logs."""
        left = max(0, self.steps - row["step"])
        minutes = left / max(1, row["charts/SPS"]) / 60
        done = f"{row['step']:,} of {self.steps:,}"
        print(f"{self.name}  {done}  {line(row)}  {minutes:.0f} min left", flush=True)

    def _warn(self, row: dict[str, Any]) -> None:
        """Warn once, when the memory has changed nothing for fifty rollouts."""
        corr = row.get("intrinsic/novelty_norm_corr", 0.0)
        recalls = "intrinsic/recall_ratio" in row
        if not (recalls and corr > IDLE_CORRELATION):
            self.idle_rollouts = 0
            return
        self.idle_rollouts += 1
        if self.idle_rollouts >= PATIENCE and not self.warned:
            self.warned = True
            self.console.print(
                f"[yellow]The memory is idle: novelty is {corr:.3f} correlated with the surprise "
                "norm. Give it a wider W (--bonus.memory.w-hidden) or a higher learning rate "
                "(--bonus.memory-lr); see docs/methods.md.[/]"
            )


def summary_writer() -> Any:
    """TensorBoard's SummaryWriter, or None and a sentence without TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print(
            f"TensorBoard is not installed ({how_to_install('cli')}): "
            "the metrics go to metrics.jsonl alone.",
            file=sys.stderr,
        )
        return None
    return SummaryWriter
