"""Time PPO with one method, rollout by rollout, each beside its bare multiplications."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from surprise_memory.envs import VecEnv
from surprise_memory.errors import require
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.nn.at_once import using_threads
from surprise_memory.tools.bench.matmul_floor import jobs, matmuls
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build
from surprise_memory.training.processes import learn_at_once

PARTS = ("env", "act", "bonus ask", "bonus learn", "agent learn")

Clock = Callable[[], float]
OnProgress = Callable[[str, float], None]
Seconds = dict[str, float]  # part -> seconds
Timings = dict[str, list[Seconds]]  # method -> one for each turn


def clock_for(env: VecEnv, threads: int) -> Clock:
    """CPU time if one thread of one process does all the work, else wall time."""
    if threads > 1 or env.in_processes:
        return time.perf_counter
    return time.process_time


class Meter:
    """Stands in for a method of an object and adds up the seconds that its calls take."""

    def __init__(self, thing: Any, method: str, clock: Clock) -> None:
        self.inner = getattr(thing, method)
        self.clock = clock
        self.spent = 0.0
        setattr(thing, method, self)

    def __call__(self, *args: Any, **words: Any) -> Any:
        """The method, timed."""
        began = self.clock()
        result = self.inner(*args, **words)
        self.spent += self.clock() - began
        return result

    def take(self) -> float:
        """Seconds since the last take."""
        spent = self.spent
        self.spent = 0.0
        return spent


class Timed(Protocol):
    """Something that can be timed, lap by lap."""

    def lap(self) -> Seconds:
        """Seconds by part of one lap."""


class TimedPPO:
    """One method with its environments and networks; a lap is one turn of the training loop."""

    def __init__(self, run: RunConfig, clock: Clock | None = None) -> None:
        self.run = run
        self.agent: Any
        self.env, self.agent, self.bonus = build(run)
        self.clock = clock or clock_for(self.env, run.threads)
        self.state = RunnerState.reset(self.env, self.bonus)
        self.in_env = Meter(self.env, "step", self.clock)
        self.in_update = Meter(self.agent, "update", self.clock)
        self.asking: list[Meter] = []
        if self.bonus is not None:
            self.asking = [Meter(self.bonus, "forward", self.clock)]
        self.floor = []
        for job in jobs(run, self.agent.policy, self.bonus):
            self.floor.append((job.times, matmuls(job)))

    @property
    def clock_name(self) -> str:
        """What the clock measures."""
        if self.clock is time.process_time:
            return "CPU"
        return "wall"

    def lap(self) -> Seconds:
        """Seconds of one rollout by part, its wall time, and its bare multiplications.

        The parts add up to the whole. Where agent and bonus learn at once, the bonus has what it
        takes longer than the agent.
        """
        with using_threads(self.run.threads, learn_at_once(self.run)):
            return self._lap()

    def _lap(self) -> Seconds:
        wall = time.perf_counter()
        began = self.clock()
        chunk, _ = collect(self.env, self.agent, self.state, self.run.rollout, self.bonus)
        collected = self.clock()
        carry = self.state.bonus_carry
        _, _, self.state.bonus_carry = self.agent.learn(chunk, self.bonus, carry)
        learnt = self.clock()
        wall = time.perf_counter() - wall
        env = self.in_env.take()
        ask = take_all(self.asking)
        update = self.in_update.take()
        if self.bonus is None:
            update = learnt - collected
        return {
            "env": env,
            "act": collected - began - env,
            "bonus ask": ask,
            "bonus learn": learnt - collected - ask - update,
            "agent learn": update,
            "wall": wall,
            "matmul": self._multiply(),
        }

    def _multiply(self) -> float:
        """Seconds of the bare multiplications; nan where they are not known."""
        if not self.floor:
            return float("nan")
        began = self.clock()
        for times, multiplications in self.floor:
            for _ in range(times):
                for a, b, out in multiplications:
                    torch.mm(a, b, out=out)
        return self.clock() - began

    def key_log(self) -> KeyLog | None:
        """The key log of one more rollout, if there is an M."""
        if self.bonus is None:
            return None
        chunk, _ = collect(self.env, self.agent, self.state, self.run.rollout)
        _, trace, _ = self.bonus(chunk, self.state.bonus_carry)
        if isinstance(trace.log, KeyLog):
            return trace.log
        return None


def take_all(meters: list[Meter]) -> float:
    """Seconds of all meters since the last take."""
    return sum(meter.take() for meter in meters)


def take_turns(
    timed: Mapping[str, Timed], rollouts: int, threads: int, on_progress: OnProgress | None
) -> Timings:
    """Laps of each, one after the other in every turn, after one to warm up."""
    require(rollouts >= 1, "rollouts", rollouts, "at least 1")
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    timings: Timings = {name: [] for name in timed}
    try:
        for one in timed.values():
            one.lap()
        for turn in range(rollouts):
            for i, (name, one) in enumerate(timed.items()):
                if on_progress:
                    on_progress(name, (turn + i / len(timed)) / rollouts)
                timings[name].append(one.lap())
    finally:
        torch.set_num_threads(threads_before)
    return timings
