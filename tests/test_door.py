"""What does not fit is refused with a sentence, and a refused call leaves no trace."""

import contextlib
import copy
import dataclasses

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig
from surprise_memory.bonus import ReplayTrainer, RolloutTrainer
from surprise_memory.bonus.check.promises import equal, through_a_file
from surprise_memory.errors import UserError
from surprise_memory.types import Chunk

B = 3  # environments
K = 4  # features
SMALL = BonusConfig(minibatches=2, epochs=1)
DISCRETE = gym.spaces.Discrete(2)
BOX = gym.spaces.Box(-1, 1, (2,))


def make(method="rnd+sm", space=DISCRETE, seed=0):
    return Bonus(method, (K,), B, SMALL, seed, space)


def steps(count, seed=0):
    """Valid arguments of `step`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        obs, next_obs = rng.normal(size=(2, B, K)).astype(np.float32)
        found.append([obs, rng.integers(2, size=B), next_obs, rng.random(B) < 0.2])
    return found


def play(bonus, rollouts=3, seed=0):
    """What is paid over some rollouts, and the last metrics."""
    paid = []
    for i in range(rollouts):
        paid += [bonus.step(*row) for row in steps(6, seed + i)]
        report = bonus.update()
    return torch.stack(paid), report


def changed(argument, value):
    """Valid arguments of `step`, but for one."""
    row = dict(zip(("obs", "action", "next_obs", "done"), steps(1, seed=9)[0], strict=True))
    return row | {argument: value}


def spoilt(value, dtype=np.float32):
    """Observations with one bad number, in environment 1, feature 2."""
    obs = np.zeros((B, K), dtype)
    obs[1, 2] = value
    return obs


BAD_STEPS = {
    "a NaN": ("next_obs", spoilt(np.nan), "next_obs is nan in environment 1, feature 2"),
    "an infinity": ("obs", spoilt(-np.inf), "obs is -inf in environment 1, feature 2"),
    "too large for float32": ("next_obs", spoilt(1e39, np.float64), "environment 1, feature 2"),
    "infinite in half precision": (
        "next_obs",
        spoilt(np.inf, np.float16),
        "environment 1, feature 2",
    ),
    "a tensor's NaN": ("obs", torch.tensor(spoilt(np.nan)), "environment 1, feature 2"),
    "one environment more": ("next_obs", np.zeros((B + 1, K)), r"\(4, 4\)"),
    "one feature more": ("next_obs", np.zeros((B, K + 1)), r"\(3, 5\)"),
    "a width of 1": ("next_obs", np.zeros((B, 1)), r"\(3, 1\)"),
    "one environment for all": ("obs", np.zeros((1, K)), r"\(1, 4\)"),
    "an axis more": ("obs", np.zeros((1, B, K)), r"\(1, 3, 4\)"),
    "no axes": ("obs", 0.0, r"\(\)"),
    "None": ("obs", None, "obs is None"),
    "words": ("obs", "obs", "obs is 'obs'"),
    "a dictionary": ("obs", {"a": np.zeros((B, K))}, "obs is"),
    "objects": ("obs", np.full((B, K), None), "dtype object"),
    "ragged lists": ("obs", [[1.0], [1.0, 2.0], []], "obs is"),
    "complex numbers": ("obs", np.zeros((B, K), complex), "real"),
    "a sparse tensor": ("obs", torch.ones(B, K).to_sparse(), "plain"),
    "dates": ("obs", np.full((B, K), "2020", "M8[D]"), "datetime64"),
    "one flag for all": ("done", False, r"done has shape \(\)"),
    "flags of width 1": ("done", np.zeros((B, 1), bool), r"\(3, 1\)"),
    "too few flags": ("done", [True], r"\(1,\)"),
    "a flag that is NaN": ("done", np.array([0, np.nan, 1]), "done"),
    "a flag of 2": ("done", [0, 2, 1], "done"),
    "no flags": ("done", None, "done is None"),
    "too many that happened": ("valid", [True] * (B + 1), r"valid has shape \(4,\)"),
    "half valid": ("valid", [1, 0.5, 1], "valid"),
    "no actions": ("action", None, "action is None"),
    "an action too large": ("action", [0, 2, 1], "environment 1.* = 2 .* 0 to 1"),
    "an action below": ("action", [0, 1, -1], "environment 2.* = -1 "),
    "half an action": ("action", [0.5, 1, 0], "0.5"),
    "actions of width 1": ("action", np.zeros((B, 1), int), r"\(3, 1\)"),
    "one action for all": ("action", 1, r"action has shape \(\)"),
}


@pytest.mark.parametrize("name", BAD_STEPS)
def test_a_refused_step_leaves_no_trace(name):
    """`icm` looks at all columns; its twin never saw the bad step."""
    argument, value, sentence = BAD_STEPS[name]
    bonus, twin = make("icm+sm"), make("icm+sm")
    for row in steps(3):
        bonus.step(*row)
        twin.step(*row)
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match=sentence):
        bonus.step(**changed(argument, value))
    assert equal(before, bonus.state_dict())
    paid, report = play(bonus)
    expected, metrics = play(twin)
    assert torch.equal(paid, expected) and report == metrics


def test_the_very_first_step_may_be_refused_too():
    bonus, twin = make(), make()
    with pytest.raises(UserError, match="shape"):
        bonus.step(**changed("obs", np.zeros((1, K))))
    assert equal(bonus.state_dict(), twin.state_dict())
    assert torch.equal(play(bonus)[0], play(twin)[0])


def test_box_actions_have_one_shape_and_are_finite():
    bonus = make("icm", BOX)
    for bad in (np.zeros(B), np.zeros((B, 1)), np.full((B, 2), np.nan)):
        with pytest.raises(UserError, match="action"):
            bonus.step(**changed("action", bad))
    bonus.step(**changed("action", np.zeros((B, 2))))


def test_rows_that_never_happened_may_hold_anything():
    bonus, twin = make("icm+sm"), make("icm+sm")
    valid = [True, False, True]
    row = changed("action", [1, 1, 0])
    paid = bonus.step(**row | {"next_obs": spoilt(np.nan)}, valid=valid)
    assert torch.equal(paid, twin.step(**row | {"next_obs": spoilt(1.0)}, valid=valid))
    paid, report = play(bonus)
    expected, metrics = play(twin)
    assert torch.equal(paid, expected) and report == metrics


def test_the_same_numbers_in_any_container_are_paid_the_same(monkeypatch):
    """Lists, read-only and mirrored arrays, tensors with a gradient, 0 and 1 for flags."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)
    mirrored = np.zeros((B, K), np.float32)[:, ::-1]
    frozen = np.zeros((B, K), np.float32)
    frozen.setflags(write=False)
    tracked = torch.zeros(B, K, requires_grad=True)
    paid = []
    for obs in ([[0.0] * K] * B, mirrored, frozen, tracked, np.zeros((B, K), int)):
        bonus = make()
        play(bonus)
        paid.append(bonus.step(obs, [0, 1, 0], obs, torch.tensor([0.0, 1.0, 0.0])))
        assert not bonus.steps.rows[0].obs.requires_grad
        assert bonus.steps.first.tolist() == [False, True, False]
    assert all(torch.equal(reward, paid[0]) for reward in paid) and (paid[0] > 0).all()


def test_a_bonus_without_a_model_of_actions_takes_any():
    bonus, twin = make(), make()
    obs, action, next_obs, done = steps(1)[0]
    for other in (None, {"move": 1}, np.zeros((B, 2, 2))):
        expected = twin.step(obs, action, next_obs, done)
        assert torch.equal(bonus.step(obs, other, next_obs, done), expected)
    assert bonus.update() == twin.update()


def test_a_bonus_that_overflows_is_not_paid():
    bonus = Bonus("ae", (K,), B, BonusConfig(obs_norm="scale"))
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match="The bonus would be"):
        bonus.step(**changed("next_obs", spoilt(3e38)))
    assert equal(before, bonus.state_dict())


# --- whole chunks ---


def chunk_of(T=5, num_envs=B, features=K, value=None):
    obs, next_obs = torch.randn(
        2, T, num_envs, features, generator=torch.Generator().manual_seed(0)
    )
    if value is not None:
        next_obs[3, 1, 2] = value
    no = torch.zeros(T, num_envs, dtype=torch.bool)
    action = torch.zeros(T, num_envs, dtype=torch.int64)
    return Chunk(obs, action, no.float(), next_obs, no, no, no, ~no, {})


BAD_CHUNKS = {
    "a NaN": (chunk_of(value=torch.nan), "next_obs is nan in environment 1, feature 2"),
    "an environment more": (chunk_of(num_envs=B + 1), "made for 3 environments"),
    "a width of 1": (chunk_of(features=1), r"\(5, 3, 1\)"),
    "no steps": (chunk_of(T=0), "at least 1"),
    "no chunk": (None, "None"),
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_a_refused_chunk_leaves_no_trace(name):
    chunk, sentence = BAD_CHUNKS[name]
    bonus = make()
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match=sentence):
        bonus.train_on(chunk, bonus.start())
    assert equal(before, bonus.state_dict())


@pytest.mark.parametrize("carry", [None, "carry", make("icm+sm").start(7)])
def test_a_carry_that_does_not_fit_leaves_no_trace(carry):
    bonus = make()
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match="carry"):
        bonus.train_on(chunk_of(), carry, warmup=True)
    assert equal(before, bonus.state_dict())


ODD = [None, "x", 3, -1, 1.5, {}, [], object(), np.ones((2, 2)), torch.zeros(0)]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_chunk_no_carry_or_no_number_is_refused_everywhere(odd):
    bonus, replay = make("icm+sm"), ReplayTrainer("icm+sm", (K,), B, SMALL, 0, DISCRETE)
    before = copy.deepcopy((bonus.state_dict(), replay.state_dict()))
    calls = [
        lambda: bonus(odd, bonus.start()),
        lambda: bonus(chunk_of(), odd),
        lambda: bonus.train_on(odd, bonus.start()),
        lambda: bonus.train_on(chunk_of(), odd),
        lambda: bonus.train_on(chunk_of(), bonus.start(), odd),
        lambda: bonus.load_state_dict(odd),
        lambda: replay.update_stats(odd, replay.start()),
        lambda: replay.update_stats(chunk_of(), odd),
        lambda: replay.train_on(odd, torch.ones(B)),
        lambda: replay.train_on(chunk_of(), odd),
    ]
    if odd is not None and not isinstance(odd, int):
        calls.append(lambda: bonus.start(odd))
    for column in ("obs", "action", "next_obs", "terminated", "first", "valid"):
        calls.append(lambda column=column: dataclasses.replace(chunk_of(), **{column: odd}))
    for call in calls:
        with pytest.raises(UserError) as refusal:
            call()
        assert len(str(refusal.value)) < 300 and "\n" not in str(refusal.value)
    assert equal(before, (bonus.state_dict(), replay.state_dict()))


@pytest.mark.parametrize("weight", [torch.ones(B + 1), torch.full((B,), torch.nan), None, [1, 1]])
def test_a_replay_refuses_weights_and_numbers_that_do_not_fit(weight):
    trainer = ReplayTrainer("rnd+sm", (K,), B, SMALL)
    before = copy.deepcopy(trainer.state_dict())
    with pytest.raises(UserError, match="weight"):
        trainer.train_on(chunk_of(), weight)
    with pytest.raises(UserError, match="environment 1, feature 2"):
        trainer.train_on(chunk_of(value=torch.inf), torch.ones(B))
    with pytest.raises(UserError, match="environment 1, feature 2"):
        trainer.update_stats(chunk_of(value=torch.inf), trainer.start())
    assert equal(before, trainer.state_dict())


# --- loading ---


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


def with_extra(state, **changes):
    return {**state, "_extra_state": {**state["_extra_state"], **changes}}


def last(state):
    """The name of its last tensor, which torch would load after all the others."""
    return [name for name, value in state.items() if isinstance(value, torch.Tensor)][-1]


def moments_of_another(state):
    optimiser = copy.deepcopy(state["_extra_state"]["optimiser"])
    optimiser["state"][0]["exp_avg"] = torch.zeros(1)
    return with_extra(state, optimiser=optimiser)


BAD_STATES = {
    "nothing": lambda state: {},
    "None": lambda state: None,
    "a word": lambda state: "state",
    "a name less": lambda state: without(state, last(state)),
    "a name more": lambda state: {**state, "more": torch.zeros(1)},
    "another shape": lambda state: {**state, last(state): torch.zeros(2, 2, 7)},
    "no tensor": lambda state: {**state, last(state): 3},
    "NaN": lambda state: {**state, last(state): state[last(state)] * torch.nan},
    "no extra state": lambda state: without(state, "_extra_state"),
    "no random stream": lambda state: with_extra(state, rng=None),
    "another random stream": lambda state: with_extra(state, rng=torch.zeros(3)),
    "no optimiser": lambda state: with_extra(state, optimiser={}),
    "another's moments": moments_of_another,
}
BAD_BONUS_STATES = {
    "no steps": lambda state: with_extra(state, steps={}),
    "rows of another width": lambda state: with_extra(
        state,
        steps={**state["_extra_state"]["steps"], "rows": [chunk_of(features=1).columns()]},
    ),
    "flags of others": lambda state: with_extra(
        state, steps={**state["_extra_state"]["steps"], "first": torch.ones(B + 1)}
    ),
    "no carry": lambda state: with_extra(
        state, steps={**state["_extra_state"]["steps"], "carry": None}
    ),
}


def trained(kind, seed=0):
    """A trainer of any kind that has learnt something, so that its optimiser has moments."""
    trainer = kind("rnd+sm", (K,), B, SMALL, seed)
    if kind is ReplayTrainer:
        trainer.train_on(chunk_of(), torch.ones(B))
    else:
        trainer.train_on(chunk_of(), trainer.start())
    return trainer


def check_refused(kind, spoil):
    """A trainer that refuses a state goes on like its twin that was never asked."""
    saved = copy.deepcopy(trained(kind, seed=1).state_dict())
    trainer = trained(kind)
    before = copy.deepcopy(trainer.state_dict())
    with pytest.raises(UserError, match="state"):
        trainer.load_state_dict(spoil(saved))
    assert equal(before, trainer.state_dict())
    twin = trained(kind)
    for each in (trainer, twin):
        each.train_on(chunk_of(), torch.ones(B) if kind is ReplayTrainer else each.start())
    assert equal(trainer.state_dict(), twin.state_dict())


@pytest.mark.parametrize("kind", [Bonus, RolloutTrainer, ReplayTrainer])
@pytest.mark.parametrize("name", BAD_STATES)
def test_a_refused_state_leaves_no_trace(kind, name):
    check_refused(kind, BAD_STATES[name])


@pytest.mark.parametrize("name", BAD_BONUS_STATES)
def test_refused_steps_in_a_state_leave_no_trace(name):
    check_refused(Bonus, BAD_BONUS_STATES[name])


@pytest.mark.parametrize("method", ["rnd", "rnd+w", "icm+sm", "rnd+sm+expect", "rnd+counts"])
def test_another_methods_state_is_refused(method):
    saved = make(method).state_dict()
    bonus = make("rnd+sm")
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match="state_dict"):
        bonus.load_state_dict(saved)
    assert equal(before, bonus.state_dict())


# --- making ---

BAD_BONUSES = {
    "method": ([None, 3, "", "rdn", ["rnd"], "a" * 10_000, "rnd\n"], "method"),
    "obs_shape": ([None, 4, (), (4, 4), (0,), (4.0,), ("4",), (1, 2, 3, 4), (2**40,)], "obs_shape"),
    "num_envs": ([None, 0, -1, 1.5, "3", True, 10**20], "num_envs"),
    "seed": ([None, 0.5, "0", 2**70], "seed"),
    "config": ([3, {"lr": 1}, "small"], "config"),
    "action_space": ([2, "discrete", (2,)], "action_space"),
}


@pytest.mark.parametrize("kind", [Bonus, ReplayTrainer])
@pytest.mark.parametrize("name", BAD_BONUSES)
def test_no_bonus_is_made_of_what_does_not_fit(kind, name):
    values, sentence = BAD_BONUSES[name]
    for value in values:
        arguments = {"method": "rnd+sm", "obs_shape": (K,), "num_envs": B} | {name: value}
        with pytest.raises(UserError, match=sentence) as refusal:
            kind(**arguments)
        assert len(str(refusal.value)) < 300 and "\n" not in str(refusal.value)


# --- no bonus ---


@pytest.mark.parametrize("kind", [Bonus, RolloutTrainer, ReplayTrainer])
def test_none_pays_nothing_learns_nothing_and_goes_through_a_file(kind):
    trainer, other = (kind("none", (K,), B, SMALL, seed) for seed in (0, 1))
    for _ in range(3):
        if kind is ReplayTrainer:
            reward, report = trainer.train_on(chunk_of(), torch.ones(B))
        else:
            reward, report, _ = trainer.train_on(chunk_of(), trainer.start())
        assert not reward.any() and report["intrinsic/reward_norm"] == 0
    other.load_state_dict(through_a_file(trainer.state_dict()))
    assert equal(other.state_dict(), trainer.state_dict())


def test_none_pays_nothing_step_by_step_and_takes_no_memory():
    paid, report = play(make("none"))
    assert not paid.any() and report["intrinsic/reward_norm"] == 0
    for method in ("none+sm", "none+expect"):
        with pytest.raises(UserError):
            make(method)


MODES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["rnd+sm", "icm+sm+trust+recognise"])
def test_the_callers_torch_mode_ends_at_the_door(mode, method):
    """Rollouts are often collected where nothing can learn, agents trained where all is rounded."""
    plain, inside = make(method), make(method)
    paid, report = play(plain)
    with MODES[mode]():
        paid_inside, report_inside = play(inside)
    assert torch.equal(paid, paid_inside) and report == report_inside
    assert equal(plain.state_dict(), inside.state_dict())


@pytest.mark.parametrize("mode", MODES)
def test_so_it_does_at_the_replays(mode):
    trained = []
    for within in (contextlib.nullcontext, MODES[mode]):
        bonus = ReplayTrainer("lwm+sm", (K,), B, SMALL, 0, DISCRETE)
        rng = torch.Generator().manual_seed(0)
        obs = torch.randn(5, B, K, generator=rng)
        with within():
            bonus.train_on(fakes.chunk_of(obs), torch.ones(B))
            bonus.update_encoder(obs[0], obs[1])
        trained.append(bonus.state_dict())
    assert equal(*trained)


def test_a_reward_may_be_changed_by_its_owner():
    """The bonus keeps what it paid, to tell the mean."""
    bonus = make("rnd")
    for row in steps(6):
        bonus.step(*row).fill_(7.0)
    assert bonus.update()["intrinsic/reward_norm"] == 0


def test_weights_that_the_optimiser_would_not_know_are_refused():
    bonus, other = make(), make(seed=1)
    with pytest.raises(UserError, match="without assign=True"):
        bonus.load_state_dict(other.state_dict(), assign=True)
    assert not equal(bonus.model.state_dict(), other.model.state_dict())


# --- the caller's dtypes --------------------------------------------------------------------------


def test_statistics_stay_float64_in_a_module_that_is_made_float():
    bonus = Bonus("rnd+sm", (5,), 3)
    before = copy.deepcopy(bonus.state_dict())
    torch.nn.ModuleList([bonus]).float()
    assert equal(before, bonus.state_dict())
    assert bonus.model.obs_norm.moments.mean.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_bonus_of_another_dtype_is_refused(dtype):
    bonus = Bonus("rnd+sm", (5,), 3)
    before = copy.deepcopy(bonus.state_dict())
    with pytest.raises(UserError, match="cannot become"):
        bonus.to(dtype)
    assert equal(before, bonus.state_dict())


def test_asking_under_autocast_is_not_rounded():
    bonus = RolloutTrainer("rnd+sm", (5,), 3)
    chunk = fakes.chunk_of(torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)))
    raw, _, _ = bonus(chunk, bonus.start())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, _, _ = bonus(chunk, bonus.start())
    assert torch.equal(raw, again)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_actions_are_numbers_like_others(dtype):
    space = gym.spaces.Discrete(4, start=-1)
    bonus = Bonus("icm", (5,), 3, action_space=space)
    obs = np.zeros((3, 5), np.float32)
    bonus.step(obs, np.array([0, 1, 2], dtype), obs, np.zeros(3, bool))
    with pytest.raises(UserError, match="a whole number from -1 to 2"):
        bonus.step(obs, np.array([0, 1, 3], dtype), obs, np.zeros(3, bool))


def test_a_rollout_whose_bonus_is_no_number_leaves_the_scale_alone():
    config = BonusConfig(obs_norm="scale")
    space = gym.spaces.Discrete(2)
    bonus = Bonus("icm+sm", (5,), 3, config=config, action_space=space)
    chunk = fakes.chunk_of(torch.full((4, 3, 5), 1e25))
    before = copy.deepcopy(bonus.scaler.state_dict())
    with pytest.raises(UserError, match="The bonus would be"):
        bonus.train_on(chunk, bonus.start())
    assert equal(before, bonus.scaler.state_dict())
