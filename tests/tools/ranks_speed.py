"""How long does a run take with one process, with two, and with one of two threads?

    python tests/tools/ranks_speed.py [--env ID] [--steps 100000] [--runs 3] [--ranks 1 2]
                                      [--threads 2] [-- OPTIONS OF TRAIN]

Whole runs of the default preset by the command line, without evaluation, in turns. A second of each
is imports, so `--steps` should keep a run busy for a minute. Steps a second are those of the last
row of metrics, which counts from the first rollout on. Nothing else should run on the machine.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from surprise_memory.training.rundir import RunDir

ROOT = Path(__file__).parents[2]


def start(words: list[str], ranks: int) -> list[subprocess.Popen]:
    """A run's processes, told what torchrun tells its own."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    told = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if ranks > 1:
        told |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = []
    for rank in range(ranks):
        env = os.environ | told | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-m", "surprise_memory", *words]
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
    return processes


def measure(options: argparse.Namespace, ranks: int, threads: int) -> tuple[float, float]:
    """One run: seconds from start to end, and steps a second from its first rollout on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        words = ["train", options.env, "--steps", str(options.steps), "--envs", str(options.envs)]
        words += ["--eval-episodes", "0", "--run-dir", str(path), "--threads", str(threads)]
        words += options.more
        began = time.monotonic()
        for process in start(words, ranks):
            if process.wait():
                sys.exit(f"A process ended with {process.returncode}.")
        return time.monotonic() - began, RunDir(path).last_row()["charts/SPS"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="MiniGrid-DoorKey-8x8-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--threads", type=int, nargs="*", default=[2])
    parser.add_argument("more", nargs="*", help="options of train, after --")
    options = parser.parse_args()
    ways = [(ranks, 1) for ranks in options.ranks] + [(1, threads) for threads in options.threads]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(options.runs):
        for way in ways:
            found[way].append(measure(options, *way))
    more = " ".join(options.more)
    print(f"{options.env}, {options.envs} environments, {options.steps:,} steps, medians. {more}\n")
    print("| processes | threads of each | seconds | steps/s | each run, seconds |")
    print("|---|---|---|---|---|")
    for (ranks, threads), runs in found.items():
        seconds = [run[0] for run in runs]
        speed = statistics.median(run[1] for run in runs)
        each = ", ".join(f"{second:.1f}" for second in seconds)
        whole = statistics.median(seconds)
        print(f"| {ranks} | {threads} | {whole:.1f} | {speed:,.0f} | {each} |")


if __name__ == "__main__":
    main()
