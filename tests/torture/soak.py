"""A soak: resident memory of a PPO run and of a DQN run with a full replay, over many minutes.

    python -m tests.torture.soak --minutes 30           both runs side by side: `make soak`

It draws memory over time and prints the slope after the first fifth, once the replay is full.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ENV = "MiniGrid-DoorKey-8x8-v0"
REPLAY = 5_000  # steps
COMMON = ["--steps", "1000000000", "--save-minutes", "0.5", "--eval-episodes", "0"]
RUNS = {
    "PPO, rnd+sm": [ENV, "--method", "rnd+sm", *COMMON],
    "DQN, rnd+sm, full replay": [
        ENV, "--method", "rnd+sm", "--agent", "dqn", "--envs", "16", "--dqn.replay", str(REPLAY),
        "--dqn.batch", "8", "--dqn.updates", "0.25", *COMMON,
    ],
}  # fmt: skip
EVERY = 1.0  # seconds between looks
START = 600.0  # seconds for imports and the warm-up


@dataclass
class Soaked:
    """One run and the memory it was seen with."""

    name: str
    process: subprocess.Popen[bytes]
    folder: Path
    minutes: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def look(self, minutes: float) -> None:
        """Note its resident memory and how far it is."""
        self.minutes.append(minutes)
        self.mebibytes.append(resident(self.process.pid))
        self.steps.append(last_step(self.folder))

    @property
    def start(self) -> int:
        """The look after the first fifth at which more steps were done than a replay holds."""
        fifth = len(self.minutes) // 5
        full = next((i for i, steps in enumerate(self.steps) if steps > REPLAY), len(self.steps))
        return max(fifth, full)

    @property
    def slope(self) -> float:
        """MiB an hour, fitted from `start` on; NaN if the replay never was full."""
        import numpy as np

        if len(self.minutes) - self.start < 10:
            return math.nan
        hours = np.array(self.minutes[self.start :]) / 60
        return float(np.polyfit(hours, self.mebibytes[self.start :], 1)[0])

    def summary(self) -> str:
        """In words."""
        if math.isnan(self.slope):
            return f"{self.name}: too short, only {self.steps[-1]:,} steps were done"
        seen = self.mebibytes[self.start :]
        return (
            f"{self.name}: {self.slope:+.1f} MiB an hour from minute "
            f"{self.minutes[self.start]:.0f} to {self.minutes[-1]:.0f} "
            f"({min(seen):.0f} to {max(seen):.0f} MiB, {self.steps[-1]:,} steps)"
        )


def last_step(folder: Path) -> int:
    """The step of the newest whole row of metrics."""
    with open(folder / "metrics.jsonl", "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
        lines = file.read().split(b"\n")[:-1]
    return int(json.loads(lines[-1])["step"]) if lines else 0


def resident(pid: int) -> float:
    """MiB of resident memory, from /proc."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory: it has ended")


def main() -> int:
    """Exit code 1 if a replay never was full. Whether it is flat is the reader's to judge."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soaked = soak(Path(folder), options.minutes)
    for one in soaked:
        print(one.summary())
    draw(soaked, options.out)
    print(options.out)
    return int(any(math.isnan(one.slope) for one in soaked))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("docs/soak.png"))
    return parser.parse_args()


def soak(folder: Path, minutes: float) -> list[Soaked]:
    """All runs side by side for so long; each is asked to save and end."""
    soaked = []
    for i, (name, words) in enumerate(RUNS.items()):
        argv = [sys.executable, "-m", "surprise_memory", "train", *words]
        with open(folder / f"{i}.txt", "wb") as log:
            process = subprocess.Popen(
                [*argv, "--run-dir", str(folder / str(i))], stdout=log, stderr=log
            )
        soaked.append(Soaked(name, process, folder / str(i)))
    try:
        wait_for_rows(folder, len(soaked))
        began = time.monotonic()
        while (passed := (time.monotonic() - began) / 60) < minutes:
            for one in soaked:
                one.look(passed)
            time.sleep(EVERY)
    finally:
        for one in soaked:
            end(one.process)
        for log in sorted(folder.glob("*.txt")):
            print(log.read_text(errors="replace").strip()[-300:], file=sys.stderr)
    return soaked


def wait_for_rows(folder: Path, runs: int) -> None:
    """Wait until every run has learnt once: imports and the warm-up are no part of the soak."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        begun = [path for path in folder.glob("*/metrics.jsonl") if path.stat().st_size]
        if len(begun) == runs:
            return
        time.sleep(EVERY)
    raise RuntimeError(f"A run has not begun after {START:.0f} s.")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to save and end; kill it if it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()


def draw(soaked: list[Soaked], path: Path) -> None:
    """Memory over time, a line for each run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for one in soaked:
        label = f"{one.name}: {one.slope:+.1f} MiB an hour after the dot"
        (line,) = axes.plot(one.minutes, one.mebibytes, label=label)
        if not math.isnan(one.slope):
            at = one.start
            axes.plot(one.minutes[at], one.mebibytes[at], "o", color=line.get_color())
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident memory (MiB)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
