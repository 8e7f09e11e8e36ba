"""The table of all commands; and train and doctor, which take all options of a run."""

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from surprise_memory import __version__
from surprise_memory.cli import commands
from surprise_memory.cli.options import parse_run
from surprise_memory.errors import UserError, choose, require
from surprise_memory.files import read_json, write_json
from surprise_memory.nn.devices import pick_device
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loggers import Loggers, find_loggers
from surprise_memory.training.loop import train
from surprise_memory.training.plan import check_plan, describe_plan
from surprise_memory.training.progress import Progress, rich_console, status
from surprise_memory.training.rundir import RunDir, flatten


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
    run, place = parse_run(argv, "train", train_command.__doc__ or "", Place())
    run = dataclasses.replace(run, device=str(pick_device(run.device)))  # config.json says which
    check_plan(run)  # before there is a directory
    kinds = find_loggers(run.logger)
    out = RunDir(place.run_dir or run.default_dir)
    out.open(dataclasses.asdict(run), place.resume)
    console = rich_console()
    console.print(f"[bold]{run.env}[/] · {run.method} · {run.steps:,} steps · {out.path}")
    console.print(f"Plan: {describe_plan(run)}")
    last_step = out.last_row().get("step", 0)
    loggers = Loggers(kinds, out.path, flatten(dataclasses.asdict(run)), last_step)
    with loggers, Progress(run.method, run.steps) as progress:

        def report(row: dict[str, Any]) -> None:
            progress(row)
            loggers.log(row)

        state = train(run, out, report)
        if run.eval_episodes:
            loggers.log_score(read_json(out.eval)["mean"], state.steps)
        if place.picture:
            log_picture(run, out, loggers, state.steps)
    if run.eval_episodes:
        commands.say_eval(out.eval)
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
    how.out.mkdir(parents=True, exist_ok=True)  # before minutes of work
    console = rich_console()
    with status("examining") as progress:
        diagnosis = doctor.examine(run, how.seeds, how.rollouts, progress, how.workers, how.noise)
    doctor.print_diagnosis(diagnosis, console)
    write_json(how.out / "doctor.json", dataclasses.asdict(diagnosis), allow_nan=False)
    picture = how.out / "doctor.png"
    doctor.plot_diagnosis(diagnosis, picture)
    console.print(f"Picture: {picture}")


COMMANDS: dict[str, Any] = {
    "train": train_command,
    "eval": commands.eval_command,
    "envs": commands.envs_command,
    "methods": commands.methods_command,
    "doctor": doctor_command,
    "bench": commands.bench_command,
    "show": commands.show_command,
    "play": commands.play_command,
    "mnir": commands.mnir_command,
    "inspect": commands.inspect_command,
    "figures": commands.figures_command,
    "reproduce": commands.reproduce_command,
    "report": commands.report_command,
}


def print_commands() -> None:
    """All commands, a line each."""
    print("surprise-memory: explore by the novelty of surprises instead of their size\n")
    for name, command in COMMANDS.items():
        about = (command.__doc__ or "").partition("\n")[0]
        print(f"  {name:9} {about}")
    print("\nFor more: surprise-memory COMMAND --help")


def run_command(name: str, argv: list[str]) -> None:
    """One command with its arguments."""
    command = choose(COMMANDS, name, "command")
    if command in (train_command, doctor_command):  # they parse a run's options themselves
        command(argv)
    else:
        tyro.cli(command, args=argv, prog=f"surprise-memory {name}")


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; a user's mistake is one sentence and 2."""
    if argv is None:
        argv = sys.argv[1:]
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print_commands()
        elif argv[0] == "--version":
            print(f"surprise-memory {__version__}")
        else:
            run_command(argv[0], argv[1:])
    except KeyboardInterrupt as stopped:
        print(f"\n{stopped or 'Stopped.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # such as `surprise-memory envs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 0
    except Exception as error:
        sentence = explain(error)
        if not sentence:
            raise
        print(f"surprise-memory: {sentence}", file=sys.stderr)
        return 2
    return 0


def explain(error: Exception) -> str:
    """What to say of an error that the user can do something about; empty for a bug."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}."
    # torch has no error of its own for this
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"Not enough memory: choose fewer environments or smaller sizes. {error}"
    return ""
