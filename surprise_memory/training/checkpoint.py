"""Checkpoints: everything that lasts, in one file that is loaded without running code."""

import dataclasses
from collections import deque
from shlex import quote
from typing import Any, NamedTuple

from surprise_memory import torch_files
from surprise_memory.agents.base import Agent
from surprise_memory.envs import VecEnv
from surprise_memory.errors import OtherVersion, UserError
from surprise_memory.nn import ranks
from surprise_memory.training.collect import RECENT, RunnerState
from surprise_memory.training.config import RunConfig
from surprise_memory.training.processes import check_same, own_actions, share
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import moved, rebuild

FORMAT = "surprise-memory checkpoint 4"
KEYS = {
    "format", "method", "agent", "buffer", "bonus", "runner", "recent", "bonus_carry", "env",
    "warmup",
}  # fmt: skip
MISFITS = (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError)
APART = ("bonus_carry", "recent")  # of the runner's state, saved as plain values
LASTS = ("steps", "task_reward_total")  # of it, whatever becomes of the running episodes
FILTERED = "scaler.filtered"  # of the bonus's state, one number for each environment


class Parts(NamedTuple):
    """What a run is made of."""

    run: RunConfig
    out: RunDir
    env: VecEnv
    agent: Agent
    bonus: Any  # None without one


def save_checkpoint(
    parts: Parts, state: RunnerState, final: bool, warmup: int | None = None
) -> None:
    """Write checkpoint.pt; the old one is kept as checkpoint.previous.pt.

    `final`: the run stops or ends here. `warmup`: rollouts that are done, in the midst of it.
    """
    run, out, env, agent, bonus = parts
    names = [f.name for f in dataclasses.fields(state) if f.name not in (*APART, "others")]
    content = {
        "format": FORMAT,
        "method": run.method,
        "of": {"env": run.env, "seed": run.seed},
        "logged": out.logged,
        "agent": agent.state_dict(),
        "buffer": agent.buffer_state(final),
        "bonus": None,
        "runner": {name: getattr(state, name) for name in names},
        "recent": list(state.recent),
        "bonus_carry": dataclasses.asdict(state.bonus_carry),
        "env": None,
        "warmup": None,
    }
    if bonus is not None:
        content["bonus"] = bonus.state_dict()
    if env.saves_state:
        content["env"] = env.get_state()
    if warmup is not None:
        stream = env.action_space.np_random.bit_generator.state
        content["warmup"] = {"done": warmup, "actions": stream}
    if ranks.world() > 1:
        make_whole(content)
    if ranks.first():
        torch_files.save(content, out.checkpoint, out.previous)


def make_whole(content: dict[str, Any]) -> None:
    """Let a rank's content be that of the whole run, without the episodes that are running."""
    check_same({"agent": content["agent"], "bonus": content["bonus"] or {}})
    runner = {name: content["runner"][name] for name in LASTS}
    if runner["task_reward_total"] is not None:
        runner["task_reward_total"] = sum(ranks.everyones(runner["task_reward_total"]))
    content |= {"runner": runner, "bonus_carry": {}, "env": None}
    if content["bonus"] is not None:
        content["bonus"][FILTERED] = ranks.gather(content["bonus"][FILTERED])


def read_checkpoint(out: RunDir) -> dict[str, Any]:
    """The checkpoint's content, or a sentence about a missing, corrupted or foreign file."""
    if not out.checkpoint.exists():
        raise UserError(
            f"{out.path} has no checkpoint.pt: train it first, or name another run directory."
        )
    try:
        content = torch_files.load(out.checkpoint)
    except torch_files.Damaged as error:
        raise UserError(f"{error} {cure(out)}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(
            f"{out.checkpoint} is not a '{FORMAT}': it comes from another program or version."
        )
    missing = sorted(KEYS - content.keys())
    if missing:
        raise UserError(f"{out.checkpoint} has no '{missing[0]}': it is not whole. {cure(out)}")
    runner = content["runner"]
    if not isinstance(runner, dict) or not isinstance(runner.get("steps"), int):
        raise UserError(f"{out.checkpoint} does not say its step: it is not whole. {cure(out)}")
    return content


def cure(out: RunDir) -> str:
    """What to do about a checkpoint that cannot be used."""
    if out.previous.exists():
        return (
            f"The checkpoint before it is kept: `mv {quote(str(out.previous))} "
            f"{quote(str(out.checkpoint))}`, then go on."
        )
    return "Put an intact copy in its place, or delete it to start this run again."


def restore(out: RunDir, run: RunConfig, agent: Agent, bonus: Any) -> None:
    """Load networks, optimisers, statistics and random streams."""
    content = read_checkpoint(out)
    put_back(content, out, run, agent, bonus)
    out.logged = content.get("logged", 0)


def put_back(
    content: dict[str, Any], out: RunDir, run: RunConfig, agent: Agent, bonus: Any
) -> None:
    """Give the agent and the bonus what a checkpoint holds of them."""
    if content["method"] != run.method:
        raise UserError(
            f"{out.checkpoint} was trained with '{content['method']}', this run is '{run.method}'."
        )
    for name, value in content.get("of", {}).items():
        mine = getattr(run, name)
        if value != mine:
            raise UserError(
                f"{out.checkpoint} is another run's: its {name} is {value}, here {mine}. "
                "Put this run's own in its place."
            )
    try:
        agent.load_state_dict(content["agent"])
        buffer = content.pop("buffer")  # may be gigabytes: not kept beside the agent's copy
        if buffer is not None:
            agent.load_buffer(buffer)
        if bonus is not None:
            bonus.load_state_dict(own_share(content["bonus"], run.envs))
    except OtherVersion as error:
        raise UserError(f"{out.checkpoint} does not load. {error}") from error
    except MISFITS as error:
        raise UserError(
            f"{out.checkpoint} does not fit this run's networks: was its config.json changed?"
        ) from error


def own_share(state: dict[str, Any], envs: int) -> dict[str, Any]:
    """The state of a whole run's bonus, with this rank's environments alone."""
    if ranks.world() == 1:
        return state
    start, number = share(envs)
    return state | {FILTERED: state[FILTERED][start : start + number]}


def resumed_state(content: dict[str, Any], parts: Parts) -> RunnerState:
    """Where a checkpoint goes on. Environments that cannot be restored begin new episodes."""
    run, out, env, agent, bonus = parts
    state = RunnerState.reset(env, bonus, run.envs)
    try:
        if content["env"] is not None:
            env.set_state(content["env"])
            carry = rebuild(state.bonus_carry, content["bonus_carry"])
            if bonus is not None:
                carry = moved(carry, bonus.device)
            state = RunnerState(**content["runner"], bonus_carry=carry)
            state.agent_state = moved(state.agent_state, agent.device)
        state.steps = content["runner"]["steps"]
        state.task_reward_total = content["runner"].get("task_reward_total")
        if state.task_reward_total is not None and not ranks.first():
            state.task_reward_total = 0.0  # rank 0 has what was before
        state.recent = deque(map(float, content["recent"]), maxlen=RECENT)
        if content["warmup"] is not None:
            env.action_space.np_random.bit_generator.state = content["warmup"]["actions"]
            own_actions(env.action_space)
    except MISFITS as error:
        raise UserError(
            f"{out.checkpoint} does not fit this run's environment: was its config.json changed?"
        ) from error
    return state
