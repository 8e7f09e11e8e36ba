"""Evaluation: rounds of one episode in each environment, with everything frozen."""

import math
from typing import Any, NamedTuple

import numpy as np

from surprise_memory.agents.base import Agent, Mode
from surprise_memory.envs import VecEnv
from surprise_memory.envs.base import Array
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

    They are played in rounds, one in each environment: taking the first that finish would favour
    short ones. An episode of `longest` steps is cut, and its return so far counts. The agent's
    random stream is put back, so that evaluation leaves no mark on a run. `bonus` is for agents
    that observe it while they act.
    """
    stream = agent.rng.get_state()
    found: list[float] = []
    cut = 0
    while len(found) < episodes:
        number = min(env.num_envs, episodes - len(found))
        returns, ended = play_round(agent, env, number, mode, bonus, longest)
        found += returns.tolist()
        cut += int((~ended).sum())
    agent.rng.set_state(stream)
    return Evaluation(found, cut)


def play_round(
    agent: Agent, env: VecEnv, number: int, mode: Mode, bonus: Any, longest: float
) -> tuple[Array, Array]:
    """Task returns (K,) of one episode in each of the first K environments, and which ended."""
    state = RunnerState.reset(env, bonus)
    returns = np.zeros(number)
    ended = np.zeros(number, bool)
    running = np.ones(number, bool)
    length = 0
    while running.any():
        row = env_step(env, agent, state, bonus, mode)
        returns[running] += row["reward"][:number].numpy()[running]
        ends = row["terminated"] | row["truncated"]
        ended |= running & ends[:number].numpy()
        length += 1
        running = ~ended & (length < longest)
    return returns, ended


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
