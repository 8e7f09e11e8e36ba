"""The door between an environment and everything else: what it returns is checked here, once."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.envs import Step, VecEnv
from surprise_memory.envs.base import Array
from surprise_memory.errors import UserError

PLAIN = (np.uint8, np.float32)  # what observations are kept as


def reset(env: VecEnv) -> Array:
    """Start all episodes; observations (B, *obs_shape)."""
    return observations(env, call(env.reset), "reset")


def step(env: VecEnv, action: Array) -> Step:
    """Act in all environments. Flags are bool, rewards float32, observations bytes or float32."""
    found = call(env.step, action)
    if not isinstance(found, Step):
        kind = type(found).__name__
        raise UserError(f"The environment's step returned a {kind}: it must be an `envs.Step`.")
    B = env.num_envs
    return found._replace(
        next_obs=observations(env, found.next_obs, "step (next_obs)"),
        obs=observations(env, found.obs, "step (obs)"),
        reward=column(found.reward, B, np.float32, "reward"),
        terminated=column(found.terminated, B, np.bool_, "terminated"),
        truncated=column(found.truncated, B, np.bool_, "truncated"),
        valid=column(found.valid, B, np.bool_, "valid"),
    )


def call(function: Callable[..., Any], *args: Any) -> Any:
    """What an environment returns, or one sentence about what it raises."""
    try:
        return function(*args)
    except UserError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        reason = " ".join(str(error).split()) or "no message"
        raise UserError(
            f"The environment failed in {function.__name__}: {type(error).__name__}: {reason} "
            f"({place})."
        ) from error


def observations(env: VecEnv, obs: Any, where: str) -> Array:
    """Observations as an array (B, *obs_shape) of bytes or float32."""
    return column(obs, env.num_envs, None, where, env.obs_shape)


def column(x: Any, B: int, dtype: Any, name: str, shape: tuple[int, ...] = ()) -> Array:
    """Values of B environments, in the dtype; without one, bytes stay and numbers are float32."""
    try:
        array = np.asarray(x)
        if dtype is None and array.dtype in PLAIN:
            dtype = array.dtype
        array = array.astype(dtype or np.float32, copy=False)
    except (ValueError, TypeError) as error:
        raise UserError(f"The environment's {name} is not made of numbers: {error}.") from error
    if array.shape != (B, *shape):
        raise UserError(
            f"The environment's {name} has the shape {array.shape}, not {(B, *shape)}: "
            "fix it there."
        )
    return array
