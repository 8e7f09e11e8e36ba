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
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import pick_device
from surprise_memory.training.loop import train
from surprise_memory.training.plan import check_plan, describe_plan
from surprise_memory.training.processes import check_processes, joined, launched
from surprise_memory.training.progress import Progress, rich_console, status
from surprise_memory.training.rundir import NoRunDir, RunDir

PROGRAM = "surprise-memory"
MANY = (
    "Over N processes, on CPUs or GPUs: torchrun --nproc-per-node N -m surprise_memory train ENV "
    "(docs/devices.md)."
)


@dataclass(frozen=True)
class Place:
    """Where a run lives."""

    run_dir: Path | None = None
    """The run's directory; runs/ENV/METHOD-PRESET-SEED if not given."""
    resume: bool = False
    """Continue the run that is there."""


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
    about = f"{train_command.__doc__} {MANY}"
    run, place = parse_run(argv, "train", about, Place())
    run = dataclasses.replace(run, device=str(pick_device(run.device)))  # config.json says which
    check_plan(run)  # before there is a directory
    check_processes(run)
    path = place.run_dir or run.default_dir
    if not ranks.first():
        train(run, NoRunDir(path))
        return
    out = RunDir(path)
    out.open(dataclasses.asdict(run), place.resume)
    console = rich_console()
    console.print(f"[bold]{run.env}[/] · {run.method} · {run.steps:,} steps · {out.path}")
    console.print(f"Plan: {describe_plan(run)}")
    if ranks.world() > 1:
        console.print(f"{ranks.world()} processes, {run.envs} environments between them")
    with Progress(run.method, run.steps, out) as progress:
        state = train(run, out, progress)
        if run.eval_episodes:
            progress.log_score(read_json(out.eval)["mean"], state.steps)
    if run.eval_episodes:
        commands.say_eval(out.eval)
    out.close()


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
    if launched() > 1 and command is not train_command:
        raise UserError(f"torchrun is for train: start {name} without it.")
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
        if who() == PROGRAM:  # one of many processes says it for all
            print(f"\n{stopped or 'Stopped.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # such as `surprise-memory envs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 0
    except Exception as error:
        sentence = explain(error)
        if not sentence:
            raise
        print(f"{who()}: {sentence}", file=sys.stderr)
        return 2
    return 0


def who() -> str:
    """Who speaks: the program, with its number if it is one process of many but the first."""
    number = os.environ["RANK"] if launched() > 1 else "0"
    if number == "0":
        return PROGRAM
    return f"{PROGRAM} (process {number})"


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
