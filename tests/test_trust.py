"""Novelty is paid once remembering has been seen to help; until then, only the unexpected."""

import copy

import pytest
import torch
from fakes import chunk_of
from gymnasium import spaces

from surprise_memory import Bonus, BonusConfig, RNDConfig, UserError
from surprise_memory.stages.trust import IDLE, PATIENCE, TrustConfig

METHOD = "rnd+sm+trust"
d, B, T, KINDS = 10, 8, 24, 6
FIRST = torch.zeros(T, B, dtype=torch.bool)
FIRST[0] = True


def made(method=METHOD, **options):
    config = BonusConfig(
        rnd=RNDConfig(n=12, hidden=32),
        obs_norm="scale",
        obs_scale=1.0,
        epochs=2,
        minibatches=4,
        proportion=1.0,
        **options,
    )
    return Bonus(method, (d,), B, config, action_space=spaces.Discrete(2))


def rollout(seed, recurs=True):
    """Episodes of the same few sights, or of sights that are never shown again."""
    rng = torch.Generator().manual_seed(seed)
    sights = torch.randn(KINDS, d, generator=torch.Generator().manual_seed(0))
    obs = sights[torch.randint(KINDS, (T, B), generator=rng)]
    if not recurs:
        obs = torch.randn(T, B, d, generator=rng)
    return chunk_of(obs, first=FIRST)


def trust_of(bonus):
    return bonus.model.stages["trust"].trust().item()


def with_saved(bonus, saved):
    bonus.model.stages["trust"].saved.fill_(saved)
    return bonus


def test_a_memory_earns_trust_where_sights_recur_and_saves_less_where_none_does():
    saved = {}
    for recurs in (True, False):
        bonus = made()
        assert trust_of(bonus) == 0
        for seed in range(120):
            bonus.train_on(rollout(seed, recurs), bonus.start())
        saved[recurs] = bonus.model.stages["trust"].saved.item()
    assert saved[True] > TrustConfig().full
    assert saved[False] < 0.75 * saved[True]


@pytest.mark.parametrize(
    ("saved", "trust"),
    [(-1.0, 0.0), (0.035, 0.0), (0.038, 0.2), (0.0425, 0.5), (0.05, 1.0), (1, 1.0)],
)
def test_what_is_paid_by_hand(saved, trust):
    bonus = with_saved(made(), saved)
    chunk = rollout(0)
    raw, trace, _ = bonus(chunk, bonus.start())
    expected = trace.stages["trust"].record["expected"]
    excess = (trace.e - expected).clamp(min=0)
    assert trust_of(bonus) == pytest.approx(trust, abs=1e-6)
    assert torch.allclose(raw, trust * trace.e + (1 - trust) * excess, atol=1e-6)


def test_full_trust_pays_exactly_the_novelty_and_none_what_expect_pays():
    full = with_saved(made(), 1.0)
    chunk = rollout(0)
    raw, trace, _ = full(chunk, full.start())
    assert torch.equal(raw, trace.e)
    doubting = made()
    expecting = made("rnd+sm+expect")  # the same seed, so the same networks
    assert torch.equal(doubting(chunk, doubting.start())[0], expecting(chunk, expecting.start())[0])


def test_what_is_saved_is_a_mean_over_steps_that_happened():
    stage = made().model.stages["trust"]
    gain = torch.full((T, B), 0.5)
    gain[: T // 2, 1] = -0.5
    valid = torch.ones(T, B, dtype=torch.bool)
    gain[3], valid[3] = float("nan"), False
    record = {"gain": gain, "remembered": torch.ones_like(valid)}
    stage.update(record, valid, warmup=False)
    steps = (T - 1) * B
    lost = T // 2 - 1
    assert stage.saved.item() == pytest.approx(0.3 * 0.5 * (steps - 2 * lost) / steps)
    assert stage.moved.item() == pytest.approx(0.5)
    stage.update(record, torch.zeros_like(valid), warmup=False)  # nothing happened
    assert stage.moved.item() == pytest.approx(0.5)
    assert stage.rollouts == 1
    stage.update(record | {"gain": gain / 5}, valid, warmup=False)
    assert stage.moved.item() == pytest.approx((0.5 + 0.1) / 2)  # a plain mean at first
    stage.rollouts.fill_(50)
    stage.update(record | {"gain": gain / 5}, valid, warmup=False)
    assert stage.moved.item() == pytest.approx(0.7 * 0.3 + 0.3 * 0.1)  # then a running one


def test_what_the_memory_is_not_shown_earns_no_trust(monkeypatch):
    """A withheld surprise is zero to the memory, which rebuilds a zero better if it held one."""
    bonus = made("rnd+sm+trust+recognise")
    for seed in range(3):
        bonus.train_on(rollout(seed), bonus.start())
    withheld = torch.zeros(T, B, dtype=torch.bool)
    withheld[::2] = True
    recognise = bonus.model.stages["recognise"]
    monkeypatch.setattr(recognise, "remembers", lambda inputs: ~withheld.flatten())
    trust = bonus.model.stages["trust"]
    before = trust.saved.item()
    chunk = rollout(9)
    _, trace, _ = bonus(chunk, bonus.start())
    gain = trace.stages["trust"].record["gain"]
    assert (gain[withheld] == 0).all()
    trust.update(trace.stages["trust"].record, chunk.valid, warmup=False)
    kept = gain[~withheld].mean().item()
    assert trust.saved.item() == pytest.approx(0.7 * before + 0.3 * kept, abs=1e-6)


def test_a_memory_that_changes_nothing_is_not_doubted_for_long():
    stage = made().model.stages["trust"]
    stage.moved.fill_(0.5 * IDLE)
    stage.rollouts.fill_(PATIENCE - 1)
    assert stage.trust() == 0
    stage.rollouts.fill_(PATIENCE)
    assert stage.trust() == 1
    stage.moved.fill_(1.5 * IDLE)
    assert stage.trust().item() == pytest.approx(0.5)
    stage.moved.fill_(2 * IDLE)  # it matters, and saves nothing
    assert stage.trust() == 0


def test_asking_changes_nothing_and_a_saved_bonus_goes_on_bit_for_bit():
    one = made("rnd+sm+trust+recognise")
    for seed in range(3):
        one.train_on(rollout(seed), one.start())
    before = copy.deepcopy(one.model.state_dict())
    one(rollout(9), one.start())
    after = one.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    two = made("rnd+sm+trust+recognise")
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    paid = [bonus.train_on(rollout(7), bonus.start())[0] for bonus in (one, two)]
    assert torch.equal(*paid)
    assert torch.equal(one.model.stages["trust"].saved, two.model.stages["trust"].saved)


def test_it_needs_the_memory_that_knows_and_actions():
    with pytest.raises(UserError, match="what remembering would save"):
        Bonus("rnd+trust", (d,), B, action_space=spaces.Discrete(2))
    with pytest.raises(UserError, match="pass an action_space to Bonus"):
        Bonus(METHOD, (d,), B)


@pytest.mark.parametrize("options", [{"lr": 0.0}, {"full": 0.035}, {"least": 0.1}, {"rate": 0.0}])
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(UserError, match="trust"):
        made(trust=TrustConfig(**options))
