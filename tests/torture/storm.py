"""A storm: one run killed a hundred times, against the same run unbroken, for several seeds.

    python -m tests.torture.storm                       3 seeds, 100 kills each: `make storm`
    python -m tests.torture.storm --kills 5 --seeds 1 --steps 30000

It prints the returns of both, and whether they differ by more than seeds do.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import random
import signal
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.torture.commands import preload
from tests.torture.lives import (
    Patient,
    wait_for_rows,
    wrong_at_the_end,
    wrong_between,
)

ENV = "MiniGrid-DoorKey-5x5-v0"
ENVS, ROLLOUT = 32, 64
SETTINGS = [
    "--method", "rnd+sm", "--envs", str(ENVS), "--rollout", str(ROLLOUT), "--ppo.minibatches", "4",
    "--bonus.minibatches", "4", "--ppo.lr", "1e-3", "--ppo.int-coef", "0.3", "--save-minutes", "0",
]  # fmt: skip
WARMUP = 5  # rollouts, the default
SPARE = 4  # rollouts that are kept for the last life
LONG = 4 * 3600.0  # seconds that no life should take, on a busy machine either
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Task:
    """One run: its seed, its steps, and how often it is killed."""

    seed: int
    steps: int
    kills: int
    folder: Path


@dataclass(frozen=True)
class Found:
    """What became of a task."""

    task: Task
    kills: int
    score: float
    wrong: str


def main() -> int:
    """Exit code 1 if a run broke, or if broken runs score less than seeds explain."""
    options = arguments()
    preload()
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        tasks = []
        for seed in range(options.first, options.first + options.seeds):
            for kills in (options.kills, 0):
                place = Path(folder) / f"{seed}-{kills}"
                tasks.append(Task(seed, options.steps, kills, place))
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            found = pool.map(weather, tasks, chunksize=1)
    print(table(found))
    return int(any(one.wrong for one in found) or not equal(found))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of each broken run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first of these seeds")
    parser.add_argument("--steps", type=int, default=300_000, help="of each run")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    return parser.parse_args()


def weather(task: Task) -> Found:
    """Run a task to its end, through all its kills."""
    rng = random.Random(task.seed)
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    words = ["train", ENV, *SETTINGS, "--steps", str(task.steps), "--seed", str(task.seed)]
    words += ["--run-dir", str(task.folder)]
    patient = Patient(words, task.folder, log=task.folder.with_suffix(".txt"))
    kills = 0
    wrong = ""
    while kills < task.kills and not wrong:
        patient.start()
        ended = live_a_while(patient, task, kills, rng)
        if ended is not None:
            wrong = f"it ended by itself, with exit code {ended}, after {kills} kills"
            break
        patient.kill(rng.choice(SIGNALS))
        kills += 1
        wrong = wrong_between(task.folder, None)
        if kills % 10 == 0:
            print(f"seed {task.seed}: {kills} kills", file=sys.stderr, flush=True)
    if not wrong:
        patient.start()
        code = patient.wait(LONG)
        if code is None:
            patient.kill(signal.SIGKILL)
        wrong = wrong_at_the_end(task.folder, task.steps) if code == 0 else f"exit code {code}"
    if wrong:
        print(f"seed {task.seed}: {wrong}\n{patient.said()[-2000:]}", file=sys.stderr, flush=True)
    score = math.nan
    if (task.folder / "eval.json").exists():
        score = json.loads((task.folder / "eval.json").read_text())["mean"]
    return Found(task, kills, score, wrong)


def live_a_while(patient: Patient, task: Task, kills: int, rng: random.Random) -> int | None:
    """Wait for the moment of the next kill; the exit code if the process ends before.

    Kills are spread over the whole run, some of them before a life has made its first row.
    """
    left = (task.steps - last_step(task.folder)) // (ENVS * ROLLOUT)  # rollouts
    share = (left - SPARE) / (task.kills - kills)  # for each life that is still to come
    rows = round(share * rng.uniform(0.0, 2.0))
    rows = min(rows, left - SPARE)
    if rows <= 0:
        return patient.wait(rng.uniform(0.0, 1.0 if left > 2 * SPARE else 0.3))
    code = wait_for_rows(patient, rows, LONG)
    return code if code is not None else patient.wait(rng.uniform(0.0, 0.3))


def last_step(folder: Path) -> int:
    """The step of the last row; the warm-up has none."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            return int(json.loads(line)["step"])
    return WARMUP * ENVS * ROLLOUT


def scores(found: list[Found], broken: bool) -> list[float]:
    """The returns of the broken or of the unbroken runs."""
    return [one.score for one in found if bool(one.task.kills) == broken]


def equal(found: list[Found]) -> bool:
    """Whether the means differ by less than two standard errors, or by less than 0.02."""
    a, b = scores(found, broken=True), scores(found, broken=False)
    if any(math.isnan(score) for score in a + b):
        return False
    gap = abs(statistics.mean(a) - statistics.mean(b))
    error = 0.0
    for part in (a, b):
        if len(part) > 1:
            error += statistics.variance(part) / len(part)
    return gap < max(0.02, 2 * math.sqrt(error))


def table(found: list[Found]) -> str:
    """The returns in Markdown."""
    lines = ["| run | kills each | return over 128 episodes, by seed | mean |", "|---|---|---|---|"]
    for broken, name in ((True, "killed and resumed"), (False, "unbroken")):
        own = scores(found, broken)
        kills = min(one.kills for one in found if bool(one.task.kills) == broken)
        each = ", ".join(f"{score:.3f}" for score in own)
        lines.append(f"| {name} | {kills} | {each} | {statistics.mean(own):.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
