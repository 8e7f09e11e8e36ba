"""A run by its directory, and the commands that look at one: eval, show, play."""

import dataclasses
from pathlib import Path

import tyro

from surprise_memory.envs import module_of
from surprise_memory.errors import UserError, choose, require_between
from surprise_memory.files import read_json
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.config import RunConfig, from_dict, run_type, with_part_options
from surprise_memory.training.loop import build, write_eval
from surprise_memory.training.options import with_later
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import literal, rich_console
from surprise_memory.training.rundir import RunDir, flatten


def say_eval(path: Path) -> None:
    """Print an evaluation."""
    result = read_json(path)
    value = f"[bold]{result['mean']:.3f}[/] ± {result['std']:.3f}"
    cut = ""
    if result.get("cut"):
        cut = f", {result['cut']} of them cut by --eval-steps"
    where = literal(path)
    rich_console().print(f"Return over {result['episodes']} episodes{cut}: {value}  ({where})")


def load(path: Path, trust: bool = False, named: str = "") -> tuple[RunConfig, RunDir]:
    """A finished or running run, by its directory.

    Unless it is trusted, it may not name a Python module, but that of an id that the user has
    `named`: the directory may be someone else's. It is put on the CPU: it may have been trained on
    a device that is not here.
    """
    out = RunDir(path)
    if not out.exists:
        raise UserError(
            f"{path} is not a run directory (it has no config.json): name one that `train` made."
        )
    config = from_dict(run_type(), with_later(read_json(out.config)))
    module = module_of(config.env)
    if module not in (None, module_of(named)) and not trust:
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
            words.append(f"{name} {value}")  # whole: the agent and the bonus both have an lr
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

    The result goes to eval.json if it is done as after training, else to a file whose name says
    how: eval-N[-M-steps][-greedy].json.

    Args:
        run: The run's directory.
        episodes: How many; every environment plays the same number.
        greedy: Take the likeliest action instead of sampling one.
        eval_steps: Steps after which an episode is cut; the run's own number if not given.
        device: Where networks compute: cpu, cuda, cuda:1, mps or auto.
        trust: Import the Python module that an environment `module:ID` of the run names.
    """
    require_between("episodes", episodes, 1, 1_000_000)
    if eval_steps is not None:
        require_between("eval_steps", eval_steps, 1, 100_000_000)
    config, out = load(run, trust)
    config = dataclasses.replace(config, device=device)
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    say_eval(write_eval(config, out, agent, bonus, episodes, greedy, eval_steps))


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
    if out is not None:
        video.check_video(out)
    agent = None
    bonus = None
    fixed_seed = None
    path = Path(env.replace("/", "-").replace(":", "-") + ".mp4")
    if run is not None:
        config, where = load(run, trust, named=env)
        episode.check_fits(env, config)
        agent, bonus = episode.trained(config, where, seed)
        fixed_seed = config.fixed_seed
        path = where.path / "play.mp4"
    chunk, frames = episode.play(env, agent, seed, steps, bonus, fixed_seed)
    curves = {}
    if bonus is not None:
        raw, trace, _ = bonus(chunk, bonus.start(1))
        curves["surprise norm"] = trace.surprise_norm[:, 0].numpy()
        curves["bonus"] = raw[:, 0].numpy()
    path = out or path
    video.record(path, frames, curves, fps)
    print(f"{path}: {len(frames)} steps, return {chunk.reward.sum().item():.3f}")
