"""One rule for observations: every space becomes arrays, here and in adapters."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from fakes import chunk_of
from gymnasium import spaces

from surprise_memory import Bonus, BonusConfig, RNDConfig
from surprise_memory.errors import UserError
from surprise_memory.observations import channels_last, to_arrays

PARTS = {"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}


def images(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Discrete(4, start=2), (4,)),
        (images(40, 50, 3), (3, 40, 50)),
        (images(84, 84, 12), (12, 84, 84)),
        (images(4, 84, 84), (4, 84, 84)),
        (images(64, 8, 8), (64, 8, 8)),
        (spaces.Box(-1, 1, (2, 5), np.float64), (10,)),
        (spaces.Box(-1, 1, ()), (1,)),
        (spaces.Dict(PARTS), (5,)),
        (spaces.Dict({"c": spaces.Dict(PARTS), "d": images(2, 2)}), (9,)),
        (spaces.Tuple(list(PARTS.values())), (5,)),
        (spaces.MultiDiscrete([2, 3]), (5,)),
        (spaces.MultiBinary(3), (3,)),
    ],
)
def test_every_space_becomes_arrays(space, shape):
    found, prepare = to_arrays(space)
    batched = gym.vector.utils.batch_space(space, 3)
    batched.seed(0)
    batch = batched.sample()
    seen = prepare(batch)
    assert found == shape
    assert seen.shape == (3, *shape)
    assert seen.dtype == (np.uint8 if len(shape) == 3 else np.float32)
    if len(shape) == 1:
        rows = [spaces.flatten(space, row) for row in gym.vector.utils.iterate(batched, batch)]
        assert np.allclose(seen, np.stack(rows))


def test_channels_are_where_the_image_is_thinnest():
    space = images(9, 8, 5)
    _, prepare = to_arrays(space)
    batch = np.arange(2 * 9 * 8 * 5).reshape(2, 9, 8, 5)
    assert prepare(batch)[1, 4, 6, 7] == batch[1, 6, 7, 4]
    assert not channels_last((3, 84, 84)) and not channels_last((8, 8, 8))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Dict({"a": spaces.Sequence(spaces.Discrete(3))}),
        spaces.Tuple([]),
    ],
)
def test_what_cannot_be_flattened_is_refused(space):
    with pytest.raises(UserError, match="cannot be flattened"):
        to_arrays(space)


@pytest.mark.parametrize("shape", [(84, 84, 12), (36, 40, 3), (210, 160, 9)])
def test_a_bonus_refuses_images_whose_channels_are_last(shape):
    with pytest.raises(UserError, match=rf"\({shape[2]}, {shape[0]}, {shape[1]}\)"):
        Bonus("rnd", shape, 2)


@pytest.mark.parametrize(("channels", "told_apart"), [("newest", False), ("all", True)])
def test_planes_that_are_no_frames_are_seen_if_that_is_said(channels, told_apart):
    config = BonusConfig(channels=channels, rnd=RNDConfig(n=8, hidden=16))
    bonus = Bonus("rnd", (4, 10, 10), 2, config)
    boards = torch.zeros(1, 2, 4, 10, 10)
    boards[0, 1, 0] = 1.0  # of two boards that differ in their first plane alone
    raw, _, _ = bonus(chunk_of(boards), bonus.start())
    assert (raw[0, 0] != raw[0, 1]) == told_apart


def test_an_unusual_number_of_channels_is_named():
    for channels in (1, 3, 4, 12):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Bonus("rnd", (channels, 10, 10), 2)
    with pytest.warns(UserWarning, match="8 channels are taken for stacks of grey frames"):
        Bonus("rnd", (8, 10, 10), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Bonus("rnd", (8, 10, 10), 2, BonusConfig(channels="all"))
    with pytest.raises(UserError, match="Unknown channels 'every'"):
        Bonus("rnd", (8, 10, 10), 2, BonusConfig(channels="every"))


def test_adapters_keep_numbers_that_float32_would_round():
    """Positions in metres of a map: 5 cm at 5,800 km."""
    space = spaces.Box(-1e9, 1e9, (2,), np.float64)
    batch = np.array([[5.8e6, 0.05], [5.8e6 + 0.05, 1.0]])
    shape, wide = to_arrays(space, wide=True)
    assert shape == (2,) and np.array_equal(wide(batch), batch)
    assert to_arrays(space)[1](batch).dtype == np.float32  # for an agent's network
    named = spaces.Dict({"a": space, "b": spaces.Discrete(2)})
    both = to_arrays(named, wide=True)[1]({"a": batch, "b": np.array([0, 1])})
    assert np.array_equal(both, np.concatenate([batch, np.eye(2)], 1))
    assert np.array_equal(to_arrays(named, "a", wide=True)[1]({"a": batch}), batch)
    for narrow in (spaces.Box(0, 1, (2,)), spaces.Box(0, 255, (2,), np.uint8)):
        assert to_arrays(narrow, wide=True)[1](batch).dtype == np.float32


def test_lwm_refuses_float_images_which_it_would_see_as_constant():
    bonus = Bonus("lwm", (1, 36, 36), 2, action_space=spaces.Discrete(2))
    images = torch.rand(1, 2, 1, 36, 36)
    with pytest.raises(UserError, match="lwm takes images as bytes"):
        bonus(chunk_of(images), bonus.start())
    bonus(chunk_of((255 * images).byte()), bonus.start())


def test_many_discrete_observations_take_no_table():
    """A table of a million by a million would be 4 TB."""
    shape, prepare = to_arrays(spaces.Discrete(1_000_000, start=5))
    batch = prepare(np.array([5, 1_000_004]))
    assert shape == (1_000_000,) and batch.shape == (2, 1_000_000)
    assert batch.sum() == 2 and batch[0, 0] == batch[1, -1] == 1


def test_one_of_several_spaces_is_refused():
    with pytest.raises(UserError, match="cannot be flattened"):
        to_arrays(spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (3,))]))
