"""One run: build, then loop { collect, pay and teach the bonus, teach the agent, log, save }."""

import dataclasses
import json
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.agents.ppo import PPO
from surprise_memory.bonus import Bonus, Carry
from surprise_memory.buffers import Rollout
from surprise_memory.checkpoint import load_checkpoint, save_checkpoint
from surprise_memory.config import RunConfig
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.evaluate import evaluate, summary
from surprise_memory.rundir import RunDir, write_atomically
from surprise_memory.types import Chunk, UserError

Report = Callable[[dict[str, Any]], None]
EVAL_SEED = 1_000_003  # added to a run's seed, so that evaluation layouts are not training's


@dataclass
class Loop:
    """All that outlives a rollout besides the agent and the bonus."""

    obs: Tensor  # (B, *obs), what to act on next
    first: Tensor  # (B,) bool
    returns: Tensor  # (B,) task return of the running episodes
    lengths: Tensor  # (B,)
    memory: Carry  # what the bonus remembers of the running episodes
    steps: int = 0
    recent: deque[float] = dataclasses.field(default_factory=lambda: deque(maxlen=128))

    @staticmethod
    def begin(env: VecEnv, bonus: Bonus | None) -> "Loop":
        """All environments at the start of an episode."""
        zeros, opened = torch.zeros(env.num_envs), torch.ones(env.num_envs, dtype=torch.bool)
        return Loop(torch.as_tensor(env.reset()), opened, zeros, zeros.clone(), bonus.start() if bonus else Carry(None, None))


def build(run: RunConfig) -> tuple[VecEnv, PPO, Bonus | None]:
    """The environments, the agent and the bonus of a run."""
    env = make_vec(run.env, run.envs, run.seed * run.envs, run.threads)
    bonus = None
    if run.method != "none":
        bonus = Bonus(run.method, env.obs_shape, run.envs, run.bonus, run.seed, env.action_space)
    return env, PPO(env.obs_shape, env.action_space, run.ppo, bonus is not None, run.seed), bonus


def train(run: RunConfig, out: RunDir, report: Report | None = None) -> Loop:
    """Train until `run.steps`, continuing from the checkpoint if there is one. `report` gets every row of metrics."""
    torch.set_num_threads(run.threads)
    env, agent, bonus = build(run)
    loop = load_checkpoint(out, run, env, agent, bonus, Loop) if out.checkpoint.exists() else None
    if loop is None:
        loop = Loop.begin(env, bonus)
        warm_up(run, env, bonus, loop)
    out.rewind(loop.steps)
    stop, saved, began = Stop(), time.monotonic(), (time.monotonic(), loop.steps)
    with stop:
        while loop.steps < run.steps and not stop.asked:
            chunk, episodes = collect(env, agent, loop, run.rollout)
            check_finite(chunk)
            r_int, metrics = None, dict[str, float]()
            if bonus is not None:
                r_int, metrics, loop.memory = bonus.absorb(chunk, loop.memory)
            metrics |= agent.update(chunk, r_int) | tv_metrics(env, chunk, r_int) | room_metrics(chunk, r_int)
            check_losses(metrics, out)
            speed = (loop.steps - began[1]) / (time.monotonic() - began[0])
            row = {"step": loop.steps, "charts/SPS": round(speed)} | episode_metrics(episodes, loop) | metrics
            out.log(row)
            if report:
                report(row)
            if time.monotonic() - saved >= run.save_minutes * 60:
                save_checkpoint(out, run, env, agent, bonus, loop)
                saved = time.monotonic()
    save_checkpoint(out, run, env, agent, bonus, loop)
    env.close()
    if stop.asked:
        raise KeyboardInterrupt(f"Stopped and saved at step {loop.steps:,}. Add --resume to continue.")
    if run.eval_episodes:
        write_eval(run, out, agent)
    out.finish()
    return loop


def warm_up(run: RunConfig, env: VecEnv, bonus: Bonus | None, loop: Loop) -> None:
    """Random actions teach the bonus what is ordinary, and its observation statistics; nothing is paid."""
    env.action_space.seed(run.seed)
    for _ in range(run.warmup_rollouts if bonus is not None else 0):
        chunk, _ = collect(env, RandomAgent(env), loop, run.rollout)
        check_finite(chunk)
        assert bonus is not None
        _, _, loop.memory = bonus.absorb(chunk, loop.memory, warmup=True)


class RandomAgent:
    """Uniform actions, drawn from the action space's own stream."""

    def __init__(self, env: VecEnv) -> None:
        self.space, self.num_envs = env.action_space, env.num_envs

    def act(self, obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One action for each environment; nothing to note."""
        return torch.as_tensor(np.stack([self.space.sample() for _ in range(self.num_envs)])), {}


def collect(env: VecEnv, agent: Any, loop: Loop, T: int) -> tuple[Chunk, list[tuple[float, int]]]:
    """T steps of every environment. Moves `loop` on; returns the chunk and (return, length) of each finished episode."""
    rollout, episodes = Rollout(T), []
    for _ in range(T):
        action, notes = agent.act(loop.obs)
        step = env.step(action.numpy())
        told = {name: torch.as_tensor(x) for name, x in step.info.items()}
        row = {name: torch.as_tensor(x) for name, x in step._asdict().items() if name != "info"}
        loop_obs, done = row.pop("obs"), row["terminated"] | row["truncated"]
        rollout.add(obs=loop.obs, action=action, first=loop.first, **row, **notes, **told)
        loop.returns += row["reward"]
        loop.lengths += row["valid"]
        for b in done.nonzero().squeeze(1).tolist():
            episodes.append((loop.returns[b].item(), int(loop.lengths[b].item())))
        loop.returns[done], loop.lengths[done] = 0.0, 0.0
        # After an end comes a first; a row that never happened stands between them and hands `first` on.
        loop.first = done | ~row["valid"]
        loop.obs = loop_obs
        loop.steps += env.num_envs
    return rollout.chunk(), episodes


def episode_metrics(episodes: list[tuple[float, int]], loop: Loop) -> dict[str, float]:
    """Task return and length of the episodes that ended in this rollout; nothing where none did."""
    loop.recent.extend(value for value, _ in episodes)
    row = {"charts/episodes": float(len(episodes))}
    if loop.recent:
        row["charts/return_128"] = float(np.mean(loop.recent))
    if episodes:
        row["charts/episodic_return"] = float(np.mean([value for value, _ in episodes]))
        row["charts/episodic_length"] = float(np.mean([length for _, length in episodes]))
    return row


def tv_metrics(env: VecEnv, chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
    """With a noisy TV: the share of steps that watched it, and the bonus there in standard deviations from its mean."""
    if not hasattr(env, "tv_action"):
        return {}
    watched = chunk.action[chunk.valid] == env.tv_action
    report = {"noisy_tv/share": watched.float().mean().item()}
    if r_int is not None and watched.any() and not watched.all():
        paid = r_int[chunk.valid].double()
        report["noisy_tv/z"] = ((paid[watched].mean() - paid.mean()) / paid.std(correction=0).clamp(min=1e-12)).item()
        report["noisy_tv/pay_share"] = (paid[watched].sum() / paid.sum().clamp(min=1e-12)).item()
    return report


def room_metrics(chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
    """Where the environment tells the room: how many were visited, and the mean bonus in each."""
    if "room" not in chunk.notes:
        return {}
    rooms = chunk.notes["room"][chunk.valid]
    report = {"rooms/visited": float(len(rooms.unique()))}
    if r_int is not None:
        report |= {f"rooms/bonus_{k}": r_int[chunk.valid][rooms == k].mean().item() for k in rooms.unique().tolist()}
    return report


def check_finite(chunk: Chunk) -> None:
    """Stop before a NaN or an infinity from the environment reaches a network."""
    for name, column in {"next_obs": chunk.next_obs, "reward": chunk.reward}.items():
        bad = (~column.isfinite()).nonzero()  # (bad values, axes)
        if len(bad):
            _, b, *feature = bad[0].tolist()
            place = f"environment {b}" + (f", feature {feature[0]}" if feature else "")
            value = column[tuple(bad[0])].item()
            raise UserError(f"The environment returned {value} in {name} ({place}): mend it there. The checkpoint is intact.")


def check_losses(metrics: dict[str, float], out: RunDir) -> None:
    """Stop when learning has blown up, keeping the checkpoint from before."""
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
        raise UserError(
            f"Training diverged: {', '.join(bad)} is not a number. {out.checkpoint} is from before; lower --ppo.lr or "
            "--bonus.lr, or look at the reward's size."
        )


def write_eval(run: RunConfig, out: RunDir, agent: PPO, episodes: int | None = None, greedy: bool = False) -> dict[str, Any]:
    """Evaluate on layouts that training did not see and write eval.json."""
    wanted = episodes or run.eval_episodes
    env = make_vec(run.env, min(wanted, 128), EVAL_SEED + run.seed, run.threads)
    result = summary(evaluate(agent, env, wanted, greedy))
    env.close()
    write_atomically(out.eval, lambda file: file.write((json.dumps(result) + "\n").encode()))
    return result


class Stop:
    """Ctrl-C and SIGTERM ask the loop to finish its rollout and save; a second one stops at once."""

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
