"""Damaged run directories and misbehaving environments: one sentence, exit code 2, nothing lost."""

import dataclasses
import errno
import json
import resource
import shutil
import sys
import traceback

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from test_cli import refused
from test_train import assert_same, fresh, small

from surprise_memory import torch_files
from surprise_memory.cli import main
from surprise_memory.envs import FAMILIES, TOY, Family, Step, VecEnv, register_family
from surprise_memory.errors import UserError
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.config import RunConfig, from_dict
from surprise_memory.training.loop import train
from surprise_memory.training.metrics import check_losses
from surprise_memory.training.rundir import RunDir

DEBUG = ["--preset", "debug", "--steps", "256", "--eval-episodes", "0"]


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


def both_refused(capsys, path):
    """What is said to `eval` and to `train --resume`."""
    words = ["train", TOY, *DEBUG, "--run-dir", str(path), "--resume"]
    return refused(capsys, "eval", str(path)), refused(capsys, *words)


# --- the run's directory -------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["[1, 2]", "null", "3", '"text"'])
def test_a_config_that_holds_no_options(capsys, run_dir, content):
    (run_dir / "config.json").write_text(content)
    for said in both_refused(capsys, run_dir):
        assert "config.json is damaged" in said


@pytest.mark.parametrize(
    "name, value",
    [("steps", "many"), ("seed", None), ("ppo", 3), ("bonus", [1]), ("method", 7), ("envs", True),
     ("save_minutes", {}), ("env", None)],
)  # fmt: skip
def test_options_of_a_wrong_type(capsys, run_dir, name, value):
    config = json.loads((run_dir / "config.json").read_text())
    (run_dir / "config.json").write_text(json.dumps(config | {name: value}))
    assert "config.json is damaged" in refused(capsys, "eval", str(run_dir))


def test_a_config_without_its_environment(capsys, run_dir):
    (run_dir / "config.json").write_text("{}")
    assert "config.json is damaged: it has no 'env'" in refused(capsys, "eval", str(run_dir))


def test_deep_options_of_a_wrong_type():
    values = dataclasses.asdict(small()) | {"ppo": {"lr": "fast"}}
    with pytest.raises(UserError, match="lr = 'fast' is of a wrong type"):
        from_dict(RunConfig, values)


ROWS_NO_MORE = (
    "{torn", "5", "null", '{"loss": 1}', "\x00\x00", "\udcff", '{"step": NaN}', '{"step": true}',
    '{"step": 9999, "loss": "x"}', '{"step": 9999, "loss": null}',
)  # fmt: skip


@pytest.mark.parametrize("line", ROWS_NO_MORE)
def test_a_damaged_line_of_metrics_is_named_and_the_last_one_skipped(capsys, run_dir, line):
    out = RunDir(run_dir)
    whole = out.metrics.read_bytes()
    bad = line.encode(errors="surrogateescape")
    rows = list(out.rows())
    out.metrics.write_bytes(whole + bad)
    assert list(out.rows()) == rows and out.last_row() == rows[-1]
    out.metrics.write_bytes(whole + bad + b"\n")  # not cut off: damaged
    with pytest.raises(UserError, match=f"damaged at line {len(rows) + 1}"):
        list(out.rows())
    first, rest = whole.split(b"\n", 1)
    out.metrics.write_bytes(first + b"\n" + bad + b"\n" + rest)
    words = ["train", TOY, *DEBUG, "--run-dir", str(run_dir), "--resume"]
    assert "metrics.jsonl is damaged at line 2" in refused(capsys, *words)
    assert out.metrics.read_bytes().startswith(first)


@pytest.mark.parametrize("left", [b"", b"\x00" * 300])
def test_show_says_that_rows_are_lost(run_dir, left):
    """A page that never reached the disk looks like a last row that was cut off."""
    (run_dir / "metrics.jsonl").write_bytes(left)
    with pytest.warns(UserWarning, match="ends at step 0, .* the curves are cut"):
        assert main(["show", str(run_dir)]) == 0


def test_rows_of_metrics_whose_steps_do_not_grow(run_dir):
    out = RunDir(run_dir)
    out.log(next(out.rows()))
    number = out.metrics.read_bytes().count(b"\n")
    with pytest.raises(UserError, match=f"damaged at line {number}"):
        list(out.rows())


@pytest.mark.parametrize("key", ["agent", "runner", "env", "warmup", "method"])
def test_a_checkpoint_without_a_key(capsys, run_dir, key):
    path = run_dir / "checkpoint.pt"
    content = torch_files.load(path)
    del content[key]
    torch_files.save(content, path)
    for said in both_refused(capsys, run_dir):
        assert f"has no '{key}'" in said


@pytest.mark.parametrize("key", ["agent", "bonus", "env", "runner", "recent", "warmup"])
@pytest.mark.parametrize("value", [["a"], {}, 3])
def test_a_checkpoint_with_something_else_in_it(capsys, run_dir, key, value):
    if (key, value) == ("recent", {}):
        value = None
    path = run_dir / "checkpoint.pt"
    torch_files.save(torch_files.load(path) | {key: value}, path)
    words = ["train", TOY, *DEBUG, "--steps", "512", "--run-dir", str(run_dir), "--resume"]
    said = refused(capsys, *words)
    assert "does not fit this run" in said or "does not say its step" in said


def test_a_table_of_counts_that_another_version_wrote(capsys, tmp_path):
    path = tmp_path / "run"
    words = ["train", TOY, *DEBUG, "--method", "rnd+counts", "--run-dir", str(path)]
    assert main(words) == 0
    capsys.readouterr()
    content = torch_files.load(path / "checkpoint.pt")
    table = content["bonus"]["model.memory._extra_state"]
    old = {"codes": torch.zeros(3, 16, dtype=torch.uint8), "visits": torch.ones(3)}
    table.clear()
    table.update(old)
    torch_files.save(content, path / "checkpoint.pt")
    for said in (refused(capsys, "eval", str(path)), refused(capsys, *words, "--resume")):
        assert "checkpoint.pt does not load" in said
        assert "was written by another version" in said
        assert "it has codes, visits, here keys, visits, entered" in said
        assert "or train anew" in said
        assert "config.json" not in said


def test_a_run_directory_that_is_a_file(capsys, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        for more in ([], ["--resume"]):
            said = refused(capsys, "train", TOY, *DEBUG, "--run-dir", str(path), *more)
            assert str(path) in said
    assert "is not a run directory" in refused(capsys, "eval", str(tmp_path / "file"))


def test_a_run_directory_that_vanishes(tmp_path):
    run = small(steps=10_000)
    out = fresh(tmp_path / "r", run)
    with pytest.raises(UserError, match=r"Could not write .* is gone"):
        train(run, out, report=lambda row: shutil.rmtree(out.path, ignore_errors=True))


def test_a_disk_that_is_full_when_metrics_are_written(tmp_path, monkeypatch):
    run = small(steps=512, save_minutes=0.0)
    out = fresh(tmp_path / "r", run)
    train(run, out)
    saved = read_checkpoint(out)
    dumps = json.dumps
    written = []

    def full(row):
        written.append(row)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return dumps(row)

    longer = dataclasses.replace(run, steps=10_000)
    monkeypatch.setattr("surprise_memory.training.rundir.RunDir.rewind", lambda *_: None)
    monkeypatch.setattr("surprise_memory.training.rundir.json.dumps", full)
    with pytest.raises(UserError, match=r"metrics.jsonl: the disk is full. What was there before"):
        train(longer, out)
    monkeypatch.undo()
    assert read_checkpoint(out)["runner"]["steps"] == saved["runner"]["steps"] + 64


def test_a_file_that_cannot_be_written_says_why(tmp_path):
    """Torch hides the reason behind a RuntimeError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"File too large. Nothing was there before"):
            torch_files.save(torch.zeros(100_000), tmp_path / "x.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_killed_process_are_removed_once_the_lock_is_taken(run_dir):
    config = json.loads((run_dir / "config.json").read_text())
    held = RunDir(run_dir)
    held.open(config, resume=True)
    (run_dir / "checkpoint.pt.123.new").write_bytes(b"half")
    with pytest.raises(UserError, match="Another process"):
        RunDir(run_dir).open(config, resume=True)
    assert (run_dir / "checkpoint.pt.123.new").exists()
    held.close()
    RunDir(run_dir).open(config, resume=True)
    assert not list(run_dir.glob("*.new"))


def test_sentences_about_checkpoints_are_true(tmp_path):
    out = RunDir(tmp_path)
    with pytest.raises(UserError, match="No checkpoint was saved before"):
        check_losses({"losses/td": np.nan}, out, "ppo")
    out.checkpoint.touch()
    with pytest.raises(UserError, match=r"checkpoint.pt is from before"):
        check_losses({"losses/td": np.nan}, out, "ppo")


# --- environments --------------------------------------------------------------------------------


class Wild(fakes.Counter):
    """Misbehaves in its eleventh step."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def step(self, action):
        obs, *rest = super().step(action)
        if self.total == 11 and self.how == "raises":
            raise ZeroDivisionError("the wheel\ncame off")
        if self.total == 11 and self.how == "changes its shape":
            obs = obs[:2]
        return obs, *rest


def build_badly():
    raise RuntimeError("no wheels at all")


for name, how in {"Raises-v0": "raises", "Shrinks-v0": "changes its shape"}.items():
    gym.register(name, Wild, disable_env_checker=True, kwargs={"how": how})
gym.register("Unbuilt-v0", build_badly, disable_env_checker=True)


@pytest.mark.parametrize(
    "env, sentence",
    [
        (
            "Raises-v0",
            "failed in step: ZeroDivisionError: the wheel came off (test_damage.py, line",
        ),
        ("Shrinks-v0", "failed in step: ValueError"),
        ("Unbuilt-v0", "cannot make 'Unbuilt-v0': no wheels at all"),
    ],
)
def test_environments_that_misbehave_in_this_process(capsys, tmp_path, env, sentence):
    assert sentence in refused(capsys, "train", env, *DEBUG, "--run-dir", str(tmp_path / "r"))


class Own(VecEnv):
    """A family of its own: three numbers, and a reward of 1."""

    def __init__(self, dtype, reward, B):
        self.num_envs, self.obs_shape, self.action_space = B, (3,), gym.spaces.Discrete(2)
        self.dtype, self.reward = dtype, reward

    def reset(self):
        return np.ones((self.num_envs, 3), self.dtype)

    def step(self, action):
        no = np.zeros(self.num_envs, bool)
        obs = np.full((self.num_envs, 3), action[:, None], self.dtype)
        return Step(obs, obs, self.reward(self.num_envs), no, no, ~no)


@pytest.fixture
def own():
    """Registers a family that makes such an environment."""

    def add(dtype=np.float32, reward=lambda B: np.ones(B, np.float32)):
        family = Family(
            about="own",
            ids=lambda: ["Own-v0"],
            owns=lambda env_id: env_id == "Own-v0",
            make=lambda env_id, B, seed, threads, render: Own(dtype, reward, B),
        )
        FAMILIES.pop("own", None)
        register_family("own", family)

    yield add
    FAMILIES.pop("own", None)


def test_float64_and_integers_of_a_family_are_converted_at_the_door(own, tmp_path):
    found = []
    for i, (dtype, kind) in enumerate(
        [(np.float32, np.float32), (np.float64, np.float64), (np.int64, np.int64)]
    ):
        own(dtype, lambda B, kind=kind: np.ones(B, kind))
        run = small("rnd+sm", env="Own-v0", steps=128)
        train(run, out := fresh(tmp_path / str(i), run))
        found.append(read_checkpoint(out))
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


@pytest.mark.parametrize(
    "reward, sentence",
    [
        (lambda B: np.ones((B, 1), np.float32), "reward has the shape (4, 1), not (4,)"),
        (lambda B: ["a"] * B, "reward is not made of numbers"),
        (lambda B: None, "reward"),
    ],
)
def test_what_cannot_be_converted_is_refused(capsys, own, tmp_path, reward, sentence):
    own(reward=reward)
    assert sentence in refused(capsys, "train", "Own-v0", *DEBUG, "--run-dir", str(tmp_path / "r"))


def test_the_traceback_is_still_there_for_a_program(tmp_path):
    run = small("none", env="Raises-v0", steps=500)
    with pytest.raises(UserError) as caught:
        train(run, fresh(tmp_path / "r", run))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "in step" in "".join(traceback.format_tb(caught.value.__cause__.__traceback__))


# --- trust ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "NoisyTV:channels=8/"])
def test_a_run_from_elsewhere_imports_no_module_unless_it_is_trusted(
    capsys, run_dir, monkeypatch, prefix
):
    """The id `module:ID` makes Gymnasium import the module."""
    marker = run_dir / "imported"
    module = f"import pathlib; pathlib.Path({str(marker)!r}).touch()"
    (run_dir / "payload.py").write_text(module)
    monkeypatch.syspath_prepend(str(run_dir))
    monkeypatch.delitem(sys.modules, "payload", raising=False)
    config = json.loads((run_dir / "config.json").read_text())
    config["env"] = f"{prefix}payload:Payload-v0"
    (run_dir / "config.json").write_text(json.dumps(config))
    for command in (
        ["eval", str(run_dir)],
        ["show", str(run_dir)],
        ["play", TOY, "--run", str(run_dir)],
        ["mnir", str(run_dir)],
        ["inspect", str(run_dir)],
        ["figures", str(run_dir)],
    ):
        said = refused(capsys, *command)
        assert "imports the Python module 'payload'" in said and "--trust" in said
    assert not marker.exists()
    refused(capsys, "eval", str(run_dir), "--trust")  # it registers no such environment
    assert marker.exists()
