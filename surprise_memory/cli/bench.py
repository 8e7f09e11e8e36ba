"""The command bench."""

import dataclasses
from typing import Literal

from surprise_memory.errors import UserError
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import rich_console, status


def bench_command(
    env: str = "MiniGrid-DoorKey-16x16-v0",
    preset: Literal["default", "paper", "released-code", "debug"] = "paper",
    rollouts: int = 3,
    threads: int = 1,
    all: bool = False,
    agent: Literal["ppo", "dqn"] = "ppo",
    envs: int | None = None,
    peers: bool = False,
    bf16: bool = False,
) -> None:
    """Measure the speed on this machine without a bonus, with a generator, and with its memory.

    Args:
        env: The environment's id.
        preset: Where the settings come from.
        rollouts: Rollouts per measurement.
        threads: Torch's threads.
        all: Every method and size of memory, instead of RND in detail.
        agent: With dqn, the recurrent DQN with and without the latent world model.
        envs: Environments side by side; the preset's number if not given.
        peers: Beside a plain loop in CleanRL's shape and, if installed, Stable-Baselines3.
        bf16: Beside the same with --precision bf16.
    """
    from surprise_memory.tools import bench

    kinds = {"--agent dqn": agent == "dqn", "--bf16": bf16, "--peers": peers, "--all": all}
    chosen = [name for name, on in kinds.items() if on]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} are different measurements: choose one of them.")
    run = dataclasses.replace(PRESETS[preset](env), threads=threads)
    if envs is not None:
        run = dataclasses.replace(run, envs=envs)
    measure, show = bench.bench, bench.print_bench
    if agent == "dqn":
        measure, show = bench.bench_dqn, bench.print_dqn
    elif bf16:
        measure, show = bench.bench_bf16, bench.print_bf16
    elif peers:
        measure, show = bench.bench_peers, bench.print_peers
    elif all:
        measure, show = bench.bench_all, bench.print_all
    console = rich_console()
    with status("measuring") as progress:
        result = measure(run, rollouts, progress)
    show(result, console)
