"""The command line: train, eval, envs, methods, doctor, bench, show."""

import dataclasses
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from surprise_memory.checkpoint import restore
from surprise_memory.config import PRESETS, RunConfig, from_dict, methods
from surprise_memory.envs import list_envs
from surprise_memory.progress import Progress, rich_console
from surprise_memory.rundir import RunDir, read_json
from surprise_memory.train import build, train, write_eval
from surprise_memory.types import UserError, choose, unknown

Named = tyro.conf.Positional[str]


def count(text: str) -> int:
    """'10M' -> 10,000,000; also k, and plain or scientific numbers."""
    match = re.fullmatch(r"(-?[\d_,.]+(?:e\d+)?)([kKmM]?)", text)
    try:
        assert match
        value = float(match[1].replace(",", "").replace("_", "")) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()]
        assert value == int(value)
    except (AssertionError, ValueError) as error:
        raise UserError(f"'{text}' is not a number of steps: write it as 500000, 500k or 10M.") from error
    return int(value)


@dataclass(frozen=True)
class Place:
    """Where a run lives."""

    run_dir: Path | None = None
    """The run's directory; runs/ENV/METHOD-PRESET-SEED if not given."""
    resume: bool = False
    """Continue the run that is there."""


def train_command(argv: list[str]) -> None:
    """Train an agent. The preset fills in every option that is not given."""
    preset = _peek(argv, "--preset") or "default"
    default = choose(PRESETS, preset, "preset")("ENV")
    argv = [str(count(argv[i])) if i and argv[i - 1] == "--steps" else word for i, word in enumerate(argv)]

    @dataclass(frozen=True)
    class Train:
        run: Annotated[RunConfig, tyro.conf.arg(name="")]
        place: Annotated[Place, tyro.conf.arg(name="")] = Place()

    about = train_command.__doc__
    args = tyro.cli(Train, default=Train(default), args=_env_as_option(argv), prog="surprise-memory train ENV", description=about)
    run, place = args.run, args.place
    if run.env == "ENV":
        raise UserError("Which environment? surprise-memory train ENV; `surprise-memory envs` lists them.")
    if run.env not in list_envs() and ":" not in run.env:  # before a run directory is made for it
        raise UserError(unknown(run.env, list_envs(), "environment") + " `surprise-memory envs` lists them all.")
    out = RunDir(place.run_dir or run.default_dir)
    build(run)[0].close()  # whatever does not fit is said before anything is written
    out.open(dataclasses.asdict(run), place.resume)
    console = rich_console()
    console.print(f"[bold]{run.env}[/] · {run.method} · {run.steps:,} steps · {out.path}")
    with Progress(run.method, run.steps, out) as progress:
        train(run, out, progress)
    if run.eval_episodes:
        _say(out, read_json(out.eval))
    out.close()


def _peek(argv: list[str], option: str) -> str | None:
    """The value of an option that must be known before the others are parsed."""
    for i, word in enumerate(argv):
        if word == option and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


def _env_as_option(argv: list[str]) -> list[str]:
    """The first bare word is the environment."""
    return argv if not argv or argv[0].startswith("-") else ["--env", *argv]


def _say(out: RunDir, result: dict[str, Any]) -> None:
    rich_console().print(
        f"Return over {result['episodes']} episodes: [bold]{result['mean']:.3f}[/] ± {result['std']:.3f}  ({out.eval})"
    )


def load(path: Path) -> tuple[RunConfig, RunDir]:
    """A finished or running run, by its directory."""
    out = RunDir(path)
    if not out.exists:
        raise UserError(f"{path} is not a run directory (it has no config.json): name one that `train` made.")
    return from_dict(RunConfig, read_json(out.config)), out


def eval_command(run: tyro.conf.Positional[Path], episodes: int = 128, greedy: bool = False) -> None:
    """Play whole episodes with a trained agent, everything frozen, and write eval.json.

    Args:
        run: The run's directory.
        episodes: How many; every environment plays the same number.
        greedy: Take the likeliest action instead of drawing one.
    """
    if episodes < 1:
        raise UserError(f"episodes = {episodes} is not possible: it must be at least 1.")
    config, out = load(run)
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    _say(out, write_eval(config, out, agent, episodes, greedy))


def envs_command(filter: tyro.conf.Positional[str] = "") -> None:
    """List the environments of this machine, those whose id contains FILTER.

    Args:
        filter: Part of an id, in any case.
    """
    for name in list_envs():
        if filter.lower() in name.lower():
            print(name)


def methods_command() -> None:
    """List the methods."""
    for name, about in methods().items():
        print(f"{name:10} {about}")


def doctor_command(
    env: Named,
    method: str = "rnd+sm",
    preset: Literal["default", "paper", "released-code", "debug"] = "default",
    seeds: int = 3,
    rollouts: int = 40,
    out: Path = Path("doctor"),
) -> None:
    """Is this bonus alive, does the memory change anything, does it follow rarity, is it fooled by noise?

    Args:
        env: The environment's id.
        method: generator[+memory].
        preset: Where the settings come from.
        seeds: Repetitions; every number comes with an interval over them.
        rollouts: Rollouts of a random policy for each of them.
        out: Where doctor.json and doctor.png go.
    """
    from surprise_memory import doctor

    run = dataclasses.replace(PRESETS[preset](env), method=method)
    console = rich_console()
    with console.status("examining") as status:
        found = doctor.examine(run, seeds, rollouts, lambda what, share: status.update(f"{what} {share:.0%}"))
    doctor.print_diagnosis(found, console)
    out.mkdir(parents=True, exist_ok=True)
    doctor.plot_diagnosis(found, out / "doctor.png")
    console.print(f"Picture: {out / 'doctor.png'}")


def bench_command(
    env: str = "MiniGrid-DoorKey-16x16-v0",
    preset: Literal["default", "paper", "released-code", "debug"] = "paper",
    rollouts: int = 3,
    threads: int = 1,
) -> None:
    """Speed of no bonus, the generator, and the generator with memory on this machine.

    Args:
        env: The environment's id.
        preset: Where the settings come from.
        rollouts: Rollouts per measurement.
        threads: Torch's threads.
    """
    from surprise_memory import bench

    console = rich_console()
    with console.status("measuring") as status:
        result = bench.bench(env, preset, rollouts, threads, lambda what, share: status.update(f"{what} {share:.0%}"))
    bench.print_bench(result, console)


def show_command(run: tyro.conf.Positional[Path], seed: int = 0) -> None:
    """Draw a run: its learning curve, and an episode's frames with surprise norm against surprise novelty.

    Args:
        run: The run's directory.
        seed: Which episode.
    """
    from surprise_memory import pictures

    config, out = load(run)
    print(pictures.draw_run(config, out, seed))


COMMANDS = {
    "train": train_command,
    "eval": eval_command,
    "envs": envs_command,
    "methods": methods_command,
    "doctor": doctor_command,
    "bench": bench_command,
    "show": show_command,
}


def main(argv: list[str] | None = None) -> int:
    """Run a command; a user's mistake is one sentence and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print("surprise-memory: exploration that is not fooled by noise\n")
            for name, command in COMMANDS.items():
                print(f"  {name:9} {(command.__doc__ or '').splitlines()[0]}")
            print("\nsurprise-memory COMMAND --help tells more.")
            return 0
        command = choose(COMMANDS, argv[0], "command")
        if command is train_command:
            train_command(argv[1:])
        else:
            tyro.cli(command, args=argv[1:], prog=f"surprise-memory {argv[0]}")
    except UserError as error:
        print(f"surprise-memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print(f"\n{stopped or 'Stopped.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    return 0
