"""Environments by id: MiniGrid, BabyAI, Atari, MiniWorld, any Gymnasium id.

NoisyTV/ or NoisyView/ may go before any of them.

How to add a family:
1. Copy `toy.py`: a subclass of `VecEnv` with `reset` and `step`, and whatever else it can do.
2. Describe it at the end of the file: `FAMILY = Family(about=..., ids=..., owns=..., make=...)`.
3. Add one row to `FAMILIES` below, above Gymnasium, which is asked last.
4. From another package, call `register_family("name", FAMILY)` instead of step 3.
5. `make_vec`, `list_envs`, `family_of` and NoisyTV/ then work with it.
"""

from typing import Any

import numpy as np

from surprise_memory.envs import atari, gymnasium, minigrid, miniworld, toy
from surprise_memory.envs.base import Family, Step, VecEnv
from surprise_memory.envs.noisy_tv import NoisyTV, TVOptions
from surprise_memory.envs.noisy_view import NoisyView, ViewOptions
from surprise_memory.envs.tmaze import TMAZE
from surprise_memory.envs.toy import TOY
from surprise_memory.envs.wrapped import parse_options, split_id
from surprise_memory.errors import UserError, require, unknown
from surprise_memory.registry import register

LAST = "gymnasium"
FAMILIES: dict[str, Family] = {
    "toy": toy.FAMILY,
    "minigrid": minigrid.FAMILY,
    "atari": atari.FAMILY,
    "miniworld": miniworld.FAMILY,
    LAST: gymnasium.FAMILY,
}


# Go before an id, with options: NoisyTV:channels=8/<id>.
WRAPPERS: dict[str, Any] = {"NoisyTV": (NoisyTV, TVOptions), "NoisyView": (NoisyView, ViewOptions)}


def make_vec(
    env_id: str,
    num_envs: int,
    seed: int,
    threads: int = 1,
    render: bool = False,
    fixed_seed: int | None = None,
) -> VecEnv:
    """B environments of one id, each with its own seed.

    `fixed_seed` is where a run's lasting things come from, such as a TV's channels; `seed` if None.
    """
    env = _make_vec(env_id, num_envs, seed, threads, render)
    first_action = getattr(env.action_space, "start", 0)  # of MultiDiscrete an array
    if np.any(first_action):
        raise UserError(
            f"The actions of '{env_id}' are {env.action_space}: let its family count from 0 and "
            "add the start in `step`."
        )
    if fixed_seed is not None:
        env.keep_fixed(fixed_seed)
    return env


def _make_vec(env_id: str, num_envs: int, seed: int, threads: int, render: bool) -> VecEnv:
    require(num_envs >= 1, "envs", num_envs, "at least 1")
    wrapped = split_id(env_id, WRAPPERS)
    if wrapped is not None:
        wrapper, kind = WRAPPERS[wrapped.wrapper]
        options = parse_options(kind, wrapped.options, env_id)
        inner = _make_vec(wrapped.inner, num_envs, seed, threads, render)
        made: VecEnv = wrapper(inner, seed, options)
        return made
    for family in FAMILIES.values():
        missing = family.missing(env_id)
        if missing is not None:
            raise UserError(missing)
        if family.owns(env_id):
            return family.make(env_id, num_envs, seed, threads, render)
    sentence = unknown(env_id, list_envs(), "environment")
    raise UserError(
        f"{sentence} `surprise-memory envs` lists them all. One of your own is module:ID, where "
        "importing the module registers it."
    )


def list_envs() -> list[str]:
    """Every id that `make_vec` takes on this machine; NoisyTV/ goes before any of them."""
    found = []
    for family in FAMILIES.values():
        found.extend(family.ids())
    return list(dict.fromkeys(found))  # minigrid registers its ids with Gymnasium too


def family_of(env_id: str) -> str:
    """The name of the family that an id belongs to, installed here or not.

    An id that no family knows counts as Gymnasium's, where it may be registered later.

    >>> family_of("NoisyTV/ToyKeyDoor-v0")
    'toy'
    """
    wrapped = split_id(env_id, WRAPPERS)
    if wrapped is not None:
        return family_of(wrapped.inner)
    for name, family in FAMILIES.items():
        if family.owns(env_id) or family.missing(env_id) is not None:
            return name
    return LAST


def module_of(env_id: str) -> str | None:
    """The Python module that making an environment imports, None where it imports none.

    >>> module_of("NoisyTV:channels=8/my_package.tasks:Maze-v0")
    'my_package.tasks'
    """
    wrapped = split_id(env_id, WRAPPERS)
    if wrapped is not None:
        return module_of(wrapped.inner)
    module, colon, _ = env_id.partition(":")
    if colon:
        return module
    return None


def register_family(name: str, family: Family) -> None:
    """Add environments from another package. Families that come with this one are asked before it.

    >>> corridor = Family(
    ...     about="a corridor",
    ...     ids=lambda: ["Corridor-v0"],
    ...     owns=lambda env_id: env_id == "Corridor-v0",
    ...     make=lambda env_id, num_envs, seed, threads, render: toy.Toy(num_envs, seed),
    ... )
    >>> register_family("corridor", corridor)
    >>> make_vec("NoisyTV/Corridor-v0", num_envs=3, seed=0).reset().shape
    (3, 13)
    >>> del FAMILIES["corridor"]  # only so that this example leaves nothing behind
    """
    register(FAMILIES, name, family, "family of environments")
    FAMILIES[LAST] = FAMILIES.pop(LAST)  # it owns every id with a colon


__all__ = [
    "FAMILIES",
    "TMAZE",
    "TOY",
    "Family",
    "Step",
    "VecEnv",
    "family_of",
    "list_envs",
    "make_vec",
    "module_of",
    "register_family",
]
