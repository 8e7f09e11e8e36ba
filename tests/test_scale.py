"""The reward's scale: one bonus means the same in every loop, whatever its surprises do."""

import importlib.util
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig
from surprise_memory.nn.reward_scale import LEAST_SPREAD, LEVEL_STEPS, MOST, RewardScaler

METHODS = ("rnd", "icm", "ngu", "ae", "disagreement", "rnd+counts", "rnd+sm", "rnd+sm+gain")
GAMMA = 0.99


def yes(rewards):
    return torch.ones(rewards.shape, dtype=torch.bool)


def returns_of(paid):
    """The discounted returns of paid rewards (steps, B), without their climb from zero."""
    carry = np.full(paid.shape[1], paid[:128].mean() / (1 - GAMMA))
    found = np.empty(paid.shape)
    for t, reward in enumerate(paid):
        carry = GAMMA * carry + reward
        found[t] = carry
    return found


def test_the_divisor_is_the_level_times_the_spread_in_units_of_the_level():
    """Worked out with NumPy: a warm-up fills the filter, one rollout is measured."""
    rng = np.random.default_rng(0)
    untrained = (rng.random((40, 3)) < 0.1) * 200.0
    trained = (rng.random((50, 3)) < 0.1) * 3.0
    scaler = RewardScaler(3, 0.9, momentum=0.9, follows_level=True)
    scaler.update(torch.as_tensor(untrained), yes(untrained), warmup=True)
    scaler.update(torch.as_tensor(trained), yes(trained))
    carry = np.zeros(3)
    for reward in untrained / untrained.mean():
        carry = 0.9 * carry + reward
    found = []
    for reward in trained / trained.mean():
        carry = 0.9 * carry + reward
        found.append(carry)
    assert scaler.level.item() == pytest.approx(trained.mean(), rel=1e-12)
    assert scaler.std.item() == pytest.approx(trained.mean() * np.std(found), rel=1e-3)


def test_surprises_that_shrink_from_rollout_to_rollout_are_paid_alike():
    """Each rollout is a tenth of the one before. The divisor follows at once."""
    rng = torch.Generator().manual_seed(0)
    steady = RewardScaler(64, GAMMA, momentum=0.9, follows_level=True)
    shrinking = RewardScaler(64, GAMMA, momentum=0.9, follows_level=True)
    for i in range(6):
        reward = torch.rand(64, 64, generator=rng)
        steady.update(reward, yes(reward), warmup=i == 0)
        shrinking.update(reward * 0.1**i, yes(reward), warmup=i == 0)
    assert shrinking.std.item() == pytest.approx(steady.std.item() * 0.1**5, rel=1e-6)


def test_short_rollouts_are_averaged_over_as_many_steps_as_long_ones():
    rng = torch.Generator().manual_seed(0)
    reward = torch.rand(2048, 4, generator=rng)
    short = RewardScaler(4, GAMMA, momentum=0.9, follows_level=True)
    for i, piece in enumerate(reward.split(8)):
        short.update(piece, yes(piece), warmup=i == 0)
    newest = reward[-LEVEL_STEPS // 4 :]
    assert short.level.item() == pytest.approx(newest.mean().item(), rel=0.05)
    long = RewardScaler(4, GAMMA, momentum=0.9, follows_level=True)
    for i, piece in enumerate(reward.split(512)):
        long.update(piece, yes(piece), warmup=i == 0)
    assert short.std.item() == pytest.approx(long.std.item(), rel=0.3)


def test_nothing_is_paid_while_surprises_still_halve():
    """On Pendulum the first stretch of `disagreement` was paid a quarter of what it should."""
    rng = torch.Generator().manual_seed(0)
    scaler = RewardScaler(16, GAMMA, momentum=0.9, follows_level=True)
    paid = []
    for i in range(20):
        size = 0.5 ** min(i, 8)
        reward = size * torch.rand(16, generator=rng).square() * torch.ones(128, 16)
        if scaler.settled:
            paid.append(scaler(reward).numpy())
        scaler.update(reward, yes(reward), warmup=i == 0)
        assert i > 8 or not scaler.settled
    assert len(paid) >= 4
    assert 0.5 < returns_of(np.concatenate(paid[:4])).std() < 2


def test_the_filter_does_not_climb_from_zero():
    """A warm-up of 8 steps fills no filter of 100; the climb was most of the spread."""
    rng = torch.Generator().manual_seed(0)
    scaler = RewardScaler(4, GAMMA, momentum=0.9, follows_level=True)
    for i in range(200):
        reward = torch.rand(8, 4, generator=rng)
        scaler.update(reward, yes(reward), warmup=i == 0)
    spread = 0.5 / 3**0.5 / (1 - GAMMA**2) ** 0.5  # of the return of uniform rewards
    assert scaler.moments.var.sqrt().item() * 0.5 == pytest.approx(spread, rel=0.25)


def test_nothing_is_paid_before_a_reward_was_seen_and_one_step_never_pays_a_fortune():
    scaler = RewardScaler(4, GAMMA, momentum=0.9, follows_level=True)
    nothing = torch.zeros(64, 4)
    for _ in range(50):
        scaler.update(nothing, yes(nothing))
    assert scaler(torch.ones(4)).tolist() == [0.0] * 4
    tiny = nothing.clone()
    tiny[3, 2] = 1e-9
    scaler.update(tiny, yes(tiny))
    assert scaler(torch.ones(4)).max() == MOST


def test_the_papers_running_std_pays_no_fortune_either():
    scaler = RewardScaler(4, GAMMA, momentum=None)
    nothing = torch.zeros(64, 4)
    for _ in range(50):
        scaler.update(nothing, yes(nothing))
    assert scaler(torch.ones(4)).max() == MOST


def test_a_constant_bonus_has_no_spread_and_is_scaled_by_its_mean_return():
    scaler = RewardScaler(4, GAMMA, momentum=0.9, follows_level=True)
    constant = torch.full((256, 4), 7.0)
    for _ in range(200):
        scaler.update(constant, yes(constant))
    want = (1 - GAMMA) / LEAST_SPREAD
    assert scaler(torch.tensor([7.0])).item() == pytest.approx(want, rel=1e-3)


def test_a_rare_bonus_spreads_its_return_as_a_common_one_does():
    """One step in a thousand is paid."""
    rng = np.random.default_rng(0)
    scaler = RewardScaler(16, GAMMA, momentum=0.9, follows_level=True)
    paid = []
    for _ in range(60):
        reward = torch.as_tensor((rng.random((128, 16)) < 0.001) * 5.0)
        if scaler.settled:
            paid.append(scaler(reward).numpy())
        scaler.update(reward, yes(reward))
    assert 0.5 < returns_of(np.concatenate(paid)).std() < 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["drifting", pytest.param("constant", marks=pytest.mark.slow)])
def test_short_rollouts_and_dull_observations_never_pay_a_fortune(method, kind):
    """`ngu` with rollouts of 8 steps once paid 20,415 in one step."""
    config = BonusConfig(epochs=1, minibatches=1)
    bonus = Bonus(method, (3,), 4, config, action_space=gym.spaces.Discrete(2))
    rng = np.random.default_rng(0)
    obs = np.ones((4, 3), np.float32)
    most = 0.0
    for t in range(1200):
        next_obs = obs
        if kind == "drifting" and t % 100 == 99:
            next_obs = obs + rng.normal(size=(4, 3)).astype(np.float32)
        done = np.full(4, t % 50 == 49)
        reward = bonus.step(obs, rng.integers(0, 2, 4), next_obs, done)
        assert reward.isfinite().all()
        most = max(most, reward.abs().max().item())
        obs = next_obs
        if t % 8 == 7:
            bonus.update()
    assert bonus.scaler.settled or kind == "constant"
    assert most <= MOST


@pytest.mark.parametrize(
    "env", ["CartPole-v1", pytest.param("MountainCar-v0", marks=pytest.mark.slow)]
)
def test_the_return_of_what_a_strange_loop_is_paid_spreads_by_about_one(env):
    """It was 0.02 to 0.07. `tests/tools/spread.py` has the whole table."""
    path = Path(__file__).parent / "tools" / "spread.py"
    spec = importlib.util.spec_from_file_location("spread", path)
    spread = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(spread)
    found = spread.spreads(spread.paid(env, "rnd", num_envs=16, length=64))
    assert min(found) > 0.5
    assert max(found) < 2


def test_the_reward_that_is_told_is_zero_while_none_is_paid():
    """A loop's log said 0.04 for as long as `step` returned zeros."""
    rng = torch.Generator().manual_seed(0)
    bonus = Bonus("rnd", (3,), 64, seed=0)
    paid, told = [], []
    no_end = torch.zeros(64, dtype=torch.bool)
    for _ in range(12):
        rewards = []
        for _ in range(32):
            obs = torch.randn(64, 3, generator=rng)
            rewards.append(bonus.step(obs, torch.zeros(64), obs, no_end))
        paid.append(bool(torch.stack(rewards).any()))
        told.append(bonus.update()["intrinsic/reward_norm"] > 0)
    assert told == paid and paid[-1] and not paid[1]


@pytest.mark.parametrize("momentum", [0.1, 0.45, 0.5, 0.9])
def test_a_short_window_settles_too(momentum):
    """Otherwise a bonus in a loop of one's own would never pay."""
    T, B = 64, 2
    scaler = RewardScaler(B, 0.99, momentum, follows_level=True)
    valid = torch.ones(T, B, dtype=torch.bool)
    rng = torch.Generator().manual_seed(0)
    steps = 0
    while not scaler.settled:
        scaler.update(torch.rand(T, B, generator=rng), valid)
        steps += T * B
        assert steps <= LEVEL_STEPS + T * B
