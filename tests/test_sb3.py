"""The wrapper for Stable-Baselines3: what is paid, when, for which successor."""

import fakes  # noqa: F401 (registers Counter-v0)
import gymnasium as gym
import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig
from surprise_memory.errors import UserError

sb3 = pytest.importorskip("stable_baselines3", reason="pip install 'surprise-memory[sb3]'")
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
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


def test_what_is_paid_is_the_bonus_of_the_true_successors():
    """Beside it a bonus is fed by hand, with an episode's last observation as the successor."""
    env = SurpriseVecEnv(
        make_vec_env("CartPole-v1", 3, seed=1), beta=0.5, ext=2.0, every=16, config=SMALL
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
    env = SurpriseVecEnv(make_vec_env("CartPole-v1", 2, seed=0), beta=100.0, every=32, config=SMALL)
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
    second.load(tmp_path / "bonus.pt")
    second.since, second.obs, second.venv = first.since, first.obs, first.venv
    for mine, expected in zip(walk(second, 30, seed=1), walk(whole, 30, seed=1), strict=True):
        assert np.array_equal(mine[1], expected[1])


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


def test_images_are_turned_and_other_observations_refused():
    env = SurpriseVecEnv(DummyVecEnv([Picture]), every=4, config=SMALL)
    env.reset()
    walk(env, 3)
    seen = env.bonus.steps.rows[0].next_obs
    assert (
        seen.shape == (1, 1, 3, 36, 40) and (seen[0, 0, 1, 0] == 7).all() and seen.sum() == 7 * 40
    )
    with pytest.raises(UserError, match="vectors and images"):
        SurpriseVecEnv(make_vec_env("FrozenLake-v1", 1))
    with pytest.raises(UserError, match="every"):
        SurpriseVecEnv(make_vec_env("CartPole-v1", 1), every=0)
