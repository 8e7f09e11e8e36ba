"""How fast is this machine: none, the generator and the generator with its memory, against the multiplications alone.

Everything is compared inside one process: the methods take turns, rollout by rollout, each beside the bare matrix
multiplications of its own networks, and what is reported is the median over the turns. On one thread the clock is the
process's CPU time, so that a busy machine slows a measurement down and hardly bends it; on more threads it is wall time.
"""

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from surprise_memory.agents.ppo import Policy
from surprise_memory.bonus import Bonus
from surprise_memory.config import PRESETS, RunConfig
from surprise_memory.memory import SurpriseMemory
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.train import Loop, build, collect
from surprise_memory.types import UserError, choose, require

METHODS = ("none", "rnd", "rnd+sm")
PARTS = ("env", "act", "bonus ask", "bonus learn", "agent learn")
ASKED = 4096  # rows that Bonus.forward shows to its networks at once

Clock = Callable[[], float]
OnProgress = Callable[[str, float], None]
Product = tuple[Tensor, Tensor, Tensor]  # a (m, k), b (k, n), where to put a b (m, n)


def bench(env_id: str, preset: str, rollouts: int = 3, threads: int = 1, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Measure every method on `rollouts` rollouts after one to warm up; `on_progress` gets (what, share done)."""
    require(rollouts >= 1, "rollouts", rollouts, "at least 1")
    require(threads >= 1, "threads", threads, "at least 1")
    run = dataclasses.replace(choose(PRESETS, preset, "preset")(env_id), threads=threads)
    tell, before = on_progress or (lambda what, share: None), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        entrants = {name: Entrant(dataclasses.replace(run, method=name), clock_for(threads)) for name in METHODS}
        laps = {name: [entrant.lap()] for name, entrant in entrants.items()}  # the first is the warm-up
        for turn in range(rollouts):
            for i, (name, entrant) in enumerate(entrants.items()):
                tell(name, (turn * len(METHODS) + i) / (rollouts * len(METHODS)))
                laps[name].append(entrant.lap())
        log = entrants["rnd+sm"].key_log()
    finally:
        torch.set_num_threads(before)
    for entrant in entrants.values():
        entrant.env.close()
    measured = {name: them[1:] for name, them in laps.items()}
    return settings(run, rollouts) | results(run, measured) | {"memory": memory_bytes(log)}


def clock_for(threads: int) -> Clock:
    """CPU time where one thread works at a time, wall time where several do."""
    return time.process_time if threads == 1 else time.perf_counter


# --- one method -------------------------------------------------------------------------------------------------------


class Meter:
    """Stands in for a method of an object and adds up the seconds that its calls take."""

    def __init__(self, thing: Any, method: str, clock: Clock) -> None:
        self.inner, self.clock, self.spent = getattr(thing, method), clock, 0.0
        setattr(thing, method, self)

    def __call__(self, *args: Any) -> Any:
        """The method, timed."""
        began = self.clock()
        result = self.inner(*args)
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
        self.env, self.agent, self.bonus = build(run)
        self.loop = Loop.begin(self.env, self.bonus)
        self.in_env = Meter(self.env, "step", clock)
        self.asking = Meter(self.bonus, "forward", clock) if self.bonus is not None else None
        self.work = [(job.times, products(job)) for job in jobs(run, self.agent.policy, self.bonus)]

    def lap(self) -> dict[str, float]:
        """Seconds of one rollout by part, its wall time, and the seconds of its multiplications (nan for images)."""
        wall, began = time.perf_counter(), self.clock()
        chunk, _ = collect(self.env, self.agent, self.loop, self.run.rollout)
        collected, reward = self.clock(), None
        if self.bonus is not None:
            reward, _, self.loop.memory = self.bonus.absorb(chunk, self.loop.memory)
        absorbed = self.clock()
        self.agent.update(chunk, reward)
        learnt, wall = self.clock(), time.perf_counter() - wall
        env, ask = self.in_env.take(), self.asking.take() if self.asking else 0.0
        seconds = (env, collected - began - env, ask, absorbed - collected - ask, learnt - absorbed)
        return dict(zip(PARTS, seconds, strict=True)) | {"wall": wall, "matmul": self._multiply()}

    def _multiply(self) -> float:
        """Seconds of `work` alone."""
        began = self.clock()
        for times, triples in self.work:
            for _ in range(times):
                for a, b, out in triples:
                    torch.mm(a, b, out=out)
        return self.clock() - began if self.work else float("nan")

    def key_log(self) -> KeyLog:
        """The key log of one more rollout."""
        assert self.bonus is not None
        chunk, _ = collect(self.env, self.agent, self.loop, self.run.rollout)
        log: KeyLog = self.bonus(chunk, self.loop.memory)[1].log
        return log


# --- the multiplications that no implementation can avoid -------------------------------------------------------------


class Layer(NamedTuple):
    """A weight (i, o), and the gradients that its training needs."""

    i: int
    o: int
    weight_grad: bool
    input_grad: bool


class Job(NamedTuple):
    """`times` passes of `rows` rows through some layers, forward only or also backward."""

    times: int
    rows: int
    layers: list[Layer]
    learn: bool

    @property
    def multiply_adds(self) -> int:
        """How many, in all."""
        per_row = sum(x.i * x.o * (1 + (x.weight_grad + x.input_grad) * self.learn) for x in self.layers)
        return self.times * self.rows * per_row


def jobs(run: RunConfig, policy: Policy, bonus: Bonus | None) -> list[Job]:
    """The multiplications of one rollout, in the batch sizes of training; none for images, whose work is convolutions."""
    if any(isinstance(m, nn.Conv2d) for m in policy.modules()):
        return []
    rows, ppo, net = run.envs * run.rollout, run.ppo, layers(policy)
    todo = [Job(run.rollout + 1, run.envs, net, False)]  # acting, and the value of what follows the last row
    todo += [Job(ppo.epochs * ppo.minibatches, rows // ppo.minibatches, net, True)]
    if bonus is not None:
        c, predictor, memory = bonus.config, layers(bonus.surprise.predictor), memory_layers(bonus.memory)
        once = predictor + layers(bonus.surprise.target, trained=False)
        todo += [Job(1, len(part), once, False) for part in torch.arange(rows).split(ASKED)]
        todo += [Job(1, rows, memory, False)]
        todo += [Job(c.epochs * c.minibatches, max(1, int(rows * c.proportion) // c.minibatches), predictor + memory, True)]
    return todo


def layers(net: nn.Module, trained: bool = True, input_grad: bool = False) -> list[Layer]:
    """A network's linear layers; `input_grad` says whether a gradient flows on out of the first."""
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    return [Layer(m.in_features, m.out_features, trained, trained and (i > 0 or input_grad)) for i, m in enumerate(linear)]


def memory_layers(memory: SurpriseMemory) -> list[Layer]:
    """Q, V and W."""
    m, c, found = memory.m, memory.config, list[Layer]()
    if m is not None:
        n, d = m.Q.shape
        found += [Layer(n, d, c.train_q, c.m_trains_surprise)]
        found += [Layer(d, n, True, c.train_q)] if m.V is not None else []
    attached = m is not None and c.attach_read and not c.m_trains_surprise
    return found + (layers(memory.w, input_grad=attached) if memory.w is not None else [])


def products(job: Job) -> list[Product]:
    """One pass of a job as matrix products on tensors of their own, in the layouts and in the order of nn.Linear."""
    forward, backward = list[Product](), list[Product]()
    for layer in job.layers:
        x, weight, grad = torch.randn(job.rows, layer.i), torch.randn(layer.o, layer.i), torch.randn(job.rows, layer.o)
        forward.append((x, weight.t(), torch.empty_like(grad)))
        if job.learn and layer.weight_grad:
            backward.append((grad.t(), x, torch.empty_like(weight)))
        if job.learn and layer.input_grad:
            backward.append((grad, weight, torch.empty_like(x)))
    return forward + backward[::-1]


# --- results ----------------------------------------------------------------------------------------------------------


def settings(run: RunConfig, rollouts: int) -> dict[str, Any]:
    """What was measured, and where."""
    rows = run.envs * run.rollout
    return {
        "env": run.env,
        "preset": run.preset,
        "rollouts": rollouts,
        "threads": run.threads,
        "clock": "CPU" if clock_for(run.threads) is time.process_time else "wall",
        "machine": f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "envs": run.envs,
        "rollout": run.rollout,
        "agent_updates": [run.ppo.epochs * run.ppo.minibatches, rows // run.ppo.minibatches],
        "bonus_updates": [run.bonus.epochs * run.bonus.minibatches, int(rows * run.bonus.proportion) // run.bonus.minibatches],
    }


def processor() -> str:
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def results(run: RunConfig, laps: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians over the laps of each method; ratios are taken between laps of one turn, before the median."""
    per_rollout = run.envs * run.rollout
    totals = {name: [sum(lap[part] for part in PARTS) for lap in them] for name, them in laps.items()}
    costs = [with_sm / alone - 1 for with_sm, alone in zip(totals["rnd+sm"], totals["rnd"], strict=True)]
    methods = {}
    for name, them in laps.items():
        ratios = [total / lap["matmul"] for total, lap in zip(totals[name], them, strict=True)]
        methods[name] = {
            "steps_per_second": per_rollout / median(totals[name]),
            "steps_per_wall_second": per_rollout / median(lap["wall"] for lap in them),
            "seconds": {part: median(lap[part] for lap in them) for part in PARTS},
            "total_seconds": median(totals[name]),
            "env_share": median(lap["env"] / total for total, lap in zip(totals[name], them, strict=True)),
            "matmul_seconds": finite(median(lap["matmul"] for lap in them)),
            "matmul_ratio": finite(median(ratios)),
        }
    return {"methods": methods, "sm_cost": median(costs), "sm_cost_range": [min(costs), max(costs)]}


def finite(value: float) -> float | None:
    """Not a number becomes null in JSON."""
    return value if value == value else None


def memory_bytes(log: KeyLog) -> dict[str, float]:
    """Bytes of M's key log (all its tensors) against a snapshot of M (B, N, d) for each of T steps."""
    held = [getattr(log, field.name) for field in dataclasses.fields(log)]
    log_bytes = sum(x.nbytes for x in held if isinstance(x, Tensor))
    T, B = log.filled.shape
    d = log.log.shape[-1]
    N = log.log.numel() // (B * d) - T
    snapshot_bytes = T * B * N * d * log.log.element_size()
    return {"key_log_bytes": log_bytes, "snapshot_bytes": snapshot_bytes, "share": log_bytes / snapshot_bytes}


# --- for people -------------------------------------------------------------------------------------------------------


def print_bench(result: dict[str, Any], console: Any) -> None:
    """The two tables: seconds by method and part, and the ratios beside what they should reach."""
    try:
        from rich.table import Table
    except ImportError as error:
        raise UserError("rich is not installed: pip install 'surprise-memory[cli]'.") from error
    (updates, batch), (lessons, lot) = result["agent_updates"], result["bonus_updates"]
    console.print(
        f"[bold]{result['env']}[/] · {result['preset']}: {result['envs']} environments × {result['rollout']} steps, {updates} "
        f"updates of {batch} rows (agent), {lessons} of {lot} (bonus)\n{result['machine']} · {result['threads']} thread(s) · "
        f"{result['clock']} time, median of {result['rollouts']} rollouts"
    )
    table = Table("ms per rollout", *result["methods"])
    for column in table.columns[1:]:
        column.justify = "right"
    for name, cells in speed_rows(result):
        table.add_row(name, *cells)
    console.print(table)
    table = Table("as a ratio", "here", "reach")
    for name, value, reach, reached in ratio_rows(result):
        table.add_row(name, value if reached is None else f"[{'green' if reached else 'yellow'}]{value}[/]", reach)
    console.print(table)


def speed_rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(name, one cell for each method)."""
    methods = result["methods"]
    rows = [(f"steps per {result['clock']} second", [f"{m['steps_per_second']:,.0f}" for m in methods.values()])]
    if result["clock"] != "wall":
        rows += [("steps per wall second", [f"{m['steps_per_wall_second']:,.0f}" for m in methods.values()])]
    rows += [(part, [f"{m['seconds'][part] * 1e3:,.0f}" for m in methods.values()]) for part in PARTS]
    rows += [("total", [f"{m['total_seconds'] * 1e3:,.0f}" for m in methods.values()])]
    if all(m["matmul_seconds"] is not None for m in methods.values()):
        rows += [("bare multiplications", [f"{m['matmul_seconds'] * 1e3:,.0f}" for m in methods.values()])]
    return rows


def ratio_rows(result: dict[str, Any]) -> list[tuple[str, str, str, bool | None]]:
    """(what, here, reach, reached); what is reachable was set for vectors in the paper's setting, elsewhere it is left out."""
    whole, memory, (low, high) = result["methods"]["rnd+sm"], result["memory"], result["sm_cost_range"]
    held = f"{memory['share']:.1%} ({memory['key_log_bytes']:,} of {memory['snapshot_bytes']:,} bytes)"
    rows = [("cost of SM over RND", result["sm_cost"], f"{result['sm_cost']:.0%} ({low:.0%} to {high:.0%})", 0.12, "12 %")]
    if whole["matmul_ratio"] is not None:
        rows += [("rnd+sm over its bare multiplications", whole["matmul_ratio"], f"{whole['matmul_ratio']:.2f}", 1.5, "1.5")]
    rows += [
        ("environments' share of rnd+sm", whole["env_share"], f"{whole['env_share']:.1%}", 0.1, "10 %"),
        ("M's key log over snapshots", memory["share"], held, 0.02, "2 %"),
    ]
    applies = result["preset"] == "paper"
    return [
        (name, text, f"≤ {reach}" if applies else "", value <= limit if applies else None)
        for name, value, text, limit, reach in rows
    ]
