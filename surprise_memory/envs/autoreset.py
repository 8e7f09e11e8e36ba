"""Gymnasium's three ways of resetting ended environments, made one.

Only this file knows the modes of `metadata["autoreset_mode"]`:

NEXT_STEP  the step after an end ignores its action and returns the reset frame: it is not `valid`
SAME_STEP  the end already returns the reset frame; the true successor is in `info["final_obs"]`
DISABLED   we reset the ended environments ourselves
"""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from surprise_memory.envs.base import Array, Step
from surprise_memory.errors import UserError
from surprise_memory.observations import Prepare, stack


class AutoresetAdapter:
    """Turns the steps of a Gymnasium vector environment of any autoreset mode into `Step`s."""

    def __init__(self, env: Any, prepare: Prepare) -> None:
        """`prepare` maps a batch of its observations to an array (B, ...)."""
        self.env = env
        self.prepare = prepare
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.mode = AutoresetMode(mode)
        self.ended: Array = np.zeros(env.num_envs, dtype=bool)
        self.info: dict[str, Any] = {}  # of the last reset or step

    def reset(self, seed: int | None) -> Array:
        """Start all episodes."""
        self.ended[:] = False
        if seed is None:
            obs, self.info = self.env.reset()
        else:
            obs, self.info = self.env.reset(seed=seed)
        return np.asarray(self.prepare(obs))

    def step(self, action: Array) -> Step:
        """One step of the environment, in our convention."""
        raw, reward, terminated, truncated, self.info = self.env.step(action)
        obs = self.prepare(raw)
        next_obs = obs
        valid = np.ones(len(obs), dtype=bool)
        if self.mode == AutoresetMode.NEXT_STEP:
            # A row that never happened has no reward and cannot end an episode.
            valid = ~self.ended
            reward = reward * valid
            terminated = terminated & valid
            truncated = truncated & valid
        done = terminated | truncated
        if done.any() and self.mode == AutoresetMode.SAME_STEP:
            next_obs = self._put_final_obs(obs, done)
        elif done.any() and self.mode == AutoresetMode.DISABLED:
            raw, _ = self.env.reset(options={"reset_mask": done})
            obs = self.prepare(raw)
        self.ended = done
        return Step(
            next_obs=next_obs,
            obs=obs,
            reward=np.asarray(reward, np.float32),
            terminated=terminated,
            truncated=truncated,
            valid=valid,
        )

    def _put_final_obs(self, obs: Array, done: Array) -> Array:
        """A copy of `obs` that has the true successor where an episode ended."""
        if "final_obs" not in self.info:
            raise UserError(
                "This SAME_STEP vector environment ends episodes without info['final_obs']: "
                "use NEXT_STEP."
            )
        finals = [self.info["final_obs"][i] for i in np.flatnonzero(done)]
        next_obs = obs.copy()
        next_obs[done] = self.prepare(stack(finals))
        return next_obs
