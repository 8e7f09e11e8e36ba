"""Slow Python environments in a few processes, many in each, that write into shared memory.

When a worker dies, a warning names it, another takes its place, and its episodes count as
truncated. An exception in an environment, or one that hangs, ends the run with a sentence.
"""

import contextlib
import multiprocessing as mp
import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Step, VecEnv
from surprise_memory.envs.worker_process import Make, SharedArrays, work
from surprise_memory.errors import UserError

MAX_RESTARTS = 5  # of one worker, without a step in between
START_SECONDS = 600.0  # a worker may take to make its environments, and to reset them all


class Worker(NamedTuple):
    """A process and our end of the pipe to it."""

    process: Any
    pipe: Any


class Workers(VecEnv):
    """B environments with RGB images and Discrete actions.

    An observation is a stack of `stack` frames, newest last.
    """

    in_processes = True

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
        """`make(**options)` builds one environment, in a worker; its images are `frame` (H, W, C).

        Environment i is reset with seed + i.
        """
        self.num_envs = num_envs
        self.seed = seed
        self.step_seconds = 0.0
        self.stack = stack
        self.make = make
        self.options = options
        height, width, channels = frame
        self.frame_channels = channels
        self.obs_shape = (channels * stack, height, width)
        # Spawned: a forked GL context or thread pool would not survive.
        self.context = mp.get_context("spawn")
        self.shared = SharedArrays(self.context, num_envs, self.obs_shape)
        # What was last acted on: intact even if a worker dies while it writes.
        self.obs: Array = self.shared.obs.copy()
        bounds = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self.spans = [range(start, stop) for start, stop in pairwise(bounds.tolist())]
        self.deaths = [0] * len(self.spans)  # in a row
        self.restarts = [0] * len(self.spans)
        self.workers = [self._spawn(k) for k in range(len(self.spans))]
        for k in range(len(self.workers)):
            self.action_space = self._wait_ready(k)

    def _spawn(self, k: int) -> Worker:
        """Start worker k."""
        pipe, worker_pipe = self.context.Pipe()
        span = self.spans[k]
        # A restarted worker must not repeat its episodes.
        seed = self.seed + 7_919 * self.num_envs * self.restarts[k]
        process = self.context.Process(
            target=work,
            args=(worker_pipe, self.make, self.options, self.shared, span, seed, self.stack),
            daemon=True,
            name=f"environments {span[0]} to {span[-1]}",
        )
        process.start()
        worker_pipe.close()
        return Worker(process, pipe)

    def _wait_ready(self, k: int) -> gym.Space[Any]:
        """Wait until worker k has made its environments; returns their action space."""
        process = self.workers[k].process
        try:
            space: gym.Space[Any] = _content(self._answer(k, START_SECONDS), "while it was made")
        except EOFError:
            process.join()
            if process.exitcode == 1:  # Python ended before `work` began, which reports all else
                raise UserError(
                    "The environments' processes could not start, and their own message is above. "
                    'In a script, put what it does under `if __name__ == "__main__":`. They import '
                    "the script, too."
                ) from None
            raise UserError(
                f"An environment failed while it was made: exit code {process.exitcode}"
            ) from None
        return space

    def _recv(self, k: int, seconds: float) -> Any:
        """What worker k says; EOFError when it is dead."""
        process = self.workers[k].process
        return _content(self._answer(k, seconds), f"in worker {k} ({process.name})")

    def _answer(self, k: int, seconds: float) -> Any:
        """The next message of worker k, which may take so long; 0 is for ever."""
        process, pipe = self.workers[k]
        if seconds and not pipe.poll(seconds):
            process.kill()
            raise UserError(
                f"Worker {k} ({process.name}) has not answered for {seconds:g} seconds: "
                "an environment hangs. Fix it, or allow more time with --step-seconds."
            )
        return pipe.recv()

    def limit_time(self, seconds: float) -> None:
        """Fail if a step takes longer; 0 is no limit."""
        self.step_seconds = seconds

    def _send_all(self, command: str) -> list[int]:
        """Send a command to every worker and wait; returns the workers that died."""
        dead = []
        seconds = START_SECONDS
        if command == "step":
            seconds = self.step_seconds
        for k, worker in enumerate(self.workers):
            try:
                worker.pipe.send(command)
            except (BrokenPipeError, ConnectionResetError):
                dead.append(k)
        for k in range(len(self.workers)):
            if k in dead:
                continue
            try:
                self._recv(k, seconds)
            except (EOFError, ConnectionResetError):
                dead.append(k)
                continue
            if command == "step":
                self.deaths[k] = 0
        return dead

    def reset(self) -> Array:
        """Start all episodes."""
        for k in self._send_all("reset"):
            self._respawn(k)
        self.obs = self.shared.obs.copy()
        return self.obs

    def step(self, action: Array) -> Step:
        """Act in all environments; an ended one starts its next episode at once."""
        shared = self.shared
        shared.action[:] = action
        dead = self._send_all("step")
        reward = shared.reward.copy()
        terminated = shared.terminated.astype(bool)
        truncated = shared.truncated.astype(bool)
        done = terminated | truncated
        next_obs = shared.obs.copy()
        next_obs[done] = shared.final[done]
        for k in dead:  # nobody knows what followed: the episode ends at its last observation
            rows = self.spans[k]
            next_obs[rows] = self.obs[rows]
            reward[rows] = 0.0
            terminated[rows] = False
            truncated[rows] = True
            self._respawn(k)
        self.obs = shared.obs.copy()
        return Step(
            next_obs=next_obs,
            obs=self.obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=np.ones(self.num_envs, bool),
        )

    def _respawn(self, k: int) -> None:
        """Start another worker in place of the dead worker k."""
        process, pipe = self.workers[k]
        process.join(timeout=5)
        pipe.close()
        self.deaths[k] += 1
        self.restarts[k] += 1
        if self.deaths[k] > MAX_RESTARTS:
            raise UserError(
                f"Worker {k} ({process.name}) died {self.deaths[k]} times in a row, "
                f"last with exit code {process.exitcode}."
            )
        warnings.warn(
            f"Worker {k} ({process.name}) died with exit code {process.exitcode}; "
            "it was restarted, its episodes are truncated.",
            RuntimeWarning,
            stacklevel=3,
        )
        self.workers[k] = self._spawn(k)
        self._wait_ready(k)
        try:
            self.workers[k].pipe.send("reset")
            self._recv(k, START_SECONDS)
        except (EOFError, BrokenPipeError, ConnectionResetError):  # it died again
            self._respawn(k)

    def render(self) -> Array:
        """The first environment, drawn (H, W, 3)."""
        self.workers[0].pipe.send("render")
        return np.asarray(self._recv(0, START_SECONDS))

    def close(self) -> None:
        """Stop the workers."""
        for process, pipe in self.workers:
            with contextlib.suppress(OSError):
                pipe.send("close")
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
            pipe.close()


def _content(message: tuple[str, Any], where: str) -> Any:
    """What a worker sent, or the sentence about the exception that it reports."""
    status, content = message
    if status == "error":
        raise UserError(f"An environment failed {where}: {content}")
    return content
