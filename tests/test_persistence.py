"""Features that carry nothing over to the next step are noise, and hidden from the bonus."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import chunk_of

from surprise_memory import Bonus, BonusConfig, UserError
from surprise_memory.envs import make_vec
from surprise_memory.nn.persistence import ENOUGH, Persistence

STEPS = ENOUGH + 1


def walk(carry, rng):
    """(STEPS, ) of x' = carry x + noise: its autocorrelation is `carry`."""
    x = torch.zeros(STEPS, dtype=torch.float64)
    noise = torch.randn(STEPS, generator=rng, dtype=torch.float64)
    for t in range(1, STEPS):
        x[t] = carry * x[t - 1] + noise[t]
    return x


def taught(columns):
    """What is known after all neighbours of some columns (STEPS, F)."""
    persistence = Persistence(columns.shape[1:])
    for start in range(0, STEPS - 1, 1024):
        end = min(start + 1024, STEPS - 1)
        persistence.update(columns[start:end], columns[start + 1 : end + 1])
    return persistence


@pytest.fixture(scope="module")
def columns():
    """Columns (STEPS, 8): three of noise, five of which each carries something over."""
    rng = torch.Generator().manual_seed(0)
    draw = torch.randn(STEPS, generator=rng, dtype=torch.float64)
    dice = torch.randint(0, 6, (STEPS,), generator=rng).double()
    flash = (torch.rand(STEPS, generator=rng) < 0.01).double()
    parity = torch.arange(STEPS).double() % 2
    constant = torch.full((STEPS,), 7.0, dtype=torch.float64)
    found = [draw, 1e7 + draw, dice, walk(0.9, rng), walk(0.2, rng), flash, parity, constant]
    return torch.stack(found, 1)


def test_the_autocorrelation_is_that_of_the_feature(columns):
    r = taught(columns).autocorrelation()
    expected = torch.tensor([0, 0, 0, 0.9, 0.2, 0, -1, 1], dtype=torch.float64)
    assert (r - expected).abs().max() < 0.05  # three standard errors of 4,096 pairs


def test_noise_is_what_changes_all_the_time_and_carries_nothing_over(columns):
    assert taught(columns).noise().tolist() == [True, True, True] + [False] * 5


def test_noise_is_hidden_and_the_rest_passes_as_it_is(columns):
    seen = torch.randn(5, 8)
    found = taught(columns)(seen)
    assert not found[:, :3].any()
    assert torch.equal(found[:, 3:], seen[:, 3:])


def test_little_evidence_hides_nothing(columns):
    persistence = Persistence((8,))
    persistence.update(columns[:1000], columns[1:1001])
    assert persistence.ignored == 0
    seen = torch.randn(5, 8)
    assert persistence(seen) is seen


def test_where_steps_have_nothing_to_do_with_each_other_nothing_is_hidden():
    """A bandit shows a new context at every step: to hide them all would leave no bonus."""
    contexts = torch.randn(STEPS, 4, generator=torch.Generator().manual_seed(0))
    assert taught(contexts).ignored == 0


def test_what_is_hidden_outlives_a_checkpoint(columns):
    a = taught(columns)
    b = Persistence((8,))
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    assert b.ignored == 3
    assert torch.equal(a.keep, b.keep)


def test_a_checkpoint_from_before_it_was_measured_loads():
    a = Bonus("rnd", (3,), 2, seed=0)
    state = {k: v for k, v in a.state_dict().items() if "persistence" not in k}
    assert len(state) == len(a.state_dict()) - 3
    b = Bonus("rnd", (3,), 2, seed=1)
    b.load_state_dict(state)
    assert b.model.persistence.pairs == 0
    del state["updates"]
    with pytest.raises(UserError, match="has no 'updates'"):
        b.load_state_dict(state)


def test_what_a_bonus_pays_does_not_depend_on_noise_in_a_part_of_the_view():
    """The same steps with other noise in the last features: the same reward, once it is known."""
    env = make_vec("NoisyView/MiniGrid-DoorKey-8x8-v0", 8, seed=0)
    bonus = Bonus("rnd+sm", env.obs_shape, 8, seed=0)
    carry = bonus.start()
    rng = np.random.default_rng(0)
    for _ in range(5):
        rollout = random_steps(env, 128, rng)
        _, metrics, carry = bonus.train_on(rollout, carry)
    width = env.width
    assert metrics["intrinsic/ignored_features"] == width
    next_obs = rollout.next_obs.clone()
    next_obs[..., -width:] = next_obs[..., -width:].flip(0)
    other = replace(rollout, next_obs=next_obs)
    assert torch.equal(bonus(rollout, carry)[0], bonus(other, carry)[0])


def random_steps(env, steps, rng):
    """A chunk of random actions in a vector environment."""
    rows = []
    obs = env.reset()
    for _ in range(steps):
        action = rng.integers(0, env.action_space.n, env.num_envs)
        step = env.step(action)
        rows.append((obs, step.next_obs, step.terminated, step.truncated, step.valid))
        obs = step.obs
    obs, next_obs, terminated, truncated, valid = (
        torch.as_tensor(np.stack(column)) for column in zip(*rows, strict=True)
    )
    ended = terminated | truncated
    first = torch.cat([torch.ones_like(ended[:1]), ended[:-1]])
    chunk = chunk_of(next_obs, first, valid, terminated)
    return replace(chunk, obs=obs, truncated=truncated)


def test_it_can_be_switched_off():
    bonus = Bonus("rnd", (3,), 2, BonusConfig(ignore_noise=False))
    assert bonus.model.persistence is None
    assert not any("persistence" in name for name in bonus.state_dict())


def test_all_environments_are_seen_whatever_their_number():
    """Noise in one of eight is no noise: a stride of eight would see that one alone."""
    T, B = 1024, 8
    rng = torch.Generator().manual_seed(0)
    seen = Persistence((3,))
    for _ in range(5):
        walk = torch.randn(T + 1, B, 3, generator=rng).cumsum(0)
        walk[:, 0, 2] = torch.randn(T + 1, generator=rng)
        seen.update(walk[:-1].flatten(0, 1), walk[1:].flatten(0, 1))
    assert seen.pairs > ENOUGH and not seen.ignored


def test_an_ignored_feature_does_not_take_the_callers_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        seen = Persistence((2,))
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen.keep.dtype == torch.float32
