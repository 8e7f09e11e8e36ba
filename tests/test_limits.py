"""What never ends: episodes in an evaluation, and a step of an environment that hangs."""

import dataclasses
import json
import os
import signal
import time

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from test_train import fresh, small

from surprise_memory.agents.base import Agent
from surprise_memory.cli import main
from surprise_memory.envs import TOY, Step, VecEnv, make_vec
from surprise_memory.envs.workers import Workers
from surprise_memory.errors import UserError
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.evaluate import evaluate
from surprise_memory.training.loop import train
from surprise_memory.training.warmup import check_finite

DEBUG = ["--preset", "debug", "--steps", "128", "--eval-episodes", "2"]


class Endless(fakes.Counter):
    """An environment whose episodes have no end."""

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs.clip(-100, 100), min(reward, 100), False, False, info


gym.register("Endless-v0", Endless, disable_env_checker=True)
gym.register("BreaksLate-v0", lambda: fakes.Counter(broken_at=40), disable_env_checker=True)


class BadReset(fakes.Counter):
    """From some episode on, its first observation is no number."""

    def reset(self, **words):
        obs, info = super().reset(**words)
        if self.episode > 12:
            obs[1] = np.nan
        return obs, info


gym.register("BadReset-v0", BadReset, disable_env_checker=True)


class OneEndless(VecEnv):
    """Each step pays 1. Episodes of environment 0 take 4 steps, those of 1 never end."""

    num_envs, obs_shape, action_space = 2, (1,), gym.spaces.Discrete(2)

    def reset(self):
        self.t = 0
        return np.zeros((2, 1), np.float32)

    def step(self, action):
        self.t += 1
        obs, yes = np.zeros((2, 1), np.float32), np.ones(2, bool)
        done = np.array([self.t % 4 == 0, False])
        return Step(obs, obs, np.ones(2, np.float32), done, ~yes, yes)


class Nobody(Agent):
    rng = torch.Generator()

    def act(self, obs, first, state, mode):
        return torch.zeros(2), {}, state


def test_an_endless_episode_is_cut_and_counted():
    returns, cut = evaluate(Nobody(), OneEndless(), 6, longest=30)
    # As many of the endless as of the others: a cut one must not count less.
    assert returns == [4.0, 30.0] * 3 and cut == 3


def test_an_episode_that_ends_in_time_is_whole():
    returns, cut = evaluate(Nobody(), OneEndless(), 1, longest=4)
    assert returns == [4.0] and cut == 0


def test_evaluation_of_endless_episodes_says_so_and_the_run_is_done(tmp_path, capsys):
    path = tmp_path / "r"
    assert main(["train", "Endless-v0", *DEBUG, "--eval-steps", "25", "--run-dir", str(path)]) == 0
    assert "2 of them cut" in capsys.readouterr().out.replace("\n", " ")
    assert json.loads((path / "eval.json").read_text())["cut"] == 2
    assert (path / "DONE").exists()
    assert main(["eval", str(path), "--episodes", "2", "--eval-steps", "30"]) == 0
    assert "2 of them cut" in capsys.readouterr().out.replace("\n", " ")


@pytest.fixture
def pool():
    made = []

    def make(**options):
        made.append(Workers(fakes.make_fragile, options, (40, 36, 3), 3, 0, 1))
        made[-1].reset()
        return made[-1]

    yield make
    for env in made:
        env.close()


def test_an_environment_that_hangs_in_a_worker_is_one_sentence(pool):
    env = pool(hang_at=2)
    env.limit_time(60)
    env.step(np.zeros(3, int))
    env.limit_time(0.2)
    with pytest.raises(UserError, match=r"Worker 0 \(.*\) has not answered for 0.2 seconds"):
        env.step(np.zeros(3, int))
    env.workers[0].process.join(10)
    assert not env.workers[0].process.is_alive()


def test_ctrl_c_and_a_closed_terminal_leave_the_workers_to_the_run(pool):
    env = pool()
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(env.workers[0].process.pid, number)
    assert not env.step(np.zeros(3, int)).truncated.any()
    # A scheduler's SIGTERM goes to a whole group: the workers are in another one.
    assert os.getpgid(env.workers[0].process.pid) != os.getpgid(0)


def test_what_was_learnt_before_an_environment_failed_is_saved(tmp_path):
    run = small("none", env="BreaksLate-v0", steps=10_000, save_minutes=99.0)
    out = fresh(tmp_path / "r", run)
    with pytest.raises(UserError, match="nan in next_obs"):
        train(run, out)
    steps = read_checkpoint(out)["runner"]["steps"]
    assert steps == [row["step"] for row in out.rows()][-1] == 2 * run.rollout * run.envs


def test_so_it_is_if_a_reset_failed(tmp_path):
    """Its observation is no step's next_obs."""
    run = small("none", env="BadReset-v0", steps=10_000, save_minutes=99.0)
    out = fresh(tmp_path / "r", run)
    with pytest.raises(UserError, match=r"returned nan in obs \(.*, feature 1\): fix it there"):
        train(run, out)
    steps = read_checkpoint(out)["runner"]["steps"]
    assert steps == [row["step"] for row in out.rows()][-1]


def test_so_it_is_if_the_observation_after_a_rollout_is_no_number():
    chunk = fakes.chunk_of(torch.zeros(2, 3, 4))
    after = torch.zeros(3, 4)
    check_finite(dataclasses.replace(chunk, after=after))
    after[2, 1] = torch.inf
    with pytest.raises(UserError, match=r"inf in obs after the rollout \(environment 2, feature 1"):
        check_finite(dataclasses.replace(chunk, after=after))


@pytest.mark.parametrize("name, value", [("save_minutes", 3.0), ("eval_episodes", 1)])
def test_a_resumed_run_may_save_and_evaluate_in_another_way(tmp_path, name, value):
    run = small(steps=128)
    train(run, out := fresh(tmp_path / "r", run))
    out.close()
    other = dataclasses.replace(run, **{name: value})
    out = fresh(tmp_path / "r", other, resume=True)
    train(other, out)
    assert out.eval.exists() == (name == "eval_episodes")
    with pytest.raises(UserError, match="envs differ"):
        fresh(tmp_path / "r", dataclasses.replace(run, envs=5), resume=True)


def test_a_limit_out_of_range_is_refused():
    for name in ("eval_steps", "step_seconds"):
        with pytest.raises(UserError, match=name):
            small(env=TOY, **{name: -1})


def test_an_environment_that_hangs_in_this_process_is_stopped():
    env = make_vec("CartPole-v1", 2, 0)
    env.reset()
    env.limit_time(0.05)
    env.adapter.step = lambda action: time.sleep(60)
    with pytest.raises(UserError, match="CartPole-v1 has not answered"):
        env.step(np.zeros(2, int))
    env.close()


class NoWayOut(fakes.Counter):
    """An environment that cannot be closed."""

    def close(self):
        raise RuntimeError("no way out")


gym.register("NoWayOut-v0", NoWayOut, disable_env_checker=True)


def test_an_environment_that_cannot_be_closed_is_warned_of_and_the_run_ends_well(tmp_path):
    words = ["train", "NoWayOut-v0", *DEBUG, "--run-dir", str(tmp_path / "run")]
    with pytest.warns(UserWarning, match="NoWayOut-v0 could not be closed: no way out"):
        assert main(words) == 0
    assert (tmp_path / "run" / "DONE").exists()
