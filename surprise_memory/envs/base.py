"""What the trainer needs from a vector of environments, and what describes a family of them.

`step` returns a `Step`. Its `next_obs` is the true successor of the observation that was acted on.
Its `obs` is what to act on next. The two differ only where an episode ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from surprise_memory.errors import UserError, need, require

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """One vector step; everything is (B, ...)."""

    next_obs: Array
    obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    info: Mapping[str, Array] = MappingProxyType({})  # what only some report: Montezuma's room


class Place(NamedTuple):
    """The cell that an agent is in, of a grid that `render` draws whole."""

    column: int
    row: int
    columns: int
    rows: int


class VecEnv:
    """B environments as the trainer sees them: vectors are float32 (k,), images are (C, H, W).

    A subclass sets the first three attributes and writes `reset` and `step`. All else has a default
    that says "it cannot do that": override what it can do.
    """

    num_envs: int
    obs_shape: tuple[int, ...]
    action_space: gym.Space[Any]
    """Discrete actions count from zero."""

    tv_action: int | None = None
    """The action that turns on a noisy TV."""
    noop: int | None = None
    """An action that `step` accepts and that moves nothing. It may lie outside the action space."""
    frame_channels: int | None = None
    """Channels of the newest frame in a stack of images. None: there is no stack."""
    action_names: tuple[str, ...] = ()
    """What each Discrete action is called; (): they have no names."""
    saves_state: bool = False
    """Whether `get_state` and `set_state` work."""
    in_processes: bool = False
    """Whether other processes step it. The CPU time of this process does not include them."""

    @property
    def newest_channels(self) -> int:
        """Channels of the newest frame: all of them where there is no stack."""
        if self.frame_channels is None:
            return self.obs_shape[0]
        return self.frame_channels

    def reset(self) -> Array:
        """Start an episode in all environments; returns (B, *obs_shape)."""
        raise NotImplementedError

    def step(self, action: Array) -> Step:
        """Act in all environments."""
        raise NotImplementedError

    def events(self, obs: Array) -> dict[str, Array]:
        """What observations (K, *obs_shape) show, by name, each (K,) bool; {}: it names nothing."""
        return {}

    def render(self) -> Array:
        """The first environment as an image (H, W, 3). It must be made with `render=True`."""
        raise UserError(f"{type(self).__name__} environments cannot be drawn: write `render`.")

    def place(self) -> Place | None:
        """Where the agent of the first environment is; None: it does not tell."""
        return None

    def keep_fixed(self, first_seed: int) -> None:
        """Draw what is fixed for a run, such as a TV's channels, from the seed that it began with.

        Environments that resume, evaluate or show a run are made with other seeds.
        """

    def share_layouts(self, seed: int) -> None:
        """Begin anew, with this seed in every environment: all draw the same layouts in turn."""
        raise UserError(
            f"{type(self).__name__} environments cannot share their layouts (same_layouts): "
            "MiniGrid's can. Write `share_layouts`, or leave the option out."
        )

    def limit_time(self, seconds: float) -> None:
        """Fail if a step takes longer; 0 is no limit.

        A library that steps all environments at once (EnvPool) cannot be interrupted.
        """

    def close(self) -> None:
        """Release threads and processes."""

    def get_state(self) -> dict[str, Any]:
        """Everything that the next steps depend on, as plain values."""
        raise NotImplementedError(f"{type(self).__name__} does not save its state")

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        raise NotImplementedError(f"{type(self).__name__} does not save its state")


def nothing_missing(env_id: str) -> str | None:
    """For families that need no other package."""
    return None


@dataclass(frozen=True, kw_only=True)
class Family:
    """A group of environments that are made in one way."""

    about: str
    """One line of help."""
    ids: Callable[[], list[str]]
    """Every id that can be made on this machine."""
    owns: Callable[[str], bool]
    """Whether an id goes to `make`, which refuses a misspelt one."""
    make: Callable[[str, int, int, int, bool], VecEnv]
    """(env_id, num_envs, seed, threads, render) -> B environments."""
    missing: Callable[[str], str | None] = nothing_missing
    """The sentence for an id of this family that needs something not installed here, or None."""


def envpool() -> Any:
    """The EnvPool module, which has MiniGrid and Atari, or how to get it."""
    return need("envpool", extra="minigrid,atari", package="EnvPool")


def envpool_seed(seed: int, num_envs: int) -> int:
    """A seed of 32 bits as the signed number that EnvPool takes; environment i has seed + i."""
    require(0 <= seed <= 2**32 - num_envs, "seed", seed, f"between 0 and 2^32 - {num_envs}")
    if seed >= 2**31:
        return seed - 2**32
    return seed


def missing_envpool() -> str | None:
    """How to install EnvPool where it is missing, else None."""
    try:
        envpool()
    except UserError as error:
        return str(error)
    return None
