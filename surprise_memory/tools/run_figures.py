"""Pictures of a run: its learning curve, and what it found surprising and novel along one episode."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from surprise_memory.bonus import Bonus
from surprise_memory.envs import make_vec
from surprise_memory.tools.plots import NORM, NOVELTY, RETURN, plotting
from surprise_memory.tools.stats import Array, mnir, smooth
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import Chunk

LONGEST = 400  # steps of an episode that are drawn


def trained(config: RunConfig, out: RunDir, seed: int) -> tuple[Any, Bonus | None]:
    """A run's agent and bonus as its checkpoint has them."""
    env, agent, bonus = build(config)
    env.close()
    restore(out, config, agent, bonus)
    agent.rng.manual_seed(seed)
    return agent, bonus


def play(
    env_id: str, agent: Any, seed: int, longest: int = LONGEST, bonus: Bonus | None = None
) -> tuple[Chunk, list[Array]]:
    """One episode, of random actions where there is no agent: its chunk (T, 1, ...) and a frame for each step."""
    env = make_vec(env_id, 1, seed, render=True)
    env.action_space.seed(seed)
    loop, chunks, frames = RunnerState.reset(env, bonus), [], []
    for _ in range(longest):
        frames.append(env.render())
        chunk, episodes = collect(env, agent or RandomAgent(env), loop, 1, bonus, mode="sample")
        chunks.append(chunk)
        if episodes:
            break
    env.close()
    columns = {name: torch.cat([c.columns()[name] for c in chunks]) for name in chunks[0].columns()}
    return Chunk(**columns, extras={}), frames


def draw_run(config: RunConfig, out: RunDir, seed: int) -> Path:
    """Write show.png into the run's directory."""
    plt = plotting()
    agent, bonus = trained(config, out, seed)
    chunk, frames = play(config.env, agent, seed, bonus=bonus)
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=[1.1, 1.1, 1])
    figure.suptitle(
        f"{config.env} · {config.method} · {config.steps:,} steps, seed {config.seed}", fontsize=11
    )
    draw_curve(top.subplots(1, 2), list(out.rows()))
    axis = middle.subplots()
    if bonus is None:
        marked = np.linspace(0, len(frames) - 1, min(8, len(frames))).astype(int)
        axis.set_axis_off()
    else:
        _, trace, _ = bonus(chunk, bonus.start(1))
        marked = draw_episode(axis, trace.surprise_norm[:, 0].numpy(), trace.novelty[:, 0].numpy())
    draw_frames(bottom.subplots(1, len(marked), squeeze=False)[0], frames, marked)
    path = out.path / "show.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def draw_curve(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Task return on the left, surprise and novelty on the right, over steps."""
    left, right = axes
    ended = [r for r in rows if "charts/episodic_return" in r]
    step, value = (
        np.array([[r["step"], r["charts/episodic_return"]] for r in ended]).reshape(-1, 2).T
    )
    left.plot(step, value, color=RETURN, alpha=0.25, lw=1)
    left.plot(step, smooth(value, 10), color=RETURN, lw=2)
    left.set(title="task return of training episodes", xlabel="steps")
    paid = [r for r in rows if "intrinsic/novelty" in r]
    for name, colour in (("surprise_norm", NORM), ("novelty", NOVELTY)):
        right.plot(
            [r["step"] for r in paid],
            [r[f"intrinsic/{name}"] for r in paid],
            color=colour,
            label=name.replace("_", " "),
        )
    right.set(
        title="how surprising and how novel, per step",
        xlabel="steps",
        yscale="log" if paid else "linear",
    )
    if paid:
        right.legend(frameon=False)


def draw_episode(axis: Any, norm: Array, novelty: Array) -> Array:
    """Both MNIRs along an episode; returns the steps whose frames are worth showing."""
    axis.plot(mnir(norm), color=NORM, lw=1.3, label="surprise norm")
    axis.plot(mnir(novelty), color=NOVELTY, lw=1.8, label="surprise novelty")
    marked = peaks(mnir(novelty), 8)
    axis.plot(marked, mnir(novelty)[marked], "o", color=NOVELTY, ms=5)
    axis.set(
        title="one episode: mean-normalised intrinsic reward (MNIR)", xlabel="step", ylabel="std"
    )
    axis.legend(frameon=False, loc="upper right", ncols=2)
    return marked


def peaks(values: Array, number: int) -> Array:
    """The steps of the highest values, at most `number`, no two close together, in order of time."""
    apart, chosen = max(1, len(values) // (2 * number)), list[int]()
    for step in np.argsort(-values):
        if all(abs(step - other) >= apart for other in chosen) and len(chosen) < number:
            chosen.append(int(step))
    return np.array(sorted(chosen))


def draw_frames(axes: Any, frames: list[Array], marked: Array) -> None:
    """What the environment looked like when the agent acted, at the marked steps."""
    for axis, step in zip(axes, marked, strict=True):
        axis.imshow(frames[step])
        axis.set_title(f"step {step}", fontsize=8)
        axis.set_axis_off()
