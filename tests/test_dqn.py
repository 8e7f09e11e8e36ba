"""The recurrent DQN from end to end: every method, resuming, and a task that needs memory."""

import dataclasses
import json
import signal
import subprocess
import sys
import time

import fakes  # noqa: F401 (registers environments)
import numpy as np
import pytest
import torch

from surprise_memory.bonus.methods import methods
from surprise_memory.cli import main
from surprise_memory.envs import TMAZE, TOY, make_vec
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import build, train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir

SMALL = ["--preset", "debug", "--steps", "512", "--eval-episodes", "2"]


def small(method="lwm+sm", env=TOY, **changes):
    return dataclasses.replace(
        PRESETS["debug"](env), method=method, agent="dqn", eval_episodes=0, **changes
    )


def fresh(path, run):
    out = RunDir(path)
    out.open(dataclasses.asdict(run), resume=False)
    return out


def without_replay(run):
    return dataclasses.replace(run, dqn=dataclasses.replace(run.dqn, save_replay="never"))


def test_a_method_brings_its_agent():
    assert RunConfig(TOY, "lwm+sm").backbone == "dqn" and RunConfig(TOY, "rnd+sm").backbone == "ppo"
    assert (
        RunConfig(TOY, "none").backbone == "ppo"
        and RunConfig(TOY, "none", agent="dqn").backbone == "dqn"
    )
    assert RunConfig(TOY, "lwm", agent="ppo").backbone == "ppo"
    names = {
        str(RunConfig(TOY, "rnd", agent=agent).default_dir) for agent in ("auto", "ppo", "dqn")
    }
    assert len(names) == 2  # the same run by another name is the same directory


@pytest.mark.parametrize("method", [m for m in methods() if not m.startswith("lwm")])
def test_every_method_learns_from_replay(tmp_path, method):
    run = small(method, steps=400)
    train(run, out := fresh(tmp_path / "r", run))
    last = list(out.rows())[-1]
    assert last["losses/td"] >= 0 and ("intrinsic/novelty" in last) == (method != "none")


@pytest.mark.parametrize(
    "env", [TOY, TMAZE, "MiniGrid-Empty-5x5-v0", "NoisyTV/MiniGrid-Empty-5x5-v0", "Picture-v0"]
)
def test_train_resume_eval_show(tmp_path, capsys, env):
    path = str(tmp_path / "run")
    assert main(["train", env, "--method", "lwm+sm", *SMALL, "--run-dir", path]) == 0
    words = [*SMALL[:2], "--steps", "800", *SMALL[4:]]
    assert main(["train", env, "--method", "lwm+sm", *words, "--run-dir", path, "--resume"]) == 0
    assert main(["eval", path, "--episodes", "3"]) == 0
    assert env == "Picture-v0" or main(["show", path]) == 0  # that one cannot be rendered
    assert json.loads((tmp_path / "run" / "eval-3.json").read_text())["episodes"] == 3


def test_without_its_replay_a_run_fills_a_new_one_and_goes_on(tmp_path):
    half = without_replay(small(steps=640, warmup_rollouts=3))
    train(half, out := fresh(tmp_path / "r", half))
    saved = read_checkpoint(out)
    weights = saved["agent"]
    assert saved["buffer"] is None and out.checkpoint.stat().st_size < 400_000
    out.done.unlink()
    out.log({"step": 700, "charts/SPS": 1})  # logged after the checkpoint, before a kill -9
    whole = dataclasses.replace(half, steps=640 + 4 * 64)
    out = RunDir(tmp_path / "r")
    out.open(dataclasses.asdict(whole), resume=True)
    train(whole, out)
    state = read_checkpoint(out)
    assert state["runner"]["steps"] == 640 + 4 * 64  # three blocks to fill it, one to learn after
    moved = [not torch.equal(x, weights["net"][name]) for name, x in state["agent"]["net"].items()]
    assert any(moved)
    steps = [row["step"] for row in out.rows()]
    assert steps[-1] == 640 + 4 * 64 and 700 not in steps
    train(half, out)  # there is nothing left to do, so nothing is lived through
    assert read_checkpoint(out)["runner"]["steps"] == 640 + 4 * 64


def test_a_small_replay_is_saved_where_a_run_stops_and_not_on_the_way(tmp_path, monkeypatch):
    run = small(steps=512, save_minutes=0.0)
    run = dataclasses.replace(run, dqn=dataclasses.replace(run.dqn, save_replay="auto"))
    held, real = [], torch.save
    monkeypatch.setattr(
        torch,
        "save",
        lambda state, file: (held.append(state["buffer"] is not None), real(state, file)),
    )
    train(run, fresh(tmp_path / "a", run))
    assert len(held) > 3 and held[-1] and not any(held[:-1])
    monkeypatch.setattr("surprise_memory.agents.dqn.SMALL", 10.0)
    train(run, fresh(tmp_path / "b", run))
    assert not held[-1]


def test_refilling_teaches_nothing(tmp_path):
    half = without_replay(small(steps=640, warmup_rollouts=3))
    train(half, out := fresh(tmp_path / "r", half))
    before = read_checkpoint(out)["agent"]["net"]
    out = RunDir(tmp_path / "r")
    whole = dataclasses.replace(half, steps=640 + 3 * 64)
    out.open(dataclasses.asdict(whole), resume=True)
    train(whole, out)
    after = read_checkpoint(out)["agent"]["net"]
    assert all(torch.equal(x, after[name]) for name, x in before.items())


@pytest.mark.slow
def test_kill_9_then_resume_equals_an_undisturbed_run(tmp_path):
    words = [
        sys.executable,
        "-m",
        "surprise_memory",
        "train",
        TOY,
        "--method",
        "lwm+sm",
        "--preset",
        "debug",
        "--steps",
        "1920",
    ]
    words += ["--save-minutes", "0", "--eval-episodes", "0", "--run-dir"]
    subprocess.run([*words, str(tmp_path / "a")], check=True, capture_output=True)
    child = subprocess.Popen([*words, str(tmp_path / "b")], stdout=subprocess.DEVNULL)
    b = RunDir(tmp_path / "b")
    while not b.metrics.exists() or len(list(b.rows())) < 5:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not b.done.exists() and 0 < read_checkpoint(b)["runner"]["steps"] < 1920
    subprocess.run([*words, str(tmp_path / "b"), "--resume"], check=True, capture_output=True)
    one, other = (read_checkpoint(RunDir(tmp_path / name)) for name in "ab")
    assert all(
        torch.equal(x, other["agent"]["net"][name]) for name, x in one["agent"]["net"].items()
    )
    assert torch.equal(one["buffer"]["priority"], other["buffer"]["priority"])
    name = "model.memory.w.encode.weight"
    assert torch.equal(one["bonus"][name], other["bonus"][name])


def test_the_newest_frame_alone_is_stored():
    run = dataclasses.replace(small("none", env="Freeway"), envs=2)
    _, agent, _ = build(run)
    assert agent.newest(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 1, 84, 84)


def test_evaluation_leaves_no_mark(tmp_path):
    run = small(steps=256)
    train(run, fresh(tmp_path / "r", run))
    env, agent, bonus = build(run)
    from surprise_memory.training.evaluate import evaluate

    before = (
        [x.clone() for x in (*bonus.state_dict().values(),) if isinstance(x, torch.Tensor)],
        agent.rng.get_state(),
    )
    evaluate(agent, env, 5, bonus=bonus)
    after = (
        [x for x in bonus.state_dict().values() if isinstance(x, torch.Tensor)],
        agent.rng.get_state(),
    )
    assert all(torch.equal(x, y) for x, y in zip(before[0], after[0], strict=True)) and torch.equal(
        before[1], after[1]
    )


# --- the maze that needs a memory -----------------------------------------------------------------


def test_the_tmaze_shows_its_sign_at_the_start_alone_and_pays_the_right_turn():
    env = make_vec(TMAZE, 64, 0)
    obs = env.reset()
    signs = obs[:, 3]
    assert set(signs) == {-1.0, 1.0} and (obs[:, 0] == 1).all()
    for _ in range(10):
        step = env.step(np.zeros(64, int))
        assert not step.obs[:, 3].any() and not step.reward.any() and not step.terminated.any()
    assert (step.obs[:, 2] == 1).all()
    step = env.step(np.ones(64, int))  # all turn up
    assert step.terminated.all() and (step.reward == (signs > 0)).all()
    for _ in range(40):
        step = env.step(np.full(64, 2))  # down, in the corridor's start: nothing happens
    assert step.truncated.all() and not step.reward.any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_memory_solves_the_tmaze_and_a_feed_forward_policy_cannot(tmp_path, seed):
    base = dataclasses.replace(PRESETS["default"](TMAZE), method="none", seed=seed, envs=32)
    recurrent = dataclasses.replace(
        base, agent="dqn", steps=80_000, dqn=dataclasses.replace(base.dqn, hidden=64)
    )
    forgetful = dataclasses.replace(base, agent="ppo", steps=160_000)
    returns = {}
    for run in (recurrent, forgetful):
        train(run, out := fresh(tmp_path / run.agent, run))
        returns[run.agent] = json.loads(out.eval.read_text())["mean"]
    assert (
        returns["dqn"] > 0.95 and returns["ppo"] < 0.7
    )  # a coin gives 0.5 +- 0.04 over 128 episodes
