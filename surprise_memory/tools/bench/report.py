"""Medians and ratios of the laps, and how they are printed."""

import dataclasses
import os
import platform
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import UserError
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.tools.bench.timing import PARTS, clock_for
from surprise_memory.training.config import RunConfig


def settings(run: RunConfig, rollouts: int) -> dict[str, Any]:
    """What was measured, and where."""
    rows = run.envs * run.rollout
    return {
        "env": run.env,
        "preset": run.preset,
        "rollouts": rollouts,
        "threads": run.threads,
        "clock": "CPU" if clock_for(run) is time.process_time else "wall",
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
            return next(
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def results(run: RunConfig, laps: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians over the laps of each method; ratios are taken between laps of one turn, before the median."""
    per_rollout = run.envs * run.rollout
    totals = {
        name: [sum(lap[part] for part in PARTS) for lap in them] for name, them in laps.items()
    }
    costs = [
        with_sm / alone - 1 for with_sm, alone in zip(totals["rnd+sm"], totals["rnd"], strict=True)
    ]
    methods = {}
    for name, them in laps.items():
        ratios = [total / lap["matmul"] for total, lap in zip(totals[name], them, strict=True)]
        methods[name] = {
            "steps_per_second": per_rollout / median(totals[name]),
            "steps_per_wall_second": per_rollout / median(lap["wall"] for lap in them),
            "seconds": {part: median(lap[part] for lap in them) for part in PARTS},
            "total_seconds": median(totals[name]),
            "env_share": median(
                lap["env"] / total for total, lap in zip(totals[name], them, strict=True)
            ),
            "matmul_seconds": finite(median(lap["matmul"] for lap in them)),
            "matmul_ratio": finite(median(ratios)),
        }
    return {"methods": methods, "sm_cost": median(costs), "sm_cost_range": [min(costs), max(costs)]}


def relative(run: RunConfig, laps: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """For each method: speed, time over plain PPO's and over its generator's, ratios turn by turn before the median."""
    totals = {
        name: [sum(lap[part] for part in PARTS) for lap in them] for name, them in laps.items()
    }
    found = {}
    for name, mine in totals.items():
        generator = name.partition("+")[0]
        over = {"none": "none", "generator": generator} if "+" in name else {"none": "none"}
        found[name] = {"steps_per_second": run.envs * run.rollout / median(mine)} | {
            f"over_{what}": median(a / b for a, b in zip(mine, totals[other], strict=True))
            for what, other in over.items()
        }
    return found


def finite(value: float) -> float | None:
    """Not a number becomes null in JSON."""
    return value if value == value else None


def memory_bytes(log: KeyLog) -> dict[str, float]:
    """Bytes of M's key log (all its tensors) against a snapshot of M (B, N, d) for each of T steps."""
    held = [getattr(log, field.name) for field in dataclasses.fields(log)]
    log_bytes = sum(x.nbytes for x in held if isinstance(x, Tensor))
    T, B = log.filled.shape
    d = log.log.shape[-1]
    N = log.log.numel() // (B * d) - T
    snapshot_bytes = T * B * N * d * log.log.element_size()
    return {
        "key_log_bytes": log_bytes,
        "snapshot_bytes": snapshot_bytes,
        "share": log_bytes / snapshot_bytes,
    }


def print_bench(result: dict[str, Any], console: Any) -> None:
    """The two tables: seconds by method and part, and the ratios beside what they should reach."""
    print_settings(result, console)
    table = table_of("ms per rollout", *result["methods"])
    for name, cells in speed_rows(result):
        table.add_row(name, *cells)
    console.print(table)
    table = table_of("as a ratio", "here", "reach")
    for name, value, reach, reached in ratio_rows(result):
        table.add_row(
            name,
            value if reached is None else f"[{'green' if reached else 'yellow'}]{value}[/]",
            reach,
        )
    console.print(table)


def print_all(result: dict[str, Any], console: Any) -> None:
    """One row a method: its speed, its time against plain PPO's, and the memory's cost over its generator."""
    table = table_of(
        "method",
        f"steps per {result['clock']} second",
        "time / none",
        "memory's cost",
        "key log, MB",
    )
    print_settings(result, console)
    for name, m in result["methods"].items():
        cost = f"{m['over_generator'] - 1:+.0%}" if "over_generator" in m else ""
        held = (
            f"{result['key_log_bytes'][name] / 1e6:.1f}" if name in result["key_log_bytes"] else ""
        )
        table.add_row(name, f"{m['steps_per_second']:,.0f}", f"{m['over_none']:.2f}", cost, held)
    console.print(table)


def table_of(*names: str) -> Any:
    """A rich table whose columns but for the first hold numbers."""
    try:
        from rich.table import Table
    except ImportError as error:
        raise UserError("rich is not installed: pip install 'surprise-memory[cli]'.") from error
    table = Table(*names)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def print_settings(result: dict[str, Any], console: Any) -> None:
    """What was measured, and where."""
    (updates, batch), (lessons, lot) = result["agent_updates"], result["bonus_updates"]
    console.print(
        f"[bold]{result['env']}[/] · {result['preset']}: {result['envs']} environments × {result['rollout']} steps, {updates} "
        f"updates of {batch} rows (agent), {lessons} of {lot} (bonus)\n{result['machine']} · {result['threads']} thread(s) · "
        f"{result['clock']} time, median of {result['rollouts']} rollouts"
    )


def speed_rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(name, one cell for each method)."""
    methods = result["methods"]
    rows = [
        (
            f"steps per {result['clock']} second",
            [f"{m['steps_per_second']:,.0f}" for m in methods.values()],
        )
    ]
    if result["clock"] != "wall":
        rows += [
            (
                "steps per wall second",
                [f"{m['steps_per_wall_second']:,.0f}" for m in methods.values()],
            )
        ]
    rows += [
        (part, [f"{m['seconds'][part] * 1e3:,.0f}" for m in methods.values()]) for part in PARTS
    ]
    rows += [("total", [f"{m['total_seconds'] * 1e3:,.0f}" for m in methods.values()])]
    if all(m["matmul_seconds"] is not None for m in methods.values()):
        rows += [
            (
                "bare multiplications",
                [f"{m['matmul_seconds'] * 1e3:,.0f}" for m in methods.values()],
            )
        ]
    return rows


def ratio_rows(result: dict[str, Any]) -> list[tuple[str, str, str, bool | None]]:
    """(what, here, reach, reached); what is reachable was set for vectors in the paper's setting, elsewhere it is left out."""
    whole, memory, (low, high) = (
        result["methods"]["rnd+sm"],
        result["memory"],
        result["sm_cost_range"],
    )
    held = (
        f"{memory['share']:.1%} ({memory['key_log_bytes']:,} of {memory['snapshot_bytes']:,} bytes)"
    )
    rows = [
        (
            "cost of SM over RND",
            result["sm_cost"],
            f"{result['sm_cost']:.0%} ({low:.0%} to {high:.0%})",
            0.12,
            "12 %",
        )
    ]
    if whole["matmul_ratio"] is not None:
        rows += [
            (
                "rnd+sm over its bare multiplications",
                whole["matmul_ratio"],
                f"{whole['matmul_ratio']:.2f}",
                1.5,
                "1.5",
            )
        ]
    rows += [
        (
            "environments' share of rnd+sm",
            whole["env_share"],
            f"{whole['env_share']:.1%}",
            0.1,
            "10 %",
        ),
        ("M's key log over snapshots", memory["share"], held, 0.02, "2 %"),
    ]
    applies = result["preset"] == "paper"
    return [
        (name, text, f"≤ {reach}" if applies else "", value <= limit if applies else None)
        for name, value, text, limit, reach in rows
    ]
