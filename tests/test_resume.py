"""Resuming: nothing comes again, nothing is lost, also when a run is stopped in its warm-up."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from test_train import assert_same, fresh, small

from surprise_memory import __main__
from surprise_memory.agents.dqn import DQN
from surprise_memory.cli import main
from surprise_memory.envs import TOY, make_vec
from surprise_memory.envs.noisy_tv import NoisyTV
from surprise_memory.errors import UserError
from surprise_memory.training import loop
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.collect import RandomAgent
from surprise_memory.training.loop import build, train, write_eval
from surprise_memory.training.rundir import RunDir
from surprise_memory.training.seeds import EVAL_ENVS, eval_seed, training_seed
from surprise_memory.training.stop import Handlers, Stop, interrupt

# --- environments that cannot save their state ---------------------------------------------------


def first_layouts(run, resumed_at=0):
    env, _, _ = build(run, resumed_at)
    obs = env.reset()
    env.close()
    return obs


def resume(path, run):
    out = RunDir(path)
    out.open(dataclasses.asdict(run), resume=True)
    train(run, out)
    out.close()
    return out


def test_a_resumed_run_sees_new_layouts_and_always_the_same_ones():
    run = small(env="MiniGrid-FourRooms-v0", envs=8)
    begun = first_layouts(run)
    assert np.array_equal(begun, first_layouts(run))
    resumed = first_layouts(run, 512)
    assert np.array_equal(resumed, first_layouts(run, 512))
    assert (resumed != begun).any(1).all()
    assert (resumed != first_layouts(run, 1024)).any(1).all()


def test_two_resumes_from_one_checkpoint_are_the_same_run(tmp_path, monkeypatch):
    run = small(env="NoisyTV/MiniGrid-FourRooms-v0", steps=256)
    train(run, out := fresh(tmp_path / "a", run))
    out.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    seeds = []

    def spy(env_id, num_envs, seed, threads, **rest):
        seeds.append(seed)
        return make_vec(env_id, num_envs, seed, threads, **rest)

    monkeypatch.setattr(loop, "make_vec", spy)
    longer = dataclasses.replace(run, steps=512)
    a, b = (read_checkpoint(resume(tmp_path / name, longer)) for name in "ab")
    assert_same(a, b)
    assert seeds == [training_seed(0, run.envs, 256)] * 2 and seeds[0] != 0


def test_environments_that_save_their_state_keep_their_seed(tmp_path, monkeypatch):
    """It may be more to them than a random stream: a maze that is drawn once."""
    run = small(steps=256)
    train(run, out := fresh(tmp_path / "a", run))
    out.close()
    seeds = []

    def spy(env_id, num_envs, seed, threads, **rest):
        seeds.append(seed)
        return make_vec(env_id, num_envs, seed, threads, **rest)

    monkeypatch.setattr(loop, "make_vec", spy)
    resume(tmp_path / "a", dataclasses.replace(run, steps=512))
    assert seeds == [0]


def test_a_tv_keeps_its_channels_and_gets_fresh_noise(tmp_path, monkeypatch):
    def channels(resumed_at):
        env, _, _ = build(small(env="NoisyTV:channels=3/CartPole-v1"), resumed_at)
        env.reset()
        return env.noise(20, np.float32), env.frames

    (shown, frames), (shown_later, frames_later) = channels(0), channels(512)
    assert np.array_equal(frames, frames_later) and not np.array_equal(shown, shown_later)
    kept = []
    monkeypatch.setattr(NoisyTV, "keep_fixed", lambda env, seed: kept.append(seed))
    run = small(env="NoisyTV:channels=3/CartPole-v1", seed=3, eval_steps=4)
    run = dataclasses.replace(run, eval_episodes=2)
    _, agent, bonus = build(run)
    write_eval(run, RunDir(tmp_path), agent, bonus)
    assert kept == [3 * run.envs] * 2  # an evaluation shows those of training
    noise = []
    for resumed_at in (0, 512):
        env, _, _ = build(small(env="NoisyView/NoisyTV/CartPole-v1"), resumed_at)
        noise.append(env.reset())
        noise.append(env.env.noise(4, np.float32))
    assert not np.isin(noise[0], noise[2]).any() and not np.isin(noise[1], noise[3]).any()


# --- seeds ---------------------------------------------------------------------------------------


def test_layouts_of_training_evaluation_and_resumes_never_overlap():
    envs = 96
    ranges = []
    for seed in [0, 1, 2, 77, 10_000, 1_000_003, 1_000_004, 2**23 - 1, 2**31 // envs - 1]:
        ranges.append((eval_seed(seed), EVAL_ENVS))
        ranges.append((training_seed(seed, envs), envs))
        ranges.append((training_seed(seed, envs, 4096), envs))
    ranges.sort()
    for (a, length), (b, _) in pairwise(ranges):
        assert a + length <= b
    assert ranges[0][0] == 0 and ranges[-1][0] + ranges[-1][1] < 2**32


def test_training_begins_with_the_seeds_that_it_always_had():
    assert training_seed(7, 64) == 7 * 64


@pytest.mark.parametrize("env", ["MiniGrid-FourRooms-v0", "Freeway", "CartPole-v1", TOY])
def test_every_family_takes_every_seed(env):
    for seed in (training_seed(2**31 // 2 - 1, 2), eval_seed(2**23 - 1), training_seed(0, 2, 9)):
        a, b = make_vec(env, 2, seed), make_vec(env, 2, seed)
        assert np.array_equal(a.reset(), b.reset())
        a.close(), b.close()


def test_a_seed_that_is_too_large_is_refused():
    assert small(env=TOY, envs=4, seed=2**29 - 1).seed == 2**29 - 1
    with pytest.raises(UserError, match="between 0 and 536870911 with 4 environments"):
        small(env=TOY, envs=4, seed=2**29)
    for seed in (2**32, -1):
        with pytest.raises(UserError, match="seed"):
            make_vec("MiniGrid-FourRooms-v0", 2, seed)


# --- the warm-up ---------------------------------------------------------------------------------


class PowerCut(BaseException):
    """What nobody catches."""


@pytest.mark.parametrize("method", ["rnd+sm", "lwm+sm"])
def test_a_run_killed_in_its_warm_up_equals_an_unbroken_one(tmp_path, monkeypatch, method):
    run = small(method, steps=400, warmup_rollouts=5, save_minutes=0.0)
    train(run, a := fresh(tmp_path / "a", run))
    act, acted = RandomAgent.act, []

    def die(self, *args):
        acted.append(1)
        if len(acted) == 3.5 * T:
            raise PowerCut
        return act(self, *args)

    monkeypatch.setattr(RandomAgent, "act", die)
    out = fresh(tmp_path / "b", run)
    T = build(run)[1].rollout_length(run.rollout)
    with pytest.raises(PowerCut):
        train(run, out)
    out.close()
    assert read_checkpoint(out)["runner"]["steps"] == 3 * T * run.envs
    acted.clear()
    b = resume(tmp_path / "b", run)
    assert len(acted) == 2 * T
    assert_same(read_checkpoint(a), read_checkpoint(b))


def test_a_warm_up_whose_replay_is_not_saved_begins_again(tmp_path, monkeypatch):
    run = small("lwm", steps=512, warmup_rollouts=3, save_minutes=0.0)
    run = dataclasses.replace(run, dqn=dataclasses.replace(run.dqn, save_replay="never"))
    monkeypatch.setattr(Stop, "__enter__", lambda stop: setattr(stop, "asked", True) or stop)
    out = fresh(tmp_path / "a", run)
    with pytest.raises(KeyboardInterrupt, match="with --resume it begins again"):
        train(run, out)
    assert not out.checkpoint.exists()
    monkeypatch.undo()
    out.close()
    assert read_checkpoint(resume(tmp_path / "a", run))["runner"]["steps"] >= 512


def test_a_signal_in_the_pre_training_is_heard(tmp_path, monkeypatch):
    run = small("lwm", steps=512, warmup_rollouts=3)
    updates = []

    def ask(agent, bonus):
        updates.append(1)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(DQN, "_update_encoder", ask)
    with pytest.raises(KeyboardInterrupt, match="in the pre-training"):
        train(run, fresh(tmp_path / "a", run))
    assert len(updates) == 1 < run.dqn.pretrain_pairs


def test_a_signal_while_the_replay_is_refilled_is_heard(tmp_path, monkeypatch):
    run = small("none", agent="dqn", steps=2048, warmup_rollouts=3)
    run = dataclasses.replace(run, dqn=dataclasses.replace(run.dqn, save_replay="never"))
    train(run, out := fresh(tmp_path / "a", run))
    out.close()
    saved = out.checkpoint.read_bytes()
    more = dataclasses.replace(run, steps=4096)
    collected = []

    def ask(agent, *args):
        collected.append(1)
        os.kill(os.getpid(), signal.SIGTERM)
        return args[-1]  # the bonus's carry

    monkeypatch.setattr(DQN, "warm_up", ask)
    with pytest.raises(KeyboardInterrupt, match="while the replay was refilled"):
        resume(tmp_path / "a", more)
    assert len(collected) == 1 and out.checkpoint.read_bytes() == saved


# --- evaluation ----------------------------------------------------------------------------------


def test_a_score_is_never_that_of_a_shorter_run(tmp_path):
    run = dataclasses.replace(small(steps=256), eval_episodes=2)
    train(run, out := fresh(tmp_path / "a", run))
    assert out.eval.exists()
    out.close()
    longer = dataclasses.replace(run, steps=1024, eval_episodes=0)
    assert not resume(tmp_path / "a", longer).eval.exists()


# --- signals -------------------------------------------------------------------------------------


def begin(path, *words):
    command = [sys.executable, "-m", "surprise_memory", "train", TOY, "--preset", "debug", *words]
    return subprocess.Popen([*command, "--run-dir", str(path)], stderr=subprocess.PIPE, text=True)


def catches(child, number):
    """Whether a process has a handler for a signal."""
    with open(f"/proc/{child.pid}/status") as file:
        mask = next(line.split()[1] for line in file if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_sigterm_in_the_first_second_says_so(tmp_path):
    child = begin(tmp_path / "r")
    while not catches(child, signal.SIGTERM):
        assert child.poll() is None
        time.sleep(0.001)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and "Stopped." in said and "Traceback" not in said


def test_a_signal_while_the_handlers_are_being_set_says_so(monkeypatch, capsys):
    def interrupted(handlers):
        raise KeyboardInterrupt

    monkeypatch.setattr(Handlers, "__enter__", interrupted)
    assert __main__.main() == 130
    assert "Stopped." in capsys.readouterr().err


def test_sighup_in_the_warm_up_saves_it(tmp_path):
    child = begin(tmp_path / "r", "--warmup-rollouts", "1000000", "--save-minutes", "0")
    out = RunDir(tmp_path / "r")
    while not out.checkpoint.exists():
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGHUP)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130 and "saved in the warm-up" in said and "Traceback" not in said
    assert read_checkpoint(out)["warmup"]["done"] >= 1


def test_under_nohup_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Handlers(interrupt):
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_in_the_evaluation_says_that_training_is_saved():
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt, match="evaluate it"):
            stop.at_once("Add --resume to evaluate it.")
        with pytest.raises(KeyboardInterrupt, match="evaluate it"):
            os.kill(os.getpid(), signal.SIGHUP)


def test_rows_that_are_gone_are_spoken_of(tmp_path):
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--run-dir", str(tmp_path / "r")]
    assert main([*words, "--steps", "300"]) == 0
    (tmp_path / "r" / "metrics.jsonl").write_text("")
    with pytest.warns(UserWarning, match=r"ends at step 0, the checkpoint is at \d+: the rows"):
        assert main([*words, "--steps", "400", "--resume"]) == 0


@pytest.mark.parametrize("other", [["--seed", "1"], ["--seed", "0"]])
def test_the_checkpoint_of_another_seed_is_refused(tmp_path, capsys, other):
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--steps", "200"]
    assert main([*words, "--run-dir", str(tmp_path / "mine")]) == 0
    assert main([*words, *other, "--run-dir", str(tmp_path / "other")]) == 0
    checkpoint = (tmp_path / "other" / "checkpoint.pt").read_bytes()
    (tmp_path / "mine" / "checkpoint.pt").write_bytes(checkpoint)
    capsys.readouterr()
    code = main(["eval", str(tmp_path / "mine"), "--episodes", "2"])
    said = capsys.readouterr().err
    assert (code == 2 and "another run's: its seed is 1, here 0" in said) == (other[1] == "1")
