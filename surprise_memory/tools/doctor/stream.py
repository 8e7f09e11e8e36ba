"""One task of the doctor: a bonus learns from a random policy as in training, then it is measured.

`norm` is what the generator alone would pay for a step, `novelty` is what the whole method pays for
the same step. Both are measured on rollouts that the bonus has not learnt from, so the memory makes
the only difference. With noise, one successor in eight is replaced by it, both for learning and for
measuring.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from surprise_memory.bonus import RolloutTrainer, Trace
from surprise_memory.bonus.frames import last_frame
from surprise_memory.bonus.methods import split_method
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.nn.nets import is_image
from surprise_memory.surprise import SURPRISES
from surprise_memory.tools.doctor.noise import NoiseSource
from surprise_memory.tools.doctor.seen import Seen
from surprise_memory.tools.doctor.values import (
    clean_curves,
    clean_values,
    cost_values,
    noise_values,
    scale_values,
)
from surprise_memory.tools.stats import Array
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.warmup import check_finite
from surprise_memory.types import Chunk

SIMHASH_BITS = 16


def held_out(rollouts: int) -> int:
    """How many of the rollouts are measured on and not learnt from: the last fifth."""
    return max(1, rollouts // 5)


def observe(run: RunConfig, rollouts: int, noise: str, tick: Callable[[], None]) -> dict[str, Any]:
    """The `values` and `curves` of one seed, its way of `counting`, and the method `alone`.

    `noise` is a kind of noise, or empty for none. `tick` is called after every rollout.
    """
    torch.set_num_threads(run.threads)
    env = make_vec(run.env, run.envs, run.seed * run.envs, run.threads)
    env.action_space.seed(run.seed)
    bonus = make_bonus(run, run.method, env)
    alone = Alone(run, env, bonus)
    columns = columns_of(run.method)
    add_noise = NoiseSource(run.seed, noise) if noise else None
    state = RunnerState.reset(env, bonus)
    seen = Seen()
    total = run.warmup_rollouts + rollouts
    learning = total - held_out(rollouts)
    for i in range(total):
        chunk, _ = collect(env, RandomAgent(env), state, run.rollout)
        check_finite(chunk)
        next_obs = chunk.next_obs.flatten(0, 1)
        if i == 0:
            counting, key = key_maker(next_obs)
        seen.record_rollout(chunk, key(next_obs))
        shown = chunk
        replaced = np.zeros(chunk.shape, bool)
        if add_noise:
            shown, replaced = add_noise(chunk)
        began = time.perf_counter()
        if i < learning:
            warmup = i < run.warmup_rollouts
            _, metrics, state.bonus_carry = bonus.train_on(shown, state.bonus_carry, warmup)
            seen.record_update(metrics, time.perf_counter() - began)
            alone.train_on(shown, warmup)
        else:
            raw, trace, state.bonus_carry = bonus(shown, state.bonus_carry)
            seen.record_question(time.perf_counter() - began)
            norm = alone.pays(shown, raw, trace)
            seen.record_held_out(chunk, norm, raw, trace, replaced, env.events(next_obs.numpy()))
        tick()
    env.close()
    found = {"counting": counting, "alone": alone.method}
    if noise:
        return found | {"values": noise_values(seen, columns), "curves": {}}
    values = clean_values(seen, columns)
    values |= scale_values(seen, bonus, columns[-1])
    values |= cost_values(seen, run.rollout * run.envs)
    return found | {"values": values, "curves": clean_curves(seen, columns)}


def columns_of(method: str) -> tuple[str, ...]:
    """The columns of the diagnosis: a method without a memory has the norm alone."""
    if split_method(method).memory == "none":
        return ("norm",)
    return ("norm", "novelty")


def make_bonus(run: RunConfig, method: str, env: VecEnv) -> RolloutTrainer:
    """A bonus with a run's options."""
    return RolloutTrainer(
        method,
        env.obs_shape,
        run.envs,
        run.bonus,
        run.seed,
        env.action_space,
        precision=run.precision,
    )


class Alone:
    """What the generator would pay without its memory.

    That is what it pays, if it has none. Else it is |u|^power, unless stages follow. Their
    statistics and networks depend on what they are given, so the method without its memory then
    learns from the same rollouts beside it. A generator learns the same with and without a memory.
    Stages that ask the memory go with it.
    """

    def __init__(self, run: RunConfig, env: VecEnv, bonus: RolloutTrainer) -> None:
        surprise, memory, stages = split_method(run.method)
        self.has_memory = memory != "none"
        self.power = bonus.model.surprise.power or run.bonus.power
        self.bonus = None
        own = SURPRISES[surprise].stages
        asking = [name for name, stage in bonus.model.stage_items() if stage.asks_memory]
        left = [name for name in stages if name not in asking]
        self.method = "+".join((surprise, *left))
        if self.has_memory and (left or own):
            self.bonus = make_bonus(run, self.method, env)
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


# --- counting visits ------------------------------------------------------------------------------


def key_maker(obs: Tensor) -> tuple[str, Callable[[Tensor], Array]]:
    """How to count visits, judged by the first rollout (K, *obs).

    Returns the name of the way, and a function from observations (K, *obs) to int64 keys (K,).
    Vectors are counted exactly, by their bytes. Where nearly all of them are unique (continuous
    ones) that says nothing, so they are counted by the signs of random projections. Images are
    counted by a small grey picture of few shades.
    """
    if is_image(obs.shape[1:]):
        return "downsampled", lambda images: _bytes_to_keys(shrink(images))
    exact = _bytes_to_keys(obs.numpy())
    if len(np.unique(exact)) < 0.9 * len(exact):
        return "exact", lambda vectors: _bytes_to_keys(vectors.numpy())
    mean = obs.mean(0)
    std = obs.std(0) + 1e-6
    plane = torch.randn(
        obs.shape[1], SIMHASH_BITS, generator=torch.Generator().manual_seed(0), device="cpu"
    )

    def simhash(vectors: Tensor) -> Array:
        signs = ((vectors - mean) / std) @ plane > 0
        return _bytes_to_keys(signs.numpy())

    return "simhash", simhash


def shrink(images: Tensor) -> Array:
    """Images (K, C, H, W) to 8 x 11 pixels of 8 shades, like Go-Explore's cells: (K, 1, 8, 11)."""
    grey = last_frame(images)
    if images.dtype == torch.uint8:
        grey = grey / 255
    return (adaptive_avg_pool2d(grey, (8, 11)) * 7.999).byte().numpy()


def _bytes_to_keys(rows: Array) -> Array:
    # 64 bits, the same in every process: a million different rows collide once in 10^7 times.
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows]
    return np.frombuffer(b"".join(digests), dtype=np.int64)
