"""A soak: resident memory of a PPO run and of a DQN run with a full replay, over many minutes.

    python -m tests.torture.soak --minutes 30           both runs side by side: `make soak`

It draws memory over time and prints the slope after the first fifth.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ENV = "MiniGrid-DoorKey-8x8-v0"
COMMON = ["--steps", "1000000000", "--save-minutes", "0.5", "--eval-episodes", "0"]
RUNS = {
    "PPO, rnd+sm": [ENV, "--method", "rnd+sm", *COMMON],
    "DQN, rnd+sm, full replay": [
        ENV, "--method", "rnd+sm", "--agent", "dqn", "--envs", "16", "--dqn.replay", "5000",
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
    minutes: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)

    def look(self, minutes: float) -> None:
        """Note its resident memory."""
        self.minutes.append(minutes)
        self.mebibytes.append(resident(self.process.pid))

    @property
    def slope(self) -> float:
        """MiB an hour, fitted after the first fifth."""
        import numpy as np

        start = len(self.minutes) // 5
        hours = np.array(self.minutes[start:]) / 60
        return float(np.polyfit(hours, self.mebibytes[start:], 1)[0])


def resident(pid: int) -> float:
    """MiB of resident memory, from /proc."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory: it has ended")


def main() -> int:
    """Exit code 1 if a run died. The slope is for the reader to judge."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soaked = soak(Path(folder), options.minutes)
    for one in soaked:
        start = len(one.mebibytes) // 5
        low, high = min(one.mebibytes[start:]), max(one.mebibytes[start:])
        print(
            f"{one.name}: {one.slope:+.1f} MiB an hour after the first fifth "
            f"of {one.minutes[-1]:.0f} minutes ({low:.0f} to {high:.0f} MiB)"
        )
    draw(soaked, options.out)
    print(options.out)
    return 0


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
        soaked.append(Soaked(name, process))
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
        axes.plot(one.minutes, one.mebibytes, label=f"{one.name}: {one.slope:+.1f} MiB an hour")
    axes.axvline(soaked[0].minutes[-1] / 5, color="0.7", linestyle=":", linewidth=1)
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident memory (MiB)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
