"""Gymnasium environments that misbehave, each in one way; also for worker processes.

A worker's environment shows images and has Discrete actions. `bad_envs` is imported by name there.
"""

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np

WIDTH = 4
SIDE = 12
LENGTH = 9  # steps of an episode that ends
TROUBLE = 40  # the step of an environment at which it misbehaves: after the warm-up of 16
NAN, INF = float("nan"), float("inf")

# What a training run should do: refuse with a sentence, or go on.
KINDS = {
    "raises in reset": "refuse",
    "raises in step": "refuse",
    "raises in its constructor": "refuse",
    "raises a strange exception": "refuse",
    "exits in step": "refuse",
    "hangs in step": "refuse",
    "hangs in reset": "refuse",
    "NaN in obs": "refuse",
    "inf in obs": "refuse",
    "NaN in the first obs": "refuse",
    "NaN as reward": "refuse",
    "inf as reward": "refuse",
    "-inf as reward": "refuse",
    "None as reward": "refuse",
    "text as reward": "refuse",
    "an array as reward": "refuse",
    "obs of another shape": "refuse",
    "obs of another shape in reset": "refuse",
    "obs of more axes": "refuse",
    "None as obs": "refuse",
    "text as obs": "refuse",
    "four values from step": "refuse",
    "one value from reset": "refuse",
    "None from step": "refuse",
    "float64 obs": "go on",
    "integer obs": "go on",
    "bool obs": "go on",
    "list as obs": "go on",
    "never ends": "go on",
    "ends at once": "go on",
    "terminated and truncated": "go on",
    "None as info": "any",
    "numbers as flags": "go on",
    "numpy flags": "go on",
    "NaN as flag": "any",
    "reward of 1e30": "any",
    "reward of 1e300": "refuse",
    "reward of -1e6": "go on",
    "obs of 1e30": "any",
    "obs outside of its space": "go on",
    "prints a lot": "go on",
    "warns at every step": "go on",
    "changes its observation in place": "go on",
    "ignores the seed": "go on",
    "raises in close": "any",
    "ends itself with SystemExit": "refuse",
    "raises KeyboardInterrupt": "any",
}
# They end the process they are in: only a worker can be replaced.
DEADLY = ("exits in step", "raises a strange exception", "ends itself with SystemExit")
# They cost their whole time limit where nothing stops them.
SLOW = ("hangs in step", "hangs in reset", "never ends")


class Strange(BaseException):
    """Not even an Exception."""


class Bad(gym.Env):
    """Random vectors or images; it misbehaves at one step, or always."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, kind: str, image: bool = False, **options: Any) -> None:
        if kind == "raises in its constructor":
            raise RuntimeError("no wheels")
        self.kind = kind
        self.observation_space = gym.spaces.Box(-9, 9, (WIDTH,), np.float32)
        if image:
            self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        self.image = image
        self.total = 0
        self.kept: Any = None

    def see(self) -> Any:
        """A good observation."""
        if self.image:
            return self.np_random.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        return self.np_random.normal(size=WIDTH).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=None if self.kind == "ignores the seed" else seed)
        self.age = 0
        late = self.total >= TROUBLE
        if late and self.kind == "raises in reset":
            raise RuntimeError("the wheel came off")
        if late and self.kind == "hangs in reset":
            time.sleep(10_000)
        obs = self.see()
        if late and self.kind == "obs of another shape in reset":
            obs = obs[:-1]
        if self.kind == "NaN in the first obs":
            obs = obs * NAN
        if self.kind == "one value from reset":
            return obs
        return self.odd_obs(obs), {}

    def step(self, action: Any) -> Any:
        self.age += 1
        self.total += 1
        late = self.total >= TROUBLE
        if late:
            self.fail()
        obs = self.odd_obs(self.see())
        terminated, truncated = self.flags()
        reward = self.reward(late)
        info: Any = None if self.kind == "None as info" else {}
        if late and self.kind == "four values from step":
            return obs, reward, terminated, info
        if late and self.kind == "None from step":
            return None
        return obs, reward, terminated, truncated, info

    def fail(self) -> None:
        """Whatever ends or stops a process."""
        if self.kind == "raises in step":
            raise RuntimeError("the wheel came off")
        if self.kind == "raises a strange exception":
            raise Strange
        if self.kind == "exits in step":
            os._exit(9)
        if self.kind == "ends itself with SystemExit":
            raise SystemExit(0)
        if self.kind == "raises KeyboardInterrupt":
            raise KeyboardInterrupt
        if self.kind == "hangs in step":
            time.sleep(10_000)

    def odd_obs(self, obs: Any) -> Any:
        """An observation of another kind, always or from one step on."""
        if self.kind == "prints a lot":
            print("tick " * 100)
        if self.kind == "warns at every step":
            gym.logger.warn(f"tick {self.total}")
        always = {
            "float64 obs": lambda: obs.astype(np.float64),
            "integer obs": lambda: obs.astype(np.int64),
            "bool obs": lambda: obs > 0,
            "list as obs": obs.tolist,
            "obs outside of its space": lambda: obs + 100,
        }
        late = {
            "NaN in obs": lambda: one(obs, NAN),
            "inf in obs": lambda: one(obs, INF),
            "obs of 1e30": lambda: one(obs, 1e30),
            "obs of another shape": lambda: obs[:-1],
            "obs of more axes": lambda: obs[None],
            "None as obs": lambda: None,
            "text as obs": lambda: "x",
        }
        if self.kind in always:
            return always[self.kind]()
        if self.kind in late and self.total >= TROUBLE:
            return late[self.kind]()
        if self.kind == "changes its observation in place":
            if self.kept is None:
                self.kept = obs
            self.kept[:] = obs
            return self.kept
        return obs

    def flags(self) -> tuple[Any, Any]:
        """(terminated, truncated)."""
        ends: Any = self.age >= LENGTH
        if self.kind == "never ends":
            return False, False
        if self.kind == "ends at once":
            return True, False
        if self.kind == "terminated and truncated":
            return ends, ends
        if self.kind == "numbers as flags":
            return int(ends), 0
        if self.kind == "numpy flags":
            return np.bool_(ends), np.bool_(False)
        if self.kind == "NaN as flag" and self.total >= TROUBLE:
            return NAN, False
        return ends, False

    def reward(self, late: bool) -> Any:
        """A reward, bad from one step on."""
        bad = {
            "NaN as reward": NAN,
            "inf as reward": INF,
            "-inf as reward": -INF,
            "None as reward": None,
            "text as reward": "x",
            "an array as reward": np.ones(3),
            "reward of 1e30": 1e30,
            "reward of 1e300": 1e300,
            "reward of -1e6": -1e6,
        }
        return bad.get(self.kind, 1.0) if late else 1.0

    def close(self) -> None:
        if self.kind == "raises in close":
            raise RuntimeError("no way out")


def one(obs: Any, value: float) -> Any:
    """One bad number; an image of bytes cannot hold it."""
    if obs.dtype != np.uint8:
        obs[1] = value
    return obs


def make_in_worker(kind: str) -> gym.Env:
    """For worker processes, which import it by name."""
    return Bad(kind, image=True)


def env_id(kind: str) -> str:
    """'NaN in obs' -> 'Bad_NaN_in_obs-v0'."""
    letters = "".join(c if c.isalnum() else "_" for c in kind)
    return f"Bad_{letters}-v0"


def register() -> None:
    """Make every kind known to Gymnasium in this process."""
    for kind in KINDS:
        if env_id(kind) not in gym.registry:
            gym.register(
                env_id(kind),
                lambda kind=kind, **options: Bad(kind, **options),
                disable_env_checker=True,
                order_enforce=False,
            )
