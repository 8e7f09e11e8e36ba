"""MNIR step by step in one episode: seven chosen steps, and a scan of all views of a map.

Both follow the paper: two steps of noise, three of plain walls and two of what matters (Noisy-TV),
and the synthetic trajectory through every free cell (Key-Door).
"""

from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.bonus.trainer import Trainer
from surprise_memory.envs import make_vec, minigrid
from surprise_memory.errors import UserError
from surprise_memory.tools.mnir import NOISE, NOTHING, events_of
from surprise_memory.tools.paper_figures import Views, ask
from surprise_memory.tools.plots import INK, NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, mnir
from surprise_memory.training.collect import RandomAgent, RunnerState, collect

EPISODES = 16  # among which one is looked for that shows everything
LONGEST = 320  # steps of them
CHOSEN = {NOISE: 2, NOTHING: 3}  # and two steps of an event
Values = dict[str, list[Any]]


def seven_steps(env_id: str, bonus: Trainer, seed: int, fixed_seed: int | None = None) -> Values:
    """Seven steps of one episode of random actions: their kinds, numbers, and MNIR.

    The MNIR is of the surprise norm and of the bonus, each over the whole episode. `fixed_seed` as
    in `make_vec`.
    """
    env = make_vec(env_id, EPISODES, seed, fixed_seed=fixed_seed)
    env.action_space.seed(seed)
    chunk, _ = collect(env, RandomAgent(env), RunnerState.reset(env, None), LONGEST)
    events = events_of(env, chunk)
    env.close()
    raw, trace, _ = bonus(chunk, bonus.start(EPISODES))
    norm = trace.surprise_norm.double().numpy()
    paid = raw.double().numpy()
    done = chunk.done.numpy()
    first_episode = (np.cumsum(done, 0) - done == 0) & chunk.valid.numpy()
    for b in range(EPISODES):
        steps = np.flatnonzero(first_episode[:, b])
        kinds = choose_seven({name: where[steps, b] for name, where in events.items()})
        if kinds:
            chosen = list(kinds)
            return {
                "kind": [kinds[i] for i in chosen],
                "step": [i + 1 for i in chosen],
                "surprise norm": mnir(norm[steps, b])[chosen].tolist(),
                "bonus": mnir(paid[steps, b])[chosen].tolist(),
            }
    raise UserError(
        f"No episode of {EPISODES} in '{env_id}' shows noise, walls and something else: "
        "choose another --seed, or a run with a noisy TV."
    )


def choose_seven(events: dict[str, Array]) -> dict[int, str]:
    """Index of a step -> its kind: two of noise, three of nothing, two of the rarest event.

    `events` are masks (T,) over the steps of one episode. Steps of a kind are spread over all that
    there are. Empty if the episode has too few.
    """
    named = {}
    for name, where in events.items():
        if name not in CHOSEN and where.sum() >= 2:
            named[name] = int(where.sum())
    if not named:
        return {}
    wanted = CHOSEN | {min(named, key=lambda name: named[name]): 2}
    kinds: dict[int, str] = {}
    for name, number in wanted.items():
        found = np.flatnonzero(events.get(name, np.zeros(0)))
        if len(found) < number:
            return {}
        for i in np.linspace(0, len(found) - 1, number).round().astype(int):
            kinds[int(found[i])] = name
    return kinds


def draw_seven(values: Values, path: Path, title: str) -> None:
    """Two bars for each step: the surprise norm's and the bonus's MNIR."""
    plt = plotting()
    figure, axis = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    places = np.arange(len(values["step"]))
    for shift, name, colour in ((-0.2, "surprise norm", NORM), (0.2, "bonus", NOVELTY)):
        axis.bar(places + shift, values[name], 0.38, color=colour, label=name)
    pairs = zip(values["kind"], values["step"], strict=True)
    axis.set_xticks(places, [f"{kind}\nstep {step}" for kind, step in pairs], fontsize=7)
    axis.axhline(0, color=INK, lw=0.8)
    axis.set_ylabel("MNIR (std)")
    axis.set_title(title, fontsize=9)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def scan(bonus: Trainer, env_id: str, seed: int) -> Values:
    """MNIR along a walk through every free cell, looking in all directions; and what is seen."""
    views = Views(env_id, seed)
    norm, paid = ask(bonus, views.obs)
    values: Values = {"surprise norm": norm.tolist(), "bonus": paid.tolist()}
    for name, where in minigrid.events(views.obs).items():
        values[name] = np.flatnonzero(where).tolist()
    return values


def draw_scan(values: Values, path: Path, title: str) -> None:
    """Both curves, and a row of dots for each thing that comes into view."""
    plt = plotting()
    figure, (top, below) = plt.subplots(
        2, 1, figsize=(9, 4), layout="constrained", sharex=True, height_ratios=(4, 1)
    )
    for name, colour in (("surprise norm", NORM), ("bonus", NOVELTY)):
        top.plot(values[name], color=colour, lw=1, label=name)
    top.set_ylabel("MNIR (std)")
    top.set_title(title, fontsize=9)
    top.legend(frameon=False, fontsize=8)
    seen = [name for name in values if name not in ("surprise norm", "bonus")]
    for i, name in enumerate(seen):
        below.plot(values[name], [i] * len(values[name]), "|", color=INK, ms=4)
    below.set_yticks(range(len(seen)), seen, fontsize=7)
    below.set_ylim(-0.7, len(seen) - 0.3)
    below.set_xlabel("step of the walk")
    figure.savefig(path, dpi=100)
    plt.close(figure)
