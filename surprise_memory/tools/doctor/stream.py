"""One task of the doctor: a random policy plays, a bonus learns from it as in training, is frozen, and is measured.

`norm` is what the generator alone would pay for a step, |u|^power, and `novelty` what the whole method pays for the same
step. Both are read from one bonus on rollouts it has not learnt from, so they differ by the memory and by nothing else. With
noise, one successor in eight is replaced by a fresh draw, for learning and for measuring.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from surprise_memory.bonus import RolloutTrainer, Trace
from surprise_memory.bonus.methods import split_method
from surprise_memory.bonus.model import last_frame
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.nn.nets import is_image
from surprise_memory.nn.returns import discounted_filter
from surprise_memory.surprise import SURPRISES
from surprise_memory.tools.doctor import measures as measure
from surprise_memory.tools.doctor.measures import Array
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import check_finite
from surprise_memory.types import Chunk

NOISE_SHARE = 1 / 8
SIMHASH_BITS = 16
Values = dict[
    str, dict[str, float]
]  # measure -> column (norm, novelty, or all: about neither) -> number


def held_out(rollouts: int) -> int:
    """How many of the rollouts are measured on and not learnt from: the last fifth."""
    return max(1, rollouts // 5)


def observe(run: RunConfig, rollouts: int, noisy: bool, tick: Callable[[], None]) -> dict[str, Any]:
    """The numbers (`values`), `curves` and way of `counting` of one seed, with or without noise."""
    torch.set_num_threads(run.threads)
    env = make_vec(run.env, run.envs, run.seed * run.envs, run.threads)
    bonus = RolloutTrainer(
        run.method, env.obs_shape, run.envs, run.bonus, run.seed, env.action_space
    )
    env.action_space.seed(run.seed)
    loop, seen, add_noise = RunnerState.reset(env, bonus), Seen(), NoiseSource(run.seed)
    total, held = run.warmup_rollouts + rollouts, held_out(rollouts)
    alone = Alone(run, env, bonus)
    for i in range(total):
        chunk, _ = collect(env, RandomAgent(env), loop, run.rollout)
        check_finite(chunk)
        if i == 0:
            counting, key = key_maker(chunk.next_obs.flatten(0, 1))
        seen.meet(chunk, key(chunk.next_obs.flatten(0, 1)))
        shown, noise = chunk, np.zeros(chunk.shape, bool)
        if noisy:
            shown, noise = add_noise(chunk)
        began = time.perf_counter()
        if i < total - held:
            warmup = i < run.warmup_rollouts
            _, metrics, loop.bonus_carry = bonus.train_on(shown, loop.bonus_carry, warmup)
            seen.learnt(metrics, time.perf_counter() - began)
            alone.train_on(shown, warmup)
        else:
            raw, trace, loop.bonus_carry = bonus(shown, loop.bonus_carry)
            seen.seconds["ask"].append(time.perf_counter() - began)
            events = env.events(chunk.next_obs.flatten(0, 1).numpy())
            seen.hold(chunk, alone.pays(shown, raw, trace), raw, trace, noise, events)
        tick()
    env.close()
    columns = ("norm",) if split_method(run.method)[1] == "none" else ("norm", "novelty")
    if noisy:
        return {"values": noise_values(seen, columns), "curves": {}, "counting": counting}
    values = (
        clean_values(seen, columns)
        | scale_values(seen, bonus, columns[-1])
        | cost_values(seen, run)
    )
    return {"values": values, "curves": clean_curves(seen, columns), "counting": counting}


class Alone:
    """What the generator would pay without its memory.

    That is what it pays, if it has none. Else it is |u|^power, unless stages follow: their statistics
    and networks depend on what they are given, so the method without its memory then learns from the
    same rollouts beside it. A generator learns the same with and without a memory. Stages that ask the
    memory go with it.
    """

    def __init__(self, run: RunConfig, env: VecEnv, bonus: RolloutTrainer) -> None:
        surprise, memory, stages = split_method(run.method)
        self.has_memory = memory != "none"
        self.power = bonus.model.surprise.power or run.bonus.power
        self.bonus = None
        own = SURPRISES[surprise].stages
        asking = [name for name, stage in bonus.model.stage_items() if stage.asks_memory]
        left = [name for name in stages if name not in asking]
        if self.has_memory and (left or own):
            method = "+".join((surprise, *left))
            self.bonus = RolloutTrainer(
                method, env.obs_shape, run.envs, run.bonus, run.seed, env.action_space
            )
            self.carry = self.bonus.start()

    def train_on(self, chunk: Chunk, warmup: bool) -> None:
        """Learn beside the bonus."""
        if self.bonus is not None:
            _, _, self.carry = self.bonus.train_on(chunk, self.carry, warmup)

    def pays(self, chunk: Chunk, paid: Tensor, trace: Trace) -> Tensor:
        """The reward (T, B) of a chunk that the bonus has `paid` (T, B) and left `trace` on."""
        if not self.has_memory:
            return paid
        if self.bonus is None:
            norm: Tensor = trace.surprise_norm**self.power
            return norm
        without: Tensor
        without, _, self.carry = self.bonus(chunk, self.carry)
        return without


# --- what is kept -----------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What is kept of a stream: the keys of all rows, the bonuses of the held-out rows; never the observations."""

    keys: list[Array] = field(default_factory=list)  # each (T, B) int64
    first: list[Array] = field(default_factory=list)
    valid: list[Array] = field(default_factory=list)
    bonus: dict[str, list[Array]] = field(
        default_factory=lambda: {"norm": [], "novelty": []}
    )  # held out, each (T, B)
    noise: list[Array] = field(default_factory=list)  # held out, as are the events
    events: dict[str, list[Array]] = field(default_factory=dict)
    moments: dict[str, Any] = field(
        default_factory=lambda: {"norm": 0.0, "novelty": 0.0}
    )  # sums of u u^T and of v v^T
    energy: Array = field(default_factory=lambda: np.zeros(2))  # sums of |v|^2 and of |q|^2
    rollouts: dict[str, list[float]] = field(
        default_factory=lambda: {"norm": [], "novelty": []}
    )  # means while learning
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"ask": [], "train": []})

    def meet(self, chunk: Chunk, keys: Array) -> None:
        """Every rollout; keys (T*B,)."""
        self.keys.append(keys.reshape(chunk.shape))
        self.first.append(chunk.first.numpy())
        self.valid.append(chunk.valid.numpy())

    def learnt(self, metrics: dict[str, float], seconds: float) -> None:
        """A rollout that was learnt from."""
        self.seconds["train"].append(seconds)
        self.rollouts["norm"].append(metrics["intrinsic/surprise_norm"])
        self.rollouts["novelty"].append(metrics["intrinsic/novelty"])

    def hold(
        self,
        chunk: Chunk,
        alone: Tensor,
        raw: Tensor,
        trace: Trace,
        noise: Array,
        events: dict[str, Array],
    ) -> None:
        """A held-out rollout: what the generator alone would pay, what is paid, what it shows (T*B,)."""
        self.bonus["norm"].append(alone.double().numpy())
        self.bonus["novelty"].append(raw.double().numpy())
        self.noise.append(noise)
        u, q, v = (x[chunk.valid].double().numpy() for x in (trace.u, trace.q, trace.v))
        self.moments["norm"] += u.T @ u
        self.moments["novelty"] += v.T @ v
        if v.shape == q.shape:  # a residual; a count is none
            self.energy += [(v**2).sum(), (q**2).sum()]
        for name, where in events.items():
            self.events.setdefault(name, []).append(where.reshape(chunk.shape))

    @property
    def happened(self) -> Array:
        """(H, B) bool: held-out rows that are valid."""
        return np.concatenate(self.valid[-len(self.noise) :])

    @property
    def rows(self) -> Array:
        """(H, B) bool: held-out rows that are valid and whose bonuses are finite; the others are counted in `nonfinite`."""
        return (
            self.happened & np.isfinite(self.column("norm")) & np.isfinite(self.column("novelty"))
        )

    def column(self, name: str) -> Array:
        """(H, B): the held-out bonuses."""
        return np.concatenate(self.bonus[name])

    def counts(self) -> Array:
        """Visits over the whole stream of what each of `rows` (K,) shows."""
        keys, valid = np.concatenate(self.keys), np.concatenate(self.valid)
        visits = np.zeros(keys.shape, int)
        visits[valid] = measure.visit_counts(keys[valid])
        return visits[-len(self.rows) :][self.rows]


def key_maker(obs: Tensor) -> tuple[str, Callable[[Tensor], Array]]:
    """How to count visits, judged by the first rollout (K, *obs): (its name, a function from (K, *obs) to int64 keys (K,)).

    Vectors are counted exactly, by their bytes. Where nearly all are unique (continuous ones) that says nothing, so they are
    counted by the signs of random projections; images by a small grey picture of few shades.
    """
    if is_image(obs.shape[1:]):
        return "downsampled", lambda images: _bytes_to_keys(shrink(images))
    exact = _bytes_to_keys(obs.numpy())
    if len(np.unique(exact)) < 0.9 * len(exact):
        return "exact", lambda vectors: _bytes_to_keys(vectors.numpy())
    mean, std = obs.mean(0), obs.std(0) + 1e-6
    plane = torch.randn(obs.shape[1], SIMHASH_BITS, generator=torch.Generator().manual_seed(0))
    return "simhash", lambda vectors: _bytes_to_keys((((vectors - mean) / std) @ plane > 0).numpy())


def shrink(images: Tensor) -> Array:
    """Images (K, C, H, W) to 8 x 11 pixels of 8 shades, as Go-Explore counts its cells: uint8 (K, 1, 8, 11)."""
    grey = last_frame(images) / (255 if images.dtype == torch.uint8 else 1)
    return (adaptive_avg_pool2d(grey, (8, 11)) * 7.999).byte().numpy()


def _bytes_to_keys(rows: Array) -> Array:
    # Python's 64-bit hash: two among a million different rows collide once in 10^7 times.
    return np.array([hash(row.tobytes()) for row in rows], dtype=np.int64)


class NoiseSource:
    """Replaces one successor in eight by uniform noise within the range seen so far, feature by feature."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.low: Any = np.inf
        self.high: Any = -np.inf

    def __call__(self, chunk: Chunk) -> tuple[Chunk, Array]:
        """(the chunk with noise, where it is (T, B) bool)."""
        obs, valid = chunk.next_obs.numpy(), chunk.valid.numpy()
        self.low = np.minimum(self.low, obs[valid].min(0))
        self.high = np.maximum(self.high, obs[valid].max(0))
        where = (self.rng.random(chunk.shape) < NOISE_SHARE) & valid
        noisy = obs.copy()
        noisy[where] = measure.uniform_noise(obs[where], self.low, self.high, self.rng)
        return dataclasses.replace(chunk, next_obs=torch.as_tensor(noisy)), where


# --- what is concluded ------------------------------------------------------------------------------------------------


def clean_values(seen: Seen, columns: tuple[str, ...]) -> Values:
    """Size, spectrum, rarity, episodes and events for each column; and what the memory does."""
    rows, values = seen.rows, Values()
    keys, first, valid = (np.concatenate(x) for x in (seen.keys, seen.first, seen.valid))
    counts = seen.counts()
    for column in columns:
        bonus = seen.column(column)
        z = np.zeros(bonus.shape)
        z[rows] = measure.zscores(bonus[rows])
        shares = measure.energy_shares(seen.moments[column])
        numbers = measure.size_of(bonus[seen.happened])
        numbers |= {f"top{k}": float(shares[:k].sum()) for k in (1, 8, 32)}
        numbers["dimension"] = measure.participation_ratio(shares)
        numbers["rarity"] = measure.spearman(bonus[rows], -np.log(counts))
        numbers["first_z"], numbers["repeat_z"] = measure.first_and_repeats(z, keys, first, valid)
        numbers |= {
            f"event/{name}": measure.mean_of(z[rows & np.concatenate(where)])
            for name, where in seen.events.items()
        }
        for name, number in numbers.items():
            values.setdefault(name, {})[column] = number
    if len(columns) > 1:
        values["corr"] = {
            "all": measure.pearson(seen.column("norm")[rows], seen.column("novelty")[rows])
        }
    if len(columns) > 1 and seen.energy[1] > 0:
        values["energy_left"] = {"all": float(seen.energy[0] / seen.energy[1])}
    values |= {
        f"share/{name}": {"all": measure.mean_of(np.concatenate(w)[rows])}
        for name, w in seen.events.items()
    }
    return values


def noise_values(seen: Seen, columns: tuple[str, ...]) -> Values:
    """Mean z-score of noise, its share of all that is paid, and the events' z-scores among noise."""
    rows, noise, values = seen.rows, np.concatenate(seen.noise), Values()
    for column in columns:
        bonus = seen.column(column)
        z = np.zeros(bonus.shape)
        z[rows] = measure.zscores(bonus[rows])
        values.setdefault("noise_z", {})[column] = measure.mean_of(z[rows & noise])
        values.setdefault("noise_pay", {})[column] = float(
            bonus[rows & noise].sum() / max(bonus[rows].sum(), 1e-300)
        )
        for name, where in seen.events.items():
            shown = rows & ~noise & np.concatenate(where)
            values.setdefault(f"noisy/{name}", {})[column] = measure.mean_of(z[shown])
    return values


def scale_values(seen: Seen, bonus: RolloutTrainer, paid: str) -> Values:
    """The divisor of the reward, the reward after it, and the divisor over what it should be on the held-out rows."""
    raw, std = np.where(seen.rows, seen.column("novelty"), 0.0), float(bonus.scaler.std)
    valid = torch.as_tensor(seen.rows)
    returns, _ = discounted_filter(
        torch.as_tensor(raw), bonus.scaler.filtered, valid, bonus.config.gamma
    )
    today = float(returns[valid].std()) if seen.rows.sum() > 1 else np.nan
    scaled = measure.mean_of(raw[seen.rows]) / std
    return {
        "reward_scale": {paid: std},
        "scaled_mean": {paid: scaled},
        "scale_over_today": {paid: std / max(today, 1e-300)},
    }


def cost_values(seen: Seen, run: RunConfig) -> Values:
    """Microseconds per step that asking and learning take here and now; medians, for other things may be running."""
    ask = float(np.median(seen.seconds["ask"]))
    learn = float(np.median(seen.seconds["train"])) - ask  # absorb asks first
    scale = 1e6 / (run.rollout * run.envs)
    return {"ask_us": {"all": ask * scale}, "learn_us": {"all": max(learn, 0.0) * scale}}


def clean_curves(seen: Seen, columns: tuple[str, ...]) -> dict[str, Array]:
    """What the pictures show: see `Diagnosis.curves`."""
    curves, counts = {"spectrum": measure.energy_shares(seen.moments["norm"])}, seen.counts()
    for column in columns:
        bonus = seen.column(column)[seen.rows]
        curves[f"visits/{column}"] = measure.by_visits(bonus / max(bonus.mean(), 1e-300), counts)
        curves[f"rollouts/{column}"] = np.array(seen.rollouts[column])
    return curves
