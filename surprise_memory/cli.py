"""The command line: train, eval, envs, methods, doctor, bench, show, play, mnir, inspect, reproduce, report."""

import dataclasses
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from surprise_memory.checkpoint import restore
from surprise_memory.config import PRESETS, RunConfig, from_dict
from surprise_memory.envs import list_envs
from surprise_memory.methods import methods
from surprise_memory.progress import Progress, rich_console
from surprise_memory.rundir import RunDir, flatten, read_json, write_atomically
from surprise_memory.train import build, train, write_eval
from surprise_memory.types import UserError, choose, require

NOWHERE = "ENV"
Options = TypeVar("Options")


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


@dataclass(frozen=True)
class Examination:
    """How thorough the doctor is."""

    seeds: int = 3
    """Repetitions; every number comes with an interval over them."""
    rollouts: int = 40
    """Rollouts of a random policy for each of them."""
    workers: int = 2
    """Processes side by side."""
    out: Path = Path("doctor")
    """Where doctor.json and doctor.png go."""


def parse_run(argv: list[str], command: str, about: str | None, more: Options) -> tuple[RunConfig, Options]:
    """ENV and the options of a run, defaults from its preset, and some options more."""
    env = argv[0] if argv and not argv[0].startswith("-") else _peek(argv, "--env") or NOWHERE
    default = choose(PRESETS, _peek(argv, "--preset") or "default", "preset")(env)
    argv = [part for word in argv for part in (word.split("=", 1) if word.startswith("--steps=") else [word])]
    argv = [str(count(word)) if i and argv[i - 1] == "--steps" else word for i, word in enumerate(argv)]
    argv = argv if not argv or argv[0].startswith("-") else ["--env", *argv]  # the first bare word is the environment
    flat = tyro.conf.arg(name="")
    kind = dataclasses.make_dataclass("Words", [("run", Annotated[RunConfig, flat]), ("more", Annotated[type(more), flat])])
    words: Any = tyro.cli(kind, default=kind(default, more), args=argv, prog=f"surprise-memory {command} ENV", description=about)
    if words.run.env == NOWHERE:
        raise UserError(f"Which environment? surprise-memory {command} ENV; `surprise-memory envs` lists them.")
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
        _say(out, read_json(out.eval))
    out.close()


def doctor_command(argv: list[str]) -> None:
    """Is this bonus alive, does the memory change anything, does it follow rarity, is it fooled by noise?"""
    from surprise_memory import doctor

    run, how = parse_run(argv, "doctor", doctor_command.__doc__, Examination())
    console = rich_console()
    with console.status("examining") as status:
        progress = lambda what, share: status.update(f"{what} {share:.0%}")  # noqa: E731
        found = doctor.examine(run, how.seeds, how.rollouts, progress, how.workers)
    doctor.print_diagnosis(found, console)
    how.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(found), indent=1, allow_nan=False) + "\n"
    write_atomically(how.out / "doctor.json", lambda file: file.write(text.encode()))
    doctor.plot_diagnosis(found, how.out / "doctor.png")
    console.print(f"Picture: {how.out / 'doctor.png'}")


def _peek(argv: list[str], option: str) -> str | None:
    """The value of an option that must be known before the others are parsed."""
    for i, word in enumerate(argv):
        if word == option and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


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


def setting(run: RunConfig) -> str:
    """A run's method, its preset if that is not the default, and what was changed from it, for a label."""
    usual = flatten(dataclasses.asdict(choose(PRESETS, run.preset, "preset")(run.env)))
    changed = {k: v for k, v in flatten(dataclasses.asdict(run)).items() if usual[k] != v and k.startswith(("ppo.", "bonus."))}
    words = [run.method] + [run.preset] * (run.preset != "default") + [f"{k.split('.')[-1]} {v}" for k, v in changed.items()]
    return ", ".join(words)


def eval_command(run: tyro.conf.Positional[Path], episodes: int = 128, greedy: bool = False) -> None:
    """Play whole episodes with a trained agent, everything frozen, and write eval.json.

    Args:
        run: The run's directory.
        episodes: How many; every environment plays the same number.
        greedy: Take the likeliest action instead of drawing one.
    """
    require(episodes >= 1, "episodes", episodes, "at least 1")
    config, out = load(run)
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    _say(out, write_eval(config, out, agent, bonus, episodes, greedy))


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
        print(f"{name:13} {about}")


def bench_command(
    env: str = "MiniGrid-DoorKey-16x16-v0",
    preset: Literal["default", "noisy", "paper", "released-code", "debug"] = "paper",
    rollouts: int = 3,
    threads: int = 1,
    all: bool = False,
    agent: Literal["ppo", "dqn"] = "ppo",
    envs: int | None = None,
) -> None:
    """Speed of no bonus, the generator, and the generator with memory on this machine.

    Args:
        env: The environment's id.
        preset: Where the settings come from.
        rollouts: Rollouts per measurement.
        threads: Torch's threads.
        all: Every method and size of memory, instead of RND's in detail.
        agent: With dqn, the recurrent DQN with and without the latent world model.
        envs: Environments side by side; the preset's number if not given.
    """
    run = PRESETS[preset](env)
    run = dataclasses.replace(run, threads=threads, envs=envs or run.envs)
    from surprise_memory import bench

    console = rich_console()
    with console.status("measuring") as status:
        measure = bench.bench_dqn if agent == "dqn" else bench.bench_all if all else bench.bench
        result = measure(run, rollouts, lambda what, share: status.update(f"{what} {share:.0%}"))
    (bench.print_dqn if agent == "dqn" else bench.print_all if all else bench.print_bench)(result, console)


def show_command(run: tyro.conf.Positional[Path], seed: int = 0) -> None:
    """Draw a run: its learning curve, and an episode's frames with surprise norm against surprise novelty.

    Args:
        run: The run's directory.
        seed: Which episode.
    """
    from surprise_memory import pictures

    config, out = load(run)
    print(pictures.draw_run(config, out, seed))


def play_command(
    env: tyro.conf.Positional[str],
    run: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
    steps: int = 1000,
    fps: int = 12,
) -> None:
    """Write a video of an episode; with a run, its agent plays and surprise norm and novelty are drawn along it.

    Args:
        env: The environment's id.
        run: The directory of a trained run; without it actions are random.
        out: The file, .mp4 or .gif; ENV.mp4 here, or play.mp4 in the run's directory, if not given.
        seed: Which episode.
        steps: At most so many.
        fps: Steps a second.
    """
    from surprise_memory import pictures, video

    require(steps >= 1 and fps >= 1, "steps, fps", (steps, fps), "at least 1")
    agent, bonus, path = None, None, out or Path(env.replace("/", "-") + ".mp4")
    if run is not None:
        config, where = load(run)
        agent, bonus = pictures.trained(config, where, seed)
        path = out or where.path / "play.mp4"
    chunk, frames = pictures.play(env, agent, seed, steps, bonus)
    curves = {}
    if bonus is not None:
        raw, trace, _ = bonus(chunk, bonus.start(1))
        curves = {"surprise norm": trace.surprise_norm[:, 0].numpy(), "bonus": raw[:, 0].numpy()}
    video.record(path, frames, curves, fps)
    print(f"{path}: {len(frames)} steps, return {chunk.reward.sum().item():.3f}")


def mnir_command(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    episodes: int = 64,
    seed: int = 0,
    longest: int = 640,
    out: Path = Path("mnir.png"),
) -> None:
    """What trained bonuses think of noise, of plain walls and of the goal: MNIR by kind of state, as bars.

    Args:
        runs: Directories of runs on one environment; those of one method and preset are averaged.
        episodes: Random episodes each bonus is asked about.
        seed: Which ones.
        longest: Steps of an episode that are looked at.
        out: The picture; the numbers go beside it as .json.
    """
    from rich.table import Table

    from surprise_memory import pictures, sights

    require(
        len(runs) >= 1 and episodes >= 1 and longest >= 1, "runs, episodes, longest", (len(runs), episodes, longest), "at least 1"
    )
    found: dict[str, list[dict[str, float]]] = {}
    loaded = [load(run) for run in runs]
    worlds = sorted({config.env for config, _ in loaded})
    require(len(worlds) == 1, "runs", worlds, "on one environment")
    for config, where in loaded:
        _, bonus = pictures.trained(config, where, seed)
        if bonus is None:
            raise UserError(f"{where.path} has no bonus (method none): leave it out.")
        found.setdefault(setting(config), []).append(sights.mnir_by_kind(config.env, bonus, episodes, seed, longest))
    kinds = list(dict.fromkeys(kind for row in sights.averages(found).values() for kind in row))
    table = Table("method", *kinds)
    for method, row in sights.averages(found).items():
        table.add_row(method, *(f"{row[kind]:.2f}" if kind in row else "" for kind in kinds))
    rich_console().print(table)
    write_atomically(out.with_suffix(".json"), lambda file: file.write((json.dumps(found, indent=1) + "\n").encode()))
    sights.draw_kinds(found, out, worlds[0])
    print(out)


def inspect_command(run: tyro.conf.Positional[Path], out: Path | None = None, seed: int = 0) -> None:
    """Draw what the paper draws of a trained bonus: t-SNE, variances; on DoorKey a map of novelty, and the key seen twice.

    Args:
        run: The directory of a trained run.
        out: Where the pictures go, with inspect.json; inspect/ in the run's directory if not given.
        seed: Which layout and episode.
    """
    from surprise_memory import gallery, pictures

    config, where = load(run)
    _, bonus = pictures.trained(config, where, seed)
    if bonus is None:
        raise UserError(f"{where.path} has no bonus (method none): choose another run.")
    folder = out or where.path / "inspect"
    folder.mkdir(parents=True, exist_ok=True)
    chunk, _ = pictures.play(config.env, None, seed)
    raw, trace, _ = bonus(chunk, bonus.start(1))
    found = {"variances": gallery.variances(trace)} if config.method.startswith(("rnd", "ngu", "ae", "lwm")) else {}
    name = config.method
    gallery.draw_tsne(trace, raw[:, 0].double().numpy(), folder / f"{name}-tsne.png", seed)
    if config.env.startswith("MiniGrid-DoorKey"):
        found["map"] = gallery.draw_map(bonus, config.env, seed, folder / f"{name}-map.png")
        found["key twice"] = gallery.key_twice(bonus, config.env, seed)
        gallery.draw_bars(found["key twice"], folder / f"{name}-key-twice.png", f"{name}: MNIR when the key is seen twice")
    write_atomically(folder / f"{name}-inspect.json", lambda file: file.write((json.dumps(found, indent=1) + "\n").encode()))
    for path in sorted(folder.glob(f"{name}-*")):
        print(path)


def reproduce_command(
    what: tyro.conf.Positional[str] = "",
    budget: Literal["smoke", "reduced", "full"] = "reduced",
    dir: Path = Path("reproduction"),
    seeds: int | None = None,
    jobs: int = 2,
    engine: Literal["local", "ray"] = "local",
    dry_run: bool = False,
) -> None:
    """Run a table or figure of the paper: table-1, table-2, noisy-tv, ...; continues where it was stopped.

    Args:
        what: Which one; without it they are listed.
        budget: smoke (to see that it runs), reduced (fewer seeds and steps) or full (as in the paper).
        dir: Where the runs go; finished ones are kept. `surprise-memory report DIR` makes a page of them.
        seeds: Runs for each cell; the budget's number if not given.
        jobs: Runs side by side, one thread each.
        engine: local, or ray for an existing Ray cluster.
        dry_run: Only print the runs and how long they would take.
    """
    from surprise_memory.reproduce import command
    from surprise_memory.reproduce.grids import GRIDS

    if not what:
        for name, grid in GRIDS.items():
            print(f"{name:16} {grid.title}")
        return
    command.complain(command.reproduce(what, budget, dir, seeds, jobs, engine, dry_run))


def report_command(dir: tyro.conf.Positional[Path] = Path("reproduction")) -> None:
    """Make report.html and report.md of what `reproduce` has run: tables beside the paper's numbers, intervals, curves.

    Args:
        dir: The directory that `reproduce` was given.
    """
    from surprise_memory.report import write_report

    for path in write_report(dir):
        print(path)


COMMANDS: dict[str, Any] = {
    "train": train_command,
    "eval": eval_command,
    "envs": envs_command,
    "methods": methods_command,
    "doctor": doctor_command,
    "bench": bench_command,
    "show": show_command,
    "play": play_command,
    "mnir": mnir_command,
    "inspect": inspect_command,
    "reproduce": reproduce_command,
    "report": report_command,
}


def main(argv: list[str] | None = None) -> int:
    """Run a command; a user's mistake is one sentence and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print("surprise-memory: explore by the novelty of surprises instead of their size\n")
            for name, command in COMMANDS.items():
                print(f"  {name:9} {(command.__doc__ or '').splitlines()[0]}")
            print("\nsurprise-memory COMMAND --help tells more.")
            return 0
        command = choose(COMMANDS, argv[0], "command")
        if command in (train_command, doctor_command):
            command(argv[1:])
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
