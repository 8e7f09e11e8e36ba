"""Whitening far from zero, and what stays bit for bit as it was near it."""

import warnings

import pytest
import torch

from surprise_memory.memory import Counts, CountsConfig
from surprise_memory.nn.obs_norm import FAR, ObsWhitener


def batches(offset, count=3, size=256):
    rng = torch.Generator().manual_seed(0)
    return [offset + torch.randn(size, 2, dtype=torch.float64, generator=rng) for _ in range(count)]


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4, -1e7, 1e9])
def test_a_spread_of_one_is_whitened_to_one_at_any_offset(offset):
    whitener = ObsWhitener((2,))
    for batch in batches(offset):
        whitener.update(batch)
        seen = whitener(batch)
        assert seen.dtype == torch.float32
        assert torch.allclose(seen.std(0), torch.ones(2), atol=0.1)
        assert torch.allclose(seen.mean(0), torch.zeros(2), atol=0.2)


def test_only_the_far_feature_starts_from_its_first_values():
    """The near one keeps the prior of the RND code, to the last bit."""
    near = [batch[:, :1] for batch in batches(0.0)]
    far = [batch[:, 1:] for batch in batches(1e7)]
    alone, both = ObsWhitener((2,)), ObsWhitener((2,))
    for a, b in zip(near, far, strict=True):
        alone.update(torch.cat([a, a], 1))
        both.update(torch.cat([a, b], 1))
    assert torch.equal(both.moments.mean[0], alone.moments.mean[0])
    assert torch.equal(both.moments.var[0], alone.moments.var[0])
    everything = torch.cat(far)
    assert torch.allclose(both.moments.var[1], everything.var(correction=0), rtol=1e-6)


def test_near_zero_whitening_is_float32_as_ever():
    whitener = ObsWhitener((2,))
    x = batches(FAR / 2)[0].float()
    whitener.update(x)
    m = whitener.moments
    expected = (x - m.mean.float()) / (m.var + 1e-8).sqrt().float()
    assert torch.equal(whitener(x), expected.clamp(-5, 5))


def test_a_full_table_of_counts_forgets_the_codes_that_entered_first():
    memory = Counts(4, CountsConfig(bits=32, max_codes=10))
    keys = torch.arange(16) * 37 % 16 - 8  # in no order
    valid = torch.ones(8, 2, dtype=torch.bool)
    commit(memory, valid, keys[:10])
    commit(memory, valid, keys[[0, 0, 9, 10, 11, 12]], never=5)
    assert memory.keys.tolist() == sorted(keys[2:12].tolist())  # a visit does not make 0 younger
    assert memory.visits[memory.keys == keys[9]] == 2
    other = Counts(4, CountsConfig(bits=32, max_codes=10))
    other.load_state_dict(memory.state_dict())
    for both in (memory, other):
        commit(both, valid, keys[12:15].flip(0))
        assert both.keys.tolist() == sorted(keys[5:15].tolist())
        assert both.visits[both.keys == keys[9]] == 2
    commit(other, valid, keys[15:])
    assert keys[5] not in other.keys and keys[14] in other.keys


def commit(memory, valid, keys, never=None):
    """Count these codes; the row `never` did not happen."""
    happened = torch.ones(len(keys), dtype=torch.bool)
    if never is not None:
        happened[never] = False
    memory.commit(None, valid, type(memory.start(2))(keys, happened))


def test_a_loaded_whitener_knows_that_it_is_far_from_zero():
    whitener, other = ObsWhitener((2,)), ObsWhitener((2,))
    x = 1e7 + torch.randn(50, 2, dtype=torch.float64)
    whitener.update(x)
    other.load_state_dict(whitener.state_dict())
    assert torch.equal(other(x), whitener(x))
    other.load_state_dict(ObsWhitener((2,)).state_dict())
    assert torch.equal(other(x), ObsWhitener((2,))(x))


def test_a_feature_that_varies_too_little_is_named_once():
    """A concentration in moles: 1e-9 of it was whitened to a hundred-thousandth, in silence."""
    whitener = ObsWhitener((2,))
    x = batches(0.0)[0] * torch.tensor([1.0, 1e-9])
    with pytest.warns(UserWarning, match=r"Feature 1 of the observations varies by 1e-09 only"):
        whitener.update(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitener.update(x)


@pytest.mark.parametrize("value", [0.1, 87.3, 1.7e9 + 0.1])
def test_a_constant_feature_is_not_named(value):
    whitener = ObsWhitener((1,))
    x = torch.full((300, 1), value, dtype=torch.float64)  # whose mean is rounded to another number
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitener.update(x)
