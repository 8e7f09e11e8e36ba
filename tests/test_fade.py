"""The bonus's weight fades as the task pays: its mean return over the best one so far."""

from dataclasses import replace

import fakes
import pytest
import torch
from gymnasium import spaces

from surprise_memory.agents.ppo import PPO, PPOConfig

FADE = 0.8


def agent_of(**config):
    return PPO((2,), spaces.Discrete(2), PPOConfig(int_coef=2.0, fade=FADE, **config), True)


def rollout(reward, valid=None):
    """One environment that was paid `reward` (T,)."""
    reward = torch.tensor(reward)[:, None]
    valid = torch.ones_like(reward) if valid is None else torch.tensor(valid)[:, None]
    chunk = fakes.chunk_of(torch.zeros(len(reward), 1, 2))
    zeros = torch.zeros_like(reward)
    extras = {"v_ext": zeros, "v_int": zeros, "log_prob": zeros - 0.7}
    return replace(chunk, reward=reward, valid=valid.bool(), extras=extras)


def weight(agent, reward, returns, valid=None):
    """The weight after a rollout with such rewards and returns (T,)."""
    agent.pay.update(rollout(reward, valid), torch.tensor(returns)[:, None])
    return agent.int_weight()


def test_the_weight_falls_with_the_mean_return_as_a_share_of_the_best():
    """Mean 2 of a best of 4: half of the fade is due."""
    assert weight(agent_of(), [1.0, 0.0, 0.0], [4.0, 2.0, 0.0]) == pytest.approx(2 * (1 - FADE / 2))


def test_a_task_that_always_pays_its_best_leaves_the_rest():
    assert weight(agent_of(), [1.0, 1.0], [3.0, 3.0]) == pytest.approx(2 * (1 - FADE))


@pytest.mark.parametrize("reward", [0.0, -1.0])
def test_a_task_that_has_not_paid_takes_nothing_whatever_the_critic_guesses(reward):
    assert weight(agent_of(), [reward, 0.0], [0.5, 0.4]) == 2.0


def test_punishment_keeps_the_bonus_alive():
    """One goal among many collisions: the mean return is below zero."""
    assert weight(agent_of(), [1.0, -1.0, -1.0], [1.0, -1.0, -1.0]) == 2.0


def test_rows_that_never_happened_do_not_count():
    agent = agent_of()
    assert weight(agent, [1.0, 9.0, 0.0], [4.0, 9.0, 0.0], [1, 0, 1]) == pytest.approx(2 * 0.6)


def test_the_best_return_lasts():
    agent = agent_of()
    weight(agent, [8.0, 0.0], [8.0, 0.0])
    assert weight(agent, [2.0, 2.0], [2.0, 2.0]) == pytest.approx(2 * (1 - FADE / 4))


def test_what_decides_is_learnt_from_a_rollout_and_saved():
    agent = agent_of(gamma_ext=1.0, lam=1.0)
    agent.update(rollout([8.0, 8.0]), torch.zeros(2, 1))
    other = agent_of()
    other.load_state_dict(agent.state_dict())
    for one in (agent, other):
        assert one.pay.best == pytest.approx(16.0, abs=0.5)  # the critic adds a little
        assert one.pay.share == pytest.approx(0.75, abs=0.02)


def test_the_bonuss_advantage_counts_by_that_weight():
    agent = agent_of(ext_coef=3.0)
    weight(agent, [1.0, 0.0], [1.0, 0.0])
    columns = agent.advantages(rollout([1.0, 0.0, 0.0]), torch.ones(3, 1))
    share = 2 * (1 - FADE / 2)
    assert torch.allclose(columns["advantage"], 3 * columns["ext"] + share * columns["int"])


def test_it_is_logged():
    agent = agent_of()
    report = agent.update(rollout([0.0, 0.0]), torch.zeros(2, 1))
    assert report["charts/int_weight"] == 2.0


def test_a_task_without_weight_does_not_reach_the_bonus_either():
    agent = agent_of(ext_coef=0.0)
    agent.update(rollout([8.0, 8.0]), torch.zeros(2, 1))
    assert (agent.pay.best, agent.int_weight()) == (0.0, 2.0)
