"""What PPO learns from, worked out by hand: ends, time limits, the clipped reward, both streams."""

import warnings
from dataclasses import replace

import fakes
import numpy as np
import pytest
import torch
from gymnasium import spaces

from surprise_memory.agents.ppo import PPO, PPOConfig

GAMMA = 0.5


class Constant(torch.nn.Module):
    """Both values are those of the observation's first two features; the actions do not matter."""

    log_std = None

    def forward(self, obs):
        return torch.zeros(len(obs), 2), obs[:, 0], obs[:, 1]


def rollout(reward, terminated, truncated, **config):
    """One environment. Values are 10 and 100 everywhere; returns its advantages (T,)."""
    usual = {"lam": 0.0, "gamma_ext": GAMMA, "gamma_int": GAMMA, "ext_coef": 1.0}
    config = PPOConfig(**usual | config)
    agent = PPO((2,), spaces.Discrete(2), config, True)
    agent.policy = Constant()
    T = len(reward)
    flags = torch.tensor([terminated, truncated], dtype=torch.bool)[..., None]
    chunk = fakes.chunk_of(torch.tensor([10.0, 100.0]).expand(T, 1, 2))
    chunk = replace(
        chunk,
        reward=torch.tensor(reward)[:, None],
        terminated=flags[0],
        truncated=flags[1],
        extras={"v_ext": torch.full((T, 1), 10.0), "v_int": torch.full((T, 1), 100.0)},
    )
    return agent.advantages(chunk, torch.ones(T, 1))


@pytest.mark.parametrize(
    ("terminated", "truncated", "successor"),
    [(0, 0, 10.0), (1, 0, 0.0), (0, 1, 10.0), (1, 1, 0.0)],
)
def test_an_end_that_is_also_a_time_limit_is_an_end(terminated, truncated, successor):
    columns = rollout([3.0, 0.0], [terminated, 0], [truncated, 0])
    assert columns["ext"][0, 0] == 3.0 + GAMMA * successor


@pytest.mark.parametrize(("clip", "want"), [(1.0, [-1.0, 0.5, 1.0]), (0.0, [-7.0, 0.5, 3.0])])
def test_the_tasks_reward_is_clipped_on_both_sides_and_the_bonus_is_not(clip, want):
    columns = rollout([-7.0, 0.5, 3.0], [0] * 3, [0] * 3, reward_clip=clip)
    assert columns["ext"][:, 0].tolist() == [x + GAMMA * 10 for x in want]
    assert columns["int"][:, 0].tolist() == [1 + GAMMA * 100] * 3


@pytest.mark.parametrize(("left", "at_end"), [(1.0, 51.0), (0.9, 46.0), (0.0, 1.0)])
def test_an_unpaid_end_discounts_the_bonuss_return(left, at_end):
    columns = rollout([0.0] * 3, [0, 1, 0], [0] * 3, end_discount=left)
    assert columns["int"][:, 0].tolist() == pytest.approx([51.0, at_end, 51.0])


@pytest.mark.parametrize("reward", [-1.0, 0.5])
def test_the_bonus_goes_on_over_ends_that_the_task_judges_and_over_time_limits(reward):
    judged = rollout([0.0, reward, 0.0], [0, 1, 0], [0] * 3, end_discount=0.0)
    cut = rollout([0.0] * 3, [0] * 3, [0, 1, 0], end_discount=0.0)
    assert judged["int"][:, 0].tolist() == cut["int"][:, 0].tolist() == [51.0] * 3


def test_what_comes_after_an_unpaid_end_counts_less_for_all_steps_before_it():
    """gamma = lambda = 1/2, values 100: deltas -49, but -99 at the end; traces halve twice."""
    config = {"lam": 0.5, "end_discount": 0.0}
    columns = rollout([0.0] * 3, [0, 1, 0], [0] * 3, **config)
    assert columns["int"][:, 0].tolist() == [51.0 - 99 / 4, 1.0, 51.0]


@pytest.mark.parametrize(
    ("low", "high", "named"),
    [
        ([-1, -2], [1, 2], None),
        ([-np.inf, -0.4], [np.inf, 0.4], None),
        ([0, 0], [1, 300], "Action 1 goes from 0 to 300"),
        ([5, -1], [6, 1], "Action 0 goes from 5 to 6"),
    ],
)
def test_actions_that_a_standard_normal_hardly_explores_are_named(low, high, named):
    """A valve from 0 to 300 was only ever opened by 0 to 3, in silence."""
    space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        PPO((3,), space, PPOConfig(), False)
    assert [named in str(warning.message) for warning in said] == [True] * (named is not None)


def test_a_rollout_in_which_nothing_happened_teaches_nothing():
    agent = PPO((2,), spaces.Discrete(2), PPOConfig(hidden=8), True)
    before = [p.clone() for p in agent.policy.parameters()]
    no = torch.zeros(1, 2, dtype=torch.bool)
    chunk = fakes.chunk_of(torch.ones(1, 2, 2), valid=no)
    names = ("log_prob", "v_ext", "v_int")
    chunk = replace(chunk, extras={name: torch.zeros(1, 2) for name in names})
    told = agent.update(chunk, torch.zeros(1, 2))
    assert np.isfinite(list(told.values())).all()
    for old, new in zip(before, agent.policy.parameters(), strict=True):
        assert torch.equal(old, new)
