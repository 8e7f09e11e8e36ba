"""How many floating-point operations does a step of the paper's Atari settings take?

    python tests/tools/operations.py

Counted by torch over one rollout of four environments, and over one update of the recurrent DQN.
Also prints how many steps a second the environments make on one thread.
"""

import dataclasses
import time
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from surprise_memory.envs import make_vec
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import build
from surprise_memory.training.presets import PRESETS

ENV = "MontezumaRevenge"
ENVS = 4


def started(method: str) -> tuple[Any, Any, Any, RunnerState]:
    """Environments, agent and bonus of the paper's settings, before the first step."""
    run = dataclasses.replace(PRESETS["paper"](ENV), method=method, envs=ENVS)
    env, agent, bonus = build(run)
    return env, agent, bonus, RunnerState.reset(env, bonus)


def per_step(method: str, length: int = 128) -> float:
    """Operations of PPO and a bonus for one step, from the second rollout."""
    env, agent, bonus, state = started(method)
    for _ in range(2):
        with FlopCounterMode(display=False) as counted:
            chunk, _ = collect(env, agent, state, length, bonus)
            _, _, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
    return counted.get_total_flops() / (ENVS * length)


def per_update(method: str) -> float:
    """Operations of one update of the recurrent DQN and its bonus."""
    env, agent, bonus, state = started(method)
    while not agent.replay.ready:
        chunk, _ = collect(env, agent, state, agent.rollout_length(128), bonus)
        state.bonus_carry = agent.store(chunk, bonus, state.bonus_carry)
    with FlopCounterMode(display=False) as counted:
        agent.update_once(bonus)
    return counted.get_total_flops()


def env_speed(envs: int = 128, steps: int = 40) -> float:
    """Steps per CPU second of the environments, with random actions."""
    env = make_vec(ENV, envs, 0, 1)
    env.reset()
    rng = np.random.default_rng(0)
    began = time.process_time()
    for _ in range(steps):
        env.step(rng.integers(18, size=envs))
    return envs * steps / (time.process_time() - began)


def main() -> None:
    """Print all of it."""
    torch.set_num_threads(1)
    for method in ("rnd", "rnd+sm", "ngu"):
        print(f"{method}: {per_step(method):.2e} a step", flush=True)
    for method in ("lwm", "lwm+sm"):
        print(f"{method}: {per_update(method):.2e} an update", flush=True)
    print(f"environments: {env_speed():,.0f} steps per CPU second")


if __name__ == "__main__":
    main()
