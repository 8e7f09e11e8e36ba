"""The three autoreset modes deliver one and the same stream; the fake transition reaches nothing."""

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from surprise_memory import Bonus, BonusConfig, MemoryConfig, RNDConfig, UserError
from surprise_memory.envs import TOY, list_envs, make_vec
from surprise_memory.envs.base import AutoresetAdapter, to_arrays
from surprise_memory.envs.gymnasium import Gymnasium
from surprise_memory.training.loop import RunnerState, collect

SMALL = BonusConfig(rnd=RNDConfig(n=7, hidden=9), memory=MemoryConfig(slots=4, width=3, w_hidden=5))


def stream(mode, T=60, B=2):
    """next_obs, reward, done and bonus of the first 40 transitions that happened, for each environment."""
    env = Gymnasium("Counter-v0", B, 0, mode=mode)
    chunk, _ = collect(env, fakes.ByEye(), RunnerState.reset(env, None), T)
    bonus = Bonus("rnd+sm", env.obs_shape, B, SMALL)
    torch.nn.init.ones_(bonus.model.memory.m.V)  # else M reads zero at the start
    paid, _, _ = bonus(chunk, bonus.start())
    columns = (
        chunk.next_obs,
        chunk.obs,
        chunk.reward,
        chunk.terminated,
        chunk.truncated,
        chunk.first,
        paid,
    )
    return [[column[:, b][chunk.valid[:, b]][:40] for column in columns] for b in range(B)], chunk


def test_all_autoreset_modes_give_one_stream():
    same, chunk = stream(AutoresetMode.SAME_STEP)
    assert chunk.valid.all()
    assert chunk.terminated.any() and chunk.truncated.any()
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        for env_a, env_b in zip(same, stream(mode)[0], strict=True):
            for a, b in zip(env_a[:-1], env_b[:-1], strict=True):
                assert torch.equal(a, b), mode
            torch.testing.assert_close(env_a[-1], env_b[-1], rtol=1e-5, atol=1e-5)


def test_an_unaware_reader_of_next_step_would_differ():
    """The teeth of the test above: taking the fake rows for real ones changes the stream."""
    _, chunk = stream(AutoresetMode.NEXT_STEP)
    assert not chunk.valid.all()
    same, _ = stream(AutoresetMode.SAME_STEP)
    assert not torch.equal(chunk.next_obs[:40, 0], same[0][0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_next_obs_is_the_true_successor_and_never_the_reset_frame(mode):
    _, chunk = stream(mode)
    age_before, age_after = chunk.obs[..., 1], chunk.next_obs[..., 1]
    assert ((age_after == age_before + 1) | ~chunk.valid).all()
    assert (chunk.first[chunk.valid] == (age_before[chunk.valid] == 0)).all()
    assert (chunk.reward[~chunk.valid] == 0).all()
    assert not (chunk.done & ~chunk.valid).any()


def test_same_step_without_final_obs_is_refused():
    env = gym.make_vec(
        "Counter-v0",
        1,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    transitions = AutoresetAdapter(env, np.asarray)
    transitions.reset(0)
    step = env.step
    env.step = lambda action: (*step(action)[:4], {})
    with pytest.raises(UserError, match="final_obs"):
        for _ in range(9):
            transitions.step(np.array([1]))


def test_minigrid_fake_rows_follow_ends_and_precede_firsts():
    env = make_vec("MiniGrid-Empty-5x5-v0", 5, seed=3)
    loop = RunnerState.reset(env, None)

    class Forward:
        def act(self, obs, first, memo):
            return (
                torch.randint(0, 3, (5,), generator=torch.Generator().manual_seed(loop.steps)),
                {},
                memo,
            )

    chunk, episodes = collect(env, Forward(), loop, 300)
    assert chunk.obs.shape == (300, 5, 151)
    fake = ~chunk.valid
    assert fake.any()
    assert torch.equal(fake[1:], chunk.done[:-1])  # exactly the row after an end
    assert chunk.first[1:][fake[:-1]].all()  # and then an episode opens
    assert len(episodes) == chunk.done.sum()
    goal = chunk.next_obs[chunk.terminated][:, :147].reshape(-1, 7, 7, 3)
    assert (chunk.reward[chunk.terminated] > 0).all() and len(goal)


def test_seeds_differ_between_environments_and_repeat_between_runs():
    first, again = (make_vec("MiniGrid-DoorKey-8x8-v0", 6, seed=11).reset() for _ in range(2))
    assert np.array_equal(first, again)
    assert len({row.tobytes() for row in first}) > 1


def test_babyai_missions_are_in_the_state():
    obs = make_vec("BabyAI-GoToObj-v0", 16, seed=0).reset()
    assert obs.shape == (16, 151 + 64)
    assert len({row[151:].tobytes() for row in obs}) > 1


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (gym.spaces.Discrete(4, start=2), (4,)),
        (gym.spaces.Box(0, 255, (40, 50, 3), np.uint8), (3, 40, 50)),
        (gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), (4, 84, 84)),
        (gym.spaces.Box(-1, 1, (2, 5), np.float64), (10,)),
        (gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(0, 1, (2,))}), (5,)),
    ],
)
def test_every_space_becomes_arrays(space, shape):
    found, prepare = to_arrays(space)
    batched = gym.vector.utils.batch_space(space, 3)
    batch = prepare(batched.sample())
    assert found == shape
    assert batch.shape == (3, *shape)
    assert batch.dtype == (np.uint8 if len(shape) == 3 else np.float32)


def test_toy_is_solved_by_its_own_solution_and_pays_less_the_longer_it_takes():
    env = make_vec(TOY, 3, seed=0)
    env.reset()
    reward = np.zeros(3)
    for action in [0] * 6 + [2] + [1] * 8 + [3] + [1] * 2:
        step = env.step(np.full(3, action))
        reward += step.reward
    assert step.terminated.all()
    assert np.allclose(reward, 1 - 0.9 * 18 / 200)


def test_unknown_ids_name_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'MiniGrid-DoorKey-8x8-v0'"):
        make_vec("MiniGrid-DorKey-8x8-v0", 1, 0)
    assert "MiniGrid-DoorKey-16x16-v0" in list_envs()
