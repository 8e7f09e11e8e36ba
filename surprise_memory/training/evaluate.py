"""Evaluation: a fixed quota of episodes for each environment, with everything frozen."""

import math
from typing import Any, NamedTuple

import numpy as np

from surprise_memory.agents.base import Agent, Mode
from surprise_memory.envs import VecEnv
from surprise_memory.training.collect import RunnerState, env_step


class Evaluation(NamedTuple):
    """Task returns of episodes, and how many of these were cut."""

    returns: list[float]
    cut: int


def evaluate(
    agent: Agent,
    env: VecEnv,
    episodes: int,
    mode: Mode = "sample",
    bonus: Any = None,
    longest: float = math.inf,
) -> Evaluation:
    """Task returns of `episodes` whole episodes, unclipped.

    Every environment plays the same number (the first few one more): taking the first that finish
    would favour short ones. An episode of `longest` steps is cut: its return so far counts, and its
    environment, which cannot be reset alone, plays no more. The agent's random stream is put back,
    so that evaluation leaves no mark on a run. `bonus` is for agents that observe it while they
    act.
    """
    stream = agent.rng.get_state()
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    played = np.zeros(env.num_envs, int)
    finished: list[list[float]] = [[] for _ in quota]
    returns = np.zeros(env.num_envs)
    lengths = np.zeros(env.num_envs, int)
    cut = 0
    state = RunnerState.reset(env, bonus)
    while (played < quota).any():
        row = env_step(env, agent, state, bonus, mode)
        returns += row["reward"].numpy()
        lengths += row["valid"].numpy()
        ended = (row["terminated"] | row["truncated"]).numpy()
        too_long = ~ended & (played < quota) & (lengths >= longest)
        for b in np.flatnonzero(ended | too_long):
            if played[b] < quota[b]:
                finished[b].append(float(returns[b]))
            played[b] += 1
            returns[b] = 0.0
            lengths[b] = 0
        cut += int(too_long.sum())
        quota[too_long] = played[too_long]
    agent.rng.set_state(stream)
    found: list[float] = []
    for done in finished:
        found += done
    return Evaluation(found, cut)


def summary(evaluation: Evaluation) -> dict[str, object]:
    """What eval.json holds."""
    returns = evaluation.returns
    return {
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "episodes": len(returns),
        "cut": evaluation.cut,
        "returns": [round(value, 6) for value in returns],
    }
