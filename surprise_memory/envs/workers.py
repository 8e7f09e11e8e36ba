"""Slow Python environments in a few processes, each holding many, that write into shared memory.

A worker that dies is noticed, named and started again; the episodes it held count as truncated. An exception of an
environment ends the run with a sentence.
"""

import contextlib
import multiprocessing as mp
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Step
from surprise_memory.errors import UserError

PATIENCE = 5  # deaths in a row before we give up
Make = Callable[..., gym.Env[Any, Any]]


class Workers:
    """B environments with RGB images and Discrete actions, `stack` frames to an observation, newest last."""

    def __init__(
        self,
        make: Make,
        options: dict[str, Any],
        frame: tuple[int, int, int],
        num_envs: int,
        seed: int,
        workers: int,
        stack: int = 4,
    ) -> None:
        """`make(**options)` builds one, whose images are `frame` (H, W, C), in a worker; number i is reset with seed + i."""
        self.num_envs, self.seed, self.stack = num_envs, seed, stack
        self.context = mp.get_context(
            "spawn"
        )  # a forked GL context or thread pool would not survive
        self.job = (make, options)
        height, width, self.frame_channels = frame
        self.obs_shape: tuple[int, ...] = (self.frame_channels * stack, height, width)
        self.board = Board(self.context, num_envs, self.obs_shape)
        self.shown: Array = (
            self.board.obs.copy()
        )  # what was last acted on, whole even where a worker dies while writing
        bounds = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self.spans = [range(a, b) for a, b in pairwise(bounds.tolist())]
        self.deaths = [0] * len(self.spans)
        self.staff = [self._spawn(k) for k in range(len(self.spans))]
        for k in range(len(self.staff)):
            self.action_space: gym.Space[Any] = self._wait_ready(k)

    def _wait_ready(self, k: int) -> Any:
        """Wait until worker k has made its environments; returns their actions."""
        process, pipe = self.staff[k]
        try:
            return self._answer(pipe.recv(), "while it was made")
        except EOFError:
            process.join()
            raise UserError(
                f"An environment failed while it was made: exit code {process.exitcode}"
            ) from None

    def _spawn(self, k: int) -> tuple[Any, Any]:
        there, here = self.context.Pipe()
        seed = (
            self.seed + 7_919 * self.num_envs * self.deaths[k]
        )  # a worker that returns does not repeat its episodes
        args = (there, *self.job, self.board, self.spans[k], seed, self.stack)
        process = self.context.Process(
            target=work, args=args, daemon=True, name=f"environments {span_of(self.spans[k])}"
        )
        process.start()
        there.close()
        return process, here

    def _answer(self, message: tuple[str, Any], where: str) -> Any:
        kind, content = message
        if kind == "error":
            raise UserError(f"An environment failed {where}: {content}")
        return content

    def _recv(self, k: int) -> Any:
        """What worker k answers; EOFError when it is dead."""
        return self._answer(self.staff[k][1].recv(), f"in worker {k} ({self.staff[k][0].name})")

    def _all(self, command: str) -> list[int]:
        """Send a command to every worker and wait; returns the workers that died over it."""
        dead = []
        for k, (_, pipe) in enumerate(self.staff):
            try:
                pipe.send(command)
            except (BrokenPipeError, ConnectionResetError):
                dead.append(k)
        for k in range(len(self.staff)):
            try:
                if k not in dead:
                    self._recv(k)
                    self.deaths[k] = self.deaths[k] if command == "reset" else 0
            except (EOFError, ConnectionResetError):
                dead.append(k)
        return dead

    def reset(self) -> Array:
        """Start all episodes."""
        for k in self._all("reset"):
            self._replace(k)
        self.shown = self.board.obs.copy()
        return self.shown

    def step(self, action: Array) -> Step:
        """Act in all environments; an ended one begins again at once."""
        self.board.action[:] = action
        dead = self._all("step")
        board = self.board
        done = (board.terminated | board.truncated).astype(bool)
        next_obs = board.obs.copy()
        next_obs[done] = board.final[done]
        reward, terminated, truncated = (
            board.reward.copy(),
            board.terminated.astype(bool),
            board.truncated.astype(bool),
        )
        for k in dead:  # nobody knows what followed: the episode stops where it stood
            rows = self.spans[k]
            next_obs[rows], reward[rows], terminated[rows], truncated[rows] = (
                self.shown[rows],
                0.0,
                False,
                True,
            )
            self._replace(k)
        self.shown = board.obs.copy()
        return Step(
            next_obs, self.shown, reward, terminated, truncated, np.ones(self.num_envs, bool)
        )

    def _replace(self, k: int) -> None:
        """Bury worker k and start another in its place."""
        process, pipe = self.staff[k]
        process.join(timeout=5)
        pipe.close()
        self.deaths[k] += 1
        if self.deaths[k] > PATIENCE:
            raise UserError(
                f"Worker {k} ({process.name}) died {PATIENCE} times in a row, last with exit code {process.exitcode}."
            )
        text = f"Worker {k} ({process.name}) died with exit code {process.exitcode}; it was restarted, its episodes are truncated."
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        self.staff[k] = self._spawn(k)
        self._wait_ready(k)
        self.staff[k][1].send("reset")
        self._recv(k)

    def render(self) -> Array:
        """The first environment, drawn (H, W, 3)."""
        self.staff[0][1].send("render")
        return np.asarray(self._recv(0))

    def close(self) -> None:
        """Let the workers go."""
        for process, pipe in self.staff:
            with contextlib.suppress(OSError):
                pipe.send("close")
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
            pipe.close()


class Board:
    """The shared memory: one row for each environment."""

    def __init__(self, context: Any, num_envs: int, shape: tuple[int, ...]) -> None:
        kinds: dict[str, tuple[tuple[int, ...], Any]] = {
            "obs": (shape, np.uint8),
            "final": (shape, np.uint8),
            "action": ((), np.int64),
            "reward": ((), np.float32),
            "terminated": ((), np.uint8),
            "truncated": ((), np.uint8),
        }
        self.num_envs, self.kinds = num_envs, kinds
        sizes = {
            name: num_envs * int(np.prod(row)) * np.dtype(kind).itemsize
            for name, (row, kind) in kinds.items()
        }
        self.memory = {name: context.RawArray("B", size) for name, size in sizes.items()}

    def __getattr__(self, name: str) -> Array:
        """The columns as arrays on the shared memory."""
        if name not in self.__dict__.get("kinds", {}):
            raise AttributeError(name)
        row, kind = self.kinds[name]
        array: Array = np.frombuffer(self.memory[name], kind).reshape(self.num_envs, *row)
        self.__dict__[name] = array
        return array

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("num_envs", "kinds", "memory")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def span_of(rows: range) -> str:
    """'8 to 15'."""
    return f"{rows[0]} to {rows[-1]}"


# --- inside a worker --------------------------------------------------------------------------------------------------


def work(
    pipe: Any, make: Make, options: dict[str, Any], board: Board, rows: range, seed: int, stack: int
) -> None:
    """Hold the environments of some rows and do as told until the pipe closes."""
    try:
        envs, fresh = [make(**options) for _ in rows], True
        space = envs[0].action_space
        assert isinstance(space, gym.spaces.Discrete), f"its actions are {space}, not Discrete"
        pipe.send(("ok", gym.spaces.Discrete(int(space.n))))
        while (command := pipe.recv()) != "close":
            if command == "reset":
                for env, i in zip(envs, rows, strict=True):
                    board.obs[i] = np.tile(
                        channels_first(env.reset(seed=seed + i if fresh else None)[0]),
                        (stack, 1, 1),
                    )
                fresh = False
            elif command == "step":
                for env, i in zip(envs, rows, strict=True):
                    step_one(env, i, board, stack)
            pipe.send(("ok", envs[0].render() if command == "render" else None))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {str(error) or 'no message'}"))


def step_one(env: gym.Env[Any, Any], i: int, board: Board, stack: int) -> None:
    """One step of environment i, and its next episode where this one ended."""
    frame, reward, terminated, truncated, _ = env.step(int(board.action[i]))
    frame = channels_first(frame)
    obs = board.obs[i]
    obs[: -len(frame)] = obs[len(frame) :].copy()
    obs[-len(frame) :] = frame
    board.reward[i], board.terminated[i], board.truncated[i] = (
        reward,
        terminated,
        truncated and not terminated,
    )
    if terminated or truncated:
        board.final[i] = obs
        obs[:] = np.tile(channels_first(env.reset()[0]), (stack, 1, 1))


def channels_first(frame: Array) -> Array:
    """(H, W, C) to (C, H, W)."""
    return np.moveaxis(np.asarray(frame), -1, 0)
