"""Checkpoints: everything that lasts, in one file of tensors and plain values that is loaded without running code."""

import dataclasses
import pickle
from collections import deque
from typing import Any

import torch

from surprise_memory.bonus import Bonus
from surprise_memory.envs import VecEnv
from surprise_memory.errors import UserError
from surprise_memory.files import write_atomically
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import rebuild

FORMAT = "surprise-memory checkpoint 2"


def save_checkpoint(
    out: RunDir, run: RunConfig, env: VecEnv, agent: Any, bonus: Bonus | None, loop: Any, last: bool
) -> None:
    """Write checkpoint.pt; the old one stays until the new one is whole and synced. `last`: the run stops or ends here."""
    state = {
        "format": FORMAT,
        "method": run.method,
        "agent": agent.state_dict(last),
        "bonus": bonus.state_dict() if bonus else None,
        "loop": {
            f.name: getattr(loop, f.name)
            for f in dataclasses.fields(loop)
            if f.name not in ("bonus_carry", "recent")
        },
        "recent": list(loop.recent),
        "bonus_carry": dataclasses.asdict(loop.bonus_carry),
        "env": env.get_state() if env.saves_state else None,
    }
    write_atomically(out.checkpoint, lambda file: torch.save(state, file))


def read_checkpoint(out: RunDir) -> dict[str, Any]:
    """The checkpoint's content, or a sentence about a missing, torn or foreign file."""
    if not out.checkpoint.exists():
        raise UserError(
            f"{out.path} has no checkpoint.pt: train it first, or name another run directory."
        )
    try:
        state = torch.load(out.checkpoint, weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise UserError(
            f"{out.checkpoint} is torn or not a checkpoint of this program, and nothing in it was run: delete it to start this "
            "run again, or put a whole copy in its place."
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(
            f"{out.checkpoint} is not a '{FORMAT}': it comes from another program or version."
        )
    return state


def restore(out: RunDir, run: RunConfig, agent: Any, bonus: Bonus | None) -> dict[str, Any]:
    """Load the networks, optimisers, statistics and random streams; returns the rest of the checkpoint."""
    state = read_checkpoint(out)
    if state["method"] != run.method:
        raise UserError(
            f"{out.checkpoint} was trained with '{state['method']}', this run is '{run.method}'."
        )
    try:
        agent.load_state_dict(state["agent"])
        if bonus is not None:
            bonus.load_state_dict(state["bonus"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(
            f"{out.checkpoint} does not fit this run's networks: was its config.json changed?"
        ) from error
    return state


def load_checkpoint(
    out: RunDir, run: RunConfig, env: VecEnv, agent: Any, bonus: Bonus | None, make_state: Any
) -> Any:
    """Continue where the checkpoint stands. Environments that cannot be restored begin new episodes."""
    state = restore(out, run, agent, bonus)
    loop = make_state.reset(env, bonus)
    if state["env"] is not None:
        env.set_state(state["env"])  # type: ignore[attr-defined]
        loop = make_state(
            **state["loop"], bonus_carry=rebuild(loop.bonus_carry, state["bonus_carry"])
        )
    loop.steps, loop.recent = state["loop"]["steps"], deque(state["recent"], maxlen=128)
    return loop
