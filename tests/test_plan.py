"""How a run's steps are spent: every grid learns, and a run that would not is refused."""

import dataclasses
from pathlib import Path

import fakes  # noqa: F401 (registers Counter-v0)
import pytest
import torch

from surprise_memory.agents import AGENTS
from surprise_memory.cli import main
from surprise_memory.envs import TOY
from surprise_memory.errors import UserError
from surprise_memory.reproduce.cells import cells
from surprise_memory.reproduce.command import learning_lines
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.report.figures import curves
from surprise_memory.reproduce.report.gather import Result, Study
from surprise_memory.reproduce.report.tables import CUMULATIVE, cumulative_table
from surprise_memory.training.checkpoint import Parts, read_checkpoint, resumed_state
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.loop import build, train
from surprise_memory.training.metrics import rollout_metrics
from surprise_memory.training.plan import (
    check_plan,
    describe_plan,
    learning_rollouts,
    learning_steps,
    rollout_steps,
    warmup_rollouts,
)
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir

MAZE = "NoisyTV/MiniWorld-MazeS3Fast-v0"


def preset(name, env, method="rnd", **changes):
    return dataclasses.replace(PRESETS[name](env), method=method, **changes)


# --- the warm-up ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "warmup", "learning"),
    [
        # 128 x 128 = 16,384 steps a rollout; 500,000 / 8 are 3 of them, and 5 are always allowed.
        (preset("paper", "Frostbite", steps=500_000), 5, 31 - 5),
        (preset("paper", "Frostbite", steps=1_000_000), 7, 62 - 7),
        (preset("paper", "Frostbite"), 50, 763 - 50),
        # Blocks of 128 x 80 = 10,240 steps.
        (preset("paper", "Frostbite", "lwm", steps=500_000), 6, 49 - 6),
        # 64 x 128 = 8,192 steps a rollout.
        (preset("paper", MAZE, steps=200_000), 5, 25 - 5),
        (preset("paper", MAZE), 50, 489 - 50),
        (preset("default", TOY), 5, 123 - 5),
        (preset("default", TOY, "none"), 0, 123),
        (preset("default", TOY, "none", agent="random"), 0, 123),
        (preset("default", TOY, "none", agent="dqn"), 5, 391 - 5),
    ],
    ids=lambda x: f"{x.env}-{x.method}-{x.steps}" if dataclasses.is_dataclass(x) else str(x),
)
def test_the_warm_up_is_what_was_asked_for_or_an_eighth_of_the_steps_or_five(run, warmup, learning):
    assert (warmup_rollouts(run), learning_rollouts(run)) == (warmup, learning)
    assert learning_steps(run) == learning * rollout_steps(run)


@pytest.mark.parametrize("steps", [50_000, 100_000, 400_000, 10**7])
def test_the_defaults_short_warm_up_is_never_cut(steps):
    assert warmup_rollouts(preset("default", TOY, steps=steps)) == 5


@pytest.mark.parametrize("what", GRIDS)
@pytest.mark.parametrize(
    ("budget", "name"),
    [
        ("smoke", None),
        ("reduced", None),
        ("reduced", "default"),
        ("reduced", "paper"),
        ("full", None),
        ("full", "default"),
    ],
)
def test_every_grid_learns_from_three_quarters_of_its_steps(what, budget, name):
    for cell in cells(what, budget, Path("x"), 1, name):
        check_plan(cell.run)
        assert learning_steps(cell.run) >= 0.75 * cell.run.steps, cell.name


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("method", ["none", "rnd"])
def test_the_plan_is_what_the_loop_does(tmp_path, agent, method):
    run = preset("debug", TOY, method, agent=agent, warmup_rollouts=9, eval_episodes=0, steps=500)
    out = RunDir(tmp_path)
    out.open(dataclasses.asdict(run), resume=False)
    state = train(run, out)
    rows = list(out.rows())
    assert len(rows) == learning_rollouts(run)
    assert rows[0]["step"] == (warmup_rollouts(run) + 1) * rollout_steps(run)
    assert warmup_rollouts(run) == (0 if (method, agent != "dqn") == ("none", True) else 5)
    assert state.steps == 512


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        (dict(steps=64), 65),  # 4 x 16 of warm-up and nothing to follow
        (dict(steps=192, warmup_rollouts=3), 193),
        (dict(method="lwm", steps=64), 65),
        (dict(method="lwm", steps=64, warmup_rollouts=0), 65),  # one block is no sequence
    ],
)
def test_a_run_that_would_not_learn_is_refused(tmp_path, capsys, changes, least):
    run = dataclasses.replace(PRESETS["debug"](TOY), **changes)
    with pytest.raises(UserError, match=f"raise --steps to {least} or more"):
        check_plan(run)
    check_plan(dataclasses.replace(run, steps=least))
    words = ["--method", run.method, "--warmup-rollouts", str(run.warmup_rollouts)]
    words += ["--steps", str(run.steps), "--run-dir", str(tmp_path / "run"), "--preset", "debug"]
    assert main(["train", TOY, *words]) == 2
    assert "before the first update" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_shortest_run_that_is_allowed_moves_the_networks(tmp_path):
    for method in ("rnd", "lwm"):
        run = preset("debug", TOY, method, steps=65, eval_episodes=0)
        _, agent, _ = build(run)
        before = agent.state_dict()
        out = RunDir(tmp_path / method)
        out.open(dataclasses.asdict(run), resume=False)
        train(run, out)
        after = read_checkpoint(out)["agent"]
        net = "policy" if method == "rnd" else "net"
        assert any(not torch.equal(after[net][k], before[net][k]) for k in before[net])


def test_the_plan_says_what_is_cut_and_what_is_not_equal():
    cut = describe_plan(preset("paper", MAZE, steps=200_000))
    assert cut == (
        "warm-up 5 rollouts (of 50: at most an eighth of the steps, or 5), 40,960 steps, 20.5%; "
        "learning from 163,840 steps"
    )
    assert describe_plan(preset("default", TOY, "none")) == (
        "no warm-up, learning from 1,007,616 steps"
    )
    lines = learning_lines(cells("table-1", "reduced", Path("x"), 1))
    assert lines[0] == "  none: no warm-up, learning from 2,007,040 steps"
    assert lines[1].startswith("  rnd, rnd+sm, icm, icm+sm, ngu, ngu+sm, ae, ae+sm: warm-up 5")
    assert "40,960 steps more than others (2.0%)" in lines[2]
    lines = learning_lines(cells("no-task-reward", "reduced", Path("x"), 1))
    assert lines[0] == "  random: no warm-up, 204,800 steps that nobody learns from"
    assert len(lines) == 2  # and those that learn are equal
    assert len(learning_lines(cells("ablation-size", "reduced", Path("x"), 1))) == 1


def test_a_grid_that_would_not_learn_is_refused_before_anything_is_made(tmp_path, capsys):
    words = ["reproduce", "table-1", "--budget", "smoke", "--preset", "default"]
    assert main([*words, "--dir", str(tmp_path / "r")]) == 2
    assert "steps = 1,024 would end before the first update" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


# --- without the task's reward --------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["smoke", "reduced", "full"])
@pytest.mark.parametrize("name", [None, "default", "released-code"])
def test_no_task_reward_trains_without_it_in_every_preset(budget, name):
    for cell in cells("no-task-reward", budget, Path("x"), 1, name):
        assert cell.run.ppo.ext_coef == 0, cell.name


@pytest.mark.parametrize("env", ["Counter-v0", TOY])
def test_the_total_is_every_reward_since_the_run_began(env):
    """Also those of the warm-up, and of episodes that have not ended."""
    run = preset("debug", env, "none", rollout=7)
    env, _, _ = build(run)
    state = RunnerState.reset(env, None)
    total = 0.0
    for _ in range(3):
        chunk, episodes = collect(env, RandomAgent(env), state, 7)
        for t in range(7):
            for b in range(run.envs):
                total += chunk.reward[t, b].item() * bool(chunk.valid[t, b])
        row = rollout_metrics(chunk, None, episodes, state)
        assert row[CUMULATIVE] == pytest.approx(total, rel=1e-12)
    if run.env == "Counter-v0":
        assert total > 0


def test_the_mean_of_the_last_128_episodes_waits_for_them():
    """Those that succeed end first."""
    run = preset("debug", TOY, "none")
    env, agent, _ = build(run)
    state = RunnerState.reset(env, None)
    chunk, _ = collect(env, agent, state, 1)
    row = rollout_metrics(chunk, None, 127 * [(1.0, 3)], state)
    assert "charts/return_128" not in row and row["charts/episodic_return"] == 1.0
    assert rollout_metrics(chunk, None, [(0.0, 9)], state)["charts/return_128"] == 127 / 128


def test_the_total_goes_on_after_a_resume_and_is_unknown_to_older_checkpoints(tmp_path):
    run = preset("debug", "Counter-v0", steps=300, eval_episodes=0)
    out = RunDir(tmp_path)
    out.open(dataclasses.asdict(run), resume=False)
    state = train(run, out)
    saved = read_checkpoint(out)
    env, agent, bonus = build(run)
    parts = Parts(run, out, env, agent, bonus)
    assert state.task_reward_total > 0
    again = resumed_state(saved, parts)
    assert again.task_reward_total == state.task_reward_total
    del saved["runner"]["task_reward_total"]
    older = resumed_state(saved, parts)
    assert older.task_reward_total is None
    chunk, episodes = collect(env, agent, older, 4, bonus)
    assert CUMULATIVE not in rollout_metrics(chunk, None, episodes, older)


def test_the_total_is_a_table_and_the_first_picture_of_that_grid_alone():
    grid = GRIDS["no-task-reward"]
    env = grid.envs[0]

    def result(entry, seed, total, score=0.5):
        rows = [{"step": 500, CUMULATIVE: 1.0}, {"step": 1000, CUMULATIVE: total}]
        return Result("no-task-reward", entry, env, seed, "paper", 1000, 1000, score, 1.0, "", rows)

    runs = [result("rnd", 0, 4.0), result("rnd", 1, 6.0), result("rnd+sm", 0, 9.0, None)]
    study = Study("no-task-reward", grid, "paper", "reduced", runs)
    rows = {(row[0], row[1]): row[2:] for row in cumulative_table(study).rows}
    assert rows["rnd", env] == ["5.0 ± 1.00", "5.0", "4.0, 6.0"]
    assert rows["rnd+sm", env][0] == "missing"  # not finished
    assert next(iter(curves(study))) == CUMULATIVE
    other = Study("table-1", GRIDS["table-1"], "paper", "reduced", [])
    assert CUMULATIVE not in curves(other)
