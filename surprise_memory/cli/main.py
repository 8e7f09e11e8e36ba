"""The table of all commands; and train and doctor, which take all options of a run."""

import contextlib
import dataclasses
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from surprise_memory.cli import commands
from surprise_memory.errors import UserError, choose
from surprise_memory.files import write_json
from surprise_memory.training.config import RunConfig, with_part_options
from surprise_memory.training.loop import build, train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import Progress, rich_console
from surprise_memory.training.rundir import RunDir

NOWHERE = "ENV"
UNITS = {"": 1, "k": 1e3, "m": 1e6}
Options = TypeVar("Options")


def count(text: str) -> int:
    """'10M' -> 10,000,000; also k, and plain or scientific numbers."""
    match = re.fullmatch(r"(-?[\d_,.]+(?:e\d+)?)([kKmM]?)", text)
    value = math.nan
    if match:
        digits = match[1].replace(",", "").replace("_", "")
        with contextlib.suppress(ValueError):  # such as 1.2.3
            value = float(digits) * UNITS[match[2].lower()]
    if not value.is_integer():
        raise UserError(f"'{text}' is not a number of steps: write it as 500000, 500k or 10M.")
    return int(value)


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
    out: Path = Path("doctor")
    """Where doctor.json and doctor.png go."""


def parse_run(
    argv: list[str], command: str, about: str | None, more: Options
) -> tuple[RunConfig, Options]:
    """ENV and the options of a run, defaults from its preset, and some options more."""
    env = argv[0] if argv and not argv[0].startswith("-") else _peek(argv, "--env") or NOWHERE
    named = _peek(argv, "--preset")
    preset = choose(PRESETS, "default" if named is None else named, "preset")
    default = with_part_options(preset(env))
    argv = [
        part
        for word in argv
        for part in (word.split("=", 1) if word.startswith("--steps=") else [word])
    ]
    argv = [
        str(count(word)) if i and argv[i - 1] == "--steps" else word for i, word in enumerate(argv)
    ]
    argv = (
        argv if not argv or argv[0].startswith("-") else ["--env", *argv]
    )  # the first bare word is the environment
    flat = tyro.conf.arg(name="")
    kind = dataclasses.make_dataclass(
        "Words", [("run", Annotated[type(default), flat]), ("more", Annotated[type(more), flat])]
    )
    words: Any = tyro.cli(
        kind,
        default=kind(default, more),
        args=argv,
        prog=f"surprise-memory {command} ENV",
        description=about,
    )
    if words.run.env == NOWHERE:
        raise UserError(
            f"Which environment? surprise-memory {command} ENV; `surprise-memory envs` lists them."
        )
    build(words.run)[0].close()  # whatever does not fit is said before anything is written
    return words.run, words.more


def train_command(argv: list[str]) -> None:
    """Train an agent. The preset fills in every option that is not given."""
    run, place = parse_run(argv, "train", train_command.__doc__, Place())
    out = RunDir(place.run_dir or run.default_dir)
    out.open(dataclasses.asdict(run), place.resume)
    console = rich_console()
    console.print(f"[bold]{run.env}[/] · {run.method} · {run.steps:,} steps · {out.path}")
    with Progress(run.method, run.steps, out) as progress:
        train(run, out, progress)
    if run.eval_episodes:
        commands.say_eval(out.eval)
    out.close()


def doctor_command(argv: list[str]) -> None:
    """Examine a bonus: is it alive, does its memory matter, does it follow rarity or noise?"""
    from surprise_memory.tools import doctor

    run, how = parse_run(argv, "doctor", doctor_command.__doc__, Examination())
    console = rich_console()
    with console.status("examining") as status:

        def progress(what: str, share: float) -> None:
            status.update(f"{what} {share:.0%}")

        diagnosis = doctor.examine(run, how.seeds, how.rollouts, progress, how.workers)
    doctor.print_diagnosis(diagnosis, console)
    how.out.mkdir(parents=True, exist_ok=True)
    write_json(how.out / "doctor.json", dataclasses.asdict(diagnosis), allow_nan=False)
    picture = how.out / "doctor.png"
    doctor.plot_diagnosis(diagnosis, picture)
    console.print(f"Picture: {picture}")


def _peek(argv: list[str], option: str) -> str | None:
    """The value of an option that must be known before the others are parsed."""
    for i, word in enumerate(argv):
        if word == option and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


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
