"""The recurrent DQN on this machine: alone, with the latent world model, and with its memory; milliseconds of a vector step."""

import dataclasses
from statistics import median
from typing import Any

import torch

from surprise_memory.tools.bench.report import processor, table_of
from surprise_memory.tools.bench.timing import Clock, Meter, OnProgress, clock_for, taking_turns
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build, fill

METHODS = ("none", "lwm", "lwm+sm")
PARTS = (
    "env",
    "act",
    "bonus: while acting",
    "replay: drawing",
    "bonus: learning",
    "agent: learning",
)
UPDATES = 4  # timed in each lap; a block earns more, but each costs the same


class Entrant:
    """One method with its environments, a replay of a few blocks and networks, ready for one more lap."""

    def __init__(self, run: RunConfig, clock: Clock) -> None:
        blocks = dataclasses.replace(run.dqn, replay=4 * run.envs * run.dqn.unroll)
        self.run, self.clock = dataclasses.replace(run, dqn=blocks), clock
        self.agent: Any
        self.env, self.agent, self.bonus = build(self.run)
        self.state = RunnerState.reset(self.env, self.bonus)
        self.env.action_space.seed(run.seed)
        actor = RandomAgent(self.env, self.agent)
        fill(self.run, self.env, actor, self.agent, self.bonus, self.state, 2)
        self.in_env = Meter(self.env, "step", clock)
        self.drawing = [Meter(self.agent.replay, name, clock) for name in ("sample", "pairs")]
        self.agent_learns = Meter(self.agent, "update_on", clock)
        self.asking = None
        self.bonus_learns: list[Meter] = []
        if self.bonus is not None:
            self.asking = Meter(self.bonus, "forward", clock)
            self.bonus_learns = [
                Meter(self.bonus, name, clock) for name in ("train_on", "update_encoder")
            ]

    def lap(self) -> dict[str, float]:
        """Seconds of one vector step by part: acting from a whole block, learning from a few updates."""
        if self.asking:
            self.asking.take()  # learning asks, too
        began = self.clock()
        block = self.run.dqn.unroll
        chunk, _ = collect(self.env, self.agent, self.state, block, self.bonus)
        acted = self.clock() - began
        env = self.in_env.take()
        ask = self.asking.take() if self.asking else 0.0
        self.state.bonus_carry = self.agent.store(chunk, self.bonus, self.state.bonus_carry)
        for _ in range(UPDATES):
            self.agent.update_once(self.bonus)
        drawing = sum(meter.take() for meter in self.drawing)
        bonus = sum(meter.take() for meter in self.bonus_learns)
        updates = UPDATES / self.run.dqn.updates
        return {
            "env": env / block,
            "act": (acted - env - ask) / block,
            "bonus: while acting": ask / block,
            "replay: drawing": drawing / updates,
            "bonus: learning": bonus / updates,
            "agent: learning": self.agent_learns.take() / updates,
        }


def bench_dqn(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Plain recurrent DQN, LWM and LWM with its memory, part by part, in turns inside one process."""
    run = dataclasses.replace(run, agent="dqn")
    entrants = {
        name: Entrant(dataclasses.replace(run, method=name), clock_for(run)) for name in METHODS
    }
    laps = taking_turns(entrants, rollouts, run.threads, on_progress)
    totals = {name: [sum(lap.values()) for lap in them] for name, them in laps.items()}
    replay = entrants["none"].agent.replay
    for entrant in entrants.values():
        entrant.env.close()
    costs = [
        with_sm / alone - 1 for with_sm, alone in zip(totals["lwm+sm"], totals["lwm"], strict=True)
    ]
    return {
        "env": run.env,
        "preset": run.preset,
        "machine": f"{processor()}, torch {torch.__version__}",
        "envs": run.envs,
        "batch": [run.dqn.batch, replay.length],
        "methods": {
            name: {
                "ms": {part: 1e3 * median(lap[part] for lap in them) for part in PARTS},
                "steps_per_second": run.envs / median(totals[name]),
            }
            for name, them in laps.items()
        },
        "sm_cost": median(costs),
        "sm_cost_range": [min(costs), max(costs)],
        "replay_bytes": replay.bytes_per_step * run.dqn.replay,
        "replay_steps": run.dqn.replay,
    }


def print_dqn(result: dict[str, Any], console: Any) -> None:
    """One table: milliseconds of a vector step, and its shares."""
    (K, length), methods = result["batch"], result["methods"]
    console.print(
        f"[bold]{result['env']}[/] · {result['preset']}: {result['envs']} environments, updates of {K} sequences of {length} "
        f"rows · {result['machine']}\nreplay: {result['replay_steps']:,} steps are {result['replay_bytes'] / 1e9:.2f} GB"
    )
    table = table_of("ms per vector step", *methods)
    for part in PARTS:
        cells = [(m["ms"][part], m["ms"][part] / sum(m["ms"].values())) for m in methods.values()]
        table.add_row(part, *(f"{ms:,.1f} ({share:.1%})" for ms, share in cells))
    table.add_row("steps per second", *(f"{m['steps_per_second']:,.0f}" for m in methods.values()))
    console.print(table)
    low, high = result["sm_cost_range"]
    console.print(
        f"cost of SM over LWM: {result['sm_cost']:.1%} ({low:.1%} to {high:.1%}); the paper: 4.6 %"
    )
