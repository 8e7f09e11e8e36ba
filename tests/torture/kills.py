"""Runs that are killed at random moments and resumed: PPO, DQN and a grid."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.torture.cases import HARMLESS, SILENT, TRACEBACK, Case, Verdict
from tests.torture.commands import TOY, judge_command
from tests.torture.lives import Patient, lost, random_moment, wrong_at_the_end, wrong_between

FAMILY = "kills"
STEPS = 4_000
TINY = ["--preset", "debug", "--steps", str(STEPS), "--save-minutes", "0"]
RUNS = {
    "ppo": [TOY, *TINY],
    "dqn": [TOY, *TINY, "--agent", "dqn"],
    "ppo on MiniGrid": ["MiniGrid-DoorKey-5x5-v0", *TINY],
    "ppo, saving rarely": [TOY, *TINY[:-1], "60"],
}
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
LONG = 300.0  # seconds that no last life should take
RUN_CASES = 16  # of each run
GRID_CASES = 6
FRESH_CASES = 6


def cases(seed: int, where: Path) -> list[Case]:
    """All cases in a random order."""
    rng = random.Random(seed)
    found = []
    for run in RUNS:
        for i in range(RUN_CASES):
            kind = list(SIGNALS)[i % len(SIGNALS)]
            own = rng.randrange(2**32)
            name = f"train ({run}) with {kind} at random moments, seed {own}, resumed"
            found.append(Case(FAMILY, name, lambda r=run, k=kind, s=own: one(r, k, s), limit=150))
    for _ in range(GRID_CASES):
        own = rng.randrange(2**32)
        name = f"reproduce t-maze with SIGKILL at random moments, seed {own}, resumed"
        found.append(Case(FAMILY, name, lambda s=own: grid(s), limit=240))
    for i in range(FRESH_CASES):
        own = rng.randrange(2**32)
        kind = list(SIGNALS)[i % len(SIGNALS)]
        name = f"a new process `surprise-memory train` with {kind} in its first seconds, seed {own}"
        found.append(Case(FAMILY, name, lambda k=kind, s=own: fresh(k, s), limit=150))
    rng.shuffle(found)
    return found


def one(run: str, kind: str, seed: int) -> Verdict:
    """One to four kills, then to the end."""
    rng = random.Random(seed)
    folder = Path("run").absolute()
    patient = Patient(["train", *RUNS[run], "--run-dir", str(folder)], folder)
    config = None
    for _ in range(rng.randrange(1, 5)):
        patient.start()
        code = random_moment(patient, rng)
        if code is not None:  # it ended by itself
            if code != 0:
                return stumbled(patient, code)
            break
        begun = (folder / "metrics.jsonl").exists()
        code = patient.kill(SIGNALS[kind])
        if code is None:
            return Verdict(SILENT, f"{kind} did not end it")
        if begun and kind != "SIGKILL" and code < 0:
            return Verdict(SILENT, f"{kind} ended it without saving or a word")
        if "Traceback" in patient.said():
            return stumbled(patient, code)
        wrong = wrong_between(folder, config)
        if not wrong and begun and kind != "SIGKILL" and (folder / "checkpoint.pt").exists():
            wrong = lost(folder)
        if wrong:
            return Verdict(SILENT, f"after {kind}: {wrong}")
        if (folder / "config.json").exists():
            config = json.loads((folder / "config.json").read_text())
    return to_the_end(patient, STEPS, config)


def stumbled(patient: Patient, code: int) -> Verdict:
    """A life that ended badly."""
    said = patient.said().strip()
    last = said.splitlines()[-1][:200] if said else "nothing"
    return Verdict(TRACEBACK, f"exit code {code}: {last}")


def to_the_end(patient: Patient, steps: int, config: object) -> Verdict:
    """The last life must finish, and what it leaves must be whole."""
    if not (patient.folder / "DONE").exists():
        patient.start()
        code = patient.wait(LONG)
        if code is None:
            patient.kill(signal.SIGKILL)
            return Verdict(SILENT, "the resumed run does not come to an end")
        if code != 0:
            return stumbled(patient, code)
    wrong = wrong_between(patient.folder, config) or wrong_at_the_end(patient.folder, steps)
    if wrong:
        return Verdict(SILENT, f"at the end: {wrong}")
    verdict = judge_command(["eval", str(patient.folder), "--episodes", "3"])
    if verdict.outcome != HARMLESS:
        return Verdict(TRACEBACK, f"the last checkpoint does not load: {verdict.why}")
    return verdict


def grid(seed: int) -> Verdict:
    """`reproduce` dies and is called again."""
    rng = random.Random(seed)
    words = ["t-maze", "--budget", "smoke", "--dir", "grids", "--jobs", "1"]
    patient = Patient(["reproduce", *words], Path("grids"), resumable=False)
    for _ in range(rng.randrange(1, 4)):
        patient.start()
        if patient.wait(rng.uniform(0.0, 12.0)) is not None:
            break
        if rng.random() < 0.5:
            kill_cells(patient.pid)
        patient.kill(signal.SIGKILL)
        if "Traceback" in patient.said():
            return stumbled(patient, -9)
    patient.start()
    code = patient.wait(LONG)
    if code != 0:
        patient.kill(signal.SIGKILL) if code is None else None
        return stumbled(patient, -1 if code is None else code)
    cells = sorted(Path("grids").glob("*/*/cell.json"))
    for cell in cells:
        wrong = wrong_between(cell.parent, None) or wrong_at_the_end(cell.parent, 1024)
        if wrong:
            return Verdict(SILENT, f"in {cell.parent.name}: {wrong}")
    if len(cells) != 2:
        return Verdict(SILENT, f"{len(cells)} cells instead of 2")
    return Verdict(HARMLESS)


def kill_cells(parent: int) -> None:
    """SIGKILL for the processes that `reproduce` started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            os.kill(int(path.parent.name), signal.SIGKILL)


def fresh(kind: str, seed: int) -> Verdict:
    """A new interpreter, killed while it imports, builds or warms up."""
    rng = random.Random(seed)
    folder = Path("run").absolute()
    words = ["train", *RUNS["ppo"], "--run-dir", str(folder)]
    with open("fresh.txt", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "surprise_memory", *words], stdout=log, stderr=log
        )
        time.sleep(rng.uniform(0.2, 5.0))
        begun = (folder / "config.json").exists()
        process.send_signal(SIGNALS[kind])
        code = process.wait(60)
    said = Path("fresh.txt").read_text()
    if "Traceback" in said:
        return Verdict(TRACEBACK, f"exit code {code}: {said.strip().splitlines()[-1][:200]}")
    if kind != "SIGKILL" and begun and code < 0:
        return Verdict(SILENT, f"{kind} ended it without saving or a word")
    return to_the_end(Patient(words, folder), STEPS, None)
