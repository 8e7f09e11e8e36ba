"""One method on this machine, rollout by rollout, each beside its bare multiplications."""

import time
from collections.abc import Callable
from typing import Any

import torch

from surprise_memory.envs.miniworld import PREFIX as MINIWORLD
from surprise_memory.errors import require
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.tools.bench.matmul_floor import jobs, products
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build

PARTS = ("env", "act", "bonus ask", "bonus learn", "agent learn")

Clock = Callable[[], float]
OnProgress = Callable[[str, float], None]


def clock_for(run: RunConfig) -> Clock:
    """CPU time where one thread of one process works at a time, wall time where several do."""
    return time.perf_counter if run.threads > 1 or MINIWORLD in run.env else time.process_time


class Meter:
    """Stands in for a method of an object and adds up the seconds that its calls take."""

    def __init__(self, thing: Any, method: str, clock: Clock) -> None:
        self.inner, self.clock, self.spent = getattr(thing, method), clock, 0.0
        setattr(thing, method, self)

    def __call__(self, *args: Any, **words: Any) -> Any:
        """The method, timed."""
        began = self.clock()
        result = self.inner(*args, **words)
        self.spent += self.clock() - began
        return result

    def take(self) -> float:
        """Seconds since the last take."""
        spent, self.spent = self.spent, 0.0
        return spent


class Entrant:
    """One method with its environments and networks, ready for one more lap: a rollout, then its bare multiplications."""

    def __init__(self, run: RunConfig, clock: Clock) -> None:
        self.run, self.clock = run, clock
        self.agent: Any
        self.env, self.agent, self.bonus = build(run)
        self.state = RunnerState.reset(self.env, self.bonus)
        self.in_env = Meter(self.env, "step", clock)
        self.asking = self.training = None
        if self.bonus is not None:
            self.asking = Meter(self.bonus, "forward", clock)
            self.training = Meter(self.bonus, "train_on", clock)
        floor = jobs(run, self.agent.policy, self.bonus)
        self.work = [(job.times, products(job)) for job in floor]

    def lap(self) -> dict[str, float]:
        """Seconds of one rollout by part, its wall time, and the seconds of its multiplications (nan for images)."""
        wall, began = time.perf_counter(), self.clock()
        chunk, _ = collect(self.env, self.agent, self.state, self.run.rollout, self.bonus)
        collected = self.clock()
        carry = self.state.bonus_carry
        _, _, self.state.bonus_carry = self.agent.learn(chunk, self.bonus, carry)
        learnt = self.clock() - collected
        wall = time.perf_counter() - wall
        env = self.in_env.take()
        ask = self.asking.take() if self.asking else 0.0
        bonus = self.training.take() if self.training else 0.0
        seconds = {
            "env": env,
            "act": collected - began - env,
            "bonus ask": ask,
            "bonus learn": bonus - ask,
            "agent learn": learnt - bonus,
        }
        return seconds | {"wall": wall, "matmul": self._multiply()}

    def _multiply(self) -> float:
        """Seconds of `work` alone."""
        began = self.clock()
        for times, triples in self.work:
            for _ in range(times):
                for a, b, out in triples:
                    torch.mm(a, b, out=out)
        return self.clock() - began if self.work else float("nan")

    def key_log(self) -> KeyLog | None:
        """The key log of one more rollout, where there is an M."""
        if self.bonus is None:
            return None
        chunk, _ = collect(self.env, self.agent, self.state, self.run.rollout)
        log = self.bonus(chunk, self.state.bonus_carry)[1].log
        return log if isinstance(log, KeyLog) else None


def taking_turns(
    entrants: dict[str, Any], rollouts: int, threads: int, on_progress: OnProgress | None
) -> dict[str, list[dict[str, float]]]:
    """Laps of each, one after the other in every turn, after one to warm up."""
    require(rollouts >= 1, "rollouts", rollouts, "at least 1")
    tell, before = on_progress or (lambda what, share: None), torch.get_num_threads()
    torch.set_num_threads(threads)
    laps: dict[str, list[dict[str, float]]] = {name: [] for name in entrants}
    try:
        for entrant in entrants.values():
            entrant.lap()
        for turn in range(rollouts):
            for i, (name, entrant) in enumerate(entrants.items()):
                tell(name, (turn + i / len(entrants)) / rollouts)
                laps[name].append(entrant.lap())
    finally:
        torch.set_num_threads(before)
    return laps
