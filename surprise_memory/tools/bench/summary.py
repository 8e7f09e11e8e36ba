"""Medians and ratios of timings, and what they were measured on."""

import dataclasses
import os
import platform
from statistics import median
from typing import Any

import torch
from torch import Tensor

from surprise_memory.memory.episodic import KeyLog
from surprise_memory.tools.bench.timing import PARTS, Seconds, Timings
from surprise_memory.training.config import RunConfig


def settings(run: RunConfig, rollouts: int, clock: str) -> dict[str, Any]:
    """What was measured, and where."""
    rows = run.envs * run.rollout
    return {
        "env": run.env,
        "preset": run.preset,
        "rollouts": rollouts,
        "threads": run.threads,
        "clock": clock,
        "machine": f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "envs": run.envs,
        "rollout": run.rollout,
        "agent_updates": [run.ppo.epochs * run.ppo.minibatches, rows // run.ppo.minibatches],
        "bonus_updates": [
            run.bonus.epochs * run.bonus.minibatches,
            int(rows * run.bonus.proportion) // run.bonus.minibatches,
        ],
    }


def processor() -> str:
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def total(lap: Seconds) -> float:
    """Seconds of all parts of a lap."""
    return sum(lap[part] for part in PARTS)


def ratios(above: list[Seconds], below: list[Seconds]) -> list[float]:
    """Ratios of total times, turn by turn: a busy moment slows both."""
    found = []
    for a, b in zip(above, below, strict=True):
        found.append(total(a) / total(b))
    return found


def results(run: RunConfig, timings: Timings) -> dict[str, Any]:
    """Medians over the turns of each method, and the cost of the memory."""
    costs = [ratio - 1 for ratio in ratios(timings["rnd+sm"], timings["rnd"])]
    return {
        "methods": {name: medians(run, turns) for name, turns in timings.items()},
        "sm_cost": median(costs),
        "sm_cost_range": [min(costs), max(costs)],
    }


def medians(run: RunConfig, turns: list[Seconds]) -> dict[str, Any]:
    """Medians of one method; ratios are taken within each turn, before the median."""
    steps = run.envs * run.rollout
    seconds = median(total(turn) for turn in turns)
    return {
        "steps_per_second": steps / seconds,
        "steps_per_wall_second": steps / median(turn["wall"] for turn in turns),
        "seconds": {part: median(turn[part] for turn in turns) for part in PARTS},
        "total_seconds": seconds,
        "env_share": median(turn["env"] / total(turn) for turn in turns),
        "matmul_seconds": finite(median(turn["matmul"] for turn in turns)),
        "matmul_ratio": finite(median(total(turn) / turn["matmul"] for turn in turns)),
    }


def relative(run: RunConfig, timings: Timings) -> dict[str, Any]:
    """Speed of each method, and its time over plain PPO's and over its generator's."""
    found = {}
    for name, turns in timings.items():
        seconds = median(total(turn) for turn in turns)
        found[name] = {
            "steps_per_second": run.envs * run.rollout / seconds,
            "over_none": median(ratios(turns, timings["none"])),
        }
        generator, memory, _ = name.partition("+")
        if memory:
            found[name]["over_generator"] = median(ratios(turns, timings[generator]))
    return found


def finite(value: float) -> float | None:
    """Not a number becomes null in JSON."""
    if value != value:
        return None
    return value


def memory_bytes(log: KeyLog) -> dict[str, float]:
    """Bytes of all tensors in M's key log, against a snapshot of M (B, N, d) at each of T steps."""
    log_bytes = 0
    for field in dataclasses.fields(log):
        value = getattr(log, field.name)
        if isinstance(value, Tensor):
            log_bytes += value.nbytes
    T, B = log.filled.shape
    d = log.log.shape[-1]
    N = log.log.numel() // (B * d) - T
    snapshot_bytes = T * B * N * d * log.log.element_size()
    return {
        "key_log_bytes": log_bytes,
        "snapshot_bytes": snapshot_bytes,
        "share": log_bytes / snapshot_bytes,
    }
