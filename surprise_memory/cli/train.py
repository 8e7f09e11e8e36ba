"""The commands that take all options of a run: train and doctor."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surprise_memory.cli.options import given, parse_run
from surprise_memory.cli.resume import resumed
from surprise_memory.cli.runs import say_eval
from surprise_memory.errors import UserError, require
from surprise_memory.files import read_json, write_json
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import pick_device
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loggers import Loggers, find_loggers
from surprise_memory.training.loop import train
from surprise_memory.training.plan import check_plan, describe_plan
from surprise_memory.training.processes import check_processes, joined
from surprise_memory.training.progress import Progress, literal, rich_console, status
from surprise_memory.training.rundir import NoRunDir, RunDir, flatten

MANY = (
    "Over N processes, on CPUs or GPUs: torchrun --nproc-per-node N -m surprise_memory train ENV "
    "(docs/devices.md)."
)

# Options of a run that the doctor has no use for: it takes random actions, for --rollouts.
NOT_EXAMINED = (
    "agent", "steps", "same_layouts", "save_minutes", "eval_episodes", "eval_steps",
    "step_seconds", "compile", "logger", "ppo", "dqn",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a run lives."""

    run_dir: Path | None = None
    """The run's directory; runs/ENV/METHOD-PRESET-SEED if not given."""
    resume: bool = False
    """Continue the run that is there."""
    picture: bool = False
    """Draw what `show` draws when the run is complete, and give it to the loggers."""


@dataclass(frozen=True)
class Examination:
    """How thorough the doctor is."""

    seeds: int = 3
    """Repetitions; every number comes with an interval over them."""
    rollouts: int = 40
    """Rollouts of a random policy per seed."""
    workers: int = 2
    """Processes side by side."""
    noise: str = "fresh"
    """Kind of noise it is tested with: fresh, channels (8 fixed images), replay, view (a part)."""
    out: Path = Path("doctor")
    """Where doctor.json and doctor.png go."""


def train_command(argv: list[str]) -> None:
    """Train an agent. The preset fills in every option that is not given."""
    with joined():
        train_here(argv)


def train_here(argv: list[str]) -> None:
    """Train, or do this process's share of it."""
    run, place = parse_run(argv, "train", f"{train_command.__doc__} {MANY}", Place())
    run = dataclasses.replace(run, device=str(pick_device(run.device)))  # config.json says which
    path = place.run_dir or run.default_dir
    if place.resume:  # forgotten options are to be named before their plan is
        run = resumed(run, RunDir(path), argv)
    check_plan(run)  # before there is a directory
    check_processes(run)
    if not ranks.first():
        train(run, NoRunDir(path))
        return
    kinds = find_loggers(run.logger)
    out = RunDir(path)
    out.open(dataclasses.asdict(run), place.resume)
    console = rich_console()
    where = literal(out.path)
    console.print(f"[bold]{literal(run.env)}[/] · {run.method} · {run.steps:,} steps · {where}")
    console.print(f"Plan: {describe_plan(run)}")
    if place.resume and not out.checkpoint.exists():
        console.print("There is no checkpoint yet: the run begins again.")
    if ranks.world() > 1:
        console.print(f"{ranks.world()} processes, {run.envs} environments between them")
    last_step = out.last_row().get("step", 0)
    loggers = Loggers(kinds, out.path, flatten(dataclasses.asdict(run)), last_step)
    with loggers, Progress(run.method, run.steps) as progress:

        def report(row: dict[str, Any]) -> None:
            progress(row)
            loggers.log(row, out.rewound)

        state = train(run, out, report, progress.at)
        if run.eval_episodes:
            loggers.log_score(read_json(out.eval)["mean"], state.steps)
        if place.picture:
            log_picture(run, out, loggers, state.steps)
    if run.eval_episodes:
        say_eval(out.eval)
    out.close()


def log_picture(run: RunConfig, out: RunDir, loggers: Loggers, step: int) -> None:
    """Give the picture of a complete run to its loggers, or say why there is none."""
    from surprise_memory.tools.run_figures import run_figure

    try:
        figure = run_figure(run, out, seed=0)
    except UserError as error:
        print(f"There is no picture: {error}", file=sys.stderr)
        return
    loggers.log_figure("show", figure, step)


def doctor_command(argv: list[str]) -> None:
    """Examine a bonus: is it alive, does its memory matter, does it follow rarity or noise?"""
    from surprise_memory.tools import doctor

    run, how = parse_run(argv, "doctor", doctor_command.__doc__ or "", Examination())
    require(run.device == "cpu", "device", run.device, "cpu: the doctor examines a bonus there")
    refuse_unused(argv)
    how.out.mkdir(parents=True, exist_ok=True)  # before minutes of work
    console = rich_console()
    with status("examining") as progress:
        diagnosis = doctor.examine(run, how.seeds, how.rollouts, progress, how.workers, how.noise)
    doctor.print_diagnosis(diagnosis, console)
    write_json(how.out / "doctor.json", dataclasses.asdict(diagnosis), allow_nan=False)
    picture = how.out / "doctor.png"
    try:
        doctor.plot_diagnosis(diagnosis, picture)
    except UserError as error:  # without the extra `report`; the numbers are there
        print(f"There is no picture: {error}", file=sys.stderr)
        return
    console.print(f"Picture: {literal(picture)}")


def refuse_unused(argv: list[str]) -> None:
    """Refuse options that would change nothing in an examination."""
    for name in NOT_EXAMINED:
        if given(argv, name):
            raise UserError(
                f"--{name.replace('_', '-')} is of no use to the doctor, which takes random "
                "actions and trains the bonus alone, for --rollouts: leave it out."
            )
