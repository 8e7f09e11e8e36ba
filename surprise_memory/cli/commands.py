"""The commands that look at runs: eval, show, play, mnir, inspect, bench, reproduce, report, and the lists of what there is."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

from surprise_memory.bonus.methods import methods
from surprise_memory.envs import list_envs
from surprise_memory.errors import UserError, choose, require
from surprise_memory.files import read_json, write_json
from surprise_memory.stages import STAGES
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.config import RunConfig, from_dict, run_type, with_part_options
from surprise_memory.training.loop import build, write_eval
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import rich_console
from surprise_memory.training.rundir import RunDir, flatten


def say_eval(path: Path) -> None:
    """Print an evaluation."""
    result = read_json(path)
    rich_console().print(
        f"Return over {result['episodes']} episodes: [bold]{result['mean']:.3f}[/] ± {result['std']:.3f}  ({path})"
    )


def load(path: Path) -> tuple[RunConfig, RunDir]:
    """A finished or running run, by its directory."""
    out = RunDir(path)
    if not out.exists:
        raise UserError(
            f"{path} is not a run directory (it has no config.json): name one that `train` made."
        )
    return from_dict(run_type(), read_json(out.config)), out


def setting(run: RunConfig) -> str:
    """A run's method, its preset if that is not the default, and what was changed from it, for a label."""
    preset = with_part_options(choose(PRESETS, run.preset, "preset")(run.env))
    usual = flatten(dataclasses.asdict(preset))
    own = ("agent", "ppo.", "dqn.", "bonus.")
    changed = {
        k: v
        for k, v in flatten(dataclasses.asdict(run)).items()
        if usual[k] != v and k.startswith(own)
    }
    words = (
        [run.method]
        + [run.preset] * (run.preset != "default")
        + [f"{k.split('.')[-1]} {v}" for k, v in changed.items()]
    )
    return ", ".join(words)


def eval_command(
    run: tyro.conf.Positional[Path], episodes: int = 128, greedy: bool = False
) -> None:
    """Play whole episodes with a trained agent, everything frozen; eval-N[-greedy].json unless it is as after training.

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
    say_eval(write_eval(config, out, agent, bonus, episodes, greedy))


def envs_command(filter: tyro.conf.Positional[str] = "") -> None:
    """List the environments of this machine, those whose id contains FILTER.

    Args:
        filter: Part of an id, in any case.
    """
    for name in list_envs():
        if filter.lower() in name.lower():
            print(name)


def methods_command() -> None:
    """List the methods, and the stages that can be added to them."""
    for name, about in methods().items():
        print(f"{name:13} {about}")
    print("\nStages, to be added to any method but none, such as rnd+sm+expect:")
    for name, stage in STAGES.items():
        print(f"+{name:12} {stage.about}")


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
    run = dataclasses.replace(run, threads=threads, envs=run.envs if envs is None else envs)
    from surprise_memory.tools import bench

    console = rich_console()
    with console.status("measuring") as status:
        measure = bench.bench_dqn if agent == "dqn" else bench.bench_all if all else bench.bench
        result = measure(run, rollouts, lambda what, share: status.update(f"{what} {share:.0%}"))
    (bench.print_dqn if agent == "dqn" else bench.print_all if all else bench.print_bench)(
        result, console
    )


def show_command(run: tyro.conf.Positional[Path], seed: int = 0) -> None:
    """Draw a run: its learning curve, and an episode's frames with surprise norm against surprise novelty.

    Args:
        run: The run's directory.
        seed: Which episode.
    """
    from surprise_memory.tools import run_figures as pictures

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
    from surprise_memory.tools import run_figures as pictures
    from surprise_memory.tools import video

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
    own_agent: bool = False,
    out: Path = Path("mnir.png"),
) -> None:
    """What trained bonuses think of noise, of plain walls, of the goal, of Montezuma's rooms: MNIR by kind of state, as bars.

    Args:
        runs: Directories of runs on one environment; those of one method and preset are averaged.
        episodes: Episodes each bonus is asked about.
        seed: Which ones.
        longest: Steps of an episode that are looked at.
        own_agent: Let the run's own agent play them instead of random actions.
        out: The picture; the numbers go beside it as .json.
    """
    from rich.table import Table

    from surprise_memory.tools import bars, mnir
    from surprise_memory.tools import run_figures as pictures

    require(
        len(runs) >= 1 and episodes >= 1 and longest >= 1,
        "runs, episodes, longest",
        (len(runs), episodes, longest),
        "at least 1",
    )
    found: dict[str, list[dict[str, float]]] = {}
    loaded = [load(run) for run in runs]
    worlds = sorted({config.env for config, _ in loaded})
    require(len(worlds) == 1, "runs", worlds, "on one environment")
    for config, where in loaded:
        agent, bonus = pictures.trained(config, where, seed)
        if bonus is None:
            raise UserError(f"{where.path} has no bonus (method none): leave it out.")
        answer = mnir.mnir_by_event(
            config.env, bonus, episodes, seed, longest, agent if own_agent else None
        )
        found.setdefault(setting(config), []).append(answer)
    averages = bars.averages(found)
    kinds = list(dict.fromkeys(kind for row in averages.values() for kind in row))
    table = Table("method", *kinds)
    for method, row in averages.items():
        table.add_row(method, *(f"{row[kind]:.2f}" if kind in row else "" for kind in kinds))
    rich_console().print(table)
    write_json(out.with_suffix(".json"), found)
    bars.draw_event_bars(found, out, worlds[0])
    print(out)


def inspect_command(
    run: tyro.conf.Positional[Path], out: Path | None = None, seed: int = 0
) -> None:
    """Draw what the paper draws of a trained bonus: t-SNE, variances; on DoorKey a map of novelty, and the key seen twice.

    Args:
        run: The directory of a trained run.
        out: Where the pictures go, with METHOD-inspect.json; inspect/ in the run's directory if not given.
        seed: Which layout and episode.
    """
    from surprise_memory.tools import paper_figures as gallery
    from surprise_memory.tools import run_figures as pictures

    config, where = load(run)
    _, bonus = pictures.trained(config, where, seed)
    if bonus is None:
        raise UserError(f"{where.path} has no bonus (method none): choose another run.")
    folder = out or where.path / "inspect"
    folder.mkdir(parents=True, exist_ok=True)
    chunk, _ = pictures.play(config.env, None, seed)
    raw, trace, _ = bonus(chunk, bonus.start(1))
    found = {"variances": gallery.variances(trace)} if gallery.target_of(trace) is not None else {}
    name = config.method
    gallery.draw_tsne(trace, raw[:, 0].double().numpy(), folder / f"{name}-tsne.png", seed)
    if config.env.startswith("MiniGrid-DoorKey"):
        found["map"] = gallery.draw_map(bonus, config.env, seed, folder / f"{name}-map.png")
        found["key twice"] = gallery.key_twice(bonus, config.env, seed)
        gallery.draw_bars(
            found["key twice"],
            folder / f"{name}-key-twice.png",
            f"{name}: MNIR when the key is seen twice",
        )
    write_json(folder / f"{name}-inspect.json", found)
    for path in sorted(folder.glob(f"{name}-*")):
        print(path)


def reproduce_command(
    what: tyro.conf.Positional[str] = "",
    budget: Literal["smoke", "reduced", "full"] = "reduced",
    dir: Path = Path("reproduction"),
    seeds: int | None = None,
    jobs: int = 2,
    engine: Literal["local", "ray"] = "local",
    preset: str | None = None,
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
        preset: Run it in other settings than its own, such as default instead of paper.
        dry_run: Only print the runs and how long they would take.
    """
    from surprise_memory.reproduce import command
    from surprise_memory.reproduce.grids import GRIDS

    if not what:
        for name, grid in GRIDS.items():
            print(f"{name:16} {grid.title}")
        return
    command.raise_failures(
        command.reproduce(what, budget, dir, seeds, jobs, engine, dry_run, preset)
    )


def report_command(
    dir: tyro.conf.Positional[Path] = Path("reproduction"),
    out: Path | None = None,
    archive: Path | None = None,
) -> None:
    """Make a page (HTML and Markdown) of what `reproduce` has run: tables, intervals, curves.

    It takes in notes from DIR/notes.md, DIR/WHAT/notes-PRESET-BUDGET.md and DIR/pictures/notes.md,
    and the pictures in DIR/pictures/.

    Args:
        dir: The directory that `reproduce` was given.
        out: OUT.html, OUT.md and OUT/ with the pictures are written; DIR/report if not given.
        archive: Also copy what the report needs of every finished run, metrics thinned, there.
    """
    from surprise_memory.reproduce import report

    if archive is not None:
        print(f"{len(report.archive_runs(dir, archive))} runs archived in {archive}")
    written = report.write_report(dir, out)
    for run, why in written.left_out.items():
        print(f"Left out {run}: {why}.")
    for picture in written.removed:
        print(f"Removed {picture}: this report no longer has it.")
    print(written.html)
    print(written.markdown)
