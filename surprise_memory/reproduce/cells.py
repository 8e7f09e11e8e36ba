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

import torch

from surprise_memory.errors import UserError, choose
from surprise_memory.files import write_json
from surprise_memory.reproduce.celldir import (
    ARCHIVED_FILES,
    missing_probes,
    probe_path,
    read_cell,
)
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.probes import PROBES
from surprise_memory.reproduce.report.compact import FILE, finished_names, read_records, unpack
from surprise_memory.training.config import (
    RunConfig,
    from_dict,
    run_type,
    with_options,
    with_part_options,
)
from surprise_memory.training.loop import train
from surprise_memory.training.options import LATER
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import Locked, RunDir, flatten

# Seconds to wait for another process in a cell's directory. Not for ever: a network disk may hold
# the lock of a machine that is gone.
PATIENCE = 120
# Options that are gone, and the values that all runs had. They are still a part of the name.
GONE = {"ppo.episodic_intrinsic": False}
BUSY = 75  # exit code of a cell's process that found another one in its directory (EX_TEMPFAIL)


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
    probes: tuple[str, ...] = ()  # what is measured of the bonus when the run is over

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.env} · {self.entry} · seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether its run is complete and no probe is missing, or whether it was archived here."""
        if (self.path / "DONE").exists():
            return not missing_probes(self.path, self.probes)
        return self.path.name in finished_names(self.path.parent / FILE)


def cells(
    what: str,
    budget: str,
    root: Path,
    seeds: int | None = None,
    preset: str | None = None,
    precision: str = "float32",
) -> list[Cell]:
    """All runs of a grid: seed by seed, and each method on all environments before the next."""
    grid = choose(GRIDS, what, "table or figure")
    own_preset, steps, own_seeds = grid.budget(budget)
    settings = choose(PRESETS, preset or own_preset, "preset")
    found = []
    for seed in range(seeds or own_seeds):
        for entry in grid.entries:
            options = dict(grid.rules) | dict(entry.options)
            if budget != "smoke":  # which has small settings of its own
                options = dict(grid.options) | options
            probes = grid.probes
            if entry.method == "none":  # no bonus to measure
                probes = ()
            for env in grid.envs:
                run = with_part_options(settings(env))
                run = dataclasses.replace(run, method=entry.method, steps=steps, seed=seed)
                if budget == "reduced" and env in grid.env_steps:
                    run = dataclasses.replace(run, steps=grid.env_steps[env])
                run = with_options(run, options | {"precision": precision})
                folder = f"{slug(env)}.{slug(entry.name)}.{seed}.{digest(run)}"
                path = root / what / folder
                found.append(Cell(what, entry.name, env, seed, run, path, budget, probes))
    return found


def digest(run: RunConfig) -> str:
    """Eight letters that change with anything that changes the result.

    A device changes its rounding alone, so a grid begun on one continues on another.
    """
    settings = flatten(dataclasses.asdict(run)) | GONE | {"device": "cpu"}
    for name in ("threads", "save_minutes", "eval_steps", "step_seconds", "logger"):
        del settings[name]
    for name, off in LATER.items():
        if settings[name] == off:
            del settings[name]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def slug(text: str) -> str:
    """A name for a directory."""
    return text.replace("/", "-").replace(" ", "_")


def prepare(cell: Cell) -> None:
    """Write cell.json, which is all that the cell's process needs to know."""
    cell.path.mkdir(parents=True, exist_ok=True)
    about = {
        "grid": cell.grid,
        "entry": cell.entry,
        "env": cell.env,
        "seed": cell.seed,
        "budget": cell.budget,
        "probes": cell.probes,
        "run": dataclasses.asdict(cell.run),
    }
    write_json(cell.path / "cell.json", about)


def make(path: Path, patience: float = PATIENCE) -> None:
    """Make what is missing of a cell: its run, and then its probes.

    While another process is at work there, wait for it, at most `patience` seconds.
    """
    about = read_cell(path)
    run = from_dict(run_type(), about["run"])
    out = RunDir(path)
    torch.set_num_threads(run.threads)
    until = time.monotonic() + patience
    while not out.done.exists():
        try:
            out.open(dataclasses.asdict(run), resume=out.exists)
        except Locked:
            if time.monotonic() >= until:
                raise
            time.sleep(0.5)
            continue
        if not reuse_identical_run(run, out, about["probes"]):
            train(run, out)
    for probe in missing_probes(path, about["probes"]):
        write_json(probe_path(path, probe), PROBES[probe](run, out))
    out.close()


def reuse_identical_run(run: RunConfig, out: RunDir, probes: list[str]) -> bool:
    """Copy a finished run with the same settings from another grid or its archive, if there is one.

    `out` is locked. It is marked as done at the end. An archive has no checkpoint, so the probes
    must be in it.
    """
    root = out.path.parent.parent
    ending = f".{digest(run)}"
    twin = next(root.glob(f"*/*{ending}/DONE"), None)
    if twin is not None:
        for name in (*ARCHIVED_FILES, "metrics.jsonl", "checkpoint.pt"):
            source = twin.parent / name
            if name not in ("cell.json", "DONE") and source.exists():
                shutil.copy(source, out.path / name)
        out.finish()
        return True
    for file in root.glob(f"*/{FILE}"):
        for record in read_records(file):
            is_twin = record.get("done") and record["name"].endswith(ending)
            if is_twin and record.get("probes", {}).keys() >= set(probes):
                unpack(record, out.path)
                out.finish()
                return True
    return False


def main(path: Path, log: Path) -> None:
    """The process of one cell. Its output goes into a file, and it ends when its parent does.

    If another process is at work in the cell's directory, it ends at once with the code BUSY.
    """
    os.setsid()  # Ctrl-C is for the parent alone, which then asks each cell once to save and end
    threading.Thread(target=end_with_parent, daemon=True).start()
    with open(log, "ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    try:
        make(path, patience=0)
    except Locked:
        sys.exit(BUSY)
    except UserError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)


def end_with_parent() -> None:
    """Wait for the parent's death, however it dies. Then ask this process to save and end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
