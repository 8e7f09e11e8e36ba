"""Checkpoints: everything that lasts, in one file that is loaded without running code."""

import dataclasses
from collections import deque
from shlex import quote
from typing import Any

from surprise_memory import torch_files
from surprise_memory.agents.base import Agent
from surprise_memory.envs import VecEnv
from surprise_memory.errors import UserError
from surprise_memory.training.collect import RECENT, RunnerState
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import rebuild

FORMAT = "surprise-memory checkpoint 3"
APART = ("bonus_carry", "recent")  # of the runner's state, saved as plain values


def save_checkpoint(
    out: RunDir,
    run: RunConfig,
    env: VecEnv,
    agent: Agent,
    bonus: Any,
    state: RunnerState,
    final: bool,
) -> None:
    """Write checkpoint.pt; the old one is kept as checkpoint.previous.pt.

    `final`: the run stops or ends here.
    """
    names = [f.name for f in dataclasses.fields(state) if f.name not in APART]
    content = {
        "format": FORMAT,
        "method": run.method,
        "agent": agent.state_dict(),
        "buffer": agent.buffer_state(final),
        "bonus": None,
        "runner": {name: getattr(state, name) for name in names},
        "recent": list(state.recent),
        "bonus_carry": dataclasses.asdict(state.bonus_carry),
        "env": None,
    }
    if bonus is not None:
        content["bonus"] = bonus.state_dict()
    if env.saves_state:
        content["env"] = env.get_state()
    torch_files.save(content, out.checkpoint, out.previous)


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
    return content


def cure(out: RunDir) -> str:
    """What to do about a checkpoint that cannot be used."""
    if out.previous.exists():
        return (
            f"The checkpoint before it is kept: `mv {quote(str(out.previous))} "
            f"{quote(str(out.checkpoint))}`, then go on."
        )
    return "Put an intact copy in its place, or delete it to start this run again."


def restore(out: RunDir, run: RunConfig, agent: Agent, bonus: Any) -> dict[str, Any]:
    """Load networks, optimisers, statistics and random streams; returns the whole checkpoint."""
    content = read_checkpoint(out)
    if content["method"] != run.method:
        raise UserError(
            f"{out.checkpoint} was trained with '{content['method']}', this run is '{run.method}'."
        )
    try:
        agent.load_state_dict(content["agent"])
        if content["buffer"] is not None:
            agent.load_buffer(content["buffer"])
        if bonus is not None:
            bonus.load_state_dict(content["bonus"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(
            f"{out.checkpoint} does not fit this run's networks: was its config.json changed?"
        ) from error
    return content


def load_checkpoint(
    out: RunDir, run: RunConfig, env: VecEnv, agent: Agent, bonus: Any
) -> RunnerState:
    """Continue from the checkpoint. Environments that cannot be restored begin new episodes."""
    content = restore(out, run, agent, bonus)
    state = RunnerState.reset(env, bonus)
    if content["env"] is not None:
        env.set_state(content["env"])
        carry = rebuild(state.bonus_carry, content["bonus_carry"])
        state = RunnerState(**content["runner"], bonus_carry=carry)
    state.steps = content["runner"]["steps"]
    state.recent = deque(content["recent"], maxlen=RECENT)
    return state
