"""The wrapper for Stable-Baselines3: what is paid, when, for which successor."""

import copy
import json
import pickle

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig, torch_files
from surprise_memory.bonus.check.promises import equal
from surprise_memory.errors import UserError

sb3 = pytest.importorskip("stable_baselines3", reason="pip install 'surprise-memory[sb3]'")
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize  # noqa: E402

from surprise_memory.adapters.sb3 import SurpriseVecEnv  # noqa: E402

SMALL = BonusConfig(minibatches=2, epochs=1)


def walk(env, steps, seed=0):
    """Random actions; returns what was seen, done, paid and told."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(steps):
        rows.append(
            env.step(np.array([rng.integers(env.action_space.n) for _ in range(env.num_envs)]))
        )
    return rows


@pytest.fixture(autouse=True)
def pays_at_once(monkeypatch):
    """Two updates are enough to find the scale."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)


def test_what_is_paid_is_the_bonus_of_the_true_successors():
    """Beside it a bonus is fed by hand, with an episode's last observation as the successor."""
    env = SurpriseVecEnv(
        make_vec_env("CartPole-v1", 3, seed=1), "rnd+sm", beta=0.5, ext=2.0, every=16, config=SMALL
    )
    twin = Bonus("rnd+sm", (4,), 3, SMALL, action_space=env.action_space)
    before, ended, paid = env.reset(), 0, []
    for t in range(80):
        action = np.array([t % 2, 0, 1])
        after, reward, done, infos = env.step(action)
        successor = np.stack(
            [
                i["terminal_observation"] if d else a
                for a, d, i in zip(after, done, infos, strict=True)
            ]
        )
        r_int = twin.step(before, action, successor, done).numpy()
        assert np.allclose(reward, 2.0 + 0.5 * r_int) and np.allclose(
            [i["r_int"] for i in infos], r_int
        )
        assert [i["r_ext"] for i in infos] == [1.0, 1.0, 1.0]
        if t % 16 == 15:
            assert twin.update() == env.metrics
        before, ended = after, ended + done.sum()
        paid.append(r_int)
    assert ended > 3 and not np.any(paid[:32]) and np.all(np.array(paid[32:]) > 0)


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_algorithms_learn_with_it_and_returns_stay_the_tasks(algorithm):
    inner = make_vec_env("CartPole-v1", 2, seed=0)
    env = SurpriseVecEnv(inner, "rnd+sm", beta=100.0, every=32, config=SMALL)
    options = (
        {"n_steps": 64} if algorithm == "PPO" else {"learning_starts": 100, "buffer_size": 1000}
    )
    model = getattr(sb3, algorithm)("MlpPolicy", env, seed=0, **options).learn(512)
    lengths = [e["l"] for e in model.ep_info_buffer]
    assert (
        lengths and [e["r"] for e in model.ep_info_buffer] == lengths
    )  # Monitor sits inside and sees the task alone
    stored = (
        model.rollout_buffer.rewards
        if algorithm == "PPO"
        else model.replay_buffer.rewards[: model.replay_buffer.pos]
    )
    assert stored.max() > 1.5  # CartPole pays 1


def test_a_replay_keeps_the_bonus_with_vecnormalize_around_it_and_the_other_order_is_refused():
    inner = make_vec_env("CartPole-v1", 2, seed=0)
    with pytest.raises(UserError, match="VecNormalize"):
        SurpriseVecEnv(VecFrameStack(VecNormalize(inner), 2))
    env = VecNormalize(SurpriseVecEnv(inner, beta=100.0, every=16, config=SMALL))
    model = sb3.DQN("MlpPolicy", env, seed=0, learning_starts=10_000, buffer_size=1000).learn(512)
    assert model.replay_buffer.rewards[: model.replay_buffer.pos].max() > 1.5


def test_what_was_saved_goes_on_as_if_nothing_had_happened(tmp_path):
    envs = [
        SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=16, config=SMALL, seed=seed)
        for seed in (0, 0, 5)
    ]
    whole, first, second = envs
    for env in envs:
        env.reset()
    walk(whole, 40)
    walk(first, 40)
    first.save(tmp_path / "bonus.pt")
    second.load(tmp_path / "bonus.pt", same_episodes=True)
    second.obs, second.venv = first.obs, first.venv
    for mine, expected in zip(walk(second, 30, seed=1), walk(whole, 30, seed=1), strict=True):
        assert np.array_equal(mine[1], expected[1])


def test_other_environments_have_other_episodes_than_the_file(tmp_path):
    env, other = (
        SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=64, config=SMALL)
        for _ in range(2)
    )
    env.reset()
    walk(env, 5)
    env.save(tmp_path / "bonus.pt")
    other.reset()
    other.load(tmp_path / "bonus.pt")
    walk(other, 1)
    assert other.bonus.steps.rows[-1].first.all()


def test_an_evaluation_pays_the_task_alone_and_teaches_the_bonus_nothing():
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=4, beta=9.0, config=SMALL)
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0).learn(64)
    rows = len(env.bonus.steps.rows)
    learnt = copy.deepcopy(env.bonus.model.state_dict())
    env.training = False
    evaluate_policy(model, env, 3, warn=False)
    assert all(row[1].tolist() == [1, 1] for row in walk(env, 6))
    assert len(env.bonus.steps.rows) == rows and equal(env.bonus.model.state_dict(), learnt)
    env.training = True
    walk(env, 1)
    assert env.bonus.steps.rows[-1].first.all()  # the evaluation has played on


def test_a_reset_in_the_middle_gives_up_what_was_remembered_of_the_episode():
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=64, config=SMALL)
    env.reset()
    walk(env, 5)
    env.reset()
    walk(env, 1)
    firsts = torch.cat([row.first for row in env.bonus.steps.rows])
    assert firsts.tolist() == [[True, True]] + [[False, False]] * 4 + [[True, True]]


class Picture(gym.Env):
    """Channels last, as SB3's users have them; the first pixel row counts steps."""

    observation_space = gym.spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros((36, 40, 3), np.uint8), {}

    def step(self, action):
        picture = np.zeros((36, 40, 3), np.uint8)
        picture[0, :, 1] = 7
        return picture, 0.0, False, False, {}


def test_images_are_turned():
    env = SurpriseVecEnv(DummyVecEnv([Picture]), every=4, config=SMALL)
    env.reset()
    walk(env, 3)
    seen = env.bonus.steps.rows[0].next_obs
    assert (
        seen.shape == (1, 1, 3, 36, 40) and (seen[0, 0, 1, 0] == 7).all() and seen.sum() == 7 * 40
    )


class Many(gym.Env):
    """Counts its steps in observations of any space; an episode has three."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind="Dict"):
        count = gym.spaces.Discrete(9)
        table = gym.spaces.Box(0, 9, (2, 3))
        self.observation_space = {
            "Discrete": count,
            "Dict": gym.spaces.Dict({"count": count, "table": table}),
            "Tuple": gym.spaces.Tuple([count, table]),
            "two axes": table,
        }[kind]
        self.kind = kind

    def look(self):
        count = np.int64(self.count)
        table = np.full((2, 3), self.count, np.float32)
        return {
            "Discrete": count,
            "Dict": {"count": count, "table": table},
            "Tuple": (count, table),
            "two axes": table,
        }[self.kind]

    def reset(self, seed=None, options=None):
        self.count = 0
        return self.look(), {}

    def step(self, action):
        self.count += 1
        return self.look(), 0.0, self.count == 3, False, {}


@pytest.mark.parametrize("kind", ["Discrete", "Dict", "Tuple", "two axes"])
def test_every_space_is_seen_as_the_command_line_sees_it(kind):
    env = SurpriseVecEnv(DummyVecEnv([lambda: Many(kind), lambda: Many(kind)]), config=SMALL)
    env.reset()
    walk(env, 4)
    single = Many(kind)
    space = single.observation_space
    expected = []
    for single.count in (1, 2, 3, 1):  # also the last of an episode, which SB3 puts into the info
        expected.append(gym.spaces.flatten(space, single.look()))
    seen = torch.cat([row.next_obs for row in env.bonus.steps.rows])
    assert np.array_equal(seen[:, 0], expected) and np.array_equal(seen[:, 1], expected)


def test_none_pays_nothing_and_goes_through_a_file(tmp_path):
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), "none", every=4, config=SMALL)
    env.reset()
    for _, reward, _, infos in walk(env, 14):
        assert reward.tolist() == [1, 1] and [info["r_int"] for info in infos] == [0, 0]
    assert env.metrics["intrinsic/reward_norm"] == 0
    env.save(tmp_path / "none.pt")
    other = SurpriseVecEnv(make_vec_env("CartPole-v1", 2), "none", every=4, config=SMALL)
    other.load(tmp_path / "none.pt")
    assert other.since == 2 and int(other.bonus.updates) == 3


BAD_OPTIONS = {
    "every": [0, -1, 1.5, "16", None, True, float("nan")],
    "beta": [float("nan"), float("inf"), "x", None, [0.1]],
    "ext": [float("nan"), "1"],
    "method": ["rdn+sm", None],
    "config": [{"lr": 1}],
    "seed": ["0", 1.5],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_options_that_cannot_be_are_refused_by_name(name):
    venv = make_vec_env("CartPole-v1", 1)
    for value in BAD_OPTIONS[name]:
        with pytest.raises(UserError, match=name):
            SurpriseVecEnv(venv, **{name: value})


def test_what_is_no_vector_environment_or_was_not_reset_is_refused():
    with pytest.raises(UserError, match="make_vec_env"):
        SurpriseVecEnv(gym.make("CartPole-v1"))
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 1), config=SMALL)
    with pytest.raises(UserError, match="reset"):
        env.step(np.array([0]))
    with pytest.raises(UserError, match=r"'\.' is a directory"):
        env.save(".")


def junk(folder, kind):
    """A file that `save` did not write, or not like this."""
    path = folder / "bonus.pt"
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2), "rnd+sm", config=SMALL)
    env.save(path)
    whole = path.read_bytes()
    if kind == "text":
        path.write_text("no bonus at all")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "a pickle":
        path.write_bytes(pickle.dumps({"bonus": 1}))
    elif kind == "torch's own":
        torch.save({"bonus": torch.zeros(3)}, path)
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "one bit":
        i = len(whole) // 2
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
    elif kind == "another program":
        torch_files.save({"format": "other", "bonus": 1}, path)
    elif kind == "another method":
        SurpriseVecEnv(make_vec_env("CartPole-v1", 2), "rnd", config=SMALL).save(path)
    elif kind == "another size":
        SurpriseVecEnv(make_vec_env("CartPole-v1", 3), "rnd+sm", config=SMALL).save(path)
    elif kind == "a directory":
        return folder
    elif kind == "missing":
        path.unlink()
    elif kind == "a number":
        return 3
    return path


KINDS = [
    "text", "empty", "a pickle", "torch's own", "truncated", "one bit", "another program",
    "another method", "another size", "a directory", "missing", "a number",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_refused_changes_nothing(tmp_path, kind):
    path = junk(tmp_path, kind)
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), "rnd+sm", every=4, config=SMALL)
    env.reset()
    walk(env, 6)
    before = copy.deepcopy(env.bonus.state_dict())
    with pytest.raises(UserError):
        env.load(path)
    assert equal(before, env.bonus.state_dict()) and env.since == 2


def test_a_nan_from_an_environment_is_refused():
    class Broken(Picture):
        observation_space = gym.spaces.Box(-1, 1, (3,))

        def reset(self, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.array([0, np.nan, 0], np.float32), 0.0, False, False, {}

    env = SurpriseVecEnv(DummyVecEnv([Broken]), config=SMALL)
    env.reset()
    with pytest.raises(UserError, match="next_obs is nan in environment 0, feature 1"):
        walk(env, 1)


@pytest.mark.parametrize("key", [None, "count", "table"])
def test_of_dict_observations_the_bonus_sees_the_chosen_key(key):
    env = SurpriseVecEnv(DummyVecEnv([Many, Many]), "rnd", config=SMALL, key=key)
    env.reset()
    walk(env, 3)
    last = torch.cat([row.next_obs for row in env.bonus.steps.rows])[-1]  # the end of an episode
    count, table = np.eye(9)[3].tolist(), [3.0] * 6
    expected = {None: count + table, "count": count, "table": table}[key]
    assert last.tolist() == [expected, expected]


def test_a_key_that_is_not_there_is_refused():
    with pytest.raises(UserError, match=r"Unknown key 'tables'\. Did you mean 'table'"):
        SurpriseVecEnv(DummyVecEnv([Many]), key="tables")
    with pytest.raises(UserError, match="chooses an entry of Dict observations"):
        SurpriseVecEnv(make_vec_env("CartPole-v1", 1), key="table")


class TwoLevers(Many):
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def __init__(self):
        super().__init__("two axes")


def test_multidiscrete_actions_work():
    env = SurpriseVecEnv(DummyVecEnv([TwoLevers, TwoLevers]), every=8, config=SMALL)
    model = sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0).learn(64)
    assert int(env.bonus.updates) == 4 and model.rollout_buffer.rewards.max() > 0


def test_a_models_logger_hears_what_the_bonus_tells(tmp_path):
    logger = sb3.common.logger.configure(str(tmp_path), ["json"])
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=32, config=SMALL)
    model = sb3.PPO("MlpPolicy", VecNormalize(env), n_steps=32, batch_size=32, seed=0)
    model.set_logger(logger)
    env.log_to(model)
    model.learn(128)
    rows = [json.loads(line) for line in (tmp_path / "progress.json").open()]
    assert len(rows) == 2
    for name, value in env.metrics.items():
        assert np.isclose(rows[-1][name], value) and name in rows[0]
    assert "intrinsic/novelty" in env.metrics
    with pytest.raises(UserError, match="this is SurpriseVecEnv"):
        env.log_to(env)


def test_a_model_that_has_not_learnt_yet_has_no_logger_to_write_to():
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), every=2, config=SMALL)
    env.log_to(sb3.PPO("MlpPolicy", env, n_steps=32, batch_size=32))
    env.reset()
    walk(env, 2)
    assert env.metrics


def test_a_second_bonus_inside_is_refused():
    inner = SurpriseVecEnv(make_vec_env("CartPole-v1", 1), config=SMALL)
    with pytest.raises(UserError, match="wrap the environments once"):
        SurpriseVecEnv(VecFrameStack(inner, 2))


class Goals(gym.Env):
    """Reach a number; every episode has two steps."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Dict(
        {
            name: gym.spaces.Box(-9, 9, (1,), np.float32)
            for name in ("observation", "achieved_goal", "desired_goal")
        }
    )

    def see(self):
        place = np.array([self.place], np.float32)
        return {"observation": place, "achieved_goal": place, "desired_goal": np.ones(1, "f")}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.age = 0
        return self.see(), {}

    def step(self, action):
        self.place += int(action)
        self.age += 1
        obs = self.see()
        reward = self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {})
        return obs, float(reward), False, self.age == 2, {}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(achieved - desired).sum(-1)


@pytest.mark.parametrize("beta", [0.1, 0.0])
def test_a_replay_that_computes_rewards_anew_is_refused(beta):
    """It would lose the bonus of four samples in five."""
    venv = DummyVecEnv([lambda: Goals()])
    env = SurpriseVecEnv(venv, "rnd", beta=beta, config=SMALL, every=8)
    options = {"learning_starts": 8, "train_freq": 4, "batch_size": 4}
    model = sb3.DQN("MultiInputPolicy", env, replay_buffer_class=sb3.HerReplayBuffer, **options)
    if beta:
        with pytest.raises(UserError, match="HerReplayBuffer computes rewards anew"):
            model.learn(24)
    else:
        model.learn(24)


def test_after_a_refused_step_new_episodes_begin():
    venv = DummyVecEnv([lambda: fakes.Counter(broken_at=3)] * 2)
    env = SurpriseVecEnv(venv, "rnd+sm", config=SMALL)
    env.reset()
    with pytest.raises(UserError, match="nan"):
        walk(env, 9)
    assert env.bonus.steps.first.all() and len(env.bonus.steps.rows) == 2


def test_a_vecnormalize_around_it_and_the_bonus_stop_learning_apart():
    """As the documentation says: both have to be told."""
    env = VecNormalize(
        SurpriseVecEnv(DummyVecEnv([fakes.Counter] * 2), "rnd", beta=9.0, config=SMALL, every=4)
    )
    env.reset()
    walk(env, 12)
    env.training = env.venv.training = env.norm_reward = False
    env.reset()
    seen = len(env.venv.bonus.steps.rows)
    _, reward, _, _ = env.step(np.zeros(2, int))
    assert reward.tolist() == [1.0, 1.0] and len(env.venv.bonus.steps.rows) == seen


def test_the_bonus_sees_numbers_as_precisely_as_they_are():
    for kind, dtype in ((fakes.Counter, torch.float32), (fakes.Wide, torch.float64)):
        env = SurpriseVecEnv(DummyVecEnv([kind] * 2), "rnd", config=SMALL)
        env.reset()
        walk(env, 6)  # over an episode's end
        assert env.bonus.steps.rows[-1].next_obs.dtype == dtype
