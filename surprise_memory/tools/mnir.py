"""MNIR by kind of state: what a bonus thinks of noise, of plain walls and of what matters (the paper's bar chart).

Whole episodes are played, at random or by the trained agent, the trained bonus is asked about every step, each episode's
rewards are standardised (MNIR, appendix C), and the mean is taken over the steps of each kind. Nothing is learnt.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.bonus import Bonus
from surprise_memory.envs import VecEnv, make_vec, minigrid, miniworld
from surprise_memory.errors import UserError
from surprise_memory.tools.plots import INK, plotting
from surprise_memory.tools.stats import Array, mnir
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.types import Chunk

NOISE, NOTHING = "noise", "walls only"
BLOCK = 64  # steps that are asked about at once
COLOURS = ("#c46a1b", "#1b6fc4", "#2f8f5b", "#7a4fb5", "#8a8a8a", "#b5424f")


def kinds(env_id: str, env: VecEnv, chunk: Chunk) -> dict[str, Array]:
    """Which steps (T, B) lead to what: each room, or noise, each sight that the environment names, and nothing of all this."""
    if "room" in chunk.extras:
        rooms = chunk.extras["room"].numpy()
        return {f"room {room}": rooms == room for room in np.unique(rooms)}
    names: Callable[[Array], dict[str, Array]] | None = None
    if "MiniGrid-" in env_id:
        names = minigrid.sights
    elif miniworld.PREFIX in env_id:
        names = miniworld.sights
    if names is None:
        raise UserError(
            f"'{env_id}' does not name what it shows: choose a run on MiniGrid, MiniWorld or MontezumaRevenge."
        )
    noise = np.zeros(chunk.shape, bool)
    if hasattr(env, "tv_action"):
        noise = ((chunk.action == env.tv_action) & ~chunk.done).numpy()
    shown = names(chunk.next_obs.flatten(0, 1).numpy())
    found = {name: where.reshape(chunk.shape) & ~noise for name, where in shown.items()}
    return {NOISE: noise} | found | {NOTHING: ~np.any([noise, *found.values()], axis=0)}


def mnir_by_kind(
    env_id: str, bonus: Bonus, episodes: int, seed: int, longest: int, agent: Any = None
) -> dict[str, float]:
    """Mean MNIR of each kind that was met in so many episodes, of random actions where there is no agent."""
    env = make_vec(env_id, episodes, seed)
    env.action_space.seed(seed)
    felt = bonus if agent else None
    loop, carry, over = (
        RunnerState.reset(env, felt),
        bonus.start(episodes),
        np.zeros(episodes, bool),
    )
    paid, counts, met = list[Array](), list[Array](), list[dict[str, Array]]()
    for _ in range(0, longest, BLOCK):
        chunk, _ = collect(env, agent or RandomAgent(env), loop, BLOCK, felt, mode="sample")
        raw, _, carry = bonus(chunk, carry)
        before = over | (
            np.cumsum(chunk.done.numpy(), 0) - chunk.done.numpy() > 0
        )  # the first episode of each is enough
        over = over | chunk.done.numpy().any(0)
        paid.append(raw.double().numpy())
        counts.append(~before & chunk.valid.numpy())
        met.append(kinds(env_id, env, chunk))
        if over.all():
            break
    env.close()
    return by_kind(np.concatenate(paid), np.concatenate(counts), met)


def by_kind(paid: Array, counts: Array, met: list[dict[str, Array]]) -> dict[str, float]:
    """Mean MNIR by kind of rewards (T, B), the columns of which are episodes; `met` has the kinds of each block of steps."""
    standard = np.zeros_like(paid)
    for b in range(paid.shape[1]):
        standard[counts[:, b], b] = mnir(paid[counts[:, b], b])
    found = {}
    for name in dict.fromkeys(name for block in met for name in block):
        nowhere = [
            np.zeros_like(next(iter(block.values()))) for block in met
        ]  # a room may be met in some blocks only
        where = counts & np.concatenate(
            [block.get(name, none) for block, none in zip(met, nowhere, strict=True)]
        )
        if where.any():
            found[name] = float(standard[where].mean())
    return found


def draw_kinds(found: dict[str, list[dict[str, float]]], path: Path, title: str) -> None:
    """Bars by kind, into a file."""
    figure = kind_bars(found, title)
    figure.savefig(path, dpi=120)
    plotting().close(figure)


def kind_bars(found: dict[str, list[dict[str, float]]], title: str) -> Any:
    """Bars by kind, one colour per method; the height is the mean over its runs, a dot is one run."""
    plt = plotting()
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    figure, axis = plt.subplots(figsize=(1.6 + 1.3 * len(names), 3.6), layout="constrained")
    width = 0.8 / len(found)
    colours = (
        COLOURS
        if len(found) <= len(COLOURS)
        else [plt.get_cmap("tab20")(i % 20) for i in range(len(found))]
    )
    for i, (method, runs) in enumerate(found.items()):
        for j, name in enumerate(names):
            values = [run[name] for run in runs if name in run]
            place = j + (i - (len(found) - 1) / 2) * width
            label = method if j == 0 else None
            axis.bar(
                place,
                np.mean(values) if values else 0.0,
                width * 0.92,
                color=colours[i],
                label=label,
            )
            axis.plot([place] * len(values), values, ".", color=INK, ms=4)
    axis.axhline(0, color=INK, lw=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set_title(title, fontsize=9)
    axis.set_ylabel("mean MNIR (std)")
    axis.legend(frameon=False, fontsize=8)
    return figure


def averages(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Method -> kind -> mean over its runs that met the kind."""
    return {
        method: {
            name: float(np.mean([run[name] for run in runs if name in run]))
            for name in dict.fromkeys(n for r in runs for n in r)
        }
        for method, runs in found.items()
    }
