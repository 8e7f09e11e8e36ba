"""What runs inside a worker process, and the memory it shares with the process that started it."""

import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array

Make = Callable[..., gym.Env[Any, Any]]


class SharedArrays:
    """Arrays in shared memory, one row for each environment."""

    def __init__(self, context: Any, num_envs: int, obs_shape: tuple[int, ...]) -> None:
        self.num_envs = num_envs
        self.columns: dict[str, tuple[tuple[int, ...], Any]] = {
            "obs": (obs_shape, np.uint8),
            "final": (obs_shape, np.uint8),
            "action": ((), np.int64),
            "reward": ((), np.float32),
            "terminated": ((), np.uint8),
            "truncated": ((), np.uint8),
        }
        self.memory = {}
        for name, (shape, dtype) in self.columns.items():
            size = num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.memory[name] = context.RawArray("B", size)
        self._map()

    def _map(self) -> None:
        """Lay the arrays over the memory."""
        self.obs = self._array("obs")
        self.final = self._array("final")
        self.action = self._array("action")
        self.reward = self._array("reward")
        self.terminated = self._array("terminated")
        self.truncated = self._array("truncated")

    def _array(self, name: str) -> Array:
        shape, dtype = self.columns[name]
        return np.frombuffer(self.memory[name], dtype).reshape(self.num_envs, *shape)

    def __getstate__(self) -> dict[str, Any]:
        # Pickled arrays would be copies: a worker gets the memory and maps it again.
        return {"num_envs": self.num_envs, "columns": self.columns, "memory": self.memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


def work(
    pipe: Any,
    make: Make,
    options: dict[str, Any],
    shared: SharedArrays,
    rows: range,
    seed: int,
    stack: int,
) -> None:
    """Hold the environments of some rows and follow commands until the pipe closes."""
    os.setsid()  # a signal for the whole group is for the run alone, which saves and then ends us
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        envs = [make(**options) for _ in rows]
        space = envs[0].action_space
        assert isinstance(space, gym.spaces.Discrete), f"its actions are {space}, not Discrete"
        pipe.send(("ok", gym.spaces.Discrete(int(space.n))))
        seeded = False
        while (command := pipe.recv()) != "close":
            answer = None
            for env, i in zip(envs, rows, strict=True):
                if command == "reset":
                    reset_one(env, i, shared, stack, None if seeded else seed + i)
                elif command == "step":
                    step_one(env, i, shared, stack)
            if command == "reset":
                seeded = True
            if command == "render":
                answer = envs[0].render()
            pipe.send(("ok", answer))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error) or 'no message'}"))


def reset_one(
    env: gym.Env[Any, Any], i: int, shared: SharedArrays, stack: int, seed: int | None = None
) -> None:
    """Start an episode of environment i: its first frame fills the stack."""
    frame, _ = env.reset(seed=seed)
    shared.obs[i] = np.tile(channels_first(frame), (stack, 1, 1))


def step_one(env: gym.Env[Any, Any], i: int, shared: SharedArrays, stack: int) -> None:
    """One step of environment i, and its next episode where this one ended."""
    frame, reward, terminated, truncated, _ = env.step(int(shared.action[i]))
    frame = channels_first(frame)
    obs = shared.obs[i]
    obs[: -len(frame)] = obs[len(frame) :].copy()
    obs[-len(frame) :] = frame
    shared.reward[i] = reward
    shared.terminated[i] = terminated
    shared.truncated[i] = truncated and not terminated
    if terminated or truncated:
        shared.final[i] = obs
        reset_one(env, i, shared, stack)


def channels_first(frame: Array) -> Array:
    """(H, W, C) to (C, H, W)."""
    return np.moveaxis(np.asarray(frame), -1, 0)
