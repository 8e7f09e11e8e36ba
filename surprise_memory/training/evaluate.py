"""Evaluation: a fixed quota of episodes for each environment, with everything frozen."""

from typing import Any

import numpy as np

from surprise_memory.agents.base import Agent, Mode
from surprise_memory.envs import VecEnv
from surprise_memory.training.collect import RunnerState, env_step


def evaluate(
    agent: Agent, env: VecEnv, episodes: int, mode: Mode = "sample", bonus: Any = None
) -> list[float]:
    """Task returns of `episodes` whole episodes, unclipped.

    Every environment plays the same number (the first few one more): taking the first that finish
    would favour short ones. The agent's random stream is put back, so that evaluation leaves no
    mark on a run. `bonus` is for agents that observe it while they act.
    """
    stream = agent.rng.get_state()
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    finished: list[list[float]] = [[] for _ in quota]
    returns = np.zeros(env.num_envs)
    state = RunnerState.reset(env, bonus)
    while any(len(done) < want for done, want in zip(finished, quota, strict=True)):
        row = env_step(env, agent, state, bonus, mode)
        returns += row["reward"].numpy()
        for b in np.flatnonzero((row["terminated"] | row["truncated"]).numpy()):
            finished[b].append(float(returns[b]))
            returns[b] = 0.0
    agent.rng.set_state(stream)
    found: list[float] = []
    for done, want in zip(finished, quota, strict=True):
        found += done[:want]
    return found


def summary(returns: list[float]) -> dict[str, object]:
    """What eval.json holds."""
    return {
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "episodes": len(returns),
        "returns": [round(value, 6) for value in returns],
    }
