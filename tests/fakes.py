"""Small environments and agents whose truth is known."""

import os
import time

import gymnasium as gym
import numpy as np
import torch

from surprise_memory.agents.base import Agent


class Counter(gym.Env):
    """Counts its steps; action 1 counts double. Ends at 7, or is truncated after 5 steps."""

    observation_space = gym.spaces.Box(-100, 100, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, broken_at=None):
        self.broken_at, self.episode, self.total = broken_at, 0, 0

    def see(self):
        value = np.nan if self.total == self.broken_at else self.count
        return np.array([value, self.age, self.episode % 3], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.age, self.episode = 0, 0, self.episode + 1
        return self.see(), {}

    def step(self, action):
        self.count += 1 + int(action)
        self.age += 1
        self.total += 1
        return self.see(), float(self.count), self.count >= 7, self.age >= 5 and self.count < 7, {}


class Picture(Counter):
    """The same, seen as an RGB image with the channels last."""

    observation_space = gym.spaces.Box(0, 255, (40, 36, 3), np.uint8)

    def see(self):
        image = np.zeros((40, 36, 3), np.uint8)
        image[4 * self.count : 4 * self.count + 4, :, self.episode % 3] = 255
        return image


class InPlace(Counter):
    """The same, written into one array that every observation is."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(3, np.float32)

    def see(self):
        self.array[:] = super().see()
        return self.array


class Wide(Counter):
    """The same in float64."""

    observation_space = gym.spaces.Box(-100, 100, (3,), np.float64)

    def see(self):
        return super().see().astype(np.float64)


gym.register("InPlace-v0", InPlace, disable_env_checker=True)
gym.register("Picture-v0", Picture, disable_env_checker=True)
gym.register("Counter-v0", Counter, order_enforce=False, disable_env_checker=True)


class ByEye(Agent):
    """Acts on what it sees alone: the same trajectory, whichever way it is delivered."""

    def act(self, obs, first, state, mode):
        return (obs[:, 2] > 0).long(), {}, state


def chunk_of(next_obs, first=None, valid=None, done=None):
    """A chunk (T, B) around given successors."""
    from surprise_memory import Chunk

    T, B = next_obs.shape[:2]
    no = torch.zeros(T, B, dtype=torch.bool)
    columns = {"obs": next_obs, "action": no.long(), "reward": no.float(), "next_obs": next_obs}
    done, first, valid = (
        default if x is None else x for x, default in ((done, no), (first, no), (valid, ~no))
    )
    return Chunk(**columns, terminated=done, truncated=no, first=first, valid=valid, extras={})


class Fragile(Picture):
    """A picture that ends its whole process, raises, or hangs, at a certain step.

    Where it has died, it dies in as many resets as the file `deaths` says.
    """

    def __init__(self, die_at=None, raise_at=None, hang_at=None, deaths=None):
        super().__init__()
        self.die_at, self.raise_at, self.hang_at = die_at, raise_at, hang_at
        self.deaths = deaths

    def reset(self, **words):
        if self.deaths is not None and (left := int(self.deaths.read_text())):
            self.deaths.write_text(str(left - 1))
            os._exit(9)
        return super().reset(**words)

    def step(self, action):
        if self.total + 1 == self.hang_at:
            time.sleep(3600)
        if self.total + 1 == self.die_at:
            os._exit(9)
        if self.total + 1 == self.raise_at:
            raise RuntimeError("the wheel came off")
        return super().step(action)


def make_fragile(**options):
    """For worker processes, which import it by name."""
    return Fragile(**options)
