"""One episode: the trained agent and bonus of a run, and an episode that they play."""

from typing import Any

import gymnasium as gym
import torch

from surprise_memory.agents import Agent
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import UserError
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
    env_id: str,
    agent: Agent | None,
    seed: int,
    longest: int = LONGEST,
    bonus: Any = None,
    fixed_seed: int | None = None,
) -> tuple[Chunk, list[Array]]:
    """Play one episode, with random actions if there is no agent; `fixed_seed` as in `make_vec`.

    Returns its chunk (T, 1, ...) and the frame that each step was taken in.
    """
    env = make_vec(env_id, 1, seed, render=True, fixed_seed=fixed_seed)
    env.action_space.seed(seed)
    actor = agent or RandomAgent(env)
    state = RunnerState.reset(env, bonus)
    chunks = []
    frames = []
    for _ in range(longest):
        frames.append(picture(env, env_id))
        chunk, ended = collect(env, actor, state, 1, bonus, mode="sample")
        chunks.append(chunk)
        if ended:
            break
    env.close()
    return join(chunks), frames


def picture(env: VecEnv, env_id: str) -> Array:
    """The first environment as an image (H, W, 3), or why there is none."""
    try:
        image = env.render()
    except (gym.error.Error, ImportError, NotImplementedError) as error:
        raise UserError(f"{env_id} cannot be drawn: {str(error).rstrip('.')}.") from error
    if image.ndim != 3:
        raise UserError(
            f"{env_id} cannot be drawn: its render() returns no image with "
            "render_mode='rgb_array'. `eval` works without."
        )
    return image


def same_world(configs: list[RunConfig]) -> str:
    """The environment that all runs were trained on; refuse runs on several."""
    worlds = sorted({config.env for config in configs})
    if len(worlds) > 1:
        raise UserError(f"The runs are on {' and '.join(worlds)}: name runs on one environment.")
    return worlds[0]


def check_fits(env_id: str, config: RunConfig) -> None:
    """Refuse to let a run's agent play an environment that it cannot see or act in."""
    if not fits(env_id, config):
        raise UserError(
            f"The run was trained on {config.env}, whose observations or actions are not those of "
            f"{env_id}: play {config.env}, or name another --run."
        )


def fits(env_id: str, config: RunConfig) -> bool:
    """Whether an environment has the observations and actions of the one a run was trained on."""
    if env_id == config.env:
        return True
    own = make_vec(config.env, 1, 0)
    other = make_vec(env_id, 1, 0)
    same = own.obs_shape == other.obs_shape and own.action_space == other.action_space
    own.close()
    other.close()
    return same


def join(chunks: list[Chunk]) -> Chunk:
    """Chunks that follow each other in time as one."""
    columns = {}
    for name in chunks[0].columns():
        columns[name] = torch.cat([chunk.columns()[name] for chunk in chunks])
    extras = {}
    for name in chunks[0].extras:
        extras[name] = torch.cat([chunk.extras[name] for chunk in chunks])
    return Chunk(**columns, extras=extras)
