"""One run: build, then loop { collect, pay and teach the bonus, teach the agent, log, save }."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.agents.dqn import DQN
from surprise_memory.agents.ppo import PPO
from surprise_memory.agents.uniform import Uniform
from surprise_memory.bonus import Bonus
from surprise_memory.bonus.replay import ReplayedBonus
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import UserError
from surprise_memory.files import write_json
from surprise_memory.training.checkpoint import load_checkpoint, save_checkpoint
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.evaluate import evaluate, summary
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import Chunk

Report = Callable[[dict[str, Any]], None]
EVAL_SEED = 1_000_003  # added to a run's seed, so that evaluation layouts are not training's


def build(run: RunConfig) -> tuple[VecEnv, Any, Bonus | None]:
    """The environments, the agent and the bonus of a run."""
    env = make_vec(run.env, run.envs, run.seed * run.envs, run.threads)
    kind = ReplayedBonus if run.backbone == "dqn" else Bonus
    bonus = None
    if run.method != "none":
        bonus = kind(run.method, env.obs_shape, run.envs, run.bonus, run.seed, env.action_space)
    if run.backbone == "dqn":
        frame = getattr(env, "frame_channels", env.obs_shape[0])
        return env, DQN(env.obs_shape, env.action_space, run.envs, run.dqn, run.seed, frame), bonus
    if run.backbone == "random":
        return env, Uniform(env.action_space, run.seed), bonus
    return env, PPO(env.obs_shape, env.action_space, run.ppo, bonus is not None, run.seed), bonus


def train(run: RunConfig, out: RunDir, report: Report | None = None) -> RunnerState:
    """Train until `run.steps`, continuing from the checkpoint if there is one. `report` gets every row of metrics."""
    torch.set_num_threads(run.threads)
    env, agent, bonus = build(run)
    loop = (
        load_checkpoint(out, run, env, agent, bonus, RunnerState)
        if out.checkpoint.exists()
        else None
    )
    out.rewind(
        loop.steps if loop else 0
    )  # before anything is lived through: steps count on from here
    if loop is None:
        loop = RunnerState.reset(env, bonus)
        warm_up(run, env, agent, bonus, loop)
    elif run.backbone == "dqn" and not agent.replay.ready and loop.steps < run.steps:
        held = min(run.dqn.replay // 10, loop.steps) // (run.envs * run.block)
        refill(run, env, agent, bonus, loop, max(run.warmup_rollouts, held))
    stop, saved, began = Stop(), time.monotonic(), (time.monotonic(), loop.steps)
    with stop:
        while loop.steps < run.steps and not stop.asked:
            chunk, episodes = collect(env, agent, loop, run.block, bonus)
            check_finite(chunk)
            r_int, metrics = teach(run, agent, bonus, chunk, loop)
            metrics |= tv_metrics(env, chunk, r_int) | room_metrics(chunk, r_int)
            check_losses(metrics, out, run.backbone)
            speed = (loop.steps - began[1]) / (time.monotonic() - began[0])
            row = (
                {"step": loop.steps, "charts/SPS": round(speed)}
                | episode_metrics(episodes, loop)
                | metrics
            )
            out.log(row)
            if report:
                report(row)
            if time.monotonic() - saved >= run.save_minutes * 60:
                save_checkpoint(out, run, env, agent, bonus, loop, last=False)
                saved = time.monotonic()
    save_checkpoint(out, run, env, agent, bonus, loop, last=True)
    env.close()
    if stop.asked:
        raise KeyboardInterrupt(
            f"Stopped and saved at step {loop.steps:,}. Add --resume to continue."
        )
    if run.eval_episodes:
        write_eval(run, out, agent, bonus)
    out.finish()
    return loop


Lesson = tuple[Tensor | None, dict[str, float]]  # the bonus (T, B) that was paid, and metrics


def teach(run: RunConfig, agent: Any, bonus: Any, chunk: Chunk, loop: RunnerState) -> Lesson:
    """What was lived through, learnt as the run's agent learns."""
    return (teach_dqn if run.backbone == "dqn" else teach_ppo)(agent, bonus, chunk, loop)


def teach_ppo(agent: PPO | Uniform, bonus: Bonus | None, chunk: Chunk, loop: RunnerState) -> Lesson:
    """A rollout is used once: the bonus pays it and learns from it, then the agent does."""
    if bonus is None:
        return None, agent.update(chunk, None)
    r_int, metrics, loop.bonus_carry = bonus.absorb(chunk, loop.bonus_carry)
    return r_int, metrics | agent.update(chunk, r_int)


def teach_dqn(agent: DQN, bonus: ReplayedBonus | None, chunk: Chunk, loop: RunnerState) -> Lesson:
    """A block goes into the replay; as many updates as its steps have earned are made from rng of it."""
    remember(agent, bonus, chunk, loop)
    report: dict[str, list[float]] = {}
    agent.updates_due += agent.config.updates * len(chunk.reward) * agent.replay.ready
    for _ in range(int(agent.updates_due)):
        drawn, r_int, metrics = (
            agent.replay.sample(agent.config.batch, agent.rng),
            None,
            dict[str, float](),
        )
        if bonus is not None:
            r_int, metrics = bonus.learn(drawn.chunk, drawn.weight)
            metrics |= pair_lesson(agent, bonus)
        metrics |= agent.learn(drawn, r_int)
        for name, value in metrics.items():
            report.setdefault(name, []).append(value)
        if not np.isfinite(list(metrics.values())).all():
            break  # the caller says so; no draw from priorities that are not numbers
    agent.updates_due -= int(agent.updates_due)
    return chunk.extras.get("r_int"), {
        name: float(np.mean(values)) for name, values in report.items()
    }


def remember(agent: Any, bonus: ReplayedBonus | None, chunk: Chunk, loop: RunnerState) -> None:
    """Put a block into the replay, and its observations into the bonus's statistics."""
    agent.remember(chunk)
    if bonus is not None:
        loop.bonus_carry = bonus.meet(chunk, loop.bonus_carry)


def pair_lesson(agent: DQN, bonus: ReplayedBonus) -> dict[str, float]:
    """Neighbours in time, for generators that learn from them."""
    wanted = bonus.surprise.pairs
    return bonus.update_encoder(*agent.replay.pairs(wanted, agent.rng)) if wanted else {}


def warm_up(
    run: RunConfig, env: VecEnv, agent: Any, bonus: Bonus | None, loop: RunnerState
) -> None:
    """Random actions teach the bonus what is ordinary, and its observation statistics; nothing is paid."""
    env.action_space.seed(run.seed)
    if run.backbone == "dqn":
        refill(run, env, RandomAgent(env, agent), bonus, loop, run.warmup_rollouts)
        if bonus is not None and agent.replay.ready:
            pretrain(agent, bonus)
        return
    for _ in range(run.warmup_rollouts if bonus is not None else 0):
        chunk, _ = collect(env, RandomAgent(env), loop, run.rollout)
        check_finite(chunk)
        assert bonus is not None
        _, _, loop.bonus_carry = bonus.absorb(chunk, loop.bonus_carry, warmup=True)


def refill(
    run: RunConfig, env: VecEnv, actor: Any, bonus: Any, loop: RunnerState, blocks: int
) -> None:
    """Blocks that are lived through and not learnt from: at the start, and on resuming without the replay."""
    for _ in range(blocks):
        chunk, _ = collect(env, actor, loop, run.block, bonus)
        check_finite(chunk)
        remember(actor, bonus, chunk, loop)


def pretrain(agent: DQN, bonus: Any) -> None:
    """What the random actions brought, learnt before anything is paid: first the encoder, then the model above it."""
    for _ in range(agent.config.pretrain_pairs if bonus.surprise.pairs else 0):
        pair_lesson(agent, bonus)
    for _ in range(agent.config.pretrain):
        drawn = agent.replay.sample(agent.config.batch, agent.rng)
        bonus.learn(drawn.chunk, torch.ones_like(drawn.weight), warmup=True)


def episode_metrics(episodes: list[tuple[float, int]], loop: RunnerState) -> dict[str, float]:
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
    if env.tv_action is None:
        return {}
    watched = chunk.action[chunk.valid] == env.tv_action
    report = {"noisy_tv/share": watched.float().mean().item()}
    if r_int is not None and watched.any() and not watched.all():
        paid = r_int[chunk.valid].double()
        report["noisy_tv/z"] = (
            (paid[watched].mean() - paid.mean()) / paid.std(correction=0).clamp(min=1e-12)
        ).item()
        report["noisy_tv/pay_share"] = (paid[watched].sum() / paid.sum().clamp(min=1e-12)).item()
    return report


def room_metrics(chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
    """Where the environment tells the room: how many were visited, and the mean bonus in each."""
    if "room" not in chunk.extras:
        return {}
    rooms = chunk.extras["room"][chunk.valid]
    report = {"rooms/visited": float(len(rooms.unique()))}
    if r_int is not None:
        report |= {
            f"rooms/bonus_{k}": r_int[chunk.valid][rooms == k].mean().item()
            for k in rooms.unique().tolist()
        }
    return report


def check_finite(chunk: Chunk) -> None:
    """Stop before a NaN or an infinity from the environment reaches a network."""
    for name, column in {"next_obs": chunk.next_obs, "reward": chunk.reward}.items():
        bad = (~column.isfinite()).nonzero()  # (bad values, axes)
        if len(bad):
            _, b, *feature = bad[0].tolist()
            place = f"environment {b}" + (f", feature {feature[0]}" if feature else "")
            value = column[tuple(bad[0])].item()
            raise UserError(
                f"The environment returned {value} in {name} ({place}): mend it there. The checkpoint is intact."
            )


def check_losses(metrics: dict[str, float], out: RunDir, agent: str) -> None:
    """Stop when learning has blown up, keeping the checkpoint from before."""
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
        raise UserError(
            f"Training diverged: {', '.join(bad)} is not a number. {out.checkpoint} is from before; lower --{agent}.lr or "
            "--bonus.lr, or look at the reward's size."
        )


def write_eval(
    run: RunConfig,
    out: RunDir,
    agent: Any,
    bonus: Bonus | None,
    episodes: int | None = None,
    greedy: bool = False,
) -> Path:
    """Evaluate on layouts that training did not see. eval.json is the run's own score; other ways have other files."""
    wanted = episodes or run.eval_episodes
    env = make_vec(run.env, min(wanted, 128), EVAL_SEED + run.seed, run.threads)
    result = summary(evaluate(agent, env, wanted, greedy, bonus))
    env.close()
    own = wanted == run.eval_episodes and not greedy
    path = out.eval if own else out.path / f"eval-{wanted}{'-greedy' if greedy else ''}.json"
    write_json(path, result, indent=None)
    return path


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
