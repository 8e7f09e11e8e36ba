"""The door of a bonus: what comes from outside is read here, copied, and checked."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.bonus.frames import newest_shape
from surprise_memory.bonus.limits import (
    check_actions,
    check_chunk,
    check_finite,
    check_shape,
    describe,
)
from surprise_memory.errors import UserError, require
from surprise_memory.nn.actions import Actions
from surprise_memory.types import Chunk


class Door:
    """Lets in steps of B environments whose observations have one shape.

    Actions are looked at only if the bonus models them.
    """

    def __init__(
        self, num_envs: int, obs_shape: tuple[int, ...], actions: Actions | None, channels: str
    ) -> None:
        self.num_envs = num_envs
        self.obs_shape = obs_shape
        self.newest_shape = newest_shape(obs_shape, channels)
        self.actions = actions

    def read_step(
        self, obs: Any, action: Any, next_obs: Any, done: Any, valid: Any, first: Tensor
    ) -> Chunk:
        """One vector step as a chunk of T = 1. Copies, since many loops reuse their arrays."""
        B = self.num_envs
        ended = read_flags("done", done, B)
        happened = torch.ones_like(ended)
        if valid is not None:
            happened = read_flags("valid", valid, B)
        no = torch.zeros_like(ended)
        actions = no.long()
        if self.actions is not None:
            actions = read_array("action", action)
            check_shape("action", actions, (B, *self.actions.shape))
        row = Chunk(
            obs=self._read_obs("obs", obs)[None],
            action=actions[None],
            reward=no.float()[None],
            next_obs=self._read_obs("next_obs", next_obs)[None],
            terminated=ended[None],
            truncated=no[None],
            first=first[None],
            valid=happened[None],
            extras={},
        )
        self.check(row)
        return row

    def _read_obs(self, name: str, value: Any) -> Tensor:
        obs = read_array(name, value)
        check_shape(name, obs, (self.num_envs, *self.obs_shape))
        return obs

    def check(self, chunk: Chunk, newest_frame: bool = False) -> None:
        """Refuse a chunk (T, B) that does not fit, or whose rows that happened are not finite.

        With `newest_frame`, images may be their newest frame alone, as a replay keeps them.
        """
        check_chunk(chunk)
        T, B = chunk.shape
        require(T >= 1, "T", T, "at least 1: a chunk holds one step or more")
        shape = self.obs_shape
        if newest_frame and tuple(chunk.obs.shape[2:]) == self.newest_shape:
            shape = self.newest_shape
        check_shape("Chunk.obs", chunk.obs, (T, B, *shape))
        check_shape("Chunk.next_obs", chunk.next_obs, (T, B, *shape))
        check_finite("obs", chunk.obs, chunk.valid)
        check_finite("next_obs", chunk.next_obs, chunk.valid)
        if self.actions is not None:
            check_actions(chunk.action, self.actions, chunk.valid)


def read_array(name: str, value: Any) -> Tensor:
    """A copy of numbers that came as an array, a tensor or lists."""
    try:
        if isinstance(value, np.ndarray):
            copied = np.array(value, order="C")  # torch knows no negative strides
            x = torch.as_tensor(copied, device="cpu")
        elif isinstance(value, Tensor):
            x = value.detach().clone()  # it is looked at where it is
        else:
            x = torch.as_tensor(value, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{name} is {describe(value)}: pass an array or a tensor of numbers."
        ) from error
    if x.is_complex() or x.is_quantized or x.is_meta or x.layout != torch.strided:
        raise UserError(f"{name} is of {x.dtype}, {x.layout}: pass plain real numbers.")
    return x


def read_flags(name: str, value: Any, num_envs: int) -> Tensor:
    """A copy of flags (B,): bool, or numbers that are 0 or 1."""
    x = read_array(name, value)
    check_shape(name, x, (num_envs,))
    flags = x == 1
    if not bool((flags | (x == 0)).all()):
        raise UserError(f"{name} = {x.tolist()} is not possible: it must be True and False.")
    return flags
