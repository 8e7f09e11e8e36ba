"""The wrapper for Gymnasium's vector environments: what is paid, in every autoreset mode."""

import copy

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from surprise_memory import Bonus, BonusConfig, RNDConfig
from surprise_memory.adapters.gymnasium import BonusVectorEnv
from surprise_memory.bonus.check.promises import equal
from surprise_memory.errors import UserError

SMALL = BonusConfig(rnd=RNDConfig(n=16, hidden=32), minibatches=2, epochs=1)
B = 3
NEXT_STEP, SAME_STEP, DISABLED = (
    AutoresetMode.NEXT_STEP,
    AutoresetMode.SAME_STEP,
    AutoresetMode.DISABLED,
)


@pytest.fixture(autouse=True)
def pays_at_once(monkeypatch):
    """Two updates are enough to find the scale."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)


def counters(mode=NEXT_STEP, num_envs=B, kind=fakes.Counter, copy=True):
    return SyncVectorEnv([kind] * num_envs, autoreset_mode=mode, copy=copy)


def by_eye(obs):
    """Action 1 in two of three episodes, so that episodes end and are truncated."""
    return (obs[:, 2] > 0).astype(np.int64)


def drive(env, steps, obs=None):
    """Walk as a user of any mode does; returns every step with what was seen before it."""
    rows = []
    if obs is None:
        obs, _ = env.reset(seed=0)
    for _ in range(steps):
        action = by_eye(obs)
        after, reward, terminated, truncated, infos = env.step(action)
        rows.append((obs.copy(), action, after.copy(), reward, terminated | truncated, infos))
        obs = after.copy()
        if env.metadata["autoreset_mode"] == DISABLED and rows[-1][4].any():
            obs, _ = env.reset(options={"reset_mask": rows[-1][4].copy()})
            obs = obs.copy()
    return rows


def by_hand(rows, mode, method="rnd+sm", every=16):
    """What a bonus pays for the same transitions (T, B), with successors worked out here."""
    bonus, paid = Bonus(method, (3,), B, SMALL, action_space=gym.spaces.Discrete(2)), []
    ended = np.zeros(B, bool)
    for t, (before, action, after, _, done, infos) in enumerate(rows):
        successor = after.copy()
        if mode == SAME_STEP:
            for b in np.flatnonzero(done):
                successor[b] = infos["final_obs"][b]
        valid = ~ended if mode == NEXT_STEP else np.ones(B, bool)
        paid.append(bonus.step(before, action, successor, done & valid, valid).numpy())
        ended = done & valid
        if t % every == every - 1:
            bonus.update()
    return np.array(paid), bonus


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_is_paid_is_the_bonus_of_the_true_successors(mode):
    env = BonusVectorEnv(
        RecordEpisodeStatistics(counters(mode)),
        "rnd+sm",
        beta=0.5,
        ext=2.0,
        update_every=16,
        config=SMALL,
    )
    rows = drive(env, 80)
    r_int, bonus = by_hand(rows, mode)
    assert not r_int[:32].any() and (r_int[32:] > 0).sum() > 100
    for row, expected in zip(rows, r_int, strict=True):
        reward, infos = row[3], row[5]
        assert np.array_equal(infos["intrinsic_reward"], expected)
        assert np.array_equal(reward, 2.0 * infos["extrinsic_reward"] + 0.5 * expected)
    assert equal(bonus.state_dict(), env.bonus.state_dict())
    # Counter pays its count; RecordEpisodeStatistics sits inside and sees the task alone.
    returns = [row[5]["episode"]["r"][b] for row in rows for b in np.flatnonzero(row[4])]
    assert len(returns) > 20 and set(returns) <= {15.0, 20.0}  # 1+..+5, and 2+4+6+8


def trajectory(mode, steps):
    """(obs, next_obs) of the first environment as the bonus was told, without reset rows."""
    env = BonusVectorEnv(counters(mode), "rnd", update_every=1000, config=SMALL)
    drive(env, steps)
    told = []
    for row in env.bonus.steps.rows:
        if row.valid[0, 0]:
            told.append([*row.obs[0, 0].tolist(), *row.next_obs[0, 0].tolist()])
    return told


def test_the_bonus_is_told_the_same_trajectory_in_all_modes():
    expected = trajectory(SAME_STEP, 40)
    assert trajectory(DISABLED, 40) == expected
    with_resets = trajectory(NEXT_STEP, 40)
    assert with_resets == expected[: len(with_resets)] and 30 < len(with_resets) < 40


def test_the_step_that_only_resets_pays_nothing_and_what_it_tells_is_not_learnt():
    env = BonusVectorEnv(counters(), "rnd+sm", update_every=8, config=SMALL)
    rows = drive(env, 60)
    ended = np.array([row[4] for row in rows])
    paid = np.array([row[5]["intrinsic_reward"] for row in rows])
    assert ended[20:-1].sum() > 5
    assert not paid[1:][ended[:-1]].any()
    assert (paid[21:][~ended[20:-1]] > 0).all()


class Frames(fakes.Picture):
    """Channels first: such observations pass through as they are."""

    observation_space = gym.spaces.Box(0, 255, (3, 40, 36), np.uint8)

    def see(self):
        return np.moveaxis(super().see(), -1, 0)


def test_arrays_that_the_environments_reuse_are_copied():
    env = BonusVectorEnv(counters(kind=Frames, copy=False), "rnd", config=SMALL)
    env.reset()
    for _ in range(3):
        env.step(np.zeros(B, np.int64))
    first, second, third = env.bonus.steps.rows
    assert torch.equal(first.next_obs, second.obs) and torch.equal(second.next_obs, third.obs)
    assert not torch.equal(first.obs, first.next_obs)


def test_a_masked_reset_gives_up_the_episodes_of_the_mask_alone():
    env = BonusVectorEnv(counters(NEXT_STEP), "rnd", config=SMALL)
    rows = drive(env, 3)
    mask = np.array([True, False, True])
    env.reset(options={"reset_mask": mask.copy()})
    drive(env, 1, rows[-1][2])
    assert env.bonus.steps.rows[-1].first[0].tolist() == mask.tolist()
    env.reset()
    drive(env, 1)
    assert env.bonus.steps.rows[-1].first.all()
    drive(env, 3, rows[-1][2])  # the fourth or fifth step ends some episodes
    while not env.ended.any():
        env.step(np.ones(B, np.int64))
    env.reset(options={"reset_mask": env.ended.copy()})
    env.step(np.zeros(B, np.int64))
    assert env.bonus.steps.rows[-1].valid.all()  # they were reset: this step happened


def test_what_was_saved_goes_on_as_if_nothing_had_happened(tmp_path):
    make = lambda seed: BonusVectorEnv(  # noqa: E731
        counters(SAME_STEP), update_every=16, config=SMALL, seed=seed
    )
    whole, first, second = make(0), make(0), make(5)
    rows = drive(whole, 40)
    drive(first, 40)
    second.reset()
    first.save(tmp_path / "bonus.pt")
    second.load(tmp_path / "bonus.pt", same_episodes=True)
    assert second.since == 8
    second.obs, second.env = first.obs, first.env
    start = rows[-1][2]
    for mine, expected in zip(drive(second, 30, start), drive(whole, 30, start), strict=True):
        assert np.array_equal(mine[3], expected[3])
    assert equal(second.bonus.state_dict(), whole.bonus.state_dict())


def test_other_environments_have_other_episodes_than_the_file(tmp_path):
    env, other = (BonusVectorEnv(counters(), config=SMALL) for _ in range(2))
    drive(env, 3)
    env.save(tmp_path / "bonus.pt")
    obs, _ = other.reset()
    other.load(tmp_path / "bonus.pt")
    drive(other, 1, obs)
    assert other.bonus.steps.rows[-1].first.all()


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_an_evaluation_pays_the_task_alone_and_the_bonus_sees_nothing(mode):
    env = BonusVectorEnv(counters(mode), update_every=4, beta=9.0, config=SMALL)
    rows = drive(env, 14)
    before = copy.deepcopy(env.bonus.model.state_dict())
    seen = len(env.bonus.steps.rows)
    env.training = False
    for _, _, _, reward, _, infos in drive(env, 12, rows[-1][2]):
        assert np.array_equal(reward, infos["extrinsic_reward"])
        assert not infos["intrinsic_reward"].any()
    assert len(env.bonus.steps.rows) == seen and equal(env.bonus.model.state_dict(), before)
    env.training = True
    env.step(np.zeros(B, np.int64))
    assert env.bonus.steps.rows[-1].first.all()


def test_stable_baselines3s_wrapper_writes_the_same_file(tmp_path):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from surprise_memory.adapters.sb3 import SurpriseVecEnv

    other = SurpriseVecEnv(DummyVecEnv([fakes.Counter] * B), every=4, config=SMALL)
    other.reset()
    for _ in range(6):
        other.step(np.zeros(B, np.int64))
    other.save(tmp_path / "bonus.pt")
    env = BonusVectorEnv(counters(), config=SMALL, seed=3)
    env.load(tmp_path / "bonus.pt", same_episodes=True)
    assert env.since == 2 and equal(env.bonus.state_dict(), other.bonus.state_dict())


def test_a_file_of_another_method_is_refused_and_changes_nothing(tmp_path):
    BonusVectorEnv(counters(), "rnd", config=SMALL).save(tmp_path / "bonus.pt")
    env = BonusVectorEnv(counters(), "rnd+sm", config=SMALL)
    drive(env, 3)
    before = copy.deepcopy(env.bonus.state_dict())
    with pytest.raises(UserError, match=r"holds the bonus 'rnd', this is 'rnd\+sm'"):
        env.load(tmp_path / "bonus.pt")
    assert equal(before, env.bonus.state_dict()) and env.since == 3


class Rooms(fakes.Counter):
    """A Dict observation: where it is, and a count."""

    observation_space = gym.spaces.Dict(
        {"place": gym.spaces.Box(-100, 100, (2,)), "count": gym.spaces.Discrete(9)}
    )

    def see(self):
        return {"place": super().see()[:2], "count": np.int64(self.age)}


def test_of_dict_observations_the_bonus_sees_all_or_the_chosen_key():
    for mode in (NEXT_STEP, SAME_STEP):
        for key, shape in ((None, (11,)), ("place", (2,)), ("count", (9,))):
            env = BonusVectorEnv(counters(mode, kind=Rooms), "rnd", key=key, config=SMALL)
            env.reset()
            for _ in range(5):
                env.step(np.zeros(B, np.int64))
            last = env.bonus.steps.rows[-1]
            assert last.done.all() and last.next_obs.shape == (1, B, *shape)
            if key == "place":
                assert last.next_obs[0].tolist() == [[5.0, 5.0]] * B
    with pytest.raises(UserError, match="Did you mean 'place'"):
        BonusVectorEnv(counters(kind=Rooms), key="plac")
    with pytest.raises(UserError, match="key = 'place' chooses an entry of Dict observations"):
        BonusVectorEnv(counters(), key="place")


class Silent(SyncVectorEnv):
    """SAME_STEP, but it does not tell the last observation."""

    def step(self, actions):
        *rest, infos = super().step(actions)
        infos.pop("final_obs", None)
        return *rest, infos


class Tensors(gym.vector.VectorWrapper):
    """Rewards as tensors, as NumpyToTorch returns them."""

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        return obs, torch.as_tensor(reward), *rest


def test_what_would_lose_or_falsify_the_bonus_is_refused():
    env = BonusVectorEnv(Silent([fakes.Counter] * B, autoreset_mode=SAME_STEP), config=SMALL)
    with pytest.raises(UserError, match=r"without infos\['final_obs'\].*NEXT_STEP"):
        drive(env, 10)
    unsaid = counters()
    del unsaid.metadata["autoreset_mode"]
    with pytest.raises(UserError, match="does not say how it resets"):
        BonusVectorEnv(unsaid)
    with pytest.raises(UserError, match=r"gymnasium\.make_vec"):
        BonusVectorEnv(gym.make("CartPole-v1"))
    with pytest.raises(UserError, match="wrap the environments once"):
        BonusVectorEnv(RecordEpisodeStatistics(BonusVectorEnv(counters(), config=SMALL)))
    env = BonusVectorEnv(counters(DISABLED), config=SMALL)
    with pytest.raises(UserError, match="call reset"):
        env.step(np.zeros(B, np.int64))
    env.reset()
    with pytest.raises(UserError, match="Environment 0 has ended and was not reset"):
        for _ in range(9):
            env.step(np.zeros(B, np.int64))
    env = BonusVectorEnv(Tensors(counters()), config=SMALL)
    env.reset()
    with pytest.raises(UserError, match=r"torch\.Tensor: put the wrapper that converts"):
        env.step(np.zeros(B, np.int64))


class Longer(gym.vector.VectorWrapper):
    """Adds a feature to observations, and forgets those that end an episode."""

    single_observation_space = gym.spaces.Box(-100, 100, (4,))

    def longer(self, obs):
        return np.concatenate([obs, obs[:, :1]], axis=1)

    def reset(self, **options):
        obs, infos = super().reset(**options)
        return self.longer(obs), infos

    def step(self, actions):
        obs, *rest = super().step(actions)
        return self.longer(obs), *rest


def test_a_wrapper_below_that_forgets_the_last_observation_is_refused():
    env = BonusVectorEnv(Longer(counters(SAME_STEP)), config=SMALL)
    with pytest.raises(UserError, match=r"final_obs'\] has shape \(3,\), obs \(4,\)"):
        drive(env, 10)


BAD_OPTIONS = {
    "update_every": [0, 1.5, "16", None, True],
    "beta": [float("nan"), float("inf"), "x", None],
    "ext": [float("nan"), "1"],
    "method": ["rdn+sm", None],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_options_that_cannot_be_are_refused_by_name(name):
    for value in BAD_OPTIONS[name]:
        with pytest.raises(UserError, match=name):
            BonusVectorEnv(counters(), **{name: value})


def test_a_whole_rollout_under_no_grad_still_teaches_the_bonus():
    env = BonusVectorEnv(counters(), "rnd+sm", config=SMALL, update_every=4)
    with torch.no_grad():
        drive(env, 9)
    assert env.bonus.updates == 2


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_after_a_refused_step_new_episodes_begin(mode):
    """The environments have stepped, and nobody knows what the bonus would have remembered."""
    env = BonusVectorEnv(counters(mode, kind=lambda: fakes.Counter(broken_at=3)), config=SMALL)
    with pytest.raises(UserError, match="nan"):
        drive(env, 9)
    assert env.bonus.steps.first.all() and len(env.bonus.steps.rows) == 2
    assert env.ended.tolist() == [False] * B


def test_after_a_refused_step_the_wrapper_knows_which_episodes_ended():
    kinds = [lambda: fakes.Counter(broken_at=5), fakes.Counter]
    env = BonusVectorEnv(SyncVectorEnv(kinds, autoreset_mode=NEXT_STEP), config=SMALL)
    with pytest.raises(UserError, match="nan"):
        env.reset(seed=0)
        for _ in range(5):  # the fifth step ends both episodes
            env.step(np.zeros(2, int))
    assert env.ended.all()
    env.step(np.zeros(2, int))
    assert not env.bonus.steps.rows[-1].valid.any()  # it only resets


def test_the_bonus_sees_numbers_as_precisely_as_they_are():
    for kind, dtype in ((fakes.Counter, torch.float32), (fakes.Wide, torch.float64)):
        env = BonusVectorEnv(counters(kind=kind), config=SMALL)
        drive(env, 2)
        assert env.bonus.steps.rows[-1].next_obs.dtype == dtype
