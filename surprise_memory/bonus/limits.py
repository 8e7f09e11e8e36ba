"""What a bonus takes: each check refuses one thing that it does not, before anything changes."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from surprise_memory.bonus.config import BonusConfig
from surprise_memory.bonus.trace import Carry
from surprise_memory.errors import UserError, require
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.devices import double
from surprise_memory.observations import channels_last
from surprise_memory.types import Chunk

LARGEST = torch.finfo(torch.float32).max  # the networks are float32
LARGEST_BONUS = 1e18  # whose square, the loss, still is a float32
MOST_ENVS = 1_000_000
WIDEST = 100_000_000  # numbers in one observation
SEEDS = range(-(2**63), 2**64)  # that torch takes


def check_chunk(chunk: Any) -> None:
    """Refuse what is no Chunk."""
    if not isinstance(chunk, Chunk):
        raise UserError(f"A bonus is asked about a Chunk, this is {describe(chunk)}.")


def check_carry(carry: Any) -> None:
    """Refuse what is no Carry."""
    if not isinstance(carry, Carry):
        raise UserError(
            f"The carry is {describe(carry)}: pass start(), or what the last call returned."
        )


def check_shape(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse every shape but one: a width of 1 would be broadcast without a word."""
    if tuple(x.shape) != shape:
        raise UserError(f"{name} has shape {tuple(x.shape)}: it must be {shape}.")


def check_finite(name: str, x: Tensor, valid: Tensor) -> None:
    """Refuse NaN, infinity and what float32 cannot hold in rows of x (T, B, ...) that happened."""
    if not x.is_floating_point() or not x.numel():
        return
    low, high = torch.stack(torch.aminmax(x)).tolist()
    if low >= -LARGEST and high <= LARGEST:  # never so with a NaN
        return
    bad = ~(double(x).abs() <= LARGEST)  # in half precision the bound itself is infinite
    bad[~valid.to(bad.device)] = False
    places = bad.nonzero()  # (bad values, axes)
    if len(places):
        value = x[tuple(places[0])].item()
        raise UserError(
            f"{name} is {value} in {place(places[0].tolist())}: a bonus takes finite numbers "
            "within float32. Nothing was learnt from it: fix it in the environment."
        )


def place(index: list[int]) -> str:
    """(t, b, ...) -> 'environment b, feature ...'."""
    _, b, *feature = index
    if not feature:
        return f"environment {b}"
    return f"environment {b}, feature {', '.join(str(i) for i in feature)}"


def check_reward(raw: Tensor) -> None:
    """Refuse to pay (T, B) what is not a number, or what no network could learn from."""
    bad = (~(raw <= LARGEST_BONUS)).nonzero()  # NaN too
    if len(bad):
        value = raw[tuple(bad[0])].item()
        raise UserError(
            f"The bonus would be {value} in {place(bad[0].tolist())}: the observations are too "
            "large for its networks, or its training has diverged. Scale them down, or lower lr."
        )


def check_actions(action: Tensor, actions: Actions, valid: Tensor) -> None:
    """Refuse actions (T, B) or (T, B, A) that are none of the action space."""
    check_shape("action", action, (*valid.shape, *actions.shape))
    if not actions.choices:
        check_finite("action", action, valid)
        return
    columns = action.reshape(*valid.shape, len(actions.choices)).unbind(-1)
    for column, (first, count) in zip(columns, actions.choices, strict=True):
        if not column.is_floating_point():
            column = column.long()  # torch cannot compare all unsigned numbers
        last = first + count - 1
        fine = (column >= first) & (column <= last) & (column == column.long())
        bad = (~fine).nonzero()  # also in rows that never happened: there is no code for others
        if len(bad):
            value = column[tuple(bad[0])].item()
            where = place(bad[0].tolist())
            require(False, f"action in {where}", value, f"a whole number from {first} to {last}")


def check_weight(weight: Any, num: int) -> None:
    """Refuse importance weights that are not one finite number for each sequence."""
    if not isinstance(weight, Tensor):
        raise UserError(f"weight is {describe(weight)}: it must be a tensor ({num},).")
    check_shape("weight", weight, (num,))
    if not bool(weight.isfinite().all()):
        raise UserError("weight holds numbers that are not finite: fix the sampling.")


def check_making(
    method: Any,
    obs_shape: Any,
    num_envs: Any,
    config: Any,
    seed: Any,
    action_space: Any,
) -> tuple[int, ...]:
    """Refuse what no bonus can be made of; returns the shape of one observation."""
    require(isinstance(method, str), "method", method, "a word such as 'rnd+sm'")
    check_num_envs(num_envs)
    require(is_whole(seed) and seed in SEEDS, "seed", seed, "a whole number that torch takes")
    require(config is None or isinstance(config, BonusConfig), "config", config, "a BonusConfig")
    one = action_space is None or isinstance(action_space, Space)
    require(one, "action_space", action_space, "a Gymnasium space")
    allowed = f"(k,) or (C, H, W), at most {WIDEST:,} numbers: flatten anything else"
    sized = isinstance(obs_shape, tuple | list) and all(is_whole(size) for size in obs_shape)
    fits = sized and len(obs_shape) in (1, 3) and min(obs_shape) >= 1
    fits = fits and math.prod(obs_shape) <= WIDEST
    require(fits, "obs_shape", obs_shape, allowed)
    shape = tuple(operator.index(size) for size in obs_shape)
    if len(shape) == 3 and channels_last(shape):
        raise UserError(
            f"obs_shape = {shape}: if its channels are last, pass {shape[2:] + shape[:2]} and "
            "np.moveaxis(obs, -1, 1); if they are first, swap height and width."
        )
    return shape


def check_num_envs(num_envs: Any) -> None:
    """Refuse a number of environments that cannot be."""
    fits = is_whole(num_envs) and 1 <= num_envs <= MOST_ENVS
    require(fits, "num_envs", num_envs, f"a whole number from 1 to {MOST_ENVS:,}")


def is_whole(value: Any) -> bool:
    """Whether it is an integer, of Python or numpy; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_state(module: nn.Module, state: Any) -> None:
    """Refuse a state_dict with NaN, or with other names or shapes than the module's own."""
    cure = "Load it into a bonus of the method, shapes and options that it was saved with."
    if not isinstance(state, Mapping):
        raise UserError(f"The state is {describe(state)}, not a state_dict. {cure}")
    own = module.state_dict()
    missing = [name for name in own if name not in state]
    if missing:
        raise UserError(f"The state_dict has no '{missing[0]}'. {cure}")
    for name, value in state.items():
        if name not in own:
            raise UserError(f"The state_dict has a '{name}', this bonus does not. {cure}")
        if not isinstance(own[name], Tensor):
            continue
        shape = tuple(own[name].shape)
        if not isinstance(value, Tensor):
            raise UserError(f"'{name}' in the state_dict is {describe(value)}. {cure}")
        if tuple(value.shape) != shape:
            found = tuple(value.shape)
            raise UserError(f"'{name}' in the state_dict is {found}, here {shape}. {cure}")
        if value.isnan().any():
            raise UserError(
                f"'{name}' in the state_dict holds NaN: load one that was saved before."
            )


def describe(value: Any) -> str:
    """What was given, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype}"
    text = repr(value)
    if len(text) > 40:
        return f"of type {type(value).__name__}"
    return text
