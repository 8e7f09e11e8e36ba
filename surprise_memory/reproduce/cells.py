"""One run of a grid: its settings, its directory, and the process that makes it."""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surprise_memory.errors import UserError, choose
from surprise_memory.files import read_json, write_json
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.probes import ASKS, answer, unanswered
from surprise_memory.training.config import RunConfig, from_dict
from surprise_memory.training.loop import train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import Locked, RunDir, flatten

PATIENCE = 120  # seconds for a process that was told to stop to save and let go
KEPT_FILES = (
    "cell.json",
    "config.json",
    "eval.json",
    "versions.txt",
    *(f"{ask}.json" for ask in ASKS),
    "DONE",
)


@dataclass(frozen=True)
class Cell:
    """A run of a grid and where it is."""

    grid: str
    entry: str
    env: str
    seed: int
    run: RunConfig
    path: Path
    budget: str = "reduced"
    asks: tuple[str, ...] = ()  # what is asked of the bonus when the run is over

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.env} · {self.entry} · seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether its run is complete and everything is asked that can be."""
        return (self.path / "DONE").exists() and not unanswered(self.path, self.asks)


def cells(
    what: str, budget: str, root: Path, seeds: int | None = None, preset: str | None = None
) -> list[Cell]:
    """All runs of a grid: seed by seed, and each method on all environments before the next."""
    grid = choose(GRIDS, what, "table or figure")
    own_preset, steps, own_seeds = grid.budget(budget)
    settings = choose(PRESETS, preset or own_preset, "preset")
    found = []
    for seed in range(seeds or own_seeds):
        for entry in grid.entries:
            for env in grid.envs:
                run = dataclasses.replace(
                    settings(env), method=entry.method, steps=steps, seed=seed
                )
                run = with_options(
                    run, dict(grid.options if budget != "smoke" else ()) | dict(entry.options)
                )
                folder = root / what / f"{slug(env)}.{slug(entry.name)}.{seed}.{digest(run)}"
                asks = grid.asks if run.method != "none" else ()
                found.append(Cell(what, entry.name, env, seed, run, folder, budget, asks))
    return found


def with_options(run: RunConfig, options: dict[str, Any]) -> RunConfig:
    """A run with some options changed, named as on the command line: {'bonus.memory.slots': 32}."""
    for name, value in options.items():
        parts = name.split(".")
        parents = [run]
        for part in parts[:-1]:
            parents.append(getattr(parents[-1], part))
        for part, parent in zip(reversed(parts), reversed(parents), strict=True):
            value = dataclasses.replace(parent, **{part: value})
        run = value
    return run


def digest(run: RunConfig) -> str:
    """Eight letters that change with anything that changes the result."""
    settings = {
        k: v
        for k, v in flatten(dataclasses.asdict(run)).items()
        if k not in ("threads", "save_minutes")
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def slug(text: str) -> str:
    """A name for a directory."""
    return text.replace("/", "-").replace(" ", "_")


def prepare(cell: Cell) -> None:
    """Write cell.json, which is all that the process needs to know."""
    cell.path.mkdir(parents=True, exist_ok=True)
    about = {
        name: getattr(cell, name) for name in ("grid", "entry", "env", "seed", "budget", "asks")
    }
    write_json(cell.path / "cell.json", about | {"run": dataclasses.asdict(cell.run)})


def make(path: Path) -> None:
    """Make the run that cell.json describes and ask what is to be asked, or what is missing of it."""
    about = read_json(path / "cell.json")
    run, out = from_dict(RunConfig, about["run"]), RunDir(path)
    torch.set_num_threads(run.threads)
    until = time.monotonic() + PATIENCE
    while not out.done.exists():
        try:
            out.open(dataclasses.asdict(run), resume=out.exists)
        except Locked:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
            continue
        if not reuse_identical_run(run, out):
            train(run, out)
        out.close()
    for ask in unanswered(path, about["asks"]):
        write_json(answer(path, ask), ASKS[ask](run, out))


def reuse_identical_run(run: RunConfig, out: RunDir) -> bool:
    """Copy the same run of another grid beside this one, if there is one; `out` is locked, and marked as done at the end."""
    twin = next(out.path.parent.parent.glob(f"*/*.{digest(run)}/DONE"), None)
    if twin is None:
        return False
    for name in (*KEPT_FILES, "metrics.jsonl", "checkpoint.pt"):
        if name not in ("cell.json", "DONE") and (twin.parent / name).exists():
            shutil.copy(twin.parent / name, out.path / name)
    out.finish()
    return True


def main(path: Path, log: Path) -> None:
    """The process of one cell: what it says goes into a file, and it ends when the process that asked for it does."""
    os.setsid()  # Ctrl-C is for the parent alone, which then asks each cell once to save and end
    threading.Thread(target=end_with_parent, daemon=True).start()
    with open(log, "ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    try:
        make(path)
    except UserError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)


def end_with_parent() -> None:
    """Wait for the parent's death, however it dies, and then ask this process to save and end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
