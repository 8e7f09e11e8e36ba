"""Evaluation: a fixed quota of episodes for each environment, with everything frozen."""

import numpy as np
import torch

from surprise_memory.agents.ppo import PPO
from surprise_memory.envs import VecEnv


def evaluate(agent: PPO, env: VecEnv, episodes: int, greedy: bool = False) -> list[float]:
    """Task returns of `episodes` whole episodes, unclipped.

    Every environment plays the same number (one more for the first few): taking the first that finish would favour short
    ones. The agent's random stream is put back, so that evaluating in the middle of a run leaves no mark on it.
    """
    stream = agent.generator.get_state()
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    finished: list[list[float]] = [[] for _ in quota]
    returns, obs = np.zeros(env.num_envs), env.reset()
    while any(len(done) < want for done, want in zip(finished, quota, strict=True)):
        action, _ = agent.act(torch.as_tensor(obs), greedy)
        step = env.step(action.numpy())
        returns += step.reward
        for b in np.flatnonzero(step.terminated | step.truncated):
            finished[b].append(float(returns[b]))
            returns[b] = 0.0
        obs = step.obs
    agent.generator.set_state(stream)
    return [value for done, want in zip(finished, quota, strict=True) for value in done[:want]]


def summary(returns: list[float]) -> dict[str, object]:
    """What eval.json holds."""
    return {
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "episodes": len(returns),
        "returns": [round(value, 6) for value in returns],
    }
