"""The noisy TV: one action shows noise and all else stays as it was; its metrics are right."""

import dataclasses

import fakes
import numpy as np
import pytest
import torch

from surprise_memory import UserError
from surprise_memory.cli import main
from surprise_memory.envs import TOY, make_vec
from surprise_memory.envs.gymnasium import Gymnasium
from surprise_memory.envs.noisy_tv import NoisyTV
from surprise_memory.envs.toy import Toy
from surprise_memory.tools import paper_figures
from surprise_memory.tools.episode import play
from surprise_memory.training.metrics import tv_metrics

CHANNELS = "NoisyTV:channels=3/MiniGrid-DoorKey-5x5-v0"


@pytest.fixture(scope="module")
def channels_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("channels") / "run"
    small = ["--preset", "debug", "--steps", "128", "--seed", "2", "--logger", "jsonl"]
    assert main(["train", CHANNELS, *small, "--eval-episodes", "0", "--run-dir", str(path)]) == 0
    return path


def both(env_id, actions, B=3):
    """Steps of the environment with and without its TV, for actions (T, B)."""
    plain, noisy = make_vec(env_id, B, 7), make_vec(f"NoisyTV/{env_id}", B, 7)
    assert np.array_equal(plain.reset(), noisy.reset())
    return [(plain.step(a), noisy.step(a)) for a in actions], noisy


@pytest.mark.parametrize("env_id", [TOY, "MiniGrid-Empty-5x5-v0", "CartPole-v1", "Picture-v0"])
def test_only_what_the_remote_control_shows_is_noise(env_id):
    rng = np.random.default_rng(0)
    n = int(make_vec(env_id, 1, 0).action_space.n)
    actions = rng.integers(0, n, size=(120, 3))
    pairs, tv = both(env_id, actions)
    assert tv.tv_action == n - 1
    watched_any = ended_any = False
    for action, (plain, noisy) in zip(actions, pairs, strict=True):
        done = plain.terminated | plain.truncated
        watched = (action == n - 1) & plain.valid & ~done
        watched_any, ended_any = (
            watched_any or watched.any(),
            ended_any or ((action == n - 1) & done).any(),
        )
        for name in ("reward", "terminated", "truncated", "valid"):
            assert np.array_equal(getattr(plain, name), getattr(noisy, name))
        for name in ("next_obs", "obs"):
            a, b = getattr(plain, name), getattr(noisy, name)
            assert a.dtype == b.dtype and np.array_equal(a[~watched], b[~watched])
            assert all(
                not np.array_equal(x, y) for x, y in zip(a[watched], b[watched], strict=True)
            )
        assert np.array_equal(noisy.next_obs[watched], noisy.obs[watched])
    assert watched_any and (ended_any or env_id == TOY)


def test_the_noise_is_fresh_and_standard_normal():
    tv = NoisyTV(make_vec(TOY, 2, 0), seed=3)
    one, two = tv.noise(4000, np.float32), tv.noise(4000, np.float32)
    assert not (one == two).all(1).any()
    assert abs(one.mean()) < 0.02 and abs(one.std() - 1) < 0.02


def test_in_images_three_standard_deviations_fill_the_range_of_a_byte():
    tv = NoisyTV(Gymnasium("Picture-v0", 1, 0), seed=3)
    noise = tv.noise(50, np.uint8)
    assert noise.dtype == np.uint8 and noise.shape == (50, 3, 40, 36)
    assert noise.min() == 0 and noise.max() == 255
    assert abs(noise.mean() - 127.5) < 1 and abs(noise.std() - 255 / 6) < 1


def test_a_saved_tv_goes_on_with_the_same_noise():
    tv = make_vec(f"NoisyTV/{TOY}", 3, 0)
    tv.reset()
    watch = np.full(3, 3)
    tv.step(watch)
    state = tv.get_state()
    expected = [tv.step(watch).obs for _ in range(3)]
    tv.set_state(state)
    assert np.array_equal(expected, [tv.step(watch).obs for _ in range(3)])


def test_an_environment_whose_state_cannot_be_saved_has_none_to_offer():
    env = make_vec("NoisyTV/CartPole-v1", 1, 0)
    assert not env.saves_state
    with pytest.raises(NotImplementedError):
        env.get_state()
    with pytest.raises(NotImplementedError):
        env.set_state({})


def test_noise_in_a_stack_of_frames_is_not_saved():
    class Stacked(Toy):
        frame_channels = 1

    env = NoisyTV(Stacked(2, 0), seed=0)
    assert Stacked.saves_state and not env.saves_state
    with pytest.raises(NotImplementedError):
        env.get_state()


def test_the_tv_passes_on_what_the_environment_can_do():
    inner = make_vec("MiniGrid-DoorKey-5x5-v0", 4, 0)
    env = NoisyTV(inner, seed=0)
    obs = env.reset()
    found, expected = env.events(obs), inner.events(obs)
    assert list(found) == list(expected) and len(found) == 5
    for name, where in found.items():
        assert np.array_equal(where, expected[name])
    atari = make_vec("NoisyTV/Freeway", 1, 0)
    assert (atari.noop, atari.newest_channels, atari.tv_action) == (0, 1, 3)


def test_continuous_actions_have_no_remote_control():
    with pytest.raises(UserError, match="Discrete"):
        make_vec("NoisyTV/Pendulum-v1", 1, 0)


def test_what_is_reported_of_the_tv():
    chunk = fakes.chunk_of(
        torch.zeros(2, 3, 1), valid=torch.tensor([[True, True, True], [True, True, False]])
    )
    without_tv = chunk
    watched = torch.tensor([[True, False, True], [False, False, True]])
    chunk = dataclasses.replace(chunk, extras={"watched": watched})
    paid = torch.tensor([[4.0, 1, 2], [1, 2, 1000]])  # the last never happened
    report = tv_metrics(chunk, paid)
    mean, std = 2.0, np.std([4, 1, 2, 1, 2])
    assert report == pytest.approx(
        {"noisy_tv/share": 2 / 5, "noisy_tv/z": (3 - mean) / std, "noisy_tv/pay_share": 6 / 10},
        rel=1e-6,
    )
    assert tv_metrics(chunk, None) == pytest.approx({"noisy_tv/share": 0.4})
    # A bonus around zero, as the DQN's, has no shares: its sum may be anything.
    assert tv_metrics(chunk, paid - mean) == pytest.approx(
        {"noisy_tv/share": 2 / 5, "noisy_tv/z": (3 - mean) / std}, rel=1e-6
    )
    assert tv_metrics(without_tv, paid) == {}
    never = dataclasses.replace(chunk, valid=torch.zeros(2, 3, dtype=torch.bool))
    assert tv_metrics(never, paid) == {}  # not NaN, which would stop the run


def test_a_tv_that_stays_on_is_reported_while_it_is_on():
    env = make_vec(f"NoisyTV:sticky=3/{TOY}", 1, 0)
    env.reset()
    actions = [0, env.tv_action, 0, 0, 0]
    watched = [bool(env.step(np.array([action])).info["watched"][0]) for action in actions]
    assert watched == [False, True, True, True, False]


def test_an_action_that_only_resets_leaves_the_tv_off():
    env = make_vec("NoisyTV:sticky=4/MiniGrid-Empty-5x5-v0", 1, 0)
    env.reset()
    reset_rows = 0
    action = 0
    for _ in range(230):  # two time limits of 100 steps
        step = env.step(np.array([action]))
        assert not step.info["watched"].any()
        ended = (step.terminated | step.truncated)[0]
        action = env.tv_action if ended else 0
        reset_rows += int(not step.valid[0])
    assert reset_rows == 2
    env.step(np.array([env.tv_action]))
    env.reset()
    assert not env.step(np.array([0])).info["watched"].any()


def test_an_episode_that_is_played_says_when_the_tv_was_on():
    """By the action alone, a TV that stays on would be marked for its first step of three."""
    chunk, frames = play(f"NoisyTV:sticky=3/{TOY}", None, seed=0, longest=40)
    turned_on = (chunk.action[:, 0] == 3).tolist()
    done = chunk.done[:, 0].tolist()
    left, expected = 0, []
    for on, end in zip(turned_on, done, strict=True):
        left = 3 if on else left
        expected.append(left > 0 and not end)
        left = max(left - 1, 0)
    assert chunk.extras["watched"][:, 0].tolist() == expected and len(frames) == len(expected)
    assert sum(expected) > sum(turned_on)


@pytest.mark.parametrize(
    ("words", "environments"),
    [
        (["mnir", "RUN"], 2),
        (["inspect", "RUN"], 2),
        (["inspect", "RUN", "--random"], 2),
        (["play", "ENV", "--run", "RUN"], 2),
        (["show", "RUN"], 2),
        (["show", "RUN", "--beside", "RUN"], 4),
        (["figures", "RUN"], 3),
    ],
)
def test_every_command_shows_the_channels_of_the_run(
    channels_run, monkeypatch, words, environments
):
    """They are fixed for a run. A bonus that has learnt them is asked about these, not others."""
    made = []
    keep = NoisyTV.keep_fixed

    class Enough(Exception):
        pass

    def spy(env, first_seed):
        keep(env, first_seed)
        made.append(first_seed)
        if len(made) == environments:  # one to load the run, others to show it in
            raise Enough

    monkeypatch.setattr(NoisyTV, "keep_fixed", spy)
    monkeypatch.setattr(paper_figures, "draw_tsne", lambda *_: None)
    monkeypatch.chdir(channels_run.parent)
    names = {"RUN": str(channels_run), "ENV": CHANNELS}
    with pytest.raises(Enough):
        main([names.get(word, word) for word in words])
    assert made == [2 * 4] * len(made)  # seed 2, four environments


def test_the_static_that_is_drawn_is_the_same_for_a_seed():
    pictures = []
    for _ in range(2):
        env = make_vec(f"NoisyTV/{TOY}", 1, 0, render=True)
        env.reset()
        env.step(np.array([env.tv_action]))
        pictures.append([env.render(), env.render()])
        env.close()
    assert np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0][0], pictures[0][1])
