"""Is this bonus alive, does its memory change anything, does it follow rarity, is it fooled by noise? Ask `examine`.

Two tasks for each seed, in `stream`: one looks at the bonus, one at the bonus among noise. Here they are run, in turn
or side by side, and become estimates over seeds and a verdict; `report` shows them.
"""

import dataclasses
import multiprocessing
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from typing import Any

import numpy as np

from surprise_memory.bonus.methods import split_method
from surprise_memory.errors import UserError, require
from surprise_memory.tools.doctor.measures import t_interval
from surprise_memory.tools.doctor.stream import Values, held_out, observe
from surprise_memory.tools.doctor.verdict import Diagnosis, Estimate, Measures, verdict
from surprise_memory.training.config import RunConfig

Progress = Callable[[str, float], None]
Task = tuple[RunConfig, int, bool]  # run, rollouts, with noise


def examine(
    run: RunConfig, seeds: int, rollouts: int, on_progress: Progress | None = None, workers: int = 1
) -> Diagnosis:
    """Examine the bonus of `run` with seeds run.seed, run.seed + 1, ...; the last fifth of the rollouts is held out.

    More workers are more processes, with two tasks for each seed; a script that asks for them needs the usual __main__ guard.
    """
    if run.method == "none":
        raise UserError(
            "Method 'none' has no bonus to examine: choose a generator, such as rnd, or rnd+sm."
        )
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(
        rollouts >= 2,
        "rollouts",
        rollouts,
        "at least 2, one to learn from and one to be measured on",
    )
    require(workers >= 1, "workers", workers, "at least 1")
    tasks = [
        (dataclasses.replace(run, seed=run.seed + i), rollouts, noisy)
        for i in range(seeds)
        for noisy in (False, True)
    ]
    report = on_progress or (lambda text, share: None)
    found = in_turn(tasks, report) if workers == 1 else side_by_side(tasks, report, workers)
    clean, noisy_ones = found[::2], found[1::2]
    measures = gather([a["values"] | b["values"] for a, b in zip(clean, noisy_ones, strict=True)])
    held, size = held_out(rollouts), run.rollout * run.envs
    return Diagnosis(
        env=run.env,
        method=run.method,
        preset=run.preset,
        seeds=seeds,
        steps=(run.warmup_rollouts + rollouts - held) * size,
        held_out=held * size,
        warmup_rollouts=run.warmup_rollouts,
        counting=clean[0]["counting"],
        measures=measures,
        curves={
            name: [_plain(one["curves"][name]) for one in clean] for name in clean[0]["curves"]
        },
        verdict=verdict(measures, autoencoder=split_method(run.method)[1] in ("sm", "w")),
    )


def gather(seeds: list[Values]) -> Measures:
    """The numbers of each seed to estimates over seeds."""
    table: Measures = {}
    for name, columns in seeds[0].items():
        for column in columns:
            x = np.array([values[name][column] for values in seeds])
            mean, half = _plain(t_interval(x))
            table.setdefault(name, {})[column] = Estimate(mean, half, _plain(x))
    return table


def _plain(values: Any) -> list[float | None]:
    """Floats that JSON can hold: what is not finite becomes None."""
    return [float(x) if np.isfinite(x) else None for x in values]


# --- running the tasks ------------------------------------------------------------------------------------------------


def in_turn(tasks: list[Task], report: Progress) -> list[dict[str, Any]]:
    """One after the other, in this process."""
    total, done, found = sum(run.warmup_rollouts + rollouts for run, rollouts, _ in tasks), 0, []
    for run, rollouts, noisy in tasks:
        text = f"seed {run.seed}{', with noise' if noisy else ''}"

        def tick(text: str = text) -> None:
            nonlocal done
            done += 1
            report(text, done / total)

        found.append(observe(run, rollouts, noisy, tick))
    return found


def side_by_side(tasks: list[Task], report: Progress, workers: int) -> list[dict[str, Any]]:
    """In `workers` fresh processes, which count their rollouts in shared memory."""
    context = multiprocessing.get_context(
        "spawn"
    )  # a forked child may inherit a locked thread pool of torch or EnvPool
    counter, total = (
        context.Value("q", 0),
        sum(run.warmup_rollouts + rollouts for run, rollouts, _ in tasks),
    )
    with ProcessPoolExecutor(min(workers, len(tasks)), context, _share, (counter,)) as pool:
        futures = [pool.submit(_count_and_observe, *task) for task in tasks]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            report(
                f"{len(futures) - len(waiting)} of {len(futures)} tasks done", counter.value / total
            )
            for failed in (future for future in done if future.exception()):
                pool.shutdown(wait=False, cancel_futures=True)  # do not start what is left
                failed.result()
        return [future.result() for future in futures]


_counter: Any = None


def _share(counter: Any) -> None:
    """Give a worker process the shared counter."""
    global _counter
    _counter = counter


def _count_and_observe(run: RunConfig, rollouts: int, noisy: bool) -> dict[str, Any]:
    def tick() -> None:
        with _counter.get_lock():
            _counter.value += 1

    return observe(run, rollouts, noisy, tick)
