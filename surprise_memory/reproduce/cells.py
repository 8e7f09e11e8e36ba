"""One run of a grid: its settings, its directory, and the process that makes it."""

import dataclasses
import hashlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surprise_memory.config import PRESETS, RunConfig, from_dict
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.rundir import RunDir, flatten, read_json, write_json
from surprise_memory.train import train
from surprise_memory.types import UserError, choose

LOCKED = "Another process is training"
PATIENCE = 120  # seconds for a process that was told to stop to save and let go


@dataclass(frozen=True)
class Cell:
    """A run of a grid and where it is."""

    grid: str
    entry: str
    env: str
    seed: int
    run: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.env} · {self.entry} · seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether its run is complete."""
        return (self.path / "DONE").exists()


def cells(what: str, budget: str, root: Path, seeds: int | None = None) -> list[Cell]:
    """All runs of a grid: seed by seed, and each method on all environments before the next."""
    grid = choose(GRIDS, what, "table or figure")
    preset, steps, own = grid.budget(budget)
    found = []
    for seed in range(seeds or own):
        for entry in grid.entries:
            for env in grid.envs:
                run = dataclasses.replace(PRESETS[preset](env), method=entry.method, steps=steps, seed=seed)
                run = with_options(run, dict(entry.options))
                folder = f"{slug(env)}.{slug(entry.name)}.{seed}.{digest(run)}"
                found.append(Cell(what, entry.name, env, seed, run, root / what / folder))
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
    settings = {k: v for k, v in flatten(dataclasses.asdict(run)).items() if k not in ("threads", "save_minutes")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def slug(text: str) -> str:
    """A name for a directory."""
    return text.replace("/", "-").replace(" ", "_")


def prepare(cell: Cell) -> None:
    """Write cell.json, which is all that the process needs to know."""
    cell.path.mkdir(parents=True, exist_ok=True)
    about = {"grid": cell.grid, "entry": cell.entry, "env": cell.env, "seed": cell.seed, "run": dataclasses.asdict(cell.run)}
    write_json(cell.path / "cell.json", about)


def make(path: Path) -> None:
    """Make the run that cell.json describes, or what is missing of it."""
    run = from_dict(RunConfig, read_json(path / "cell.json")["run"])
    out, until = RunDir(path), time.monotonic() + PATIENCE
    if out.done.exists():
        return
    while True:
        try:
            out.open(dataclasses.asdict(run), resume=out.exists)
            break
        except UserError as error:
            if LOCKED not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.5)
    train(run, out)
    out.close()


def main() -> int:
    """`python -m surprise_memory.reproduce.cells DIR`: one cell, which ends when the process that asked for it does."""
    end_with_parent()
    try:
        make(Path(sys.argv[1]))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def end_with_parent() -> None:
    """Ask Linux for SIGTERM, which saves first, when the parent dies; elsewhere an orphan runs on and is waited for."""
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
        if os.getppid() != parent:
            raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
