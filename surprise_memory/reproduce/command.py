"""`surprise-memory reproduce`: print the runs and how long they take, make them, say what failed."""

import dataclasses
import time
from pathlib import Path

from surprise_memory.errors import UserError, require
from surprise_memory.reproduce.cells import Cell, cells
from surprise_memory.reproduce.grids import GRIDS, Grid
from surprise_memory.reproduce.local import Live, hours, run_local, speeds
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import build
from surprise_memory.training.progress import rich_console


def reproduce(
    what: str,
    budget: str,
    root: Path,
    seeds: int | None,
    jobs: int,
    engine: str = "local",
    dry_run: bool = False,
    preset: str | None = None,
) -> dict[str, str]:
    """Make a grid's runs in `root`; returns why those failed that did."""
    require(seeds is None or seeds >= 1, "seeds", seeds, "at least 1")
    require(jobs >= 1, "jobs", jobs, "at least 1")
    todo = cells(what, budget, root, seeds, preset)
    tell(GRIDS[what], todo, jobs, dry_run)
    if dry_run or all(cell.finished for cell in todo):
        return {}
    if engine == "ray":
        from surprise_memory.reproduce.ray_tune import run_ray

        return run_ray(todo, root / what)
    with Live(jobs) as show:
        return run_local(todo, jobs, show).failed


def tell(grid: Grid, todo: list[Cell], jobs: int, every: bool) -> None:
    """The list of runs (all of them in a dry run, else a line) and an estimate of the time."""
    console, open_ = rich_console(), [cell for cell in todo if not cell.finished]
    console.print(f"[bold]{grid.title}[/]: {len(todo)} runs, {len(todo) - len(open_)} finished")
    for cell in todo if every else ():
        console.print(
            f"  {'done' if cell.finished else '    '} {cell.name} · {cell.run.preset} · {cell.run.steps:,} steps"
        )
    if open_:
        known = speeds(todo)
        speed = sum(known.values()) / len(known) if known else probe(open_[-1])
        source = (
            "that the runs here have had"
            if known
            else f"measured just now on {open_[-1].env}, {open_[-1].entry}"
        )
        left = hours(todo, known, speed, jobs)
        console.print(
            f"About {describe(left)} with {jobs} at a time, at {speed:,.0f} steps a second ({source})."
        )


def describe(time_left: float) -> str:
    """Hours in words."""
    if time_left < 1:
        return f"{60 * time_left:.0f} minutes"
    return f"{time_left:.1f} hours" if time_left < 48 else f"{time_left / 24:.1f} days"


def probe(cell: Cell) -> float:
    """Steps a second of a small piece of a cell: few environments, one block, one lesson."""
    run = dataclasses.replace(cell.run, envs=min(cell.run.envs, 8))
    env, agent, bonus = build(run)
    state = RunnerState.reset(env, bonus)
    began = time.monotonic()
    for _ in range(2):  # a recurrent agent learns from the second block on
        chunk, _ = collect(env, agent, state, agent.rollout_length(run.rollout), bonus)
        _, _, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
    env.close()
    return state.steps / (time.monotonic() - began)


def raise_failures(failed: dict[str, str]) -> None:
    """One error that names every failed cell."""
    if failed:
        lines = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise UserError(
            f"{len(failed)} of the runs failed, all others are finished; run the same command again to retry. {lines}"
        )
