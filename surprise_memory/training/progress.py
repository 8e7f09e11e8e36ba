"""What a person sees while a run goes on: a live line in a terminal, a plain line now and then elsewhere; TensorBoard."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.training.rundir import RunDir

IDLE = 0.99  # above this correlation of novelty with norm, the memory changes next to nothing


def rich_console() -> Any:
    """Rich's console, or how to get it."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise UserError("rich is not installed: pip install 'surprise-memory[cli]'.") from error
    return Console()


def line(row: dict[str, Any]) -> str:
    """The numbers worth watching, in one line."""
    parts = [f"{row['charts/SPS']:,} steps/s"]
    if "charts/return_128" in row:
        parts.append(f"return {row['charts/return_128']:.3f}")
    if "intrinsic/novelty" in row:
        parts += [
            f"surprise {row['intrinsic/surprise_norm']:.3f}",
            f"novelty {row['intrinsic/novelty']:.3f}",
        ]
    return " · ".join(parts)


class Progress:
    """Use as a context and call it with every row of metrics."""

    def __init__(self, name: str, steps: int, out: RunDir) -> None:
        from rich import progress

        self.console, self.out, self.steps, self.name = rich_console(), out, steps, name
        bar = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
        )
        rest = (
            progress.TextColumn("{task.fields[line]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        )
        self.bar = progress.Progress(
            *bar, *rest, console=self.console, disable=not self.console.is_terminal
        )
        self.task = self.bar.add_task(name, total=steps, line="warming up")
        self.spoke, self.warned, self.high = time.monotonic(), False, 0
        self.events = tensorboard(out.path)

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
        if self.events:
            self.events.close()

    def __call__(self, row: dict[str, Any]) -> None:
        """Show one row, and write it for TensorBoard."""
        self.bar.update(self.task, completed=row["step"], line=line(row))
        if not self.console.is_terminal and time.monotonic() - self.spoke > 15:
            self.spoke = time.monotonic()
            left = max(0, self.steps - row["step"]) / max(1, row["charts/SPS"]) / 60
            print(
                f"{self.name}  {row['step']:,} of {self.steps:,}  {line(row)}  {left:.0f} min left",
                flush=True,
            )
        self._warn(row)
        for name, value in row.items() if self.events else ():
            if name != "step":
                self.events.add_scalar(name, value, row["step"])

    def _warn(self, row: dict[str, Any]) -> None:
        """Say once when the memory has done nothing for fifty rollouts."""
        idle = "intrinsic/recall_ratio" in row and row["intrinsic/novelty_norm_corr"] > IDLE
        self.high = self.high + 1 if idle else 0
        if self.high == 50 and not self.warned:
            self.warned = True
            corr = row["intrinsic/novelty_norm_corr"]
            self.console.print(
                f"[yellow]The memory is idle: novelty is {corr:.3f} correlated with the surprise norm. A wider or faster W "
                "(--bonus.memory.w-hidden, --bonus.memory-lr) gives it something to say; see docs/methods.md.[/]"
            )


def tensorboard(path: Path) -> Any:
    """A SummaryWriter, or None where TensorBoard is not installed: metrics.jsonl has the same numbers."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(path))
