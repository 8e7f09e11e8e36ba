"""Training on replayed sequences: only rows that happened count, each by its importance weight."""

import copy
from dataclasses import replace

import fakes
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn import functional as F

from surprise_memory import (
    AEConfig,
    Bonus,
    BonusConfig,
    Chunk,
    DisagreementConfig,
    ICMConfig,
    LWMConfig,
    MemoryConfig,
    NGUConfig,
    RNDConfig,
)
from surprise_memory.bonus import ReplayTrainer, RolloutTrainer
from surprise_memory.errors import UserError

T, K, OBS, A, n = 9, 4, 6, 3, 5  # K sequences of T steps
# One letter per step and sequence: s a step, e an episode's last one, x a row that never happened.
PLAN = ("ssexsssss", "exsssssss", "sssssssse", "sssexsses")
SMALL = BonusConfig(
    rnd=RNDConfig(n, 8),
    memory=MemoryConfig(4, 3, w_hidden=7),
    icm=ICMConfig(n, 8, inverse_coef=0.5),
    ngu=NGUConfig(k=2, embedding=3, hidden=8),
    ae=AEConfig(n, 8),
    disagreement=DisagreementConfig(3, n, 8, keep=1.0),
    lwm=LWMConfig(n, 7, 8),
    lr=1e-2,
    memory_lr=1e-2,
)
METHODS = ["rnd", "icm", "ae", "disagreement", "ngu", "rnd+expect"]
MORE = [*METHODS, "rnd+sm", "ngu+sm", "rnd+sm+expect", "ngu+sm+expect", "lwm+sm+expect"]
WEIGHT = torch.tensor([1.0, 0.25, 0.6, 0.1])


def make(method, seed=0, **options):
    config = replace(SMALL, **options)
    return ReplayTrainer(method, (OBS,), K, config, seed, spaces.Discrete(A))


def drawn(seed=0):
    """Sequences (T, K) cut as PLAN says; one begins with an episode, the others in its middle."""
    rng = np.random.default_rng(seed)
    letters = np.array([list(row) for row in PLAN]).T
    begins = np.array([[False, False, True, False]])
    first = np.vstack([begins, letters[:-1] != "s"])
    obs, next_obs = torch.as_tensor(rng.normal(size=(2, T, K, OBS)), dtype=torch.float32)
    no = torch.zeros(T, K, dtype=torch.bool)
    return Chunk(
        obs=obs,
        action=torch.as_tensor(rng.integers(A, size=(T, K))),
        reward=torch.as_tensor(rng.normal(size=(T, K)), dtype=torch.float32),
        next_obs=next_obs,
        terminated=torch.as_tensor(letters == "e"),
        truncated=no,
        first=torch.as_tensor(first),
        valid=torch.as_tensor(letters != "x"),
        extras={},
    )


def with_others(chunk, where, junk=None):
    """The chunk with `junk`, or other numbers, and other actions at some steps (T, K)."""
    changes = {}
    for name in ("obs", "next_obs", "reward"):
        column = getattr(chunk, name)
        mask = where if name == "reward" else where[..., None]
        changes[name] = torch.where(mask, 3 * column + 1 if junk is None else junk, column)
    action = torch.where(where, (chunk.action + 1) % A, chunk.action)
    return replace(chunk, action=action, **changes)


def parameters(bonus):
    return {name: p.detach().clone() for name, p in bonus.named_parameters()}


def everything(bonus):
    """All that lasts, by its path."""
    state = copy.deepcopy(bonus.state_dict())
    adam = state.pop("_extra_state")["optimiser"]["state"]
    for i, moments in adam.items():
        for name, value in moments.items():
            state[f"adam.{i}.{name}"] = value
    return state


def changed(one, other):
    """Names of what differs by as much as a bit."""
    assert one.keys() == other.keys()
    return [name for name, x in one.items() if not torch.equal(x, other[name])]


def losses_of(report):
    return {name: x for name, x in report.items() if name.startswith("losses/")}


# --- rows that never happened ---------------------------------------------------------------------


@pytest.mark.parametrize("junk", [7.0, 1e30, torch.nan])
@pytest.mark.parametrize("method", MORE)
def test_rows_that_never_happened_reach_nothing(method, junk):
    """Whatever they hold: the same weights, statistics, rewards and metrics, to the last bit."""
    outcomes = []
    for filling in (0.0, junk):
        bonus, paid, reports = make(method), [], []
        for seed in range(3):  # the first teaches the statistics that the others are paid by
            chunk = drawn(seed)
            assert not chunk.valid.all()
            filled = chunk if filling == 0.0 else with_others(chunk, ~chunk.valid, filling)
            reward, report = bonus.train_on(filled, WEIGHT, warmup=seed == 0)
            paid.append(reward)
            reports.append(report)
            assert not reward[~chunk.valid].any()
        outcomes.append((everything(bonus), torch.stack(paid), reports))
    calm, wild = outcomes
    assert not changed(calm[0], wild[0])
    assert torch.equal(calm[1], wild[1])
    assert calm[2] == wild[2]


def test_the_rows_that_happened_would_be_missed():
    """What the test above compares is not blind."""
    chunk = drawn()
    one, other = make("rnd+expect"), make("rnd+expect")
    there = torch.zeros_like(chunk.valid)
    there[4, 0] = True
    one.train_on(chunk, WEIGHT)
    other.train_on(with_others(chunk, there), WEIGHT)
    assert changed(parameters(one), parameters(other))


@pytest.mark.parametrize("method", MORE)
def test_sequences_in_which_nothing_happened_teach_nothing(method):
    bonus, chunk = make(method), drawn()
    bonus.train_on(chunk, WEIGHT)
    before = everything(bonus)
    nothing = replace(chunk, valid=torch.zeros_like(chunk.valid))
    reward, report = bonus.train_on(nothing, WEIGHT)
    assert not reward.any() and report == {}
    assert changed(before, everything(bonus)) == ["updates"]


# --- importance weights ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", MORE)
def test_doubled_weights_double_every_loss(method):
    """To the last bit, and with them the gradients."""
    one, two = make(method), make(method)
    _, once = one.train_on(drawn(), WEIGHT)
    _, twice = two.train_on(drawn(), 2 * WEIGHT)
    assert losses_of(once) and losses_of(once).keys() == losses_of(twice).keys()
    for name, loss in losses_of(once).items():
        assert loss > 0 and losses_of(twice)[name] == 2 * loss, name
    gradients = {name: p.grad for name, p in two.named_parameters() if p.grad is not None}
    assert gradients
    for name, p in one.named_parameters():
        assert p.grad is None or torch.equal(2 * p.grad, gradients[name]), name


@pytest.mark.parametrize("method", MORE)
def test_a_sequence_without_weight_changes_nothing(method):
    """Whatever it shows, the networks learn from the others alone; of none of them, nothing."""
    weight, chunk = WEIGHT.clone(), drawn()
    weight[1] = 0.0
    there = torch.zeros_like(chunk.valid)
    there[:, 1] = chunk.valid[:, 1]
    outcomes = []
    for shown in (chunk, with_others(chunk, there)):
        bonus = make(method)
        _, report = bonus.train_on(shown, weight)
        outcomes.append((parameters(bonus), losses_of(report)))
    (one, once), (other, again) = outcomes
    assert not changed(one, other)
    assert once == again
    bonus = make(method)
    before = parameters(bonus)
    _, report = bonus.train_on(chunk, torch.zeros(K))
    assert set(losses_of(report).values()) == {0.0}
    assert not changed(before, parameters(bonus))


# --- every loss, row by row -----------------------------------------------------------------------


def size(error):
    return float(error.square().sum())


def row_losses(bonus, s, a, after):
    """{name: loss} of one transition: states (OBS,) as they are, an action in range(A)."""
    model = bonus.model
    surprise, known = model.surprise, F.one_hot(a, A).float()
    method = bonus.method.partition("+")[0]
    if method in ("rnd", "ngu"):
        u = surprise.predictor(after) - surprise.target(after)
        found = {"surprise": size(u)}
    elif method == "ae":
        found = {"surprise": size(surprise.autoencoder(after) - after)}
    elif method == "icm":
        phi, then = surprise.phi(s), surprise.phi(after)
        found = {"surprise": size(surprise.forward_model(torch.cat([phi, known])) - then)}
        guess = surprise.inverse_model(torch.cat([phi, then]))
        found["inverse"] = 0.5 * float(-guess.log_softmax(0)[a])
    else:
        given = torch.cat([surprise.phi(s), known]).expand(3, 1, -1)
        errors = surprise.models(given)[:, 0] - surprise.phi(after)  # (3 models, features)
        found = {"surprise": float(errors.square().mean(1).sum())}
    if method == "ngu":
        embed = model.stages["episodic"].embed
        guess = model.stages["episodic"].inverse_model(torch.cat([embed(s), embed(after)]))
        found["inverse"] = float(-guess.log_softmax(0)[a])
    if bonus.method == "rnd+expect":
        expected = model.stages["expect"].net(torch.cat([s, known]))
        found["expect"] = size(expected - u.norm())
    return found


@pytest.mark.parametrize("method", METHODS)
def test_every_loss_is_the_mean_over_the_rows_that_happened_each_by_its_weight(method):
    """Worked out one transition at a time; with whitening by moments of mean 0 and variance 1."""
    bonus, chunk = make(method), drawn()
    total, rows = {}, 0
    with torch.no_grad():
        for t, k in chunk.valid.nonzero().tolist():
            step = (chunk.obs[t, k], chunk.action[t, k], chunk.next_obs[t, k])
            for name, loss in row_losses(bonus, *step).items():
                total[name] = total.get(name, 0.0) + float(WEIGHT[k]) * loss
            rows += 1
    assert rows == T * K - 3
    _, report = bonus.train_on(chunk, WEIGHT)
    found = losses_of(report)
    assert found.keys() == {f"losses/{name}" for name in total}
    for name, value in total.items():
        assert found[f"losses/{name}"] == pytest.approx(value / rows, rel=1e-5), name


@pytest.mark.parametrize("method", [m for m in MORE if not m.startswith("lwm")])
def test_with_equal_weights_replay_and_rollouts_have_one_loss(method):
    """The same model, asked about the same steps."""
    bonus, chunk = make(method), drawn()
    _, trace, _ = bonus(chunk, bonus.start())
    expected = bonus.losses(trace, chunk.valid_rows())
    _, report = make(method).train_on(chunk, torch.ones(K))
    found = losses_of(report)
    assert found.keys() == {f"losses/{name}" for name in expected}
    for name, loss in expected.items():
        assert found[f"losses/{name}"] == pytest.approx(loss.item(), rel=1e-5)


# --- what it is not -------------------------------------------------------------------------------


def test_only_the_facade_takes_single_steps():
    """`step` and `update` of a trainer on replay once ended in a TypeError."""
    assert hasattr(Bonus, "step") and hasattr(Bonus, "update")
    for kind in (ReplayTrainer, RolloutTrainer):
        bonus = kind("rnd", (OBS,), K, SMALL)
        for name in ("step", "update", "steps"):
            assert not hasattr(kind, name) and not hasattr(bonus, name)
    assert issubclass(Bonus, RolloutTrainer) and not issubclass(ReplayTrainer, RolloutTrainer)


@pytest.mark.parametrize(("stacked", "kept"), [(4, 1), (12, 3)])
def test_of_images_a_replay_may_hold_the_newest_frame_alone(stacked, kept):
    rng = torch.Generator().manual_seed(0)
    frames = torch.randint(256, (5, 2, kept, 42, 42), dtype=torch.uint8, generator=rng)
    chunk = fakes.chunk_of(frames[1:], first=torch.zeros(4, 2, dtype=torch.bool))
    chunk = replace(chunk, obs=frames[:-1])
    bonus = ReplayTrainer("lwm+sm", (stacked, 42, 42), 2, action_space=spaces.Discrete(3))
    reward, report = bonus.train_on(chunk, torch.ones(2))
    assert reward.shape == (4, 2) and losses_of(report)
    other = chunk.obs.repeat(1, 1, 2, 1, 1)
    with pytest.raises(UserError, match=r"Chunk.obs has shape"):
        bonus.train_on(replace(chunk, obs=other, next_obs=other), torch.ones(2))
    with pytest.raises(UserError, match=r"Chunk.obs has shape"):  # what is collected is whole
        bonus.update_stats(chunk, bonus.start())


def test_a_bonus_that_sees_all_channels_needs_them_in_the_replay():
    bonus = ReplayTrainer("rnd", (4, 42, 42), 2, BonusConfig(channels="all"))
    newest = fakes.chunk_of(torch.zeros(3, 2, 1, 42, 42))
    with pytest.raises(UserError, match=r"Chunk.obs has shape"):
        bonus.train_on(newest, torch.ones(2))
