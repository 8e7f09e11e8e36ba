"""The module for TorchRL on real collectors: what is written, and for which steps."""

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from surprise_memory import Bonus, BonusConfig, RNDConfig
from surprise_memory.bonus.check.promises import equal
from surprise_memory.errors import UserError

pytest.importorskip("torchrl", reason="pip install 'surprise-memory[torchrl]'")
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, SerialEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from surprise_memory.adapters.torchrl import INTRINSIC, SurpriseModule

B, T = 3, 16
SMALL = BonusConfig(rnd=RNDConfig(n=16, hidden=32), minibatches=2, epochs=1)


@pytest.fixture(autouse=True)
def pays_at_once(monkeypatch):
    """Two updates are enough to find the scale."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)


def counter(categorical=False):
    return GymWrapper(fakes.Counter(), categorical_action_encoding=categorical)


def counters(categorical=False):
    return SerialEnv(B, lambda: counter(categorical))


def collect(env, batches, policy=None, **options):
    torch.manual_seed(0)
    steps = T * max(1, env.batch_size.numel())
    collector = Collector(
        env, policy, frames_per_batch=steps, total_frames=batches * steps, **options
    )
    return collector


def by_hand(batches, method):
    """What a bonus pays for the same transitions: (B, batches * T)."""
    bonus, paid = Bonus(method, (3,), B, SMALL, action_space=gym.spaces.Discrete(2)), []
    for batch in batches:
        for t in range(T):
            action = batch["action"][:, t]
            number = action if action.dim() == 1 else action.long().argmax(-1)
            after, done = batch["next", "observation"][:, t], batch["next", "done"][:, t, 0]
            paid.append(bonus.step(batch["observation"][:, t], number, after, done))
        bonus.update()
    return torch.stack(paid, 1), bonus


@pytest.mark.parametrize("method", ["rnd+sm", "icm"])
@pytest.mark.parametrize("categorical", [False, True])
def test_what_is_written_is_the_bonus_of_the_true_successors(method, categorical):
    env = counters(categorical)
    module = SurpriseModule(env, method, beta=0.5, ext=2.0, config=SMALL)
    raw, paid = [], []
    for batch in collect(env, 5):
        raw.append(batch.clone())
        paid.append(module(batch))
    expected, bonus = by_hand(raw, method)
    ends = torch.cat([batch["next", "done"] for batch in raw], 1).squeeze(-1)
    assert ends.sum() > 20 and not expected[:, : 2 * T].any()
    assert (expected[:, 2 * T :] > 0).all()
    r_int = torch.cat([batch[INTRINSIC] for batch in paid], 1)
    reward = torch.cat([batch["next", "reward"] for batch in paid], 1)
    task = torch.cat([batch["next", "reward"] for batch in raw], 1)
    assert torch.equal(r_int.squeeze(-1), expected)
    assert torch.equal(reward, 2.0 * task + 0.5 * r_int)
    assert torch.equal(torch.cat([b["next", "extrinsic_reward"] for b in paid], 1), task)
    assert equal(bonus.state_dict(), module.bonus.state_dict())
    # An episode of Counter ends at 7 or more, or after 5 steps; the frame after a reset is (0, 0).
    last = torch.cat([b["next", "observation"] for b in raw], 1)[ends]
    assert ((last[:, 0] >= 7) | (last[:, 1] == 5)).all()


def test_ppo_learns_from_it_with_a_real_collector():
    env = counters()
    actor = TensorDictModule(nn.Linear(3, 2), in_keys=["observation"], out_keys=["logits"])
    policy = ProbabilisticActor(
        actor,
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
        spec=env.action_spec,
    )
    critic = ValueOperator(nn.Linear(3, 1), in_keys=["observation"])
    loss = ClipPPOLoss(policy, critic)
    gae = GAE(gamma=0.9, lmbda=0.9, value_network=critic)
    module = SurpriseModule(env, "rnd+sm", beta=100.0, config=SMALL)
    optimiser = torch.optim.Adam(loss.parameters(), lr=1e-2)
    before = [p.clone() for p in loss.parameters()]
    for i, batch in enumerate(collect(env, 4, policy)):
        plain = gae(batch.clone())["value_target"]
        gae(module(batch))
        assert torch.equal(batch["value_target"], plain) == (i < 2)  # nothing is paid at first
        losses = loss(batch)
        total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, loss.parameters(), strict=True))
    assert int(module.bonus.updates) == 4 and "intrinsic/novelty" in module.metrics


def test_without_add_the_reward_stays_and_one_environment_needs_no_batch_axis():
    env = counter()
    module = SurpriseModule(env, "icm", add=False, config=SMALL)
    for i, batch in enumerate(collect(env, 3)):
        task = batch["next", "reward"].clone()
        module(batch)
        assert torch.equal(batch["next", "reward"], task)
        assert batch[INTRINSIC].shape == (T, 1) and batch[INTRINSIC].any() == (i == 2)


def test_batches_that_start_anew_open_episodes_and_others_go_on():
    for options, anew in (({"reset_at_each_iter": True}, True), ({}, False)):
        env = counters()
        module = SurpriseModule(env, "rnd", config=SMALL)
        firsts, step = [], module.bonus.step

        def spy(*row, step=step, firsts=firsts, module=module):
            firsts.append(module.bonus.steps.first.clone())
            return step(*row)

        module.bonus.step = spy
        ends = [module(batch)["next", "done"][:, -1, 0] for batch in collect(env, 4, **options)]
        for i in range(1, 4):
            running = ~ends[i - 1]
            assert running.any()
            assert (firsts[i * T][running] == anew).all() and firsts[i * T][~running].all()


def test_what_was_saved_goes_on_as_if_nothing_had_happened(tmp_path):
    env = counters()
    batches = [batch.clone() for batch in collect(env, 6)]
    make = lambda seed: SurpriseModule(env, config=SMALL, seed=seed)  # noqa: E731
    whole, first, second, third = make(0), make(0), make(5), make(6)
    for batch in batches[:3]:
        whole(batch.clone())
        first(batch.clone())
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    first.save(tmp_path / "bonus.pt")
    third.load(tmp_path / "bonus.pt")
    assert equal(first.bonus.state_dict(), third.bonus.state_dict())
    for batch in batches[3:]:
        expected = whole(batch.clone())
        assert torch.equal(second(batch.clone())[INTRINSIC], expected[INTRINSIC])
    assert equal(whole.state_dict(), second.state_dict())
    with pytest.raises(UserError, match=r"holds the bonus 'rnd\+sm\+trust\+recognise'"):
        SurpriseModule(env, "rnd", config=SMALL).load(tmp_path / "bonus.pt")


def test_what_would_lose_or_falsify_the_bonus_is_refused():
    env = counters()
    module = SurpriseModule(env, "rnd", config=SMALL)
    batch = next(iter(collect(env, 1)))
    with pytest.raises(UserError, match=r"The batch is \(48,\): it must be \(3, T\)"):
        module(batch.reshape(-1))
    with pytest.raises(UserError, match=r"The batch is \(16, 3\)"):
        module(batch.transpose(0, 1))
    with pytest.raises(UserError, match="does not follow step"):
        module(batch[:, torch.arange(T - 1, -1, -1)])
    single = SurpriseModule(counter(), "rnd", config=SMALL)
    with pytest.raises(UserError, match="does not follow step"):
        single(batch.reshape(-1)[torch.randperm(B * T)])
    module(batch)
    with pytest.raises(UserError, match="paid already"):
        module(batch)
    with pytest.raises(UserError, match=r"key = 'pixels' is no observation.*'observation'"):
        SurpriseModule(env, key="pixels")
    for name, value in (("beta", np.nan), ("ext", "x"), ("add", 1)):
        with pytest.raises(UserError, match=name):
            SurpriseModule(env, **{name: value})


def test_a_batch_with_a_nan_is_refused_and_leaves_no_trace():
    env = counters()
    module, twin = (SurpriseModule(env, "rnd+sm", config=SMALL) for _ in range(2))
    one, two, three = (batch.clone() for batch in collect(env, 3))
    for each in (module, twin):
        each(one.clone())
    broken = two.clone()
    broken["next", "observation"][1, 9] = torch.nan
    broken["observation"][1, 10] = torch.nan
    broken["next", "done"][1, 9] = True
    with pytest.raises(UserError, match="next_obs is nan in environment 1, feature 0"):
        module(broken)
    for batch in (two, three):
        assert torch.equal(module(batch.clone())[INTRINSIC], twin(batch.clone())[INTRINSIC])
    assert equal(module.state_dict(), twin.state_dict())


class TwoActions(fakes.Counter):
    """Takes two numbers at a time."""

    def __init__(self, space):
        super().__init__()
        self.action_space = space

    def step(self, action):
        return super().step(0)


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize(
    "space", [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-np.inf, np.inf, (2,))]
)
def test_actions_of_several_numbers(space, categorical):
    env = GymWrapper(TwoActions(space), categorical_action_encoding=categorical)
    for method in ("rnd+sm", "icm"):
        module = SurpriseModule(env, method=method, config=SMALL)
        (batch,) = collect(env, 1)
        assert module(batch)[INTRINSIC].shape == (T, 1)
        if method == "icm":
            assert module._actions(batch).shape == (1, T, 2)
