"""While a task punishes and does not pay, a share of PPO's actions is uniform."""

from dataclasses import replace
from math import log

import pytest
import torch
from gymnasium import spaces
from test_fade import rollout

from surprise_memory.agents.ppo import PPO, PPOConfig

NO = torch.zeros(0)


def agent_of(space=None, **config):
    space = space or spaces.Discrete(2)
    return PPO((2,), space, PPOConfig(random_actions=0.1, **config), True)


def afraid(**config):
    """An agent that was punished and never paid."""
    agent = agent_of(**config)
    agent.pay.update(rollout([-1.0, 0.0]), torch.tensor([[-1.0], [0.0]]))
    return agent


def test_a_share_of_every_action_is_uniform():
    """0.8 (1/4, 3/4) + 0.2 (1/2, 1/2)."""
    policy = agent_of().policy
    logits = torch.tensor([[0.0, log(3)]])
    found = policy.log_probs(logits, torch.tensor([0.2])).exp()
    assert found[0].tolist() == pytest.approx([0.3, 0.7])
    log_prob, entropy = policy.log_prob(logits, torch.tensor([0]), torch.tensor([0.2]))
    assert log_prob.item() == pytest.approx(log(0.3))
    assert entropy.item() == pytest.approx(-0.3 * log(0.3) - 0.7 * log(0.7))


def test_so_are_the_actions_that_are_drawn():
    """An action that the policy never takes: a quarter of them with half of all uniform."""
    logits = torch.tensor([[0.0, 1000.0]]).expand(4000, 2)
    rng = torch.Generator().manual_seed(0)
    drawn = agent_of().policy.sample(logits, rng, mix=torch.full((4000,), 0.5))
    assert (drawn == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not (agent_of().policy.sample(logits, rng) == 0).any()


def test_only_a_task_that_punished_and_does_not_pay_asks_for_them():
    agent = agent_of()
    for reward, share in (([0.0, 0.0], 0.0), ([-1.0, 0.0], 0.1), ([0.0, 0.0], 0.1)):
        agent.pay.update(rollout(reward), torch.tensor(reward)[:, None])
        assert agent.random_share() == share
    agent.pay.update(rollout([1.0, 0.0]), torch.tensor([[1.0], [0.5]]))
    assert agent.random_share() == pytest.approx(0.1 * 0.25)


def test_rows_that_never_happened_do_not_punish():
    agent = agent_of()
    agent.pay.update(rollout([-1.0, 0.0], [0, 1]), torch.zeros(2, 1))
    assert not agent.pay.punished


def test_a_task_that_never_punishes_has_none():
    agent = agent_of()
    agent.pay.update(rollout([1.0, 0.0]), torch.tensor([[1.0], [0.0]]))
    assert agent.random_share() == 0


def test_evaluation_has_none():
    agent = afraid()
    assert (
        agent.act(torch.zeros(3, 2), NO, {}, "explore")[1]["mix"].tolist()
        == [pytest.approx(0.1)] * 3
    )
    for mode in ("sample", "greedy"):
        assert "mix" not in agent.act(torch.zeros(3, 2), NO, {}, mode)[1]


def certain(agent):
    """The same agent, with a policy that nearly always takes action 0."""
    with torch.no_grad():
        agent.policy.actor.bias[0] += 9.0
    return agent


def test_an_agent_that_is_certain_tries_other_actions():
    agent = certain(afraid())
    action, extras, _ = agent.act(torch.zeros(40_000, 2), NO, {}, "explore")
    rare = action == 1
    assert rare.float().mean().item() == pytest.approx(0.05, abs=0.005)
    assert extras["log_prob"][rare].exp().mean().item() == pytest.approx(0.05, abs=1e-3)


def test_learning_knows_that_some_actions_were_random():
    """The policy is still the one that acted, so the ratio is 1 in the first update."""
    agent = certain(afraid(lr=1e-12, epochs=1, minibatches=1))
    chunk = rollout([0.0] * 64)
    action, extras, _ = agent.act(chunk.obs[:, 0], NO, {}, "explore")
    columns = {name: column[:, None] for name, column in extras.items()}
    chunk = replace(chunk, action=action[:, None], extras=columns)
    assert (action == 1).any()
    report = agent.update(chunk, torch.zeros(64, 1))
    assert report["losses/approx_kl"] == pytest.approx(0, abs=1e-7)


def test_an_update_learns_from_them_and_remembers_that_it_was_punished():
    agent = afraid()
    chunk = rollout([0.0, 0.0])
    chunk.extras["mix"] = torch.full((2, 1), 0.1)
    report = agent.update(chunk, torch.zeros(2, 1))
    assert report["charts/random_share"] == 0.1
    other = agent_of()
    other.load_state_dict(agent.state_dict())
    assert other.random_share() == agent.random_share() == 0.1


def test_a_task_without_weight_brings_none():
    agent = agent_of(ext_coef=0.0)
    agent.update(rollout([-1.0, -1.0]), torch.zeros(2, 1))
    assert agent.random_share() == 0


def test_continuous_actions_have_none():
    """They are drawn from a normal distribution, which reaches everything."""
    agent = agent_of(spaces.Box(-1, 1, (2,)))
    head = torch.zeros(5, 2)
    rngs = [torch.Generator().manual_seed(0) for _ in range(2)]
    plain = agent.policy.sample(head, rngs[0])
    assert torch.equal(agent.policy.sample(head, rngs[1], mix=torch.full((5,), 0.5)), plain)
    agent.pay.update(rollout([-1.0, 0.0]), torch.tensor([[-1.0], [0.0]]))
    _, extras, _ = agent.act(torch.zeros(5, 2), torch.ones(5).bool(), {}, "explore")
    assert agent.pay.punished and agent.random_share() == 0 and "mix" not in extras
