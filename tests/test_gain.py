"""What remembering would save: the stages `gain` and `gate`, and the scale by novelty."""

import copy

import numpy as np
import pytest
import torch
from fakes import chunk_of
from gymnasium import spaces
from torch.linalg import vector_norm

from surprise_memory import Bonus, BonusConfig, MemoryConfig, RNDConfig, UserError
from surprise_memory.memory import SurpriseMemory
from surprise_memory.memory.episodic import attend
from surprise_memory.stages.gain import GateConfig

n, d, B, T = 12, 16, 8, 30
SIGHTS = 40


def shaken(memory, seed=0):
    """With V and W away from where they start."""
    torch.manual_seed(seed)
    for p in memory.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return memory


def test_it_equals_writing_the_key_into_m_and_reading_again():
    memory = shaken(SurpriseMemory(n, MemoryConfig(slots=5, width=n)))
    u = torch.randn(4, 3, n)
    found = memory.if_remembered(u)
    for t in range(4):
        for b in range(3):
            k = u[t, b] @ memory.m.Q
            read = attend(k[None], k[None, None], torch.ones(1, 1, dtype=torch.bool), "ntm")[0]
            q = torch.cat([read @ memory.m.V, u[t, b]])
            assert torch.allclose(found[t, b], memory.w(q) - q, atol=1e-5)


def stream(seed, noise_share=0.2):
    """(observations (T, B, d), noise, repeat): an episode shows some of SIGHTS about twice each."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(0).standard_normal((SIGHTS, d))
    shown = np.stack(
        [rng.permutation(np.repeat(rng.choice(SIGHTS, T // 2, False), 2)) for _ in range(B)], 1
    )
    noise = rng.random((T, B)) < noise_share
    obs = fixed[shown]
    obs[noise] = rng.standard_normal((noise.sum(), d))
    repeat = np.zeros((T, B), bool)
    for b in range(B):
        seen = set()
        for t in range(T):
            repeat[t, b] = shown[t, b] in seen
            if not noise[t, b]:
                seen.add(shown[t, b])
    return torch.as_tensor(obs, dtype=torch.float32), noise, repeat


def trained(method, rollouts=200, **options):
    config = BonusConfig(
        rnd=RNDConfig(n=n, hidden=32),
        obs_norm="scale",
        obs_scale=1.0,
        epochs=2,
        minibatches=4,
        proportion=1.0,
        **options,
    )
    bonus = Bonus(method, (d,), B, config)
    first = torch.zeros(T, B, dtype=torch.bool)
    first[0] = True
    for seed in range(rollouts):
        bonus.train_on(chunk_of(stream(seed)[0], first=first), bonus.start())
    obs, noise, repeat = stream(10_000)
    raw, trace, _ = bonus(chunk_of(obs, first=first), bonus.start())
    return bonus, raw, trace, noise, repeat


def test_noise_saves_less_than_a_first_sight_and_a_repeat_next_to_nothing():
    _, raw, trace, noise, repeat = trained("rnd+sm+gain")
    gain = trace.stages["gain"].record["gain"].numpy()
    at_noise, at_first, at_repeat = (
        gain[where].mean() for where in (noise, ~noise & ~repeat, ~noise & repeat)
    )
    assert at_first > 0.05
    assert at_noise < at_first / 2
    assert abs(at_repeat) < at_first / 2
    memory = trace.e.numpy() * gain
    assert np.allclose(raw.numpy(), memory, atol=1e-6)


def test_the_gate_opens_for_what_recurs_and_less_for_noise():
    _, raw, trace, noise, _ = trained("rnd+sm+gate", gate=GateConfig(margin=0.02))
    gate = trace.stages["gate"].record["gate"].numpy()
    assert gate[~noise].mean() > 0.9
    assert gate[noise].mean() < gate[~noise].mean()
    assert np.allclose(raw.numpy(), trace.e.numpy() * gate, atol=1e-6)


def test_every_kind_begins_alike_and_the_gate_learns_its_target():
    bonus = Bonus("rnd+sm+gate", (d,), B, BonusConfig(rnd=RNDConfig(n=n, hidden=16)))
    chunk = chunk_of(stream(0)[0])
    raw, trace, _ = bonus(chunk, bonus.start())
    gate = bonus.config.gate
    share = 1 / (1 + np.exp(-gate.margin / gate.temperature))
    assert torch.allclose(raw, share * trace.e, rtol=1e-5)
    losses = bonus.losses(trace, chunk.valid_rows())
    target = trace.stages["gate"].record["gain"].clamp(-1, 1)
    assert losses["gate"].item() == pytest.approx(target.square().mean().item(), rel=1e-5)


def test_the_gate_learns_nothing_of_what_the_memory_was_not_shown():
    """Remembering a zero would save much or little, by the state of W alone."""
    bonus = Bonus("rnd+sm+recognise+gate", (d,), B, BonusConfig(rnd=RNDConfig(n=n, hidden=16)))
    chunk = chunk_of(stream(0)[0])
    bonus.train_on(chunk, bonus.start())  # now there is something to recognise
    bonus.model.stages["gate"].net[-1].bias.data.fill_(0.3)  # and something is expected everywhere
    _, trace, _ = bonus(chunk_of(stream(1, noise_share=0.5)[0]), bonus.start())
    shown = trace.remembered.flatten()
    assert 0 < shown.sum() < len(shown)
    rows = torch.arange(len(shown))
    assert bonus.losses(trace, rows[~shown])["gate"].item() == 0
    weight = torch.linspace(0.5, 1.5, len(rows))
    target = trace.stages["gate"].record["gain"].flatten()
    found = bonus.model.losses(trace, rows, bonus.rng, weight)["gate"].item()
    expected = bonus.model.stages["gate"].expected(trace.stages["gate"].inputs)
    each = weight * (expected - target).square()
    assert found == pytest.approx(each[shown].sum().item() / len(rows), rel=1e-5)


@pytest.mark.parametrize("method", ["rnd+gate", "rnd+m+gate", "rnd+w+gain", "rnd+counts+gate"])
def test_only_a_memory_that_can_tell_takes_them(method):
    with pytest.raises(UserError, match="what remembering would save"):
        Bonus(method, (d,), B)


def test_asking_what_remembering_would_save_changes_nothing():
    bonus = Bonus("rnd+sm+gate+recognise", (d,), B)
    chunk = chunk_of(stream(0)[0])
    before = copy.deepcopy(bonus.state_dict())
    one, _, _ = bonus(chunk, bonus.start())
    two, _, _ = bonus(chunk, bonus.start())
    assert torch.equal(one, two)
    after = bonus.state_dict()
    for name, value in before.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, after[name]), name


def test_the_scale_is_measured_before_the_filters_and_so_does_not_undo_them():
    """A gate held at sigmoid(-2) pays that share of everything; its own scale would undo it."""
    obs = [stream(seed)[0] for seed in range(4)]
    paid = {}
    for filtered in (True, False):
        config = BonusConfig(scale_filtered=filtered, rnd=RNDConfig(n=n, hidden=16))
        bonus = Bonus("rnd+sm+gate", (d,), B, config)
        margin = bonus.config.gate.margin
        bonus.model.stages["gate"].net[-1].bias.data.fill_(-0.02 - margin)
        for p in bonus.model.stages["gate"].parameters():
            p.requires_grad_(False)
        carry = bonus.start()
        for x in obs:
            reward, _, carry = bonus.train_on(chunk_of(x), carry)
        paid[filtered] = reward.std().item()
    share = 1 / (1 + np.exp(2))
    assert paid[False] / paid[True] == pytest.approx(share, rel=0.05)


def test_what_a_stage_that_is_no_filter_pays_is_what_the_scale_measures():
    bonus = Bonus("rnd+sm+gain+recognise", (d,), B, BonusConfig(rnd=RNDConfig(n=n, hidden=16)))
    _, trace, _ = bonus(chunk_of(stream(0)[0]), bonus.start())
    gain = trace.stages["gain"].record["gain"]
    assert torch.allclose(trace.unfiltered, trace.e * gain)


def test_the_norm_of_what_remembering_leaves_uses_the_power_that_is_paid():
    bonus = Bonus("rnd+sm+gain", (d,), B, BonusConfig(power=2, rnd=RNDConfig(n=n, hidden=16)))
    raw, trace, _ = bonus(chunk_of(stream(0)[0]), bonus.start())
    left = vector_norm(bonus.model.memory.if_remembered(trace.u), dim=-1)
    assert torch.allclose(raw, trace.e - left**2, atol=1e-5)


def test_two_parts_may_have_a_loss_of_one_name():
    """ICM and the episodic stage both train an inverse model: neither loss may hide the other."""
    bonus = Bonus("icm+episodic", (d,), B, action_space=spaces.Discrete(3))
    chunk = chunk_of(stream(0)[0])
    _, trace, _ = bonus(chunk, bonus.start())
    losses = bonus.losses(trace, chunk.valid_rows())
    assert {"surprise", "inverse", "episodic_inverse"} == losses.keys()
    _, metrics, _ = bonus.train_on(chunk, bonus.start())
    assert metrics["losses/inverse"] != metrics["losses/episodic_inverse"]
