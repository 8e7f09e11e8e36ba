"""Truths of the trainer: determinism, resume, kill -9, nothing lost, nothing silently wrong."""

import dataclasses
import json
import signal
import subprocess
import sys
import time

import fakes  # noqa: F401 (registers Counter-v0)
import numpy as np
import pytest
import torch

from surprise_memory.agents.base import Agent
from surprise_memory.agents.ppo import PPO, PPOConfig
from surprise_memory.bonus.methods import methods
from surprise_memory.cli import main
from surprise_memory.envs import TOY, make_vec
from surprise_memory.envs.toy import Toy
from surprise_memory.errors import UserError
from surprise_memory.training.checkpoint import Parts, read_checkpoint, restore
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig, from_dict
from surprise_memory.training.evaluate import evaluate
from surprise_memory.training.loop import build, train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir
from surprise_memory.training.warmup import warm_up


def small(method="rnd+sm", env=TOY, **changes):
    return dataclasses.replace(PRESETS["debug"](env), method=method, eval_episodes=0, **changes)


def fresh(path, run, resume=False):
    out = RunDir(path)
    out.open(dataclasses.asdict(run), resume)
    return out


def leaves(tree, prefix=""):
    """Every value of a nested state by its path."""
    if isinstance(tree, dict):
        return {
            k: v for name, sub in tree.items() for k, v in leaves(sub, f"{prefix}/{name}").items()
        }
    if isinstance(tree, list | tuple):
        return {k: v for i, sub in enumerate(tree) for k, v in leaves(sub, f"{prefix}/{i}").items()}
    return {prefix: tree}


def assert_same(a, b):
    a, b = leaves(a), leaves(b)
    assert a.keys() == b.keys()
    for name in a:
        equal = (
            torch.equal(a[name], b[name])
            if isinstance(a[name], torch.Tensor)
            else a[name] == b[name]
        )
        assert equal, name


@pytest.mark.parametrize(
    "method", ["none", "rnd+m", "icm+sm", "ngu+w", "ae+counts", "disagreement"]
)
def test_same_seed_same_weights_and_another_seed_others(tmp_path, method):
    states = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        out = fresh(tmp_path / name, small(method, steps=300, seed=seed))
        train(small(method, steps=300, seed=seed), out)
        states.append(read_checkpoint(out))
    assert_same(states[0], states[1])
    with pytest.raises(AssertionError):
        assert_same(states[0]["agent"], states[2]["agent"])


def test_none_equals_a_loop_without_any_bonus(tmp_path):
    run = small("none", steps=500)
    train(run, out := fresh(tmp_path / "run", run))
    env = make_vec(TOY, run.envs, 0)
    agent = PPO(env.obs_shape, env.action_space, run.ppo, intrinsic=False)
    loop = RunnerState.reset(env, None)
    while loop.steps < 500:
        chunk, _ = collect(env, agent, loop, run.rollout)
        agent.update(chunk, None)
    assert_same(read_checkpoint(out)["agent"], agent.state_dict())


@pytest.mark.parametrize("method", methods())
def test_two_halves_with_resume_equal_one_run_bit_for_bit(tmp_path, method):
    whole, half = small(method, steps=1024), small(method, steps=512)
    train(whole, a := fresh(tmp_path / "a", whole))
    train(half, fresh(tmp_path / "b", half))
    RunDir(tmp_path / "b").done.unlink()
    b = RunDir(tmp_path / "b")
    b.open(dataclasses.asdict(whole), resume=True)
    train(whole, b)
    assert_same(read_checkpoint(a), read_checkpoint(b))
    drop = ("charts/SPS",)
    rows = [[{k: v for k, v in r.items() if k not in drop} for r in out.rows()] for out in (a, b)]
    assert rows[0] == rows[1]


def command(*words):
    return [sys.executable, "-m", "surprise_memory", *words]


def test_kill_9_then_resume_equals_an_undisturbed_run(tmp_path):
    words = [
        "train",
        TOY,
        "--preset",
        "debug",
        "--steps",
        "3200",
        "--save-minutes",
        "0",
        "--eval-episodes",
        "0",
    ]
    subprocess.run(
        command(*words, "--run-dir", str(tmp_path / "a")), check=True, capture_output=True
    )
    child = subprocess.Popen(
        command(*words, "--run-dir", str(tmp_path / "b")), stdout=subprocess.DEVNULL
    )
    b = RunDir(tmp_path / "b")
    while not b.metrics.exists() or len(list(b.rows())) < 8:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not b.done.exists()
    reached = read_checkpoint(b)["runner"]["steps"]
    assert 0 < reached < 3200
    subprocess.run(
        command(*words, "--run-dir", str(tmp_path / "b"), "--resume"),
        check=True,
        capture_output=True,
    )
    assert_same(read_checkpoint(RunDir(tmp_path / "a")), read_checkpoint(b))
    assert b.done.exists()
    steps = [row["step"] for row in b.rows()]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_sigterm_and_sighup_save_first(tmp_path, how):
    words = ["train", TOY, "--preset", "debug", "--steps", "10M", "--save-minutes", "99"]
    child = subprocess.Popen(
        command(*words, "--run-dir", str(tmp_path / "r")), stderr=subprocess.PIPE, text=True
    )
    out = RunDir(tmp_path / "r")
    while not out.metrics.exists() or len(list(out.rows())) < 3:
        time.sleep(0.02)
    child.send_signal(how)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "saved at step" in said
    assert read_checkpoint(out)["runner"]["steps"] >= 3 * 64


def test_envpool_resumes_everything_but_the_environments(tmp_path):
    run = small(env="MiniGrid-Empty-5x5-v0", steps=600)
    train(run, out := fresh(tmp_path / "r", run))
    before = read_checkpoint(out)
    _, agent, bonus = build(run)
    restore(out, run, agent, bonus)
    assert_same(before["agent"], agent.state_dict())
    assert_same(before["bonus"], bonus.state_dict())
    longer = dataclasses.replace(run, steps=1200)
    out.close()
    again = RunDir(out.path)
    again.open(dataclasses.asdict(longer), resume=True)
    train(longer, again)
    steps = [row["step"] for row in again.rows()]
    assert steps == sorted(set(steps)) and steps[-1] >= 1200


def test_evaluation_moves_nothing_and_keeps_its_quota(tmp_path):
    run = small(steps=300)
    env, agent, bonus = build(run)
    before = json.dumps(
        {k: str(v) for k, v in leaves([agent.state_dict(), bonus.state_dict()]).items()}
    )
    returns, cut = evaluate(agent, env, 7)
    assert cut == 0
    assert len(returns) == 7
    assert before == json.dumps(
        {k: str(v) for k, v in leaves([agent.state_dict(), bonus.state_dict()]).items()}
    )


def test_evaluation_gives_every_environment_the_same_number_of_episodes():
    """Short episodes of return 1 in one environment, long ones of 10 in the other: mean 5.5."""

    class Uneven:
        num_envs, obs_shape = 2, (1,)
        action_space = None

        def reset(self):
            self.t = 0
            return np.zeros((2, 1), np.float32)

        def step(self, action):
            from surprise_memory.envs import Step

            self.t += 1
            done = np.array([True, self.t % 10 == 0])
            obs, yes = np.zeros((2, 1), np.float32), np.ones(2, bool)
            return Step(obs, obs, np.ones(2, np.float32), done, np.zeros(2, bool), yes)

    class Nobody(Agent):
        rng = torch.Generator()

        def act(self, obs, first, state, mode):
            return torch.zeros(2), {}, state

    assert np.mean(evaluate(Nobody(), Uneven(), 8).returns) == 5.5


def test_warm_up_teaches_the_bonus_and_leaves_the_scale_alone():
    run = small(warmup_rollouts=3)
    env, agent, bonus = build(run)
    weights = bonus.model.memory.w.encode.weight.clone()
    parts = Parts(run, None, env, agent, bonus)  # nothing is written
    warm_up(parts, loop := RunnerState.reset(env, bonus))
    assert loop.steps == 3 * run.envs * run.rollout
    assert bonus.scaler.moments.count < 1 < bonus.model.obs_norm.moments.count
    assert bonus.scaler.filtered.abs().min() > 0  # the filter has climbed
    assert not torch.equal(weights, bonus.model.memory.w.encode.weight)


@pytest.mark.parametrize("name", list(PRESETS))
def test_config_survives_json(name):
    run = PRESETS[name](TOY)
    assert from_dict(RunConfig, json.loads(json.dumps(dataclasses.asdict(run)))) == run


def test_ppo_sees_a_ratio_of_one_at_its_first_minibatch():
    run = small("none", rollout=16)
    env, agent, _ = build(run)
    chunk, _ = collect(env, agent, RunnerState.reset(env, None), 16)
    flat = {
        "obs": chunk.obs,
        "action": chunk.action,
        "log_prob": chunk.extras["log_prob"],
    } | agent.advantages(chunk, None)
    _, report = agent.loss({name: column.flatten(0, 1) for name, column in flat.items()})
    assert report["approx_kl"].abs() < 1e-6
    assert report["clipfrac"] == 0


def test_the_bonus_bootstraps_from_the_next_episode_also_at_a_rollouts_border():
    """With lambda = 0 an advantage needs the next value alone, which a longer rollout holds."""
    run = small("rnd", "Counter-v0", ppo=PPOConfig(lam=0.0, hidden=8))

    def advantages(T):
        env, agent, _ = build(run)
        for p in agent.policy.critics.parameters():
            torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(1))
        chunk, _ = collect(env, agent, RunnerState.reset(env, None), T)
        r_int = torch.arange(1.0, T + 1)[:, None].expand(T, run.envs)
        return chunk, agent.advantages(chunk, r_int)["advantage"]

    at_border = 0
    for T in (4, 5, 6, 7):
        chunk, short = advantages(T)
        _, long = advantages(T + 1)
        torch.testing.assert_close(short, long[:T], rtol=0, atol=1e-5)
        at_border += int(chunk.done[-1].sum())
        moved = (chunk.after != chunk.next_obs[-1]).any(1)
        assert torch.equal(moved, chunk.done[-1])  # this environment begins the next one at once
    assert at_border > 3


def test_time_limits_bootstrap_and_true_ends_do_not():
    env = make_vec("Counter-v0", 2, 0)
    chunk, _ = collect(
        env,
        PPO(env.obs_shape, env.action_space, PPOConfig(), False),
        RunnerState.reset(env, None),
        40,
    )
    agent = PPO(env.obs_shape, env.action_space, PPOConfig(), False)
    torch.nn.init.constant_(
        agent.policy.critics.bias, 3.0
    )  # a value far from zero, so that bootstrapping shows
    values = agent._time_limit_values(chunk)
    cut = chunk.truncated & ~chunk.terminated
    assert cut.any() and chunk.terminated.any()
    assert (values[cut] > 1).all() and (values[~cut] == 0).all()


def test_a_random_agent_draws_every_action_alike_learns_nothing_and_resumes(tmp_path):
    from gymnasium import spaces

    from surprise_memory.agents.uniform import Uniform

    agent, obs = Uniform(spaces.Discrete(4, start=2), 0), torch.zeros(40_000, 3)
    action, extras, state = agent.act(obs, obs[:, 0], {}, "explore")
    assert (
        extras == state == {}
        and torch.bincount(action, minlength=6)[2:].sub(10_000).abs().max() < 400
    )  # 4.6 std
    assert torch.bincount(action)[:2].sum() == 0
    box, _, _ = Uniform(spaces.Box(-1.0, 3.0, (2,)), 0).act(obs, obs[:, 0], {}, "explore")
    assert (
        box.shape == (40_000, 2)
        and box.min() >= -1
        and box.max() <= 3
        and (box.mean(0) - 1).abs().max() < 0.03
    )
    with pytest.raises(UserError, match="bounded Box"):
        Uniform(spaces.Box(-np.inf, np.inf, (2,)))
    copy = Uniform(spaces.Discrete(4, start=2), 9)
    copy.load_state_dict(agent.state_dict())
    drawn, _, _ = agent.act(obs, obs[:, 0], {}, "sample")
    assert torch.equal(drawn, copy.act(obs, obs[:, 0], {}, "greedy")[0])
    words = [
        "--agent",
        "random",
        "--method",
        "none",
        "--preset",
        "debug",
        "--steps",
        "256",
        "--run-dir",
        str(tmp_path / "r"),
    ]
    assert main(["train", TOY, *words]) == 0
    assert (tmp_path / "r" / "DONE").exists() and (tmp_path / "r" / "eval.json").exists()


def test_a_run_killed_while_its_first_file_was_written_can_begin_again(tmp_path):
    (tmp_path / "config.json.123.new").write_text("{")
    fresh(tmp_path, small()).close()
    (tmp_path / "config.json").unlink()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="other files"):
        fresh(tmp_path, small())


def test_an_environment_may_reuse_its_array_of_observations():
    class Reuses(Toy):
        def reset(self):
            self.shown = super().reset().copy()
            return self.shown

        def step(self, action):
            step = super().step(action)
            self.shown[:] = step.obs
            return step._replace(obs=self.shown, next_obs=step.next_obs.copy())

    chunks = []
    for kind in (Toy, Reuses):
        env = kind(3, 0)
        env.action_space.seed(0)
        chunk, _ = collect(env, RandomAgent(env), RunnerState.reset(env, None), 12)
        chunks.append(chunk)
    assert torch.equal(chunks[0].obs, chunks[1].obs)


def test_a_run_may_have_the_same_layouts_everywhere():
    apart = RunConfig("MiniGrid-DoorKey-8x8-v0", "none", envs=6)
    rows = {}
    for run in (apart, dataclasses.replace(apart, same_layouts=True)):
        env, _, _ = build(run)
        rows[run.same_layouts] = {row.tobytes() for row in env.reset()}
        env.close()
    assert len(rows[True]) == 1 < len(rows[False])
