"""Any Gymnasium id, through Gymnasium's own vector API."""

import copy
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from surprise_memory.envs.autoreset import AutoresetAdapter
from surprise_memory.envs.base import Array, Family, Step, VecEnv
from surprise_memory.envs.time_limit import time_limit
from surprise_memory.errors import UserError
from surprise_memory.observations import to_arrays


def ids() -> list[str]:
    """Every id that Gymnasium knows here."""
    return list(gym.registry)


def owns(env_id: str) -> bool:
    """A registered id, or "module:id", whose module registers it."""
    return env_id in ids() or ":" in env_id


def make(env_id: str, num_envs: int, seed: int, threads: int, render: bool) -> VecEnv:
    """B copies in one thread."""
    return Gymnasium(env_id, num_envs, seed, render)


class LastObservation(gym.Wrapper[Any, Any, Any, Any]):
    """Copies the last observation of an episode.

    An environment may write each observation into the same array. Gymnasium resets it before the
    last one is read, which would then be the first of the next episode.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, info


class Gymnasium(VecEnv):
    """B copies of a Gymnasium environment, stepped in this process.

    Box actions are clipped to their bounds.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        render: bool = False,
        mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        options: dict[str, Any] = {"vector_kwargs": {"autoreset_mode": mode}}
        if render:
            options["render_mode"] = "rgb_array"
        try:
            self.env: Any = gym.make_vec(
                env_id,
                num_envs,
                vectorization_mode="sync",
                wrappers=[LastObservation],
                **options,
            )
        except Exception as error:  # its constructor may raise anything
            reason = str(error).rstrip(".") or type(error).__name__
            sentence = f"Gymnasium cannot make '{env_id}': {reason}."
            if render and "render_mode" in reason:
                sentence = f"{env_id} cannot be drawn: it takes no render_mode."
            module = env_id.partition(":")[0]
            cause = error.__cause__  # Gymnasium's own error has no name of it
            if isinstance(cause, ModuleNotFoundError) and module.startswith(cause.name or ":"):
                sentence = (
                    f"There is no Python module '{module}' for '{env_id}': install it, or put its "
                    "folder on PYTHONPATH, such as PYTHONPATH=. for the current one."
                )
            raise UserError(sentence) from error
        self.num_envs = num_envs
        self.seed: int | None = seed  # None once the copies have it
        self.name = env_id
        self.step_seconds = 0.0
        self.action_space = self.env.single_action_space
        self.start = 0
        if isinstance(self.action_space, gym.spaces.Discrete):  # agents count from zero
            self.start = int(self.action_space.start)
            self.action_space = gym.spaces.Discrete(int(self.action_space.n))
        self.obs_shape, prepare = to_arrays(self.env.single_observation_space)
        if len(self.obs_shape) == 3:
            self.frame_channels = self.obs_shape[0]  # the newest frame is the whole image
        self.adapter = AutoresetAdapter(self.env, prepare)

    def reset(self) -> Array:
        """Start all episodes. At first environment i takes seed + i, later resets go on from it."""
        seed, self.seed = self.seed, None
        with time_limit(self.step_seconds, self.name):
            return self.adapter.reset(seed)

    def step(self, action: Array) -> Step:
        """Act in all environments."""
        if isinstance(self.action_space, gym.spaces.Box):
            action = np.clip(action, self.action_space.low, self.action_space.high)
        if self.start:
            action = action + self.start
        with time_limit(self.step_seconds, self.name):
            return self.adapter.step(action)

    def limit_time(self, seconds: float) -> None:
        """Fail if a step takes longer."""
        self.step_seconds = seconds

    def render(self) -> Array:
        """The first environment, drawn (H, W, 3)."""
        return np.asarray(self.env.render()[0])

    def close(self) -> None:
        """Close every copy. One that cannot be closed is no reason to lose what was done."""
        try:
            self.env.close()
        except Exception as error:
            reason = str(error).rstrip(".") or type(error).__name__
            warnings.warn(f"{self.name} could not be closed: {reason}.", stacklevel=2)


FAMILY = Family(about="any id that Gymnasium knows", ids=ids, owns=owns, make=make)
