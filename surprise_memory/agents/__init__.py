"""Agents: who acts, and how it learns. A new one is one file and one row here."""

from collections.abc import Callable
from typing import Any, NamedTuple

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.agents.dqn import DQN
from surprise_memory.agents.dqn_config import DQNConfig
from surprise_memory.agents.ppo import PPO
from surprise_memory.agents.ppo_config import PPOConfig
from surprise_memory.agents.uniform import Uniform


class Entry(NamedTuple):
    """An agent in the table: `make(env, run, intrinsic)` builds it for a run's options."""

    make: Callable[[Any, Any, bool], Agent]
    about: str


def _ppo(env: Any, run: Any, intrinsic: bool) -> PPO:
    return PPO(env.obs_shape, env.action_space, run.ppo, intrinsic, run.seed, run.device)


def _dqn(env: Any, run: Any, intrinsic: bool) -> DQN:
    frame = env.newest_channels
    return DQN(env.obs_shape, env.action_space, env.num_envs, run.dqn, run.seed, frame, run.device)


def _uniform(env: Any, run: Any, intrinsic: bool) -> Uniform:
    return Uniform(env.action_space, run.seed)


AGENTS = {
    "ppo": Entry(_ppo, "two-headed PPO, on-policy"),
    "dqn": Entry(_dqn, "recurrent DQN, from replayed sequences"),
    "random": Entry(_uniform, "uniform actions, learns nothing"),
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
