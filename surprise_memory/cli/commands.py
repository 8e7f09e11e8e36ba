"""The commands that look at runs, measure, reproduce or list; `train` and `doctor` are in main."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import tyro

from surprise_memory.bonus.methods import methods
from surprise_memory.envs import list_envs, module_of
from surprise_memory.errors import UserError, choose, require, require_between
from surprise_memory.files import read_json, write_json
from surprise_memory.stages import STAGES
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.config import RunConfig, from_dict, run_type, with_part_options
from surprise_memory.training.loop import build, write_eval
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import rich_console, status
from surprise_memory.training.rundir import RunDir, flatten


def say_eval(path: Path) -> None:
    """Print an evaluation."""
    result = read_json(path)
    value = f"[bold]{result['mean']:.3f}[/] ± {result['std']:.3f}"
    cut = ""
    if result.get("cut"):
        cut = f", {result['cut']} of them cut by --eval-steps"
    rich_console().print(f"Return over {result['episodes']} episodes{cut}: {value}  ({path})")


def load(path: Path, trust: bool = False) -> tuple[RunConfig, RunDir]:
    """A finished or running run, by its directory.

    Unless it is trusted, it may not name a Python module: the directory may be someone else's. It
    is put on the CPU: it may have been trained on a device that is not here.
    """
    out = RunDir(path)
    if not out.exists:
        raise UserError(
            f"{path} is not a run directory (it has no config.json): name one that `train` made."
        )
    config = from_dict(run_type(), read_json(out.config))
    module = module_of(config.env)
    if module is not None and not trust:
        raise UserError(
            f"{out.config} names the environment '{config.env}', which imports the Python module "
            f"'{module}': add --trust if you know that run."
        )
    return dataclasses.replace(config, device="cpu"), out


def check_episode_seed(seed: int) -> None:
    """Refuse an episode's seed that no environment takes."""
    require_between("seed", seed, 0, 2**31 - 1)


def setting(run: RunConfig) -> str:
    """A label for a run: its method, its preset if not the default, and what differs from it."""
    words = [run.method]
    if run.preset != "default":
        words.append(run.preset)
    preset = with_part_options(choose(PRESETS, run.preset, "preset")(run.env))
    usual = flatten(dataclasses.asdict(preset))
    for name, value in flatten(dataclasses.asdict(run)).items():
        learning = name.startswith(("agent", "ppo.", "dqn.", "bonus."))
        if learning and usual[name] != value:
            words.append(f"{name.split('.')[-1]} {value}")
    return ", ".join(words)


def eval_command(
    run: tyro.conf.Positional[Path],
    episodes: int = 128,
    greedy: bool = False,
    eval_steps: int | None = None,
    device: str = "cpu",
    trust: bool = False,
) -> None:
    """Evaluate a trained agent on whole episodes; nothing learns.

    The result goes to eval.json if it is done as after training, else to eval-N[-greedy].json.

    Args:
        run: The run's directory.
        episodes: How many; every environment plays the same number.
        greedy: Take the likeliest action instead of sampling one.
        eval_steps: Steps after which an episode is cut; the run's own number if not given.
        device: Where networks compute: cpu, cuda, cuda:1, mps or auto.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    require_between("episodes", episodes, 1, 1_000_000)
    config, out = load(run, trust)
    config = dataclasses.replace(config, device=device)
    if eval_steps is not None:
        config = dataclasses.replace(config, eval_steps=eval_steps)
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    say_eval(write_eval(config, out, agent, bonus, episodes, greedy))


def envs_command(filter: tyro.conf.Positional[str] = "") -> None:
    """List the environments on this machine, or those whose id contains FILTER.

    Args:
        filter: Part of an id; upper and lower case are the same.
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
    preset: Literal["default", "paper", "released-code", "debug"] = "paper",
    rollouts: int = 3,
    threads: int = 1,
    all: bool = False,
    agent: Literal["ppo", "dqn"] = "ppo",
    envs: int | None = None,
) -> None:
    """Measure the speed on this machine without a bonus, with a generator, and with its memory.

    Args:
        env: The environment's id.
        preset: Where the settings come from.
        rollouts: Rollouts per measurement.
        threads: Torch's threads.
        all: Every method and size of memory, instead of RND in detail.
        agent: With dqn, the recurrent DQN with and without the latent world model.
        envs: Environments side by side; the preset's number if not given.
    """
    from surprise_memory.tools import bench

    run = dataclasses.replace(PRESETS[preset](env), threads=threads)
    if envs is not None:
        run = dataclasses.replace(run, envs=envs)
    measure, show = bench.bench, bench.print_bench
    if agent == "dqn":
        measure, show = bench.bench_dqn, bench.print_dqn
    elif all:
        measure, show = bench.bench_all, bench.print_all
    console = rich_console()
    with status("measuring") as progress:
        result = measure(run, rollouts, progress)
    show(result, console)


def show_command(
    run: tyro.conf.Positional[Path],
    beside: tuple[Path, ...] = (),
    seed: int = 0,
    trust: bool = False,
) -> None:
    """Draw a run: its learning curve, and the surprise norm and novelty of one episode.

    Args:
        run: The run's directory.
        beside: Other runs: draw all of them in the same episode, as beside.png, instead.
        seed: Which episode.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    from surprise_memory.tools.beside import draw_beside
    from surprise_memory.tools.run_figures import draw_run

    check_episode_seed(seed)
    config, out = load(run, trust)
    if not beside:
        print(draw_run(config, out, seed))
        return
    runs = [(config, out)]
    for other in beside:
        runs.append(load(other, trust))
    print(draw_beside(runs, seed, out.path / "beside.png"))


def play_command(
    env: tyro.conf.Positional[str],
    run: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
    steps: int = 1000,
    fps: int = 12,
    trust: bool = False,
) -> None:
    """Write a video of an episode, by random actions or by a run's agent.

    With a run, its surprise norm and its bonus are drawn below the frames.

    Args:
        env: The environment's id.
        run: The directory of a trained run; without it, actions are random.
        out: The file, .mp4 or .gif; play.mp4 in the run's directory, or ENV.mp4 here if not given.
        seed: Which episode.
        steps: At most so many.
        fps: Steps per second.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    from surprise_memory.tools import episode, video

    require_between("steps", steps, 1, 1_000_000)
    require_between("fps", fps, 1, 1_000)
    check_episode_seed(seed)
    agent = None
    bonus = None
    path = Path(env.replace("/", "-") + ".mp4")
    if run is not None:
        config, where = load(run, trust)
        episode.check_fits(env, config)
        agent, bonus = episode.trained(config, where, seed)
        path = where.path / "play.mp4"
    chunk, frames = episode.play(env, agent, seed, steps, bonus)
    curves = {}
    if bonus is not None:
        raw, trace, _ = bonus(chunk, bonus.start(1))
        curves["surprise norm"] = trace.surprise_norm[:, 0].numpy()
        curves["bonus"] = raw[:, 0].numpy()
    path = out or path
    video.record(path, frames, curves, fps)
    print(f"{path}: {len(frames)} steps, return {chunk.reward.sum().item():.3f}")


def mnir_command(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    episodes: int = 64,
    seed: int = 0,
    longest: int = 640,
    own_agent: bool = False,
    out: Path = Path("mnir.png"),
    trust: bool = False,
) -> None:
    """What trained bonuses think of noise, walls, the goal, rooms: MNIR by event, as bars.

    Args:
        runs: Directories of runs on one environment; those of one method and preset are averaged.
        episodes: Episodes each bonus is asked about.
        seed: Which ones.
        longest: Steps of an episode that are looked at.
        own_agent: Let the run's own agent play them instead of random actions.
        out: The picture; the numbers go beside it as .json.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    from rich.table import Table

    from surprise_memory.tools import bars, episode, mnir

    require(len(runs) >= 1, "runs", len(runs), "at least 1")
    require_between("episodes", episodes, 1, 65_536)
    require_between("longest", longest, 1, 1_000_000)
    require(out.name != "", "out", str(out), "the name of a file")
    check_episode_seed(seed)
    found: dict[str, list[dict[str, float]]] = {}
    loaded = [load(run, trust) for run in runs]
    worlds = sorted({config.env for config, _ in loaded})
    require(len(worlds) == 1, "runs", worlds, "on one environment")
    for config, where in loaded:
        agent, bonus = episode.trained(config, where, seed)
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
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path | None = None,
    seed: int = 0,
    steps: int = 600,
    random: bool = False,
    trust: bool = False,
) -> None:
    """Write a page on which an episode can be gone through, with what the bonus said at each step.

    The first run's agent plays. The bonuses of all runs are asked about the same steps.

    Args:
        runs: Directories of trained runs, whose environments look alike.
        out: The page; inspect.html in the first run's directory if not given.
        seed: Which episode.
        steps: At most so many.
        random: Take random actions instead of the agent's.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    from surprise_memory.tools import inspector

    require(len(runs) >= 1, "runs", len(runs), "at least 1")
    require_between("steps", steps, 1, 2_000)
    check_episode_seed(seed)
    loaded = [load(run, trust) for run in runs]
    path = out or loaded[0][1].path / "inspect.html"
    require(path.name != "", "out", str(path), "the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)  # before the work
    played, answers = inspector.inspect_runs(loaded, seed, steps, random)
    inspector.write_page(played, answers, path)
    size = path.stat().st_size / 1e6
    print(f"{path}: {played.recording.steps} steps, {size:.1f} MB")


def figures_command(
    run: tyro.conf.Positional[Path],
    out: Path | None = None,
    seed: int = 0,
    trust: bool = False,
) -> None:
    """Draw the paper's figures of a trained bonus: t-SNE and variances; on DoorKey also a map.

    On DoorKey there is a map of novelty, MNIR along the walk through all of its views, and what is
    paid for the key when it is seen twice. With a noisy TV there are seven steps of one episode.

    Args:
        run: The directory of a trained run.
        out: Where the pictures and METHOD-figures.json go; RUN/figures if not given.
        seed: Which layout and episode.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    from surprise_memory.tools import episode, paper_figures, steps_figures

    check_episode_seed(seed)
    config, where = load(run, trust)
    _, bonus = episode.trained(config, where, seed)
    if bonus is None:
        raise UserError(f"{where.path} has no bonus (method none): choose another run.")
    folder = out or where.path / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    chunk, _ = episode.play(config.env, None, seed)
    raw, trace, _ = bonus(chunk, bonus.start(1))
    name = config.method
    found: dict[str, Any] = {}
    if paper_figures.target_of(trace) is not None:
        found["variances"] = paper_figures.variances(trace)
    paid = raw[:, 0].double().numpy()
    paper_figures.draw_tsne(trace, paid, folder / f"{name}-tsne.png", seed)
    if config.env.startswith("MiniGrid-DoorKey"):
        path = folder / f"{name}-map.png"
        found["map"] = paper_figures.draw_map(bonus, config.env, seed, path)
        found["key twice"] = paper_figures.key_twice(bonus, config.env, seed)
        path = folder / f"{name}-key-twice.png"
        title = f"{name}: MNIR when the key is seen twice"
        paper_figures.draw_bars(found["key twice"], path, title)
        found["scan"] = steps_figures.scan(bonus, config.env, seed)
        path = folder / f"{name}-scan.png"
        steps_figures.draw_scan(found["scan"], path, f"{name}: MNIR along all views of the map")
    if config.env.startswith("NoisyTV/"):
        found["seven steps"] = steps_figures.seven_steps(config.env, bonus, seed)
        path = folder / f"{name}-seven-steps.png"
        title = f"{name}: MNIR at seven steps of one episode"
        steps_figures.draw_seven(found["seven steps"], path, title)
    write_json(folder / f"{name}-figures.json", found)
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
    """Run a table or figure of the paper: table-1, table-2, noisy-tv, ...

    A run that was stopped continues where it was.

    Args:
        what: Which one; they are listed if not given.
        budget: smoke (does it run?), reduced (fewer seeds and steps) or full (as in the paper).
        dir: Where the runs go; finished ones are kept. `surprise-memory report DIR` reports them.
        seeds: Runs per cell; the budget's number if not given.
        jobs: Runs side by side, one thread each.
        engine: local, or ray for an existing Ray cluster.
        preset: Settings other than its own, such as default instead of paper.
        dry_run: Only print the runs and how long they would take.
    """
    from surprise_memory.reproduce import command
    from surprise_memory.reproduce.grids import GRIDS

    if not what:
        for name, grid in GRIDS.items():
            print(f"{name:16} {grid.title}")
        return
    outcome = command.reproduce(what, budget, dir, seeds, jobs, engine, dry_run, preset)
    command.raise_failures(outcome)


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
        archive: Also add what the report needs of every finished run, metrics thinned, to the files
            ARCHIVE/WHAT/runs.jsonl. If it is DIR itself, runs without a checkpoint are moved there.
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
