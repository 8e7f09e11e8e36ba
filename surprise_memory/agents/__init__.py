"""Agents: who acts, and how it learns. A new one is one file and one row here."""

from collections.abc import Callable
from typing import Any, NamedTuple

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.agents.dqn import DQN, DQNConfig
from surprise_memory.agents.ppo import PPO, PPOConfig
from surprise_memory.agents.uniform import Uniform


class Entry(NamedTuple):
    """An agent in the table: `make(env, run, intrinsic)` builds it for a run's options."""

    make: Callable[[Any, Any, bool], Agent]
    about: str


def _dqn(env: Any, run: Any, intrinsic: bool) -> DQN:
    frame = env.newest_channels
    return DQN(env.obs_shape, env.action_space, env.num_envs, run.dqn, run.seed, frame)


AGENTS = {
    "ppo": Entry(
        lambda env, run, intrinsic: PPO(
            env.obs_shape, env.action_space, run.ppo, intrinsic, run.seed
        ),
        "two-headed PPO, on-policy",
    ),
    "dqn": Entry(_dqn, "recurrent DQN, from replayed sequences"),
    "random": Entry(
        lambda env, run, intrinsic: Uniform(env.action_space, run.seed),
        "uniform actions, learns nothing",
    ),
}

__all__ = [
    "AGENTS",
    "DQN",
    "PPO",
    "Agent",
    "DQNConfig",
    "Mode",
    "PPOConfig",
    "State",
    "Uniform",
]
