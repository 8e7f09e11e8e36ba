"""The commands that reproduce the paper and report it. No torch before a run starts."""

from pathlib import Path
from typing import Literal

import tyro


def reproduce_command(
    what: tyro.conf.Positional[str] = "",
    budget: Literal["smoke", "reduced", "full"] = "reduced",
    methods: tuple[str, ...] = (),
    envs: tuple[str, ...] = (),
    dir: Path = Path("reproduction"),
    seeds: int | None = None,
    jobs: int = 2,
    engine: Literal["local", "ray"] = "local",
    preset: str | None = None,
    device: str = "cpu",
    precision: Literal["float32", "bf16"] = "float32",
    threads: int = 1,
    dry_run: bool = False,
) -> None:
    """Run a table or figure of the paper: table-1, table-2, noisy-tv, ...

    A run that was stopped continues where it was.

    Args:
        what: Which one; they are listed if not given.
        budget: smoke (does it run?), reduced (fewer seeds and steps) or full (as in the paper).
        methods: Only these rows of the table, such as rnd rnd+sm; all if not given.
        envs: Only these environments: ids, or names as in the table; all if not given.
        dir: Where the runs go; finished ones are kept. `surprise-memory report DIR` reports them.
        seeds: Runs per cell; the budget's number if not given.
        jobs: Runs side by side. With --engine ray, as many as the cluster has room for.
        engine: local, or ray for an existing Ray cluster.
        preset: Settings other than its own, such as default instead of paper.
        device: cpu, cuda (all GPUs in turn; with ray, one for each run), cuda:1, mps or auto.
        precision: bf16 multiplies the networks' hidden layers in bfloat16.
        threads: Threads of each run, also of Atari's environments.
        dry_run: Only print the runs and how long they would take.
    """
    from surprise_memory.reproduce.grids import GRIDS

    if not what:
        for name, grid in GRIDS.items():
            print(f"{name:16} {grid.title}")
        return
    from surprise_memory.reproduce import command

    machine = command.Machine(device, precision, threads)
    only = command.Selection(methods, envs)
    outcome = command.reproduce(
        what, budget, dir, seeds, jobs, engine, dry_run, preset, machine, only
    )
    command.raise_failures(outcome)


def report_command(
    dir: tyro.conf.Positional[Path] = Path("reproduction"),
    out: Path | None = None,
    archive: Path | None = None,
) -> None:
    """Make a page (HTML and Markdown) of what `reproduce` has run: tables, intervals, curves.

    It takes in notes from DIR/notes.md, DIR/WHAT/notes-PRESET-BUDGET.md and DIR/pictures/notes.md,
    and the pictures in DIR/pictures/.

    Args:
        dir: The directory that `reproduce` was given.
        out: OUT.html, OUT.md and OUT/ with the pictures are written; DIR/report if not given.
        archive: Also add what the report needs of every finished run, metrics thinned, to the files
            ARCHIVE/WHAT/runs.jsonl. If it is DIR itself, runs without a checkpoint are moved there.
    """
    from surprise_memory.reproduce import report

    if archive is not None:
        print(f"{len(report.archive_runs(dir, archive))} runs archived in {archive}")
    written = report.write_report(dir, out)
    for run, why in written.left_out.items():
        print(f"Left out {run}: {why}.")
    for picture in written.removed:
        print(f"Removed {picture}: this report no longer has it.")
    print(written.html)
    print(written.markdown)
