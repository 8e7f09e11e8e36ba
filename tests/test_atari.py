"""Atari is preprocessed as in the paper, frame by frame as Gymnasium's own wrappers do it."""

from dataclasses import asdict, replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from surprise_memory.envs import atari, family_of, make_vec
from surprise_memory.envs.atari import Atari
from surprise_memory.errors import UserError
from surprise_memory.training.loop import train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir

ale_py = pytest.importorskip(
    "ale_py", reason="pip install 'surprise-memory[dev]' brings ale-py, the reference"
)


@pytest.mark.parametrize("game", ["MontezumaRevenge", "Freeway"])
def test_every_frame_is_that_of_gymnasiums_preprocessing(game):
    gym.register_envs(ale_py)
    reference = gym.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    # EnvPool waits one frame, too: noop_max=1.
    reference = AtariPreprocessing(reference, noop_max=1, frame_skip=4, screen_size=84)
    reference = FrameStackObservation(reference, 4, padding_type="reset")
    env, rng = Atari(game, 1, 5, sticky=0.0), np.random.default_rng(0)
    assert np.array_equal(env.reset()[0], reference.reset(seed=0)[0])
    for _ in range(120):
        action = int(rng.integers(env.action_space.n))
        ours, (obs, reward, *_) = env.step(np.array([action])), reference.step(action)
        assert np.array_equal(ours.next_obs[0], obs)
        assert ours.reward[0] == reward


def test_actions_stick():
    """With sticky actions the same keys lead two games apart; without, they stay together."""

    def spread(sticky):
        env = Atari("Freeway", 4, 0, sticky=sticky)
        env.reset()
        for _ in range(40):
            obs = env.step(np.ones(4, int)).obs
        return len({o.tobytes() for o in obs})

    assert spread(0.0) == 1 and spread(0.25) > 1


def test_the_cap_truncates_and_the_row_after_it_never_happened(monkeypatch):
    monkeypatch.setattr(atari, "CAP", 12)
    env = Atari("Freeway", 2, 0)
    env.reset()
    steps = [env.step(np.zeros(2, int)) for _ in range(14)]
    assert [s.truncated.all() for s in steps[:13]] == [False] * 11 + [True, False]
    assert not any(s.terminated.any() for s in steps)
    assert [s.valid.all() for s in steps] == [True] * 12 + [False, True]
    assert np.array_equal(steps[12].obs[:, 0], steps[12].obs[:, 3])  # the reset's frame, four times


def test_losing_a_life_ends_nothing_and_rewards_are_not_clipped():
    env, rng = make_vec("MontezumaRevenge", 4, 0), np.random.default_rng(0)
    env.reset()
    lives = []
    for _ in range(300):
        step = env.step(rng.integers(0, 18, 4))
        lives.append(env.adapter.info["lives"].copy())
        lost = np.diff(np.array(lives[-2:]), axis=0).any(0) if len(lives) > 1 else np.zeros(4, bool)
        if (lost & ~(step.terminated | step.truncated) & step.valid).any():
            break
    else:
        raise AssertionError("no life was lost in 300 steps")
    assert env.env.spec.config.reward_clip is False


def test_montezumas_room_is_reported():
    env = make_vec("MontezumaRevenge", 3, 0)
    env.reset()
    assert env.step(np.zeros(3, int)).info["room"].tolist() == [1, 1, 1]
    assert not make_vec("Freeway", 3, 0).step(np.zeros(3, int)).info


def test_the_papers_games_are_there():
    assert set(atari.PAPER) <= set(atari.ids())


def test_a_missing_rom_is_said_in_a_sentence(monkeypatch):
    # EnvPool lists the games whose ROM it finds.
    monkeypatch.setattr("surprise_memory.envs.atari.ids", lambda: ["Pong"])
    with pytest.raises(UserError, match="no ROM of Freeway: pip install"):
        make_vec("Freeway", 1, 0)
    assert family_of("Freeway") == "atari"


def test_the_recurrent_dqn_learns_from_frames_with_its_bonus(tmp_path):
    run = replace(PRESETS["debug"]("Pong"), method="lwm+sm", steps=256, eval_episodes=0)
    out = RunDir(tmp_path / "run")
    out.open(asdict(run), resume=False)
    train(run, out)
    assert "losses/pairs" in out.last_row()
