"""Environments by the ids people know: MiniGrid, BabyAI, Atari, MiniWorld, any Gymnasium id, and NoisyTV/ before any of them."""

import os

from surprise_memory.envs import atari, gymnasium, minigrid, miniworld
from surprise_memory.envs.base import Step, VecEnv, envpool
from surprise_memory.envs.noisy_tv import PREFIX, NoisyTV
from surprise_memory.envs.tmaze import TMaze
from surprise_memory.envs.toy import Toy
from surprise_memory.errors import UserError, require, unknown

TOY, TMAZE = "ToyKeyDoor-v0", "ToyTMaze-v0"


def make_vec(
    env_id: str, num_envs: int, seed: int, threads: int = 1, render: bool = False
) -> VecEnv:
    """B environments of one id, each with a seed of its own."""
    require(num_envs >= 1, "envs", num_envs, "at least 1")
    if env_id.startswith(PREFIX):
        return NoisyTV(make_vec(env_id.removeprefix(PREFIX), num_envs, seed, threads, render), seed)
    if env_id == TOY:
        return Toy(num_envs, seed)
    if env_id == TMAZE:
        return TMaze(num_envs, seed)
    if env_id in minigrid.ids():
        return minigrid.MiniGrid(env_id, num_envs, seed, threads, render)
    if env_id in atari.ids():
        return atari.Atari(env_id, num_envs, seed, threads, render)
    if env_id.startswith(miniworld.PREFIX):
        return miniworld.MiniWorld(
            env_id, num_envs, seed, min(threads_of_machine(), num_envs), render
        )
    if env_id.startswith(("MiniGrid-", "BabyAI-")) or env_id in atari.PAPER:
        envpool()  # says how to install it where it is missing
    if env_id in atari.PAPER:
        raise UserError(
            f"EnvPool has no ROM of {env_id}: pip install --force-reinstall 'surprise-memory[atari]' brings it."
        )
    if env_id in gymnasium.ids() or ":" in env_id:
        return gymnasium.Gymnasium(env_id, num_envs, seed, render)
    raise UserError(
        unknown(env_id, list_envs(), "environment") + " `surprise-memory envs` lists them all."
    )


def list_envs() -> list[str]:
    """Every id that `make_vec` takes on this machine."""
    return [TOY, TMAZE, *minigrid.ids(), *atari.ids(), *miniworld.ids(), *gymnasium.ids()]


def threads_of_machine() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


__all__ = ["TMAZE", "TOY", "Step", "VecEnv", "list_envs", "make_vec"]


def family_of(env_id: str) -> str:
    """TEMPORARY until the families' registry lands."""
    game = env_id.removeprefix(PREFIX)
    return (
        "atari"
        if game in atari.ids()
        else "miniworld"
        if game.startswith(miniworld.PREFIX)
        else "gymnasium"
    )
