"""The three autoreset modes give one stream; families are found by id; what each can do."""

import doctest
import importlib.util
import sys

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from surprise_memory import Bonus, BonusConfig, MemoryConfig, RNDConfig, UserError
from surprise_memory import envs as package
from surprise_memory.agents.base import Agent
from surprise_memory.envs import (
    FAMILIES,
    TMAZE,
    TOY,
    Family,
    VecEnv,
    family_of,
    list_envs,
    make_vec,
    minigrid,
    register_family,
)
from surprise_memory.envs.autoreset import AutoresetAdapter
from surprise_memory.envs.gymnasium import Gymnasium
from surprise_memory.envs.toy import Toy
from surprise_memory.training.loop import RunnerState, collect

SMALL = BonusConfig(rnd=RNDConfig(n=7, hidden=9), memory=MemoryConfig(slots=4, width=3, w_hidden=5))


def stream(mode, T=60, B=2):
    """Columns of the first 40 transitions that happened, for each environment."""
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


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_environment_may_write_every_observation_into_the_same_array(mode):
    """Gymnasium keeps the last one of an episode by reference, and resets the environment."""
    streams = []
    for env_id in ("Counter-v0", "InPlace-v0"):
        env = Gymnasium(env_id, 2, 0, mode=mode)
        chunk, _ = collect(env, fakes.ByEye(), RunnerState.reset(env, None), 40)
        assert chunk.done.sum() > 4
        streams.append(chunk)
    for name in ("obs", "next_obs", "terminated", "truncated", "first", "valid"):
        assert torch.equal(streams[0].columns()[name], streams[1].columns()[name]), name


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
    adapter = AutoresetAdapter(env, np.asarray)
    adapter.reset(0)
    step = env.step
    env.step = lambda action: (*step(action)[:4], {})
    with pytest.raises(UserError, match="final_obs"):
        for _ in range(9):
            adapter.step(np.array([1]))


def test_minigrid_fake_rows_follow_ends_and_precede_firsts():
    env = make_vec("MiniGrid-Empty-5x5-v0", 5, seed=3)
    loop = RunnerState.reset(env, None)

    class Forward(Agent):
        def act(self, obs, first, state, mode):
            return (
                torch.randint(0, 3, (5,), generator=torch.Generator().manual_seed(loop.steps)),
                {},
                state,
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


def test_missions_are_in_the_state_wherever_they_vary_and_nowhere_else():
    one_of_each_task = {name[: len("MiniGrid-") + 7]: name for name in minigrid.ids()}
    for task, env_id in one_of_each_task.items():
        if task.startswith("BabyAI"):
            continue
        env = make_vec(env_id, 8, seed=0)
        found, _ = env.env.reset()
        missions = {mission.tobytes() for mission in found["mission"]}
        assert env.obs_shape == ((151 + 64,) if len(missions) > 1 else (151,)), env_id


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


def test_observations_of_a_tuple_space_survive_the_end_of_an_episode():
    env = make_vec("Blackjack-v1", 3, seed=0)
    env.reset()
    steps = [env.step(np.zeros(3, int)) for _ in range(5)]  # to stick ends a game
    for step in steps:
        assert step.terminated.all() and step.next_obs.shape == step.obs.shape == (3, 32 + 11 + 2)
        assert (step.next_obs.sum(1) == 3).all()


@pytest.fixture
def outsider():
    """A family from another package, registered for one test."""

    class Lanes(Toy):
        """A toy that names an event."""

        def events(self, obs):
            return {"key": obs[:, -2] > 0}

    def make(env_id, num_envs, seed, threads, render):
        if env_id != "lanes:short":
            raise UserError(f"There is no '{env_id}': use lanes:short.")
        return Lanes(num_envs, seed)

    def missing(env_id):
        return "lanes-3d is not installed." if env_id == "lanes3d:short" else None

    family = Family(
        about="lanes",
        ids=lambda: ["lanes:short"],
        owns=lambda env_id: env_id.startswith("lanes:"),
        make=make,
        missing=missing,
    )
    register_family("lanes", family)
    yield Lanes
    del FAMILIES["lanes"]


def test_a_family_can_come_from_another_package(outsider):
    env = make_vec("lanes:short", 3, seed=0)
    assert isinstance(env, outsider) and env.reset().shape == (3, 13)
    assert "lanes:short" in list_envs()
    assert family_of("lanes:short") == family_of("NoisyTV/lanes:short") == "lanes"
    assert list(FAMILIES)[-1] == "gymnasium"  # it would have taken the colon for a module
    with pytest.raises(UserError, match="use lanes:short"):
        make_vec("lanes:long", 1, 0)
    with pytest.raises(UserError, match="lanes-3d is not installed"):
        make_vec("lanes3d:short", 1, 0)
    assert family_of("lanes3d:short") == "lanes"
    with pytest.raises(UserError, match="Did you mean 'lanes:short'"):
        make_vec("lane-short", 1, 0)


def test_a_noisy_tv_works_around_a_family_from_another_package(outsider):
    env = make_vec("NoisyTV/lanes:short", 3, seed=0)
    obs = env.reset()
    assert isinstance(env.env, outsider) and env.tv_action == 3 and env.saves_state
    noise = env.step(np.array([3, 0, 0])).obs
    assert not np.isin(noise[0], (0, 1)).any() and np.isin(noise[1:], (0, 1)).all()
    assert env.events(obs)["key"].tolist() == [False, False, False]


def test_a_family_needs_a_free_name(outsider):
    for name, said in (("lanes", "already"), ("atari", "already"), ("two words", "cannot name")):
        with pytest.raises(UserError, match=said):
            register_family(name, FAMILIES["toy"])


@pytest.mark.parametrize(
    ("env_id", "family"),
    [
        (TOY, "toy"),
        (TMAZE, "toy"),
        ("MiniGrid-DoorKey-8x8-v0", "minigrid"),
        ("BabyAI-GoToObj-v0", "minigrid"),
        ("MontezumaRevenge", "atari"),
        ("Pong", "atari"),
        ("MiniWorld-Maze-v0", "miniworld"),
        ("CartPole-v1", "gymnasium"),
        ("fakes:Counter-v0", "gymnasium"),
        ("not registered yet", "gymnasium"),
    ],
)
def test_every_id_has_a_family_with_and_without_a_tv(env_id, family):
    assert family_of(env_id) == family_of(f"NoisyTV/{env_id}") == family


def test_a_family_owns_what_it_lists():
    for name, family in FAMILIES.items():
        assert family.about
        for env_id in family.ids():
            assert family.owns(env_id) and family.missing(env_id) is None
            assert family_of(env_id) == name or name == "gymnasium"


def test_what_is_not_installed_is_said_and_still_has_its_family(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setitem(sys.modules, "envpool.registration", None)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "miniworld" else find(name)
    )
    for env_id, family, said in (
        ("MiniGrid-Empty-5x5-v0", "minigrid", r"EnvPool .* 'surprise-memory\[minigrid,atari\]'"),
        ("NoisyTV/BabyAI-GoToObj-v0", "minigrid", "EnvPool is not installed: pip install"),
        ("Freeway", "atari", "EnvPool is not installed: pip install"),
        ("MiniWorld-Maze-v0", "miniworld", r"MiniWorld is not installed: .*\[miniworld\]"),
    ):
        assert family_of(env_id) == family and not FAMILIES[family].ids()
        with pytest.raises(UserError, match=said):
            make_vec(env_id, 1, 0)
    assert make_vec("CartPole-v1", 1, 0).num_envs == 1
    with pytest.raises(UserError, match="Unknown environment 'Pong'"):
        make_vec("Pong", 1, 0)


@pytest.mark.parametrize(
    ("env_id", "declared"),
    [  # tv_action, noop, newest_channels, saves_state, events
        (TOY, (None, None, 13, True, 0)),
        (TMAZE, (None, None, 4, True, 0)),
        ("CartPole-v1", (None, None, 4, False, 0)),
        ("Picture-v0", (None, None, 3, False, 0)),
        ("MiniGrid-DoorKey-5x5-v0", (None, None, 151, False, 5)),
        ("BabyAI-GoToObj-v0", (None, None, 215, False, 5)),
        ("Freeway", (None, 0, 1, False, 0)),
        (f"NoisyTV/{TOY}", (3, None, 13, True, 0)),
        ("NoisyTV/MiniGrid-DoorKey-5x5-v0", (6, None, 151, False, 5)),
        ("NoisyTV/Freeway", (3, 0, 1, False, 0)),
    ],
)
def test_environments_declare_what_they_can_do(env_id, declared):
    env = make_vec(env_id, 2, 0)
    events = env.events(env.reset())
    assert isinstance(env, VecEnv) and not env.in_processes
    found = (env.tv_action, env.noop, env.newest_channels, env.saves_state, len(events))
    assert found == declared
    assert all(where.shape == (2,) and where.dtype == bool for where in events.values())
    if not env.saves_state:
        with pytest.raises(NotImplementedError):
            env.get_state()


def test_a_saved_toy_continues_bit_for_bit():
    for env_id in (TOY, TMAZE):
        one, two = make_vec(env_id, 3, 0), make_vec(env_id, 3, 1)
        one.reset()
        rng = np.random.default_rng(0)
        for _ in range(50):
            one.step(rng.integers(0, 3, 3))
        two.set_state(one.get_state())
        for _ in range(50):
            action = rng.integers(0, 3, 3)
            for a, b in zip(one.step(action)[:6], two.step(action)[:6], strict=True):
                assert np.array_equal(a, b) and a.dtype == b.dtype


def test_what_cannot_be_drawn_says_so():
    class Blind(VecEnv):
        pass

    with pytest.raises(UserError, match="Blind environments cannot be drawn"):
        Blind().render()
    Blind().close()


def test_the_examples_in_the_docstrings_work():
    before = list(FAMILIES)
    result = doctest.testmod(package)
    assert result.attempted >= 4 and result.failed == 0 and list(FAMILIES) == before


def test_a_family_whose_actions_do_not_count_from_zero_is_refused():
    """PPO's do, and a noisy TV's, so they would act otherwise than the warm-up did."""

    class Shifted(Toy):
        def __init__(self, num_envs, seed):
            super().__init__(num_envs, seed)
            self.action_space = gym.spaces.Discrete(3, start=5)

    family = Family(
        about="shifted",
        ids=lambda: ["Shifted-v0"],
        owns=lambda env_id: env_id == "Shifted-v0",
        make=lambda env_id, num_envs, seed, threads, render: Shifted(num_envs, seed),
    )
    register_family("shifted", family)
    try:
        with pytest.raises(UserError, match=r"Discrete\(3, start=5\): let its family count from 0"):
            make_vec("Shifted-v0", 2, 0)
    finally:
        del FAMILIES["shifted"]


def first_views(env, steps, rng):
    """What each environment shows first in each episode, under random actions of its own."""
    views = [[row[:100].tobytes()] for row in env.reset()]  # where NoisyView has no noise
    for _ in range(steps):
        step = env.step(rng.integers(0, 3, env.num_envs))
        for i in np.flatnonzero(~step.valid):  # rows in which EnvPool begins an episode
            views[i].append(step.obs[i, :100].tobytes())
    env.close()
    return views


@pytest.mark.parametrize("before", ["", "NoisyTV/", "NoisyView/"])
def test_shared_layouts_come_in_the_same_order_everywhere(before):
    env = make_vec(f"{before}MiniGrid-LavaCrossingS9N1-v0", 4, seed=0)
    env.share_layouts(7)
    views = first_views(env, 400, np.random.default_rng(1))
    shortest = min(len(own) for own in views)
    assert shortest >= 5
    assert len(set(views[0])) > 1
    for own in views:
        assert own[:shortest] == views[0][:shortest]


def test_environments_that_cannot_share_layouts_say_so():
    with pytest.raises(UserError, match="Toy environments cannot share their layouts"):
        make_vec("ToyKeyDoor-v0", 2, seed=0).share_layouts(0)


def test_a_second_reset_begins_other_episodes():
    env = make_vec("CartPole-v1", 2, seed=3)
    first, second = env.reset().copy(), env.reset().copy()
    env.close()
    assert (first != second).any()
