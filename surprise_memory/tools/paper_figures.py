"""The paper's pictures of one trained bonus: a map of what it finds novel, the key seen twice, t-SNE, variances.

The map and the key come from views that are set up by hand in MiniGrid's own package, strung together as one episode, as
the paper does it; t-SNE and the variances from an episode of random actions, which sees more than a trained agent's.
"""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from surprise_memory.bonus import Bonus, Trace
from surprise_memory.envs.minigrid import events as sights_of
from surprise_memory.errors import UserError
from surprise_memory.tools.plots import INK, NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, mnir
from surprise_memory.types import Chunk

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # MiniGrid's directions: right, down, left, up
ORDINARY = 14, 12  # steps before the key is seen, and between its two sights, as in the paper


class Views:
    """What an agent would see at every free cell of one layout, in each direction."""

    def __init__(self, env_id: str, seed: int) -> None:
        if not importlib.util.find_spec("minigrid"):
            raise UserError("minigrid is not installed: pip install 'surprise-memory[minigrid]'.")
        import minigrid.envs  # noqa: F401 (registers its environments)

        env: Any = gymnasium.make(env_id, render_mode="rgb_array").unwrapped
        env.reset(seed=seed)
        self.picture = np.asarray(env.get_frame(tile_size=16, highlight=False))
        self.size = (env.width, env.height)
        self.places: list[tuple[int, int, int]] = []  # x, y, direction; row by row, there and back
        seen = []
        for y in range(env.height):
            for x in range(env.width)[:: 1 if y % 2 == 0 else -1]:
                if env.grid.get(x, y) is None:
                    for direction in range(4):
                        env.agent_pos, env.agent_dir = np.array((x, y)), direction
                        self.places.append((x, y, direction))
                        seen.append(vector(env.gen_obs()))
        self.obs = np.stack(seen)  # (K, 151)


def vector(obs: dict[str, Any]) -> Array:
    """MiniGrid's observation as the 151 numbers that our environments give."""
    return np.concatenate([obs["image"].reshape(-1), np.eye(4)[obs["direction"]]]).astype(
        np.float32
    )


def as_episode(obs: Array) -> Chunk:
    """Observations (T, k) as one episode in which nothing is done but looking."""
    after = torch.as_tensor(obs)[:, None]
    before, no = torch.cat([after[:1], after[:-1]]), torch.zeros(len(obs), 1, dtype=torch.bool)
    first = no.clone()
    first[0] = True
    return Chunk(before, no.long(), no.float(), after, no, no.clone(), first, ~no, {})


def asked(bonus: Bonus, obs: Array) -> tuple[Array, Array]:
    """MNIR of the surprise's norm and of what is paid, along observations taken for one episode, (T,) each."""
    raw, trace, _ = bonus(as_episode(obs), bonus.start(1))
    return mnir(trace.surprise_norm[:, 0].double().numpy()), mnir(raw[:, 0].double().numpy())


def draw_map(bonus: Bonus, env_id: str, seed: int, path: Path) -> dict[str, float]:
    """Each cell coloured by its highest MNIR, with an arrow where that is looked: norm on the left, bonus on the right."""
    plt, views = plotting(), Views(env_id, seed)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.2), layout="constrained")
    axes[0].imshow(views.picture)
    axes[0].set_title("the map", fontsize=9)
    axes[0].set_axis_off()
    found = {}
    for axis, title, value in zip(
        axes[1:], ("surprise norm", "bonus"), asked(bonus, views.obs), strict=True
    ):
        cells = np.full(views.size[::-1], np.nan)
        for (x, y), (best, direction) in highest(views.places, value).items():
            cells[y, x] = best
            dx, dy = STEPS[direction]
            axis.arrow(
                x - 0.2 * dx, y - 0.2 * dy, 0.3 * dx, 0.3 * dy, head_width=0.25, color=INK, lw=0.6
            )
        drawn = axis.imshow(cells, cmap="YlOrRd")
        figure.colorbar(drawn, ax=axis, shrink=0.8)
        axis.set_title(f"{title}: highest MNIR of a cell", fontsize=9)
        # How much the map is about a few cells: the share of all that is above the mean in its highest tenth.
        above = np.sort(np.maximum(cells[np.isfinite(cells)], 0))[::-1]
        found[f"{title}: share of the top tenth"] = float(
            above[: max(1, len(above) // 10)].sum() / max(above.sum(), 1e-12)
        )
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return found


def highest(
    places: list[tuple[int, int, int]], value: Array
) -> dict[tuple[int, int], tuple[float, int]]:
    """Cell -> its highest value and the direction it has it in."""
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for (x, y, direction), v in zip(places, value, strict=True):
        best[x, y] = max(best.get((x, y), (-np.inf, 0)), (float(v), direction))
    return best


def key_twice(bonus: Bonus, env_id: str, seed: int) -> dict[str, float]:
    """MNIR of an ordinary first step, of the first sight of the key and of its second, in one episode set up by hand."""
    views = Views(env_id, seed)
    sights = sights_of(views.obs)
    plain = ~np.any(list(sights.values()), axis=0)
    rng = np.random.default_rng(seed)
    keys = np.flatnonzero(sights["key in view"] & ~sights["closed door in view"])
    if not len(keys) or not plain.any():
        raise UserError(f"{env_id} shows no key without a door: choose a run on a DoorKey task.")
    before, between = ORDINARY
    key = rng.choice(keys)
    order = [
        *rng.choice(np.flatnonzero(plain), before),
        key,
        *rng.choice(np.flatnonzero(plain), between),
        key,
    ]
    _, paid = asked(bonus, views.obs[order])
    return {
        "nothing, step 1": paid[0],
        "key, step 15": paid[before],
        "key again, step 28": paid[before + 1 + between],
    }


def draw_tsne(trace: Trace, paid: Array, path: Path, seed: int) -> None:
    """Surprises u and residuals v of one episode in two dimensions, dark where the MNIR is high."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError(
            "scikit-learn is not installed: pip install 'surprise-memory[report]'."
        ) from error
    plt = plotting()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    for axis, title, x in zip(
        axes, ("surprises u", "surprise residuals v"), (trace.u, trace.v), strict=True
    ):
        points = x[:, 0].double().numpy()
        flat = TSNE(
            perplexity=min(30.0, (len(points) - 1) / 3), random_state=seed, init="random"
        ).fit_transform(points)
        drawn = axis.scatter(*flat.T, c=mnir(paid), cmap="viridis_r", s=14)
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="MNIR")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def target_of(trace: Trace) -> torch.Tensor | None:
    """What the generator predicts (T, n), for those that keep it among their inputs."""
    return next(
        (trace.inputs[name] for name in ("target", "x", "next_z") if name in trace.inputs), None
    )


def variances(trace: Trace) -> dict[str, float]:
    """The proposition of the paper's appendix, that surprises vary no more than what they are about, dimension by dimension."""
    u = trace.u[:, 0].double()
    target = target_of(trace)
    if target is None:
        raise UserError(
            "This generator does not keep what it predicts: choose a run with rnd, ngu, ae or lwm."
        )
    var_u, var_x = u.var(0, correction=0), target.double().var(0, correction=0)
    return {
        "dimensions": float(len(var_u)),
        "share where var u <= var x": float((var_u <= var_x + 1e-12).float().mean()),
        "sum of var u / sum of var x": float(var_u.sum() / var_x.sum().clamp(min=1e-12)),
    }


def draw_bars(values: dict[str, float], path: Path, title: str) -> None:
    """A bar for each name."""
    plt = plotting()
    figure, axis = plt.subplots(figsize=(4.6, 3), layout="constrained")
    axis.bar(list(values), list(values.values()), color=[NORM, NOVELTY, NOVELTY][: len(values)])
    axis.axhline(0, color=INK, lw=0.8)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_title(title, fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)
