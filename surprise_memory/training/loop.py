"""One run: build, warm up, then loop { collect, learn, log, save }."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from surprise_memory.agents import AGENTS, Agent, Mode
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import UserError
from surprise_memory.files import write_json
from surprise_memory.training.checkpoint import load_checkpoint, save_checkpoint
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.evaluate import evaluate, summary
from surprise_memory.training.metrics import check_losses, rollout_metrics
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import Chunk

Report = Callable[[dict[str, Any]], None]
EVAL_SEED = 1_000_003  # added to a run's seed, so that evaluation layouts are not training's


def build(run: RunConfig) -> tuple[VecEnv, Agent, Any]:
    """The environments, the agent and the bonus of a run; no bonus is None."""
    env = make_vec(run.env, run.envs, run.seed * run.envs, run.threads)
    agent = AGENTS[run.backbone].make(env, run, run.method != "none")
    bonus = None
    if run.method != "none":
        bonus = agent.trainer(
            run.method, env.obs_shape, run.envs, run.bonus, run.seed, env.action_space
        )
    return env, agent, bonus


def train(run: RunConfig, out: RunDir, report: Report | None = None) -> RunnerState:
    """Train until `run.steps`, continuing from the checkpoint if there is one.

    `report` gets every row of metrics.
    """
    torch.set_num_threads(run.threads)
    env, agent, bonus = build(run)
    state = start(run, out, env, agent, bonus)
    T = agent.rollout_length(run.rollout)
    clock = Clock(state.steps)
    with Stop() as stop:
        while state.steps < run.steps and not stop.asked:
            chunk, episodes = collect(env, agent, state, T, bonus)
            check_finite(chunk)
            r_int, metrics, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
            metrics |= rollout_metrics(env, chunk, r_int, episodes, state.recent)
            check_losses(metrics, out, run.backbone)
            row = {"step": state.steps, "charts/SPS": clock.speed(state.steps)} | metrics
            out.log(row)
            if report:
                report(row)
            if clock.save_due(run.save_minutes):
                save_checkpoint(out, run, env, agent, bonus, state, final=False)
    save_checkpoint(out, run, env, agent, bonus, state, final=True)
    env.close()
    if stop.asked:
        raise KeyboardInterrupt(
            f"Stopped and saved at step {state.steps:,}. Add --resume to continue."
        )
    if run.eval_episodes:
        write_eval(run, out, agent, bonus)
    out.finish()
    return state


def start(run: RunConfig, out: RunDir, env: VecEnv, agent: Agent, bonus: Any) -> RunnerState:
    """Where a run begins or goes on."""
    if not out.checkpoint.exists():
        out.rewind(0)
        state = RunnerState.reset(env, bonus)
        warm_up(run, env, agent, bonus, state)
        return state
    state = load_checkpoint(out, run, env, agent, bonus)
    out.rewind(state.steps)  # before anything is collected: steps count on from here
    if state.steps < run.steps:
        missing = agent.rollouts_to_refill(state.steps, run.warmup_rollouts)
        fill(run, env, agent, agent, bonus, state, missing)
    return state


def warm_up(run: RunConfig, env: VecEnv, agent: Agent, bonus: Any, state: RunnerState) -> None:
    """Random actions train the bonus and its statistics; nothing is paid."""
    env.action_space.seed(run.seed)
    if agent.needs_warmup(bonus):
        follower = agent if agent.recurrent else None
        actor = RandomAgent(env, follower)
        fill(run, env, actor, agent, bonus, state, run.warmup_rollouts)
        agent.after_warmup(bonus)


def fill(
    run: RunConfig,
    env: VecEnv,
    actor: Agent,
    agent: Agent,
    bonus: Any,
    state: RunnerState,
    rollouts: int,
) -> None:
    """Collect rollouts that the agent does not learn from.

    These come at the start, and when a run resumes without its replay.
    """
    for _ in range(rollouts):
        chunk, _ = collect(env, actor, state, agent.rollout_length(run.rollout), bonus)
        check_finite(chunk)
        state.bonus_carry = agent.warm_up(chunk, bonus, state.bonus_carry)


def check_finite(chunk: Chunk) -> None:
    """Stop before a NaN or an infinity from the environment reaches a network."""
    for name, column in {"next_obs": chunk.next_obs, "reward": chunk.reward}.items():
        bad = (~column.isfinite()).nonzero()  # (bad values, axes)
        if len(bad):
            _, b, *feature = bad[0].tolist()
            place = f"environment {b}"
            if feature:
                place += f", feature {feature[0]}"
            value = column[tuple(bad[0])].item()
            raise UserError(
                f"The environment returned {value} in {name} ({place}): fix it there. "
                "The checkpoint is intact."
            )


def write_eval(
    run: RunConfig,
    out: RunDir,
    agent: Agent,
    bonus: Any,
    episodes: int | None = None,
    greedy: bool = False,
) -> Path:
    """Evaluate on layouts that training did not see.

    eval.json is the run's own score; other numbers of episodes and greedy play have other files.
    """
    wanted = episodes or run.eval_episodes
    mode: Mode = "greedy" if greedy else "sample"
    env = make_vec(run.env, min(wanted, 128), EVAL_SEED + run.seed, run.threads)
    result = summary(evaluate(agent, env, wanted, mode, bonus))
    env.close()
    path = out.eval
    if greedy:
        path = out.path / f"eval-{wanted}-greedy.json"
    elif wanted != run.eval_episodes:
        path = out.path / f"eval-{wanted}.json"
    write_json(path, result, indent=None)
    return path


class Clock:
    """Steps a second since the start, and when to save."""

    def __init__(self, steps: int) -> None:
        self.began = self.saved = time.monotonic()
        self.steps = steps

    def speed(self, steps: int) -> int:
        """Steps a second of this process."""
        return round((steps - self.steps) / (time.monotonic() - self.began))

    def save_due(self, minutes: float) -> bool:
        """Whether so many minutes have passed since the last time it said yes."""
        now = time.monotonic()
        if now - self.saved < minutes * 60:
            return False
        self.saved = now
        return True


class Stop:
    """Ctrl-C and SIGTERM ask the loop to finish its rollout and save; a second stops at once."""

    asked = False

    def __enter__(self) -> "Stop":
        try:
            self.before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: the caller handles signals
            self.before = {}
        return self

    def _ask(self, number: int, _frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
