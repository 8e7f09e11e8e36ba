"""A command with --resume: what it leaves open stays as the run in the directory has it."""

import dataclasses

from surprise_memory.cli.options import peek
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir, read_config


def resumed(run: RunConfig, out: RunDir, argv: list[str]) -> RunConfig:
    """The run to continue, as `argv` gives it, with its own steps unless --steps is there.

    Only rank 0 may be able to read the directory. It refuses what is not the run there.
    """
    steps = run.steps
    if ranks.first():
        if out.exists and peek(argv, "--steps") is None:
            steps = own_steps(out)
        run = dataclasses.replace(run, steps=steps)
        out.refuse_another(dataclasses.asdict(run), resume=True)
        refuse_fewer_steps(run, out)
    return dataclasses.replace(run, steps=ranks.from_first(steps))


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
