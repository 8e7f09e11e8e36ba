"""How fast is this machine: plain PPO, a generator, a generator with its memory.

Everything is compared inside one process. The methods take turns, rollout by rollout, and each is
timed beside the bare matrix multiplications of its own networks. What is reported is the median
over the turns. On one thread the clock is the CPU time of the process, so a busy machine hardly
changes what is measured. With more threads, or environments in other processes, it is wall time.
"""

import dataclasses
from statistics import median
from typing import Any

from surprise_memory.bonus.methods import backbone, methods
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.tools.bench.offpolicy import bench_dqn, print_dqn
from surprise_memory.tools.bench.peers import bench_peers, print_peers
from surprise_memory.tools.bench.report import print_all, print_bench, print_bf16
from surprise_memory.tools.bench.summary import (
    medians,
    memory_bytes,
    ratios,
    relative,
    results,
    settings,
)
from surprise_memory.tools.bench.timing import OnProgress, TimedPPO, Timings, take_turns
from surprise_memory.training.config import RunConfig

METHODS = ("none", "rnd", "rnd+sm")
SIZES = ((32, 4), (128, 16), (1024, 64))  # N-d of the paper's ablation


def bench(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Plain PPO, RND and RND with its memory, part by part, with the options of a run.

    `on_progress` gets what is measured next and the share that is done.
    """
    runs = {name: dataclasses.replace(run, method=name) for name in METHODS}
    timings, logs, clock = measure(runs, rollouts, on_progress)
    memory = {"memory": memory_bytes(logs["rnd+sm"])}
    return settings(run, rollouts, clock) | results(run, timings) | memory


def bench_all(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Every PPO method relative to plain PPO and to its generator; rnd+sm also with other sizes."""
    runs = {}
    for name in methods():
        if backbone(name) == "ppo":
            runs[name] = dataclasses.replace(run, method=name)
    for slots, width in SIZES:
        memory = dataclasses.replace(run.bonus.memory, slots=slots, width=width)
        bonus = dataclasses.replace(run.bonus, memory=memory)
        runs[f"rnd+sm {slots}-{width}"] = dataclasses.replace(run, method="rnd+sm", bonus=bonus)
    timings, logs, clock = measure(runs, rollouts, on_progress)
    held = {name: memory_bytes(log)["key_log_bytes"] for name, log in logs.items()}
    found = {"methods": relative(run, timings), "key_log_bytes": held}
    return settings(run, rollouts, clock) | found


def bench_bf16(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """RND and RND with its memory, in float32 and in bfloat16."""
    runs = {}
    for name in METHODS[1:]:
        runs[name] = dataclasses.replace(run, method=name)
        runs[f"{name} bf16"] = dataclasses.replace(run, method=name, precision="bf16")
    timings, _, clock = measure(runs, rollouts, on_progress)
    found = {}
    for name, turns in timings.items():
        found[name] = medians(run, turns)
        found[name]["over_float32"] = median(ratios(turns, timings[name.removesuffix(" bf16")]))
    costs = {}
    for suffix in ("", " bf16"):
        over = ratios(timings[f"rnd+sm{suffix}"], timings[f"rnd{suffix}"])
        costs[f"rnd+sm{suffix}"] = median(over) - 1
    return settings(run, rollouts, clock) | {"methods": found, "sm_cost": costs}


def measure(
    runs: dict[str, RunConfig], rollouts: int, on_progress: OnProgress | None
) -> tuple[Timings, dict[str, KeyLog], str]:
    """Timings of all runs, the key log of each that has an M, and the clock's name."""
    timed = {name: TimedPPO(run) for name, run in runs.items()}
    first = next(iter(timed.values()))
    timings = take_turns(timed, rollouts, first.run.threads, on_progress)
    logs = {}
    for name, one in timed.items():
        log = one.key_log()
        if log is not None:
            logs[name] = log
        one.env.close()
    return timings, logs, first.clock_name


__all__ = [
    "bench",
    "bench_all",
    "bench_bf16",
    "bench_dqn",
    "bench_peers",
    "print_all",
    "print_bench",
    "print_bf16",
    "print_dqn",
    "print_peers",
]
