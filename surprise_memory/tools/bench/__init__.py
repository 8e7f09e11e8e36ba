"""How fast is this machine: plain PPO, a generator, a generator with its memory, against the multiplications alone.

Everything is compared inside one process: the methods take turns, rollout by rollout, each beside the bare matrix
multiplications of its own networks, and what is reported is the median over the turns. On one thread the clock is the
process's CPU time, so that a busy machine slows a measurement down and hardly bends it; on more threads it is wall time.
"""

import dataclasses
from typing import Any

from surprise_memory.bonus.methods import backbone, methods
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.tools.bench.offpolicy import bench_dqn, print_dqn
from surprise_memory.tools.bench.report import (
    memory_bytes,
    print_all,
    print_bench,
    relative,
    results,
    settings,
)
from surprise_memory.tools.bench.timing import Entrant, OnProgress, clock_for, taking_turns
from surprise_memory.training.config import RunConfig

METHODS = ("none", "rnd", "rnd+sm")
SIZES = ((32, 4), (128, 16), (1024, 64))  # N-d of the paper's ablation


def bench(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Plain PPO, RND and RND with its memory, part by part, in a run's setting; `on_progress` gets (what, share done)."""
    laps, logs = race(
        {name: dataclasses.replace(run, method=name) for name in METHODS}, rollouts, on_progress
    )
    return settings(run, rollouts) | results(run, laps) | {"memory": memory_bytes(logs["rnd+sm"])}


def bench_all(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Every method, and rnd+sm with the paper's other sizes of M, relative to plain PPO and to its generator alone."""
    runs = {
        name: dataclasses.replace(run, method=name) for name in methods() if backbone(name) == "ppo"
    }
    for slots, width in SIZES:
        memory = dataclasses.replace(run.bonus.memory, slots=slots, width=width)
        bonus = dataclasses.replace(run.bonus, memory=memory)
        runs[f"rnd+sm {slots}-{width}"] = dataclasses.replace(run, method="rnd+sm", bonus=bonus)
    laps, logs = race(runs, rollouts, on_progress)
    held = {name: log.log.nbytes + log.filled.nbytes for name, log in logs.items()}
    return settings(run, rollouts) | {"methods": relative(run, laps), "key_log_bytes": held}


def race(
    runs: dict[str, RunConfig], rollouts: int, on_progress: OnProgress | None
) -> tuple[dict[str, list[dict[str, float]]], dict[str, KeyLog]]:
    """Laps of all runs, taking turns after one to warm up, and the key log of each that has an M."""
    threads = next(iter(runs.values())).threads
    entrants = {name: Entrant(run, clock_for(run)) for name, run in runs.items()}
    laps = taking_turns(entrants, rollouts, threads, on_progress)
    logs = {
        name: log for name, entrant in entrants.items() if (log := entrant.key_log()) is not None
    }
    for entrant in entrants.values():
        entrant.env.close()
    return laps, logs


__all__ = ["bench", "bench_all", "bench_dqn", "print_all", "print_bench", "print_dqn"]
