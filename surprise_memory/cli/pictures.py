"""The commands that ask trained bonuses: mnir, inspect, figures."""

from pathlib import Path
from typing import Any

import tyro

from surprise_memory.cli.runs import check_episode_seed, load, setting
from surprise_memory.errors import UserError, require, require_between
from surprise_memory.files import write_json
from surprise_memory.training.progress import rich_console


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

    from surprise_memory.tools import bars, episode, mnir, plots

    require(len(runs) >= 1, "runs", len(runs), "at least 1")
    require_between("episodes", episodes, 1, 65_536)
    require_between("longest", longest, 1, 1_000_000)
    plots.check_picture(out)
    check_episode_seed(seed)
    found: dict[str, list[dict[str, float]]] = {}
    loaded = [load(run, trust) for run in runs]
    world = episode.same_world([config for config, _ in loaded])
    out.parent.mkdir(parents=True, exist_ok=True)  # before the work
    for config, where in loaded:
        agent, bonus = episode.trained(config, where, seed)
        if bonus is None:
            raise UserError(f"{where.path} has no bonus (method none): leave it out.")
        answer = mnir.mnir_by_event(
            config.env,
            bonus,
            episodes,
            seed,
            longest,
            agent if own_agent else None,
            config.fixed_seed,
        )
        found.setdefault(setting(config), []).append(answer)
    averages = bars.averages(found)
    kinds = list(dict.fromkeys(kind for row in averages.values() for kind in row))
    table = Table("method", *kinds)
    for method, row in averages.items():
        table.add_row(method, *(f"{row[kind]:.2f}" if kind in row else "" for kind in kinds))
    rich_console().print(table)
    write_json(out.with_suffix(".json"), found)
    bars.draw_event_bars(found, out, world)
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
    print(f"{path}: {played.recording.steps} steps, {size:.2f} MB")


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
        out: Where ENV-METHOD-PRESET-SEED-*.png and .json go; RUN/figures if not given.
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
    # Pictures of many runs may share a folder.
    run_name = "-".join(config.default_dir.parts[1:])
    written: list[Path] = []

    def path(what: str) -> Path:
        written.append(folder / f"{run_name}-{what}")
        return written[-1]

    played, _ = episode.play(config.env, None, seed, fixed_seed=config.fixed_seed)
    _, trace, _ = bonus(played, bonus.start(1))
    name = config.method
    on_door_key = config.env.startswith("MiniGrid-DoorKey")
    walk = played
    if on_door_key:
        walk = paper_figures.as_episode(paper_figures.Views(config.env, seed).obs)
    found: dict[str, Any] = {}
    if paper_figures.target_of(trace) is not None:
        found["variances"] = paper_figures.variances(trace)
    paper_figures.draw_tsne(bonus, walk, path("tsne.png"), seed)
    if on_door_key:
        found["map"] = paper_figures.draw_map(bonus, config.env, seed, path("map.png"))
        found["key twice"] = paper_figures.key_twice(bonus, config.env, seed)
        title = f"{name}: MNIR when the key is seen twice"
        paper_figures.draw_bars(found["key twice"], path("key-twice.png"), title)
        found["scan"] = steps_figures.scan(bonus, config.env, seed)
        title = f"{name}: MNIR along all views of the map"
        steps_figures.draw_scan(found["scan"], path("scan.png"), title)
    wrappers = [word.partition(":")[0] for word in config.env.split("/")]
    if "NoisyTV" in wrappers:
        found["seven steps"] = steps_figures.seven_steps(config.env, bonus, seed, config.fixed_seed)
        title = f"{name}: MNIR at seven steps of one episode"
        steps_figures.draw_seven(found["seven steps"], path("seven-steps.png"), title)
    write_json(path("figures.json"), found)
    for file in written:
        print(file)
