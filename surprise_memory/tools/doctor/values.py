"""The numbers of one seed: what was seen of a stream, summed up."""

import numpy as np
import torch

from surprise_memory.bonus import RolloutTrainer
from surprise_memory.nn.returns import discounted_filter
from surprise_memory.tools.doctor import measures as measure
from surprise_memory.tools.doctor.seen import Seen
from surprise_memory.tools.stats import Array, zscores

# Measure -> column -> number. The column is norm, novelty, or all if it belongs to neither.
Values = dict[str, dict[str, float]]


def clean_values(seen: Seen, columns: tuple[str, ...]) -> Values:
    """Size, spectrum, rarity, repeats and events by column, and what the memory changes."""
    values: Values = {}
    for column in columns:
        for name, number in column_values(seen, column).items():
            values.setdefault(name, {})[column] = number
    rows = seen.rows
    if len(columns) > 1:
        corr = measure.pearson(seen.column("norm")[rows], seen.column("novelty")[rows])
        values["corr"] = {"all": corr}
    left, whole = seen.energy
    if len(columns) > 1 and whole > 0:
        values["energy_left"] = {"all": float(left / whole)}
    for name in seen.events:
        values[f"share/{name}"] = {"all": measure.mean_of(seen.event(name)[rows])}
    return values


def column_values(seen: Seen, column: str) -> dict[str, float]:
    """All that is measured of one column by itself."""
    rows = seen.rows
    bonus = seen.column(column)
    z = standardised(bonus, rows)
    shares = measure.energy_shares(seen.moments[column])
    numbers = measure.size_of(bonus[seen.happened])
    for k in (1, 8, 32):
        numbers[f"top{k}"] = float(shares[:k].sum())
    numbers["dimension"] = measure.participation_ratio(shares)
    numbers["rarity"] = measure.spearman(bonus[rows], -np.log(seen.counts()))
    keys = np.concatenate(seen.keys)
    first = np.concatenate(seen.first)
    valid = np.concatenate(seen.valid)
    first_z, repeat_z = measure.first_and_repeats(z, keys, first, valid)
    numbers["first_z"] = first_z
    numbers["repeat_z"] = repeat_z
    for name in seen.events:
        numbers[f"event/{name}"] = measure.mean_of(z[rows & seen.event(name)])
    return numbers


def standardised(bonus: Array, rows: Array) -> Array:
    """z-scores (H, B) of a bonus over `rows`, and 0 elsewhere."""
    z = np.zeros(bonus.shape)
    z[rows] = zscores(bonus[rows])
    return z


def noise_values(seen: Seen, columns: tuple[str, ...]) -> Values:
    """Mean z-score of noise, its share of the reward, and the events' z-scores among noise.

    And what a step of noise, a first sight and a repeat are paid, in mean real steps.
    """
    rows = seen.rows
    noise = np.concatenate(seen.noise)
    values: Values = {"noise_z": {}, "noise_pay": {}}
    for column in columns:
        bonus = seen.column(column)
        z = standardised(bonus, rows)
        for name, number in prices(seen, bonus, noise).items():
            values.setdefault(name, {})[column] = number
        share = bonus[rows & noise].sum() / max(bonus[rows].sum(), 1e-300)
        values["noise_z"][column] = measure.mean_of(z[rows & noise])
        values["noise_pay"][column] = float(share)
        for name in seen.events:
            shown = rows & ~noise & seen.event(name)
            values.setdefault(f"noisy/{name}", {})[column] = measure.mean_of(z[shown])
    return values


def prices(seen: Seen, bonus: Array, noise: Array) -> dict[str, float]:
    """What noise (H, B), first sights and repeats are paid, over what real steps are paid."""
    real = seen.rows & ~noise
    mean = max(measure.mean_of(bonus[real]), 1e-300)
    keys = np.concatenate(seen.keys)
    valid = np.concatenate(seen.valid)
    valid[len(valid) - len(noise) :] &= ~noise
    opens = np.concatenate(seen.first)
    first, again = measure.first_and_repeats(bonus, keys, opens, valid)
    return {
        "price_noise": measure.mean_of(bonus[seen.rows & noise]) / mean,
        "price_first": first / mean,
        "price_repeat": again / mean,
    }


def scale_values(seen: Seen, bonus: RolloutTrainer, paid: str) -> Values:
    """The reward's divisor, the reward after it, and the divisor over what today would need."""
    rows = seen.rows
    raw = np.where(rows, seen.column("novelty"), 0.0)
    std = float(bonus.scaler.std)
    valid = torch.as_tensor(rows, device="cpu")
    returns, _ = discounted_filter(
        torch.as_tensor(raw, device="cpu"), bonus.scaler.filtered, valid, bonus.config.gamma
    )
    today = np.nan
    if rows.sum() > 1:
        today = float(returns[valid].std())
    return {
        "reward_scale": {paid: std},
        "scaled_mean": {paid: measure.mean_of(raw[rows]) / std},
        "scale_over_today": {paid: std / max(today, 1e-300)},
    }


def cost_values(seen: Seen, steps: int) -> Values:
    """Microseconds per step of asking and of learning, from rollouts of so many steps.

    They are medians: other processes may be running.
    """
    ask = float(np.median(seen.seconds["ask"]))
    learn = float(np.median(seen.seconds["train"])) - ask  # training asks first
    return {
        "ask_us": {"all": 1e6 * ask / steps},
        "learn_us": {"all": 1e6 * max(learn, 0.0) / steps},
    }


def clean_curves(seen: Seen, columns: tuple[str, ...]) -> dict[str, Array]:
    """What the figure draws: see `Diagnosis.curves`."""
    curves = {"spectrum": measure.energy_shares(seen.moments["norm"])}
    counts = seen.counts()
    for column in columns:
        bonus = seen.column(column)[seen.rows]
        relative = bonus / max(bonus.mean(), 1e-300)
        curves[f"visits/{column}"] = measure.by_visits(relative, counts)
        curves[f"rollouts/{column}"] = np.array(seen.rollouts[column])
    return curves
