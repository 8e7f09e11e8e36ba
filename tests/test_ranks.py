"""One run over many processes: two ranks are one process with both ranks' environments."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import rank_cases as cases
import torch

from surprise_memory import Bonus
from surprise_memory.agents import ppo
from surprise_memory.bonus import rollout
from surprise_memory.bonus.check.promises import equal
from surprise_memory.cli import main
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.nn.moments import RunningMoments
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.loop import build, train
from surprise_memory.training.rundir import RunDir

HERE = Path(__file__).parent


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def start_ranks(folder):
    """Two processes, told what torchrun tells its own."""
    told = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    told |= {"MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    told["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])
    words = [sys.executable, str(HERE / "rank_cases.py"), str(folder), free_port()]
    processes = []
    for rank in range(2):
        env = os.environ | told | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, text=True))
    return processes


def open_run(run, path, resume=False):
    out = RunDir(path)
    out.open({f.name: None for f in dataclasses.fields(run)}, resume)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a run of one process that the ranks continue."""
    path = tmp_path_factory.mktemp("ranks")
    run, where = cases.run_of(path / "one", steps=300)
    train(run, out := open_run(run, where))
    out.close()
    return path


@pytest.fixture(scope="module")
def two(folder):
    """What both ranks have found."""
    found = []
    for rank, process in enumerate(start_ranks(folder)):
        _, errors = process.communicate(timeout=300)
        path = folder / f"rank{rank}.pt"
        assert path.exists(), errors
        found.append(torch.load(path, weights_only=False) | {"code": process.returncode})
    return found


@pytest.fixture(autouse=True)
def _shuffles(monkeypatch):
    """References replace them."""
    monkeypatch.setattr(rollout, "shuffled", rollout.shuffled)
    monkeypatch.setattr(ppo, "shuffled", ppo.shuffled)


def close(a, b, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def lasting(state):
    """A bonus's state without what belongs to single environments and without random streams."""
    extra = state["_extra_state"]["optimiser"]
    own = ("scaler.filtered", "_extra_state")
    return {name: x for name, x in state.items() if name not in own} | {"optimiser": extra}


# --- two ranks against one process ---------------------------------------------------------------


def test_statistics_are_those_of_one_batch_with_all_ranks_rows(two):
    """Also where a rank has no rows at all: rank 0 in the second batch, rank 1 in the last."""
    one = cases.statistics(None)
    for name, value in one.items():
        if "filtered" in name:  # one number for each environment
            assert torch.equal(
                torch.cat([two[0]["statistics"][name], two[1]["statistics"][name]]), value
            )
            continue
        assert torch.equal(two[0]["statistics"][name], two[1]["statistics"][name]), name
        close(two[0]["statistics"][name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", cases.METHODS)
def test_a_bonus_learns_as_one_process_would_from_the_same_minibatches(two, method):
    """The ranks were made with different seeds: rank 0's networks count, its targets too."""
    one = cases.bonus_learns(method, None)
    mine, theirs = two[0][method], two[1][method]
    assert equal(lasting(mine["state"]), lasting(theirs["state"]))
    assert mine["reports"] == theirs["reports"]
    for name, value in one["state"].items():
        if isinstance(value, torch.Tensor) and name != "scaler.filtered":
            close(mine["state"][name], value)
        if "target" in name:
            assert torch.equal(theirs["state"][name], value)
    if method.endswith("counts"):  # within a rollout a rank counts its own visits alone
        table = "model.memory._extra_state"
        assert torch.equal(theirs["state"][table]["keys"], one["state"][table]["keys"])
        assert torch.equal(theirs["state"][table]["visits"], one["state"][table]["visits"])
        return
    close(torch.cat([mine["paid"], theirs["paid"]], 2), one["paid"])
    averaged = {"novelty_norm_corr", "energy_left", "recall_ratio"}  # ratios, over ranks
    for found, wanted in zip(mine["reports"], one["reports"], strict=True):
        assert found.keys() == wanted.keys()
        for name in wanted:
            if name.split("/")[1] not in averaged:
                assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-5), name


def test_ppo_learns_as_one_process_would_from_the_same_minibatches(two):
    one = cases.ppo_learns(None)
    mine, theirs = two[0]["ppo"], two[1]["ppo"]
    assert equal(mine["state"]["policy"], theirs["state"]["policy"])
    assert equal(mine["state"]["optimiser"], theirs["state"]["optimiser"])
    for name, value in one["state"]["pay"].items():
        assert 0 < mine["state"]["pay"][name] == theirs["state"]["pay"][name]
        assert mine["state"]["pay"][name] == pytest.approx(value, rel=1e-3)
    for name, value in one["state"]["policy"].items():
        close(mine["state"]["policy"][name], value)
    for found, again, wanted in zip(
        mine["reports"], theirs["reports"], one["reports"], strict=True
    ):
        assert found == again
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_ppo_asks_the_other_rank_once_for_each_gradient_and_once_for_each_epochs_advantages(two):
    """Each call waits for the slower rank, so their number is what a short update costs."""
    epoch = ["all_gather", *["all_reduce"] * cases.NUMBER]
    rows = returns = report = "all_gather_object"
    assert two[0]["ppo"]["calls"] == [rows, *epoch, *epoch, returns, report]


def test_ranks_draw_other_numbers_and_always_the_same_ones(two):
    assert torch.equal(two[0]["streams"][0], torch.Generator().manual_seed(0).get_state())
    assert not torch.equal(two[0]["streams"][0], two[1]["streams"][0])
    assert torch.equal(*two[1]["streams"])


def test_what_ranks_cannot_do_is_refused_on_each(two, monkeypatch):
    for rank in range(2):
        found = two[rank]["refusals"]
        assert "The rollouts of the processes have [3, 4] steps" in found["lengths"]
        assert found["same"] == ""
        assert "no longer have the same networks and statistics" in found["other"]
    assert ".a.b differs here" in two[1]["refusals"]["other"]
    with pytest.raises(UserError, match="call init_process_group first"):
        Bonus("rnd", (3,), 2).synchronise()
    monkeypatch.setattr(ranks, "started", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cuda:nccl")
    with pytest.raises(UserError, match=r"The bonus is on cpu, .* start it with backend="):
        Bonus("rnd", (3,), 2).synchronise()


# --- the defects of rsl_rl's RND: each is a test of ours -----------------------------------------
#
# 1 targets are not sent to other ranks   test_a_bonus_learns_as_one_process_would_..., and below
# 2 normalisers are not synchronised      test_statistics_are_those_of_one_batch_...
# 3 the normaliser is not saved           test_adapter_rsl_rl: test_what_was_saved_goes_on_...
# 4 paid on the reset observation         test_adapter_rsl_rl: test_the_rewards_that_ppo_learns_...
# 5 one value head                        test_ppo_truths: test_the_bonuss_return_ends_with_...
# 6 vectors alone                         test_adapter_rsl_rl: test_the_set_surprise_...
# 7 normalisers stop after 1e8 samples    test_normalisers_never_stop, below


def test_rsl_rls_own_runner_makes_one_bonus_of_two_ranks(two):
    """With other seeds and other actions on each rank; its PPO sends what it sends by gloo."""
    pytest.importorskip("rsl_rl", reason="pip install 'surprise-memory[rsl-rl]'")
    mine, theirs = two[0]["rsl_rl"], two[1]["rsl_rl"]
    target = "model.surprise.target.0.weight"
    assert not torch.equal(mine["before"], theirs["before"])
    assert torch.equal(mine["before"], theirs["state"][target])
    assert equal(lasting(mine["state"]), lasting(theirs["state"]))
    count = mine["state"]["model.obs_norm.moments.count"]
    assert count == pytest.approx(2 * 3 * 6 * 4, abs=1)  # ranks, rollouts, T, environments
    assert not torch.equal(mine["state"]["scaler.filtered"], theirs["state"]["scaler.filtered"])


def test_normalisers_never_stop():
    moments = RunningMoments()
    moments.count.fill_(1e9)
    moments.update(torch.full((1_000_000,), 5.0))
    assert moments.mean == pytest.approx(5 * 1e6 / 1.001e9)
    assert moments.count == pytest.approx(1.001e9)


# --- whole runs ----------------------------------------------------------------------------------


def test_two_ranks_are_one_run_in_one_directory_and_one_process_continues_it(two, folder):
    mine, theirs = two[0]["began with two"], two[1]["began with two"]
    assert (mine["envs"], theirs["envs"]) == (3, 2)
    assert mine["steps"] == theirs["steps"] == 5 * 16 * 5  # envs, rollout, rollouts
    assert mine["recent"] == theirs["recent"]
    out = RunDir(folder / "two")
    saved = read_checkpoint(out)
    assert saved["runner"].keys() == {"steps", "task_reward_total"} and saved["env"] is None
    assert saved["bonus"]["scaler.filtered"].shape == (5,) and out.done.exists()
    assert [row["step"] for row in out.rows()] == [160, 240, 320, 400]
    run, path = cases.run_of(folder / "two", steps=500)
    state = train(run, again := open_run(run, path, resume=True))
    again.close()
    assert state.steps == 560 and [row["step"] for row in out.rows()][-1] == 560
    before = saved["bonus"]["model.obs_norm.moments.count"]
    assert read_checkpoint(out)["bonus"]["model.obs_norm.moments.count"] - before == 2 * 80


def test_two_ranks_continue_a_run_of_one_process(two, folder):
    assert two[0]["began with one"]["steps"] == two[1]["began with one"]["steps"] == 640
    rows = [row["step"] for row in RunDir(folder / "one").rows()]
    assert rows == [160, 240, 320, 400, 480, 560, 640]
    saved = read_checkpoint(RunDir(folder / "one"))
    assert saved["bonus"]["model.obs_norm.moments.count"] == pytest.approx(640, abs=1)


def test_a_signal_to_one_rank_stops_and_saves_all(two, folder):
    """It comes in the first rollout after the warm-up, of 5 environments x 16 steps."""
    for rank in range(2):
        assert two[rank]["stopped"] == "Stopped and saved at step 160. Add --resume to continue."
    assert read_checkpoint(RunDir(folder / "stopped"))["runner"]["steps"] == 160


def test_an_environment_that_fails_on_one_rank_ends_all_and_what_was_learnt_is_saved(two, folder):
    """It fails in the second rollout after the warm-up, of 4 environments x 16 steps."""
    assert two[0]["failed"] == "The environment failed in another process: see there."
    assert "The environment failed in step: RuntimeError: the wheel came off" in two[1]["failed"]
    assert read_checkpoint(RunDir(folder / "failed"))["runner"]["steps"] == 128


def test_shares_of_a_run_have_its_seeds_and_the_same_tv(monkeypatch):
    run, _ = cases.run_of(None, steps=400)
    seen = []
    for rank in range(2):
        monkeypatch.setattr(ranks, "world", lambda: 2)
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        env, _, bonus = build(run)
        env.reset()
        assert env.num_envs == bonus.num_envs == (3, 2)[rank]
        seen.append((env.noise(1, "float32"), env.frames, env.rng.bit_generator.state))
    assert (seen[0][1] == seen[1][1]).all()  # the channels
    assert seen[0][2] != seen[1][2]  # what is shown when


def test_a_rank_that_dies_ends_the_run_with_a_sentence_and_its_checkpoint(two, folder):
    """Killed in the third rollout of 64 steps after the warm-up; the second was saved."""
    out = RunDir(folder / "lost")
    assert two[1]["code"] == -signal.SIGKILL
    assert two[0]["lost"]["code"] == 2
    said = two[0]["lost"]["said"]
    assert said.startswith("surprise-memory: Another process of this run has ended")
    assert f"{out.checkpoint} is intact: add --resume" in said and said.count("\n") == 1
    assert read_checkpoint(out)["runner"]["steps"] == 64 + 2 * 64
    words = [*cases.command(out.path), "--steps", "256", "--save-minutes", "0", "--resume"]
    assert main(words) == 0
    assert [row["step"] for row in out.rows()] == [128, 192, 256]


def test_what_many_processes_cannot_share_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["surprise_memory.cli.main"], "launched", lambda: 2)
    monkeypatch.setenv("RANK", "1")
    assert main(["methods"]) == 2
    assert "(process 1): torchrun is for train: start methods without it" in capsys.readouterr().err
    monkeypatch.setattr(ranks, "world", lambda: 2)
    for words, sentence in (
        (["--agent", "dqn"], "The recurrent DQN learns from a replay in one process"),
        (["--envs", "1", "--steps", "10k"], "envs = 1 is not possible: it must be at least 2"),
    ):
        assert main(["train", "ToyKeyDoor-v0", "--preset", "debug", *words]) == 2
        assert sentence in capsys.readouterr().err
