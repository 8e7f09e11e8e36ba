"""Examine a bonus over seeds: run the tasks, estimate their numbers, reach a verdict.

Each seed has two tasks, both in `stream`: one looks at the bonus, one at the bonus among noise.
They run in turn, or side by side in processes. `report` shows what was found.
"""

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from typing import Any

import numpy as np

from surprise_memory.errors import UserError, one_of, require
from surprise_memory.tools.doctor.diagnosis import Diagnosis, Estimate, Measures
from surprise_memory.tools.doctor.measures import t_interval
from surprise_memory.tools.doctor.noise import KINDS
from surprise_memory.tools.doctor.stream import held_out, observe
from surprise_memory.tools.doctor.values import Values
from surprise_memory.tools.doctor.verdict import verdict
from surprise_memory.training.config import RunConfig

Progress = Callable[[str, float], None]
Task = tuple[RunConfig, int, str]  # run, rollouts, kind of noise or none


def examine(
    run: RunConfig,
    seeds: int,
    rollouts: int,
    on_progress: Progress | None = None,
    workers: int = 1,
    noise: str = "fresh",
) -> Diagnosis:
    """Examine the bonus of `run` with seeds run.seed, run.seed + 1, ...

    The last fifth of the rollouts is held out. There are two tasks per seed, shared by `workers`
    processes. A script that asks for more than one needs the usual __main__ guard.
    """
    check(run, seeds, rollouts, workers)
    one_of(noise, tuple(KINDS), "noise")
    found = run_tasks(tasks_of(run, seeds, rollouts, noise), on_progress or ignore, workers)
    clean = found[::2]
    noisy = found[1::2]
    values = []
    for a, b in zip(clean, noisy, strict=True):
        values.append(a["values"] | b["values"])
    curves: dict[str, list[list[float | None]]] = {}
    for seed in clean:
        for name, curve in seed["curves"].items():
            curves.setdefault(name, []).append(_plain(curve))
    measures = gather(values)
    held = held_out(rollouts)
    steps = run.rollout * run.envs
    return Diagnosis(
        env=run.env,
        method=run.method,
        alone=clean[0]["alone"],
        preset=run.preset,
        seeds=seeds,
        steps=(run.warmup_rollouts + rollouts - held) * steps,
        held_out=held * steps,
        warmup_rollouts=run.warmup_rollouts,
        counting=clean[0]["counting"],
        measures=measures,
        curves=curves,
        noise=noise,
        verdict=verdict(measures, run.method, KINDS[noise]),
    )


def check(run: RunConfig, seeds: int, rollouts: int, workers: int) -> None:
    """Refuse what cannot be examined."""
    if run.method == "none":
        raise UserError(
            "Method 'none' has no bonus to examine: choose a generator, such as rnd, or rnd+sm."
        )
    require(seeds >= 1, "seeds", seeds, "at least 1")
    least = "at least 2, one to learn from and one to be measured on"
    require(rollouts >= 2, "rollouts", rollouts, least)
    require(workers >= 1, "workers", workers, "at least 1")


def gather(seeds: list[Values]) -> Measures:
    """The numbers of each seed as estimates over seeds."""
    table: Measures = {}
    for name, columns in seeds[0].items():
        for column in columns:
            x = np.array([values[name][column] for values in seeds])
            mean, half = _plain(t_interval(x))
            table.setdefault(name, {})[column] = Estimate(mean, half, _plain(x))
    return table


def _plain(values: Iterable[Any]) -> list[float | None]:
    """Floats that JSON can hold: what is not finite becomes None."""
    plain: list[float | None] = []
    for x in values:
        if np.isfinite(x):
            plain.append(float(x))
        else:
            plain.append(None)
    return plain


# --- running the tasks ----------------------------------------------------------------------------


def tasks_of(run: RunConfig, seeds: int, rollouts: int, noise: str) -> list[Task]:
    """Two tasks per seed, the second with noise."""
    tasks = []
    for i in range(seeds):
        seeded = dataclasses.replace(run, seed=run.seed + i)
        tasks.append((seeded, rollouts, ""))
        tasks.append((seeded, rollouts, noise))
    return tasks


def run_tasks(tasks: list[Task], report: Progress, workers: int) -> list[dict[str, Any]]:
    """What `observe` returns for each task."""
    if workers == 1:
        return in_turn(tasks, report)
    return side_by_side(tasks, report, workers)


def ignore(text: str, share: float) -> None:
    """Progress that nobody wants to see."""


def count_rollouts(tasks: list[Task]) -> int:
    """Rollouts of all tasks."""
    return sum(run.warmup_rollouts + rollouts for run, rollouts, _ in tasks)


def in_turn(tasks: list[Task], report: Progress) -> list[dict[str, Any]]:
    """One after the other, in this process."""
    total = count_rollouts(tasks)
    done = 0
    found = []
    for run, rollouts, noise in tasks:
        text = f"seed {run.seed}"
        if noise:
            text += ", with noise"

        def tick(text: str = text) -> None:
            nonlocal done
            done += 1
            report(text, done / total)

        found.append(observe(run, rollouts, noise, tick))
    return found


def side_by_side(tasks: list[Task], report: Progress, workers: int) -> list[dict[str, Any]]:
    """In `workers` fresh processes, which count their rollouts in shared memory."""
    # A forked child may inherit a locked thread pool of torch or EnvPool.
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    total = count_rollouts(tasks)
    with ProcessPoolExecutor(min(workers, len(tasks)), context, _share, (counter,)) as pool:
        futures = [pool.submit(_count_and_observe, *task) for task in tasks]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            finished = len(futures) - len(waiting)
            report(f"{finished} of {len(futures)} tasks done", counter.value / total)
            for future in done:
                if future.exception():
                    pool.shutdown(wait=False, cancel_futures=True)  # do not start what is left
                    future.result()
        return [future.result() for future in futures]


_counter: Any = None


def _share(counter: Any) -> None:
    """Give a worker process the shared counter."""
    global _counter
    _counter = counter


def _count_and_observe(run: RunConfig, rollouts: int, noise: str) -> dict[str, Any]:
    """One task in a worker process."""

    def tick() -> None:
        with _counter.get_lock():
            _counter.value += 1

    return observe(run, rollouts, noise, tick)
