"""The paper's figures of one trained bonus: a novelty map, the key seen twice, t-SNE, variances.

On DoorKey, views are set up by hand with MiniGrid's own package and strung together as one episode,
as in the paper. Elsewhere t-SNE, and everywhere the variances, use an episode of random actions,
which sees more than one of a trained agent.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from surprise_memory.bonus import Trace
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.envs import minigrid
from surprise_memory.errors import UserError, need
from surprise_memory.tools.plots import INK, NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, mnir
from surprise_memory.types import Chunk

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # MiniGrid's directions: right, down, left, up
BEFORE = 14  # ordinary steps before the key is seen, as in the paper
BETWEEN = 12  # ordinary steps between the first and the second time it is seen
Place = tuple[int, int, int]  # x, y, direction


class Views:
    """What an agent would see in every free cell of one layout, in each direction."""

    def __init__(self, env_id: str, seed: int) -> None:
        need("minigrid.envs", extra="minigrid")  # registers its environments
        env: Any = gymnasium.make(env_id, render_mode="rgb_array").unwrapped
        env.reset(seed=seed)
        self.picture = np.asarray(env.get_frame(tile_size=16, highlight=False))
        self.size = (env.width, env.height)
        self.places = free_places(env)
        views = []
        for x, y, direction in self.places:
            env.agent_pos = np.array((x, y))
            env.agent_dir = direction
            views.append(vector(env.gen_obs()))
        self.obs = np.stack(views)  # (K, 151)


def free_places(env: Any) -> list[Place]:
    """Free cells in four directions each, row by row, every other row from right to left."""
    places: list[Place] = []
    for y in range(env.height):
        columns = list(range(env.width))
        if y % 2:
            columns.reverse()
        for x in columns:
            if env.grid.get(x, y) is None:
                places.extend((x, y, direction) for direction in range(4))
    return places


def vector(obs: dict[str, Any]) -> Array:
    """MiniGrid's observation as the 151 numbers of our environments."""
    parts = [obs["image"].reshape(-1), np.eye(4)[obs["direction"]]]
    return np.concatenate(parts).astype(np.float32)


def as_episode(obs: Array) -> Chunk:
    """Observations (T, k) as one episode in which the agent does nothing but look."""
    after = torch.as_tensor(obs, device="cpu")[:, None]
    no = torch.zeros(len(obs), 1, dtype=torch.bool, device="cpu")
    first = no.clone()
    first[0] = True
    return Chunk(
        obs=torch.cat([after[:1], after[:-1]]),
        action=no.long(),
        reward=no.float(),
        next_obs=after,
        terminated=no,
        truncated=no.clone(),
        first=first,
        valid=~no,
        extras={},
    )


def ask(bonus: Trainer, obs: Array) -> tuple[Array, Array]:
    """MNIR (T,) of the surprise norm and of the bonus, along observations taken as one episode."""
    raw, trace, _ = bonus(as_episode(obs), bonus.start(1))
    norm = trace.surprise_norm[:, 0].double().numpy()
    paid = raw[:, 0].double().numpy()
    return mnir(norm), mnir(paid)


# --- the map --------------------------------------------------------------------------------------


def draw_map(bonus: Trainer, env_id: str, seed: int, path: Path) -> dict[str, float]:
    """Colour each cell by its highest MNIR, an arrow showing the direction: norm, then bonus.

    Returns how much each map is about a few cells: the share of all that is above the mean that the
    highest tenth of the cells has.
    """
    plt = plotting()
    views = Views(env_id, seed)
    norm, paid = ask(bonus, views.obs)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.2), layout="constrained")
    axes[0].imshow(views.picture)
    axes[0].set_title("the map", fontsize=9)
    axes[0].set_axis_off()
    found = {}
    for axis, title, value in ((axes[1], "surprise norm", norm), (axes[2], "bonus", paid)):
        cells = draw_cells(axis, views, value)
        axis.set_title(f"{title}: highest MNIR in each cell", fontsize=9)
        found[f"{title}: share of the top tenth"] = top_tenth(cells)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return found


def draw_cells(axis: Any, views: Views, value: Array) -> Array:
    """Draw the highest value of each cell; returns them (H, W), nan where no agent can stand."""
    width, height = views.size
    cells = np.full((height, width), np.nan)
    for (x, y), (best, direction) in highest(views.places, value).items():
        cells[y, x] = best
        dx, dy = STEPS[direction]
        start = (x - 0.2 * dx, y - 0.2 * dy)
        axis.arrow(*start, 0.3 * dx, 0.3 * dy, head_width=0.25, color=INK, lw=0.6)
    image = axis.imshow(cells, cmap="YlOrRd")
    axis.figure.colorbar(image, ax=axis, shrink=0.8)
    return cells


def highest(places: list[Place], value: Array) -> dict[tuple[int, int], tuple[float, int]]:
    """Cell -> its highest value, and the direction that has it."""
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for (x, y, direction), v in zip(places, value, strict=True):
        best[x, y] = max(best.get((x, y), (-np.inf, 0)), (float(v), direction))
    return best


def top_tenth(cells: Array) -> float:
    """Share of the sum of all positive values that the highest tenth of the cells has."""
    positive = np.maximum(cells[np.isfinite(cells)], 0)
    descending = np.sort(positive)[::-1]
    top = descending[: max(1, len(descending) // 10)]
    return float(top.sum() / max(descending.sum(), 1e-12))


# --- the key seen twice ---------------------------------------------------------------------------


def key_twice(bonus: Trainer, env_id: str, seed: int) -> dict[str, float]:
    """MNIR of an ordinary first step, of the key when first seen, and of the key seen again.

    All three are in one episode that is set up by hand.
    """
    views = Views(env_id, seed)
    events = minigrid.events(views.obs)
    ordinary = np.flatnonzero(~np.any(list(events.values()), axis=0))
    keys = np.flatnonzero(events["key in view"] & ~events["closed door in view"])
    if not len(keys) or not len(ordinary):
        raise UserError(f"{env_id} shows no key without a door: choose a run on a DoorKey task.")
    rng = np.random.default_rng(seed)
    key = rng.choice(keys)
    before = rng.choice(ordinary, BEFORE)
    between = rng.choice(ordinary, BETWEEN)
    order = [*before, key, *between, key]
    _, paid = ask(bonus, views.obs[order])
    return {
        "nothing, step 1": paid[0],
        "key, step 15": paid[BEFORE],
        "key again, step 28": paid[BEFORE + 1 + BETWEEN],
    }


# --- surprises and residuals ----------------------------------------------------------------------


def draw_tsne(bonus: Trainer, episode: Chunk, path: Path, seed: int) -> None:
    """Surprises u and residuals v of one episode in two dimensions, dark where the MNIR is high.

    That is the MNIR of the surprise norm beside u, and of the bonus beside v.
    """
    manifold = need("sklearn.manifold", extra="report", package="scikit-learn")
    raw, trace, _ = bonus(episode, bonus.start(1))
    plt = plotting()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    panels = (
        ("surprises u, by their norm", trace.u, trace.surprise_norm),
        ("surprise residuals v, by the bonus", trace.v, raw),
    )
    for axis, (title, x, value) in zip(axes, panels, strict=True):
        points = x[:, 0].double().numpy()
        if len(points) < 2:
            raise UserError("t-SNE needs an episode of at least two steps: choose another --seed.")
        perplexity = min(30.0, (len(points) - 1) / 3)
        tsne = manifold.TSNE(perplexity=perplexity, random_state=seed, init="random")
        flat = tsne.fit_transform(points)  # (T, 2)
        colour = mnir(value[:, 0].double().numpy())
        dots = axis.scatter(*flat.T, c=colour, cmap="viridis_r", s=14)
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        figure.colorbar(dots, ax=axis, shrink=0.8, label="MNIR")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def target_of(trace: Trace) -> torch.Tensor | None:
    """What the generator predicts (T, n), if it is among its inputs."""
    for name in ("target", "x", "next_z"):
        if name in trace.inputs:
            return trace.inputs[name]
    return None


def variances(trace: Trace) -> dict[str, float]:
    """The proposition in the paper's appendix: no dimension of u varies more than its target."""
    target = target_of(trace)
    if target is None:
        raise UserError(
            "This generator does not keep what it predicts: choose a run with rnd, ngu, ae or lwm."
        )
    var_u = trace.u[:, 0].double().var(0, correction=0)
    var_x = target.double().var(0, correction=0)
    return {
        "dimensions": float(len(var_u)),
        "share where var u <= var x": float((var_u <= var_x + 1e-12).float().mean()),
        "sum of var u / sum of var x": float(var_u.sum() / var_x.sum().clamp(min=1e-12)),
    }


def draw_bars(values: dict[str, float], path: Path, title: str) -> None:
    """A bar for each name; the first is the baseline."""
    plt = plotting()
    figure, axis = plt.subplots(figsize=(4.6, 3), layout="constrained")
    colours = [NORM] + [NOVELTY] * (len(values) - 1)
    axis.bar(list(values), list(values.values()), color=colours)
    axis.axhline(0, color=INK, lw=0.8)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_title(title, fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)
