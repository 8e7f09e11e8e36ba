"""One episode: the trained agent and bonus of a run, and an episode that they play."""

from typing import Any

import torch

from surprise_memory.agents import Agent
from surprise_memory.envs import make_vec
from surprise_memory.tools.stats import Array
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import Chunk

LONGEST = 400  # steps of an episode that are played


def trained(config: RunConfig, out: RunDir, seed: int) -> tuple[Agent, Any]:
    """A run's agent and bonus from its checkpoint; the bonus is None if the run has none."""
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    agent.rng.manual_seed(seed)
    return agent, bonus


def play(
    env_id: str, agent: Agent | None, seed: int, longest: int = LONGEST, bonus: Any = None
) -> tuple[Chunk, list[Array]]:
    """Play one episode, with random actions if there is no agent.

    Returns its chunk (T, 1, ...) and the frame that each step was taken in.
    """
    env = make_vec(env_id, 1, seed, render=True)
    env.action_space.seed(seed)
    actor = agent or RandomAgent(env)
    state = RunnerState.reset(env, bonus)
    chunks = []
    frames = []
    for _ in range(longest):
        frames.append(env.render())
        chunk, ended = collect(env, actor, state, 1, bonus, mode="sample")
        chunks.append(chunk)
        if ended:
            break
    env.close()
    return join(chunks), frames


def join(chunks: list[Chunk]) -> Chunk:
    """Chunks that follow each other in time as one, without their extras."""
    columns = {}
    for name in chunks[0].columns():
        columns[name] = torch.cat([chunk.columns()[name] for chunk in chunks])
    return Chunk(**columns, extras={})
