"""Whitening far from zero, and what stays bit for bit as it was near it."""

import pytest
import torch

from surprise_memory.memory import Counts, CountsConfig
from surprise_memory.nn.normalise import FAR, ObsWhitener


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
    codes = torch.arange(16 * 4, dtype=torch.uint8).reshape(16, 4)
    valid = torch.ones(8, 2, dtype=torch.bool)
    carry = type(memory.start(2))
    memory.commit(None, valid, carry(codes[:10]))
    memory.commit(None, valid, carry(codes[[0, 0, 9, 10, 11]]))
    kept = [code.numpy().tobytes() for code in codes[2:12]]
    assert list(memory.table) == kept  # a visit does not make 0 younger
    assert memory.table[kept[7]] == 2
    other = Counts(4, CountsConfig(bits=32, max_codes=10))
    other.load_state_dict(memory.state_dict())
    assert list(other.table.items()) == list(memory.table.items())
