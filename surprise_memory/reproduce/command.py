"""`surprise-memory reproduce`: print the runs and how long they take, make them, name failures."""

import dataclasses
import time
from pathlib import Path
from typing import NamedTuple

import torch

from surprise_memory.errors import UserError, choose, require, require_between
from surprise_memory.nn.at_once import using_threads
from surprise_memory.nn.devices import pick_device
from surprise_memory.reproduce.cells import Cell, cells
from surprise_memory.reproduce.grid import Grid
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.live import Live, hours, in_words, speeds
from surprise_memory.reproduce.local import run_local
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build
from surprise_memory.training.plan import check_plan, describe_plan, learning_steps
from surprise_memory.training.processes import learn_at_once
from surprise_memory.training.progress import literal, rich_console


class Machine(NamedTuple):
    """What a grid's runs compute with."""

    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1


class Selection(NamedTuple):
    """Which rows of a table, and which of its environments. Empty means all."""

    methods: tuple[str, ...] = ()  # as the table names them
    envs: tuple[str, ...] = ()  # ids, or the table's short names


def select(grid: Grid, todo: list[Cell], only: Selection) -> list[Cell]:
    """The cells of the selected methods and environments. A name that the grid lacks is refused."""
    names = dict.fromkeys(grid.entry_names)
    ids = {grid.short.get(env, env): env for env in grid.envs} | {env: env for env in grid.envs}
    methods = set(only.methods or names)
    envs = {choose(ids, env, "environment of this grid") for env in only.envs or grid.envs}
    for method in methods:
        choose(names, method, "method of this grid")
    return [cell for cell in todo if cell.entry in methods and cell.env in envs]


def on_machine(todo: list[Cell], machine: Machine, engine: str) -> list[Cell]:
    """The cells with their devices: a machine's GPUs in turn. Ray gives each cell its own GPU."""
    if engine == "ray":
        allowed = "cpu or cuda: Ray chooses the GPU"
        require(machine.device in ("cpu", "cuda"), "device", machine.device, allowed)
        devices = [machine.device]
    else:
        devices = [str(pick_device(machine.device))]
        if devices == ["cuda"]:
            devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    placed = []
    for i, cell in enumerate(todo):
        device = devices[i % len(devices)]
        run = dataclasses.replace(cell.run, device=device, threads=machine.threads)
        placed.append(dataclasses.replace(cell, run=run))
    return placed


def reproduce(
    what: str,
    budget: str,
    root: Path,
    seeds: int | None,
    jobs: int,
    engine: str = "local",
    dry_run: bool = False,
    preset: str | None = None,
    machine: Machine | None = None,
    only: Selection | None = None,
) -> dict[str, str]:
    """Make a grid's runs in `root`, or only some. Returns name -> reason of those that failed."""
    if seeds is not None:
        require_between("seeds", seeds, 1, 10_000)
    require_between("jobs", jobs, 1, 1_024)
    machine = machine or Machine()
    todo = cells(what, budget, root, seeds, preset, machine.precision)
    todo = select(GRIDS[what], todo, only or Selection())
    todo = on_machine(todo, machine, engine)
    for cell in todo:
        check_plan(cell.run)
    print_plan(GRIDS[what], todo, jobs, dry_run, "cpu" if engine == "ray" else None)
    if dry_run or all(cell.finished for cell in todo):
        return {}
    if engine == "ray":
        from surprise_memory.reproduce.ray_tune import run_ray

        return run_ray(todo, root / what)
    with Live(jobs) as show:
        return run_local(todo, jobs, show).failed


def print_plan(
    grid: Grid, todo: list[Cell], jobs: int, every_run: bool, device: str | None = None
) -> None:
    """The number of runs, or in a dry run all of them, and an estimate of the time.

    It is measured on `device`, or on the cells' own.
    """
    console = rich_console()
    unfinished = [cell for cell in todo if not cell.finished]
    finished = len(todo) - len(unfinished)
    console.print(f"[bold]{grid.title}[/]: {len(todo)} runs, {finished} finished")
    if every_run:
        for cell in todo:
            mark = "    " if cell in unfinished else "done"
            steps = f"{cell.run.steps:,} steps"
            console.print(f"  {mark} {literal(cell.name)} · {cell.run.preset} · {steps}")
    for line in learning_lines(todo):
        console.print(line)
    if not unfinished:
        return
    known = speeds(todo)
    if known:
        speed = sum(known.values()) / len(known)
        source = "the mean of the runs here"
    else:
        cell = unfinished[-1]
        run = cell.run
        if device is not None:
            run = dataclasses.replace(run, device=device)
        speed = measure_speed(run)
        source = f"measured just now on {cell.env}, {cell.entry}, {run.device}"
    left = in_words(hours(todo, known, speed, jobs))
    console.print(f"About {left} with {jobs} at a time, at {speed:,.0f} steps a second ({source}).")


def learning_lines(todo: list[Cell]) -> list[str]:
    """How the entries spend their steps, those that do it alike in one line.

    A warm-up counts as steps. If not all entries learn from equally many, the last line says so.
    """
    entries: dict[str, dict[str, None]] = {}  # plan -> names of entries, each once
    for cell in todo:
        entries.setdefault(describe_plan(cell.run), {})[cell.entry] = None
    lines = [f"  {', '.join(names)}: {plan}" for plan, names in entries.items()]
    learnt = {learning_steps(cell.run) for cell in todo if cell.run.backbone != "random"}
    if len(learnt) > 1:
        least, most = min(learnt), max(learnt)
        lines.append(
            f"  Not equal: some learn from {most - least:,} steps more than others "
            f"({(most - least) / most:.1%})."
        )
    return lines


def measure_speed(run: RunConfig) -> float:
    """Steps a second of a small piece of a run: the second of two rollouts, and its updates."""
    run = small_piece(run)
    with using_threads(run.threads, learn_at_once(run)):
        env, agent, bonus = build(run)
        state = RunnerState.reset(env, bonus)
        for _ in range(2):  # a recurrent agent learns from the second block on
            steps = state.steps
            began = time.monotonic()
            chunk, _ = collect(env, agent, state, agent.rollout_length(run.rollout), bonus)
            _, _, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
        seconds = time.monotonic() - began
        env.close()
    return (state.steps - steps) / seconds


def small_piece(run: RunConfig) -> RunConfig:
    """A run with few environments, as large minibatches, and as many updates a step.

    Smaller minibatches would cost much more a step.
    """
    envs = min(run.envs, 8)

    def fewer(minibatches: int) -> int:
        return max(1, minibatches * envs // run.envs)

    ppo = dataclasses.replace(run.ppo, minibatches=fewer(run.ppo.minibatches))
    bonus = dataclasses.replace(run.bonus, minibatches=fewer(run.bonus.minibatches))
    # The DQN counts its updates by steps of all environments at once.
    dqn = dataclasses.replace(run.dqn, updates=run.dqn.updates * envs / run.envs)
    return dataclasses.replace(run, envs=envs, ppo=ppo, dqn=dqn, bonus=bonus)


def raise_failures(failed: dict[str, str]) -> None:
    """One error that names every failed cell."""
    if not failed:
        return
    lines = "; ".join(f"{name}: {why}" for name, why in failed.items())
    raise UserError(
        f"{len(failed)} of the runs failed, all others are finished. "
        f"Run the same command again to retry. {lines}"
    )
