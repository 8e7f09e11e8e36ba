"""Bad input: one sentence, exit code 2, nothing damaged. Good input: the README's commands."""

import dataclasses
import errno
import functools
import json
import os
import shutil
from ctypes.util import find_library
from importlib import import_module

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch

from surprise_memory.bonus.methods import methods
from surprise_memory.cli import main
from surprise_memory.cli.options import count
from surprise_memory.cli.runs import load
from surprise_memory.envs import TOY
from surprise_memory.envs.miniworld import LIBRARIES
from surprise_memory.errors import UserError
from surprise_memory.stages import STAGES
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.loop import train
from surprise_memory.training.options import LATER
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir, flatten

DEBUG = ["--preset", "debug", "--steps", "256", "--eval-episodes", "2"]


class Switches(fakes.Counter):
    """An environment whose actions no agent here can take."""

    action_space = gym.spaces.MultiBinary(3)


gym.register("Switches-v0", Switches, disable_env_checker=True)
gym.register("Broken-v0", lambda: fakes.Counter(broken_at=40), disable_env_checker=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", TOY, *DEBUG, "--run-dir", str(path)]) == 0
    return path


@pytest.fixture
def run_dir(finished, tmp_path):
    """A copy of it that a test may break."""
    return shutil.copytree(finished, tmp_path / "copy")


def refused(capsys, *words):
    """The one sentence on standard error of a call that must exit with 2."""
    capsys.readouterr()
    assert main(list(words)) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("surprise-memory: ") and "\n" not in said and "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["MiniGrid-DoorKey-9x9-v0"], "Did you mean 'MiniGrid-DoorKey-"),
        (["nonsense"], "Unknown environment 'nonsense'"),
        ([TOY, "--method", "rnd+ms"], "Did you mean 'rnd+m'"),
        ([TOY, "--method", "curiosity"], "`surprise-memory methods` lists them all"),
        ([TOY, "--preset", "papper"], "Did you mean 'paper'"),
        ([TOY, "--steps", "-1"], "steps = -1 is not possible: it must be at least 1"),
        ([TOY, "--steps", "many"], "write it as 500000, 500k or 10M"),
        ([TOY, "--envs", "0"], "envs = 0"),
        ([TOY, "--seed", "-3"], "between 0 and"),
        ([TOY, "--bonus.memory.slots", "0"], "memory.slots = 0"),
        ([TOY, "--bonus.memory.width", "0"], "memory.width = 0"),
        ([TOY, "--bonus.loss", "nrom"], "Did you mean 'norm'"),
        ([TOY, "--method", "disagreement+sm"], "Did you mean 'disagreement'"),
        ([TOY, "--method", "disagreement", "--bonus.disagreement.ensemble", "1"], "ensemble = 1"),
        (
            [TOY, "--method", "ngu", "--bonus.ngu.k", "9", "--bonus.ngu.capacity", "8"],
            "ngu.capacity = 8",
        ),
        ([TOY, "--method", "ngu", "--bonus.ngu.k", "0"], "ngu.k = 0"),
        ([TOY, "--method", "ngu+sm", "--bonus.ngu.clip", "0.5"], "ngu.clip = 0.5"),
        ([TOY, "--method", "rnd+counts", "--bonus.counts.beta", "-1"], "counts.beta = -1"),
        ([TOY, "--method", "rnd+counts", "--bonus.counts.bits", "0"], "counts.bits = 0"),
        ([TOY, "--method", "icm", "--bonus.icm.inverse-coef", "0"], "icm.inverse_coef = 0"),
        ([TOY, "--method", "icm", "--bonus.icm.n", "0"], "icm.n = 0"),
        ([TOY, "--method", "ae", "--bonus.ae.hidden", "0"], "ae.hidden = 0"),
        (["NoisyTV/Pendulum-v1"], "Discrete"),
        (["NoisyTV/nonsense"], "Unknown environment 'nonsense'"),
        (["MontezumasRevenge"], "Did you mean 'MontezumaRevenge'"),
        (["MiniWorld-FourRoms-v0"], "Did you mean 'MiniWorld-FourRooms-v0'"),
        ([TOY, "--method", "none", "--ppo.ext-coef", "0"], "nothing is left to learn"),
        ([TOY, "--bonus.memory.read", "cosin"], "choose one of"),
        ([TOY, "--bonus.memory.w-hidden", "0"], "at least 1"),
        ([TOY, "--bonus.power", "3"], "1 or 2"),
        ([TOY, "--bonus.obs-norm", "white"], "Did you mean 'whiten'"),
        ([TOY, "--bonus.proportion", "1.5"], "at most 1"),
        ([TOY, "--bonus.gamma", "1"], "in [0, 1)"),
        ([TOY, "--bonus.scale-momentum", "2"], "between 0 and 1"),
        ([TOY, "--ppo.lam", "1.5"], "in [0, 1]"),
        ([TOY, "--ppo.minibatches", "0"], "at least 1"),
        ([TOY, "--agent", "sac"], "Unknown agent 'sac'"),
        (["Pendulum-v1", "--agent", "dqn", "--method", "none"], "use --agent ppo"),
        ([TOY, "--method", "lwm", "--dqn.replay", "5000"], "64 environments need 7,680"),
        ([TOY, "--method", "lwm", "--dqn.burn-in", "38"], "dqn.burn_in + dqn.n_step = 43"),
        ([TOY, "--method", "lwm", "--dqn.updates", "0"], "dqn.updates = 0"),
        ([TOY, "--method", "lwm", "--dqn.save-replay", "alway"], "Did you mean 'always'"),
        ([TOY, "--method", "lwm", "--dqn.gamma", "1.5"], "dqn.gamma = 1.5"),
        ([TOY, "--method", "lwm+sm", "--bonus.lwm.n", "0"], "lwm.n = 0"),
        ([TOY, "--method", "lwm", "--bonus.lwm.lr", "0"], "lwm.lr = 0"),
        (["Switches-v0"], "Discrete and one-dimensional Box"),
        ([], "Which environment?"),
        (["--preset", "debug", "ToyKeyDoor-v0"], "It comes first"),
    ],
)
def test_bad_words_are_refused_before_anything_is_written(capsys, tmp_path, words, says):
    said = refused(capsys, "train", *words, "--run-dir", str(tmp_path / "run"))
    assert says in said
    assert not (tmp_path / "run").exists()


def test_unknown_option_names_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", TOY, "--stpes", "5"])
    assert stop.value.code == 2
    assert "--steps" in capsys.readouterr().err


def test_unknown_command_names_the_nearest(capsys):
    assert "Did you mean 'train'" in refused(capsys, "trian", TOY)


@pytest.mark.parametrize(("reason", "says"), [((), "Stopped."), (("Saved.",), "Saved.")])
def test_an_interruption_ends_with_a_sentence(capsys, monkeypatch, reason, says):
    def interrupted(name, argv):
        raise KeyboardInterrupt(*reason)

    monkeypatch.setattr(import_module("surprise_memory.cli.main"), "run_command", interrupted)
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == f"\n{says}\n"


def test_a_run_is_not_overwritten(capsys, run_dir):
    before = (run_dir / "metrics.jsonl").read_bytes()
    assert "add --resume" in refused(capsys, "train", TOY, *DEBUG, "--run-dir", str(run_dir))
    assert "bonus.power differ" in refused(
        capsys, "train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume", "--bonus.power", "2"
    )
    assert before == (run_dir / "metrics.jsonl").read_bytes()
    read_checkpoint(RunDir(run_dir))


def test_a_folder_with_other_files_is_not_touched(capsys, tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    assert "holds other files" in refused(capsys, "train", TOY, *DEBUG, "--run-dir", str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_tells_of_its_warm_up_and_where_it_continues(capsys, run_dir, tmp_path):
    words = ["train", TOY, *DEBUG, "--steps", "512", "--warmup-rollouts", "3"]
    assert main([*words, "--run-dir", str(tmp_path / "new")]) == 0
    assert " 64 of 512  warming up\n" in capsys.readouterr().out
    words = ["train", TOY, *DEBUG, "--steps", "512", "--run-dir", str(run_dir), "--resume"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert " 256 of 512  continuing from here\n" in said and "no checkpoint" not in said
    assert main(words) == 0
    assert "continuing" not in capsys.readouterr().out  # the run is complete
    (run_dir / "checkpoint.pt").unlink()
    (run_dir / "DONE").unlink()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "There is no checkpoint yet: the run begins again." in said and "continuing" not in said


def test_a_resumed_run_keeps_its_steps_and_cannot_end_before_its_checkpoint(capsys, run_dir):
    preset = ["--preset", "debug", "--eval-episodes", "2"]  # it has 2,000 steps, the run 256
    words = ["train", TOY, *preset, "--run-dir", str(run_dir), "--resume"]
    assert main(words) == 0
    assert read_checkpoint(RunDir(run_dir))["runner"]["steps"] == 256
    assert json.loads((run_dir / "config.json").read_text())["steps"] == 256
    said = refused(capsys, *words, "--steps", "200")
    assert "steps = 200 is not possible" in said and "is at step 256." in said
    assert json.loads((run_dir / "config.json").read_text())["steps"] == 256


def test_a_run_whose_last_rollout_went_beyond_its_steps_can_be_evaluated(tmp_path):
    words = ["train", TOY, *DEBUG, "--steps", "250", "--run-dir", str(tmp_path / "run")]
    assert main(words) == 0
    assert main([*words, "--resume"]) == 0


def test_options_that_came_after_a_run_was_begun_change_nothing_in_it(capsys, run_dir):
    file = run_dir / "config.json"
    config = json.loads(file.read_text())
    for name in LATER:
        *groups, last = name.split(".")
        del functools.reduce(dict.get, groups, config)[last]
    del config["bonus"]["ngu"]  # the part was not there yet
    file.write_text(json.dumps(config))
    words = ["train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume"]
    assert "ppo.fade differ (it has 0.0)" in refused(capsys, *words, "--ppo.fade", "0.8")
    assert load(run_dir)[0].ppo.fade == 0.0  # as eval and the others see it
    assert main(words) == 0
    now = flatten(json.loads(file.read_text()))
    assert {name: now[name] for name in LATER} == LATER
    assert now["bonus.ngu.k"] == PRESETS["debug"](TOY).bonus.ngu.k


@pytest.mark.parametrize("group, name", [("ppo", "clip"), ("bonus", "power"), ("rnd", "n")])
def test_a_config_that_lacks_any_other_option_is_not_resumed(capsys, run_dir, group, name):
    file = run_dir / "config.json"
    config = json.loads(file.read_text())
    del (config | config["bonus"])[group][name]
    file.write_text(json.dumps(config))
    said = refused(capsys, "train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume")
    assert "config.json does not have" in said and f"{group}.{name}: add what" in said


def test_resume_of_nothing(capsys, tmp_path):
    assert "Nothing to resume" in refused(
        capsys, "train", TOY, *DEBUG, "--run-dir", str(tmp_path / "x"), "--resume"
    )


def test_two_processes_cannot_share_a_run(capsys, run_dir):
    held = RunDir(run_dir)
    held.open(json.loads((run_dir / "config.json").read_text()), resume=True)
    assert "Another process" in refused(
        capsys, "train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume"
    )
    held.close()


@pytest.mark.parametrize("damage", ["truncated", "foreign", "text", "empty"])
def test_torn_and_foreign_checkpoints(capsys, run_dir, damage):
    path = run_dir / "checkpoint.pt"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "foreign":
        torch.save({"state_dict": {}}, path)
    else:
        path.write_bytes(b"hello" if damage == "text" else b"")
    for words in (
        ["eval", str(run_dir)],
        ["train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume"],
    ):
        assert "checkpoint" in refused(capsys, *words)


def test_eval_of_something_else(capsys, tmp_path, run_dir):
    assert "is not a run directory" in refused(capsys, "eval", str(tmp_path))
    assert "at least 1" in refused(capsys, "eval", str(run_dir), "--episodes", "0")
    (run_dir / "config.json").write_text("{not json")
    assert "cannot be read as JSON" in refused(capsys, "eval", str(run_dir))


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    run = dataclasses.replace(PRESETS["debug"](TOY), save_minutes=0.0)
    out = RunDir(tmp_path)
    out.open(dataclasses.asdict(run), False)
    real, saves = torch.save, []

    def save(state, file):
        saves.append(1)
        if len(saves) < 4:
            return real(state, file)
        file.write(b"half a checkp")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(UserError, match="disk is full"):
        train(run, out)
    monkeypatch.undo()
    assert read_checkpoint(out)["runner"]["steps"] == 64 + 2 * 64  # the warm-up and two rollouts
    assert not list(tmp_path.glob("*.new"))


def test_nan_in_observations_stops_with_a_diagnosis_and_keeps_the_checkpoint(capsys, tmp_path):
    said = refused(
        capsys,
        "train",
        "Broken-v0",
        *DEBUG,
        "--save-minutes",
        "0",
        "--run-dir",
        str(tmp_path / "r"),
    )
    assert "nan in next_obs (environment 0, feature 0)" in said
    assert read_checkpoint(RunDir(tmp_path / "r"))["runner"]["steps"] > 0
    words = ["--save-minutes", "0", "--method", "lwm+sm", "--run-dir", str(tmp_path / "q")]
    assert "nan in next_obs (environment 0, feature 0)" in refused(
        capsys, "train", "Broken-v0", *DEBUG, *words
    )


def test_divergence_stops_with_a_diagnosis(capsys, tmp_path):
    said = refused(
        capsys, "train", TOY, *DEBUG, "--ppo.lr", "1e30", "--run-dir", str(tmp_path / "r")
    )
    assert "diverged" in said and "--ppo.lr" in said
    words = ["--method", "lwm", "--dqn.lr", "1e30", "--run-dir", str(tmp_path / "q")]
    said = refused(capsys, "train", TOY, *DEBUG, *words)
    assert "diverged" in said and "--dqn.lr" in said


def test_a_run_directory_holds_what_it_promises(finished, capsys):
    names = {p.name for p in finished.iterdir()}
    assert {
        "config.json",
        "metrics.jsonl",
        "checkpoint.pt",
        "eval.json",
        "versions.txt",
        "DONE",
    } <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    result = json.loads((finished / "eval.json").read_text())
    assert result["episodes"] == 2 == len(result["returns"])
    assert np.isclose(result["mean"], np.mean(result["returns"]))
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert {
        "step",
        "charts/SPS",
        "intrinsic/novelty_norm_corr",
        "intrinsic/energy_left",
        "losses/entropy",
    } <= rows[-1].keys()


def test_eval_show_envs_methods(run_dir, capsys):
    assert main(["eval", str(run_dir), "--episodes", "3", "--greedy"]) == 0
    assert json.loads((run_dir / "eval-3-greedy.json").read_text())["episodes"] == 3
    own = (run_dir / "eval.json").read_bytes()
    assert main(["eval", str(run_dir), "--episodes", "2", "--eval-steps", "3"]) == 0
    assert json.loads((run_dir / "eval-2-3-steps.json").read_text())["cut"] == 2
    assert (run_dir / "eval.json").read_bytes() == own
    assert main(["show", str(run_dir)]) == 0
    assert (run_dir / "show.png").stat().st_size > 10_000
    assert main(["show", str(run_dir), "--beside", str(run_dir)]) == 0
    assert (run_dir / "beside.png").stat().st_size > 10_000
    capsys.readouterr()
    assert main(["envs", "doorkey"]) == 0
    assert "MiniGrid-DoorKey-16x16-v0" in capsys.readouterr().out.split()
    assert main(["methods"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    listed = [line.split()[0] for line in first.splitlines()]
    assert listed == list(methods()) and len(listed) == 27
    title, *stages = second.splitlines()
    assert title.startswith("Stages") and "rnd+sm+expect" in title
    names = [line.split()[0] for line in stages]
    assert names == [f"+{name}" for name in STAGES] and "+expect" in names
    for line, stage in zip(stages, STAGES.values(), strict=True):
        assert line.endswith(f" {stage.about}")
    assert main([]) == 0


@pytest.mark.parametrize(
    "env", ["MiniGrid-Empty-5x5-v0", "Picture-v0", "NoisyTV/MiniGrid-Empty-5x5-v0"]
)
@pytest.mark.parametrize("method", methods())
def test_every_method_trains_resumes_and_evaluates_on_vectors_and_images(tmp_path, env, method):
    run = str(tmp_path / "r")
    words = ["train", env, *DEBUG, "--method", method, "--run-dir", run]
    assert main([*words, "--steps", "200"]) == 0
    assert main([*words, "--steps", "330", "--resume"]) == 0
    assert main(["eval", run, "--episodes", "2"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] >= 330 and ("noisy_tv/share" in rows[-1]) == env.startswith("NoisyTV")


@pytest.mark.parametrize("method", ["none", "icm", "ngu+sm", "disagreement"])
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_box_and_discrete_actions(tmp_path, env, method):
    assert (
        main(
            [
                "train",
                env,
                *DEBUG,
                "--method",
                method,
                "--eval-episodes",
                "1",
                "--run-dir",
                str(tmp_path / "r"),
            ]
        )
        == 0
    )


@pytest.mark.parametrize("words", [["--steps", "1k"], ["--steps=1k"]])
def test_steps_are_read_with_and_without_an_equals_sign(tmp_path, words):
    assert (
        main(
            [
                "train",
                TOY,
                "--preset",
                "debug",
                "--method",
                "none",
                *words,
                "--run-dir",
                str(tmp_path / "r"),
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "r/config.json").read_text())["steps"] == 1000


@pytest.mark.parametrize("method", ["none", "rnd", "rnd+sm"])
def test_atari_trains(tmp_path, method):
    words = [
        "--method",
        method,
        "--steps",
        "128",
        "--eval-episodes",
        "0",
        "--run-dir",
        str(tmp_path / "r"),
    ]
    assert main(["train", "MontezumaRevenge", *DEBUG, *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["rooms/visited"] == 1 and ("rooms/bonus_1" in rows[-1]) == (method != "none")


@pytest.mark.skipif(
    not (find_library("EGL") and find_library("GLU")),
    reason=f"{LIBRARIES}; `make setup` does it where it may",
)
@pytest.mark.parametrize(
    ("env", "method"),
    [
        ("NoisyTV/MiniWorld-MazeS3Fast-v0", "rnd+sm"),
        ("MiniWorld-PickupObjects-v0", "none"),
    ],
)
def test_miniworld_trains(tmp_path, env, method):
    words = [
        "--method",
        method,
        "--steps",
        "128",
        "--eval-episodes",
        "0",
        "--run-dir",
        str(tmp_path / "r"),
    ]
    assert main(["train", env, *DEBUG, *words]) == 0


@pytest.mark.parametrize("name", ["toy.mp4", "toy.gif"])
def test_an_episode_becomes_a_video(run_dir, tmp_path, capsys, name):
    assert (
        main(["play", TOY, "--run", str(run_dir), "--out", str(tmp_path / name), "--steps", "30"])
        == 0
    )
    film = pytest.importorskip("imageio.v3").imread(tmp_path / name)
    assert len(film) <= 30 and f"{len(film)} steps" in capsys.readouterr().out
    assert film.shape[1] > film[0, :, :, 0].shape[1] * 0.1 and film[0].std() > 10
    assert (film[0] != film[-1]).any()  # at least the line at the present moves


def test_a_random_episode_needs_no_run(tmp_path):
    assert main(["play", "CartPole-v1", "--out", str(tmp_path / "c.gif"), "--steps", "5"]) == 0
    assert (tmp_path / "c.gif").stat().st_size > 1000


def test_videos_of_other_kinds_are_refused(tmp_path, capsys):
    assert main(["play", TOY, "--out", str(tmp_path / "c.avi"), "--steps", "5"]) == 2
    assert "neither an .mp4 nor a .gif" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["paper", "released-code", "default"])
def test_every_preset_runs(tmp_path, preset):
    small = [
        "--preset",
        preset,
        "--steps",
        "300",
        "--envs",
        "4",
        "--rollout",
        "16",
        "--warmup-rollouts",
        "1",
        "--eval-episodes",
        "1",
    ]
    assert main(["train", TOY, *small, "--run-dir", str(tmp_path / "r")]) == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10M", 10_000_000),
        ("1.5k", 1500),
        ("1e6", 1_000_000),
        ("2_000", 2000),
        ("4.1M", 4_100_000),  # 4.1 * 1e6 is 4,099,999.9999999995
        ("8.2m", 8_200_000),
        ("64.4k", 64_400),
        ("1,500,000", 1_500_000),
    ],
)
def test_steps_are_written_as_people_write_them(text, number):
    assert count(text) == number


@pytest.mark.parametrize(
    "text",
    ["4.1234567M", "0.5", "1.2.3", ".", "M", "", "1e999999999", "-", "1,5M", "10,00"],
)
def test_what_is_no_number_of_steps_is_refused(text):
    with pytest.raises(UserError, match="is not a number of steps"):
        count(text)


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("0", "0")])
def test_torch_may_take_large_pages_unless_the_user_says_otherwise(given, used, monkeypatch):
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "")  # so that it is restored in any case
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE")
    if given is not None:
        monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", given)
    monkeypatch.setattr("surprise_memory.cli.main", lambda: 7)
    assert import_module("surprise_memory.__main__").run() == 7
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == used
