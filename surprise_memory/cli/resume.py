"""A command with --resume: what it leaves open stays as the run in the directory has it."""

import dataclasses
from typing import Any

from surprise_memory.cli.options import given
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.config import RunConfig, with_options
from surprise_memory.training.options import with_later
from surprise_memory.training.rundir import RunDir, flatten, read_config


def resumed(run: RunConfig, out: RunDir, argv: list[str]) -> RunConfig:
    """The run to continue, as `argv` gives it, with the run's own values of what is left open.

    Only rank 0 may be able to read the directory. It refuses what is not the run there.
    """
    kept: dict[str, Any] = {}
    if ranks.first():
        if out.exists:
            kept = left_open(out, argv)
        run = with_options(run, kept)
        out.refuse_another(dataclasses.asdict(run), resume=True)
        refuse_fewer_steps(run, out)
    return with_options(run, ranks.from_first(kept))


def left_open(out: RunDir, argv: list[str]) -> dict[str, Any]:
    """The run's steps and the options that came after it was begun, unless `argv` gives them."""
    config = read_config(out.config)
    begun_with = flatten(config)
    found = {"steps": own_steps(out)}
    for name, value in flatten(with_later(config)).items():
        if name not in begun_with:
            found[name] = value
    return {name: value for name, value in found.items() if not given(argv, name)}


def own_steps(out: RunDir) -> int:
    """How many steps the run in a directory is to have."""
    steps = read_config(out.config).get("steps")
    if not isinstance(steps, int):
        raise UserError(
            f"{out.config} is damaged, its steps are {steps!r}: put it back, "
            "or train again elsewhere."
        )
    return steps


def refuse_fewer_steps(run: RunConfig, out: RunDir) -> None:
    """Refuse to end a run before the step that it has reached."""
    if not out.checkpoint.exists() or run.steps >= own_steps(out):  # its last rollout was whole
        return
    reached = read_checkpoint(out)["runner"]["steps"]
    if run.steps < reached:
        raise UserError(
            f"steps = {run.steps:,} is not possible: {out.checkpoint} is at step {reached:,}. "
            f"Give --steps {reached} or more, or leave it out to keep the run's own."
        )
