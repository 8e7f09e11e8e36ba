"""Checkpoints: everything that lasts, in one file that is loaded without running code."""

import dataclasses
import pickle
from collections import deque
from typing import Any

import torch

from surprise_memory.agents.base import Agent
from surprise_memory.envs import VecEnv
from surprise_memory.errors import UserError
from surprise_memory.files import write_atomically
from surprise_memory.training.collect import RECENT, RunnerState
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import rebuild

FORMAT = "surprise-memory checkpoint 2"
UNREADABLE = (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError)
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
    """Write checkpoint.pt; the old one stays until the new one is complete and synced.

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
    write_atomically(out.checkpoint, lambda file: torch.save(content, file))


def read_checkpoint(out: RunDir) -> dict[str, Any]:
    """The checkpoint's content, or a sentence about a missing, corrupted or foreign file."""
    if not out.checkpoint.exists():
        raise UserError(
            f"{out.path} has no checkpoint.pt: train it first, or name another run directory."
        )
    try:
        content = torch.load(out.checkpoint, weights_only=True)
    except UNREADABLE as error:
        raise UserError(
            f"{out.checkpoint} is corrupted or not a checkpoint of this program, and nothing in it "
            "was run: delete it to start this run again, or replace it by an intact copy."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(
            f"{out.checkpoint} is not a '{FORMAT}': it comes from another program or version."
        )
    return content


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
