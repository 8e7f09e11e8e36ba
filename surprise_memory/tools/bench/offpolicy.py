"""Time the recurrent DQN: alone, with the latent world model, and with its memory."""

import dataclasses
from statistics import median
from typing import Any

import torch

from surprise_memory.tools.bench.report import table_of
from surprise_memory.tools.bench.summary import processor
from surprise_memory.tools.bench.timing import (
    Clock,
    Meter,
    OnProgress,
    Seconds,
    Timings,
    clock_for,
    take_all,
    take_turns,
)
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build

METHODS = ("none", "lwm", "lwm+sm")
PARTS = (
    "env",
    "act",
    "bonus: while acting",
    "replay: storing",
    "replay: drawing",
    "bonus: learning",
    "agent: learning",
)
UPDATES = 4  # timed in each lap; a block of steps earns more, but each costs the same


class TimedDQN:
    """One method with its environments, its networks and a replay of a few blocks."""

    def __init__(self, run: RunConfig, clock: Clock | None = None) -> None:
        small = dataclasses.replace(run.dqn, replay=4 * run.envs * run.dqn.unroll)
        self.run = dataclasses.replace(run, dqn=small)
        self.agent: Any
        self.env, self.agent, self.bonus = build(self.run)
        self.clock = clock or clock_for(self.env, run.threads)
        self.state = RunnerState.reset(self.env, self.bonus)
        self.env.action_space.seed(run.seed)
        actor = RandomAgent(self.env, self.agent)
        for _ in range(2):
            chunk, _ = collect(self.env, actor, self.state, run.dqn.unroll, self.bonus)
            self.state.bonus_carry = self.agent.warm_up(chunk, self.bonus, self.state.bonus_carry)
        replay = self.agent.replay
        self.in_env = self._meters(self.env, "step")
        self.drawing = self._meters(replay, "sample", "pairs")
        self.asking: list[Meter] = []
        self.bonus_stats: list[Meter] = []
        self.bonus_learns: list[Meter] = []
        if self.bonus is not None:
            self.asking = self._meters(self.bonus, "forward")
            self.bonus_stats = self._meters(self.bonus, "update_stats")
            self.bonus_learns = self._meters(self.bonus, "train_on", "update_encoder")

    def _meters(self, thing: Any, *methods: str) -> list[Meter]:
        return [Meter(thing, method, self.clock) for method in methods]

    def lap(self) -> Seconds:
        """Seconds of one vector step by part; the parts add up to the whole.

        Acting is timed on a whole block, learning on a few updates.
        """
        take_all(self.asking)  # learning asks, too
        block = self.run.dqn.unroll
        began = self.clock()
        chunk, _ = collect(self.env, self.agent, self.state, block, self.bonus)
        acted = self.clock()
        self.state.bonus_carry = self.agent.store(chunk, self.bonus, self.state.bonus_carry)
        stored = self.clock()
        env = take_all(self.in_env)
        ask = take_all(self.asking)
        stats = take_all(self.bonus_stats)
        learning = self.clock()
        for _ in range(UPDATES):
            self.agent.update_once(self.bonus)
        learnt = self.clock()
        drawing = take_all(self.drawing)
        bonus = take_all(self.bonus_learns)
        steps = UPDATES / self.run.dqn.updates  # vector steps that earn so many updates
        return {
            "env": env / block,
            "act": (acted - began - env - ask) / block,
            "bonus: while acting": ask / block,
            "replay: storing": (stored - acted - stats) / block,
            "replay: drawing": drawing / steps,
            "bonus: learning": stats / block + bonus / steps,
            "agent: learning": (learnt - learning - drawing - bonus) / steps,
        }


def bench_dqn(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Plain recurrent DQN, LWM and LWM with its memory, part by part, in turns in one process."""
    run = dataclasses.replace(run, agent="dqn")
    timed = {name: TimedDQN(dataclasses.replace(run, method=name)) for name in METHODS}
    timings = take_turns(timed, rollouts, run.threads, on_progress)
    replay = timed["none"].agent.replay
    for one in timed.values():
        one.env.close()
    about = {
        "env": run.env,
        "preset": run.preset,
        "machine": f"{processor()}, torch {torch.__version__}",
        "envs": run.envs,
        "batch": [run.dqn.batch, replay.length],
        "replay_bytes": replay.bytes_per_step * run.dqn.replay,
        "replay_steps": run.dqn.replay,
    }
    return about | summary(run, timings)


def summary(run: RunConfig, timings: Timings) -> dict[str, Any]:
    """Medians over the turns; the cost of SM is a ratio within each turn, before the median."""
    methods = {}
    totals = {}
    for name, turns in timings.items():
        totals[name] = [sum(turn.values()) for turn in turns]
        ms = {part: 1e3 * median(turn[part] for turn in turns) for part in PARTS}
        methods[name] = {"ms": ms, "steps_per_second": run.envs / median(totals[name])}
    costs = []
    for with_sm, alone in zip(totals["lwm+sm"], totals["lwm"], strict=True):
        costs.append(with_sm / alone - 1)
    return {
        "methods": methods,
        "sm_cost": median(costs),
        "sm_cost_range": [min(costs), max(costs)],
    }


def print_dqn(result: dict[str, Any], console: Any) -> None:
    """One table: milliseconds of a vector step, and its shares."""
    sequences, length = result["batch"]
    methods = result["methods"]
    size = f"{result['replay_steps']:,} steps are {result['replay_bytes'] / 1e9:.2f} GB"
    console.print(
        f"[bold]{result['env']}[/] · {result['preset']}: {result['envs']} environments, "
        f"updates of {sequences} sequences of {length} rows · {result['machine']}\n"
        f"replay: {size}"
    )
    table = table_of("ms per vector step", *methods)
    for part in PARTS:
        cells = []
        for method in methods.values():
            ms = method["ms"][part]
            cells.append(f"{ms:,.1f} ({ms / sum(method['ms'].values()):.1%})")
        table.add_row(part, *cells)
    speeds = [f"{method['steps_per_second']:,.0f}" for method in methods.values()]
    table.add_row("steps per second", *speeds)
    console.print(table)
    low, high = result["sm_cost_range"]
    cost = f"{result['sm_cost']:.1%} ({low:.1%} to {high:.1%})"
    console.print(f"cost of SM over LWM: {cost}; 4.6 % in the paper")
