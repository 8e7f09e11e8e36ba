"""What the command line says: help, versions, what is missing, and what does not fit together."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import fakes
import gymnasium as gym
import pytest

from surprise_memory import __version__
from surprise_memory.cli import main
from surprise_memory.cli.main import COMMANDS, about, function_of
from surprise_memory.envs import TOY
from surprise_memory.errors import UserError, need
from surprise_memory.training.rundir import RunDir

RESULTS = Path(__file__).parents[1] / "results"
DEBUG = ["--preset", "debug", "--steps", "256", "--eval-episodes", "2"]


class Blind(fakes.Counter):
    """Takes a render_mode and draws nothing."""

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        """No image."""


class Unwritten(Blind):
    """The same, as Gymnasium's base class leaves it."""

    def render(self):
        raise NotImplementedError


gym.register("Undrawn-v0", fakes.Counter, disable_env_checker=True)
gym.register("Blind-v0", Blind, disable_env_checker=True)
gym.register("Unwritten-v0", Unwritten, disable_env_checker=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs on the toy, and on an environment that cannot be drawn."""
    root = tmp_path_factory.mktemp("runs")
    for env in (TOY, "Undrawn-v0"):
        assert main(["train", env, *DEBUG, "--run-dir", str(root / env)]) == 0
    return root


def refused(capsys, *words):
    """The one sentence on standard error of a call that must exit with 2."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("surprise-memory: ") and "\n" not in said
    return said


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"surprise-memory {__version__}\n"


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_help_is_a_page_and_names_the_rest(capsys, command):
    texts = {}
    for option in ("--help", "-h", "--help-all"):
        with pytest.raises(SystemExit) as stop:
            main([command, option])
        assert stop.value.code == 0
        texts[option] = capsys.readouterr().out
    assert texts["--help"] == texts["-h"]
    assert "--method" in texts["--help"] and "--help-all" in texts["--help"]
    assert "--ppo.lr" not in texts["--help"] and len(texts["--help"].splitlines()) < 60
    assert "--ppo.lr" in texts["--help-all"] and "--bonus.rnd.n" in texts["--help-all"]


def test_what_is_missing_is_said_for_a_clone_too():
    with pytest.raises(UserError, match=r"pip install -e '\.\[report\]'"):
        need("no_such_module", extra="report")


def test_without_tensorboard_a_run_says_so_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run = tmp_path / "run"
    assert main(["train", TOY, *DEBUG, "--method", "none", "--run-dir", str(run)]) == 0
    said = capsys.readouterr().err
    assert said.count("TensorBoard is not installed") == 1 and "metrics.jsonl" in said
    assert not list(run.glob("events*"))


def scalars(path, name):
    """(step, value) pairs as TensorBoard shows them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(path))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(name)]


def test_tensorboard_has_the_evaluation(runs):
    result = json.loads((runs / TOY / "eval.json").read_text())
    ((step, value),) = scalars(runs / TOY, "charts/eval_return")
    assert step == RunDir(runs / TOY).last_row()["step"]
    assert value == pytest.approx(result["mean"])


def test_an_environment_that_cannot_be_drawn(capsys, runs, tmp_path):
    said = refused(capsys, "show", runs / "Undrawn-v0")
    assert "Undrawn-v0 cannot be drawn" in said
    for env in ("Undrawn-v0", "Blind-v0", "Unwritten-v0"):
        said = refused(capsys, "play", env, "--out", tmp_path / "x.gif")
        assert f"{env} cannot be drawn: " in said


def test_a_missing_pygame_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    said = refused(capsys, "play", "CartPole-v1", "--steps", 5, "--out", tmp_path / "x.gif")
    assert "pygame is not installed" in said


def test_a_run_plays_only_what_it_can_see(capsys, runs, tmp_path):
    words = ["--run", runs / TOY, "--out", tmp_path / "x.gif", "--steps", 5]
    said = refused(capsys, "play", "CartPole-v1", *words)
    assert f"trained on {TOY}" in said and "CartPole-v1" in said
    shutil.rmtree(tmp_path / "x.gif", ignore_errors=True)
    assert main([str(word) for word in ("play", TOY, *words)]) == 0


@pytest.mark.parametrize("content", ["[]", "null", '"x"', "3", "{}", '{"env": {}}', '{"env": '])
def test_a_damaged_config_is_named(capsys, runs, tmp_path, content):
    run = shutil.copytree(runs / TOY, tmp_path / "run")
    (run / "config.json").write_text(content)
    for words in (["eval"], ["show"], ["inspect"], ["figures"], ["mnir"], ["play", TOY, "--run"]):
        assert "config.json" in refused(capsys, *words, run)


def test_a_run_that_is_none_is_one_sentence(capsys, tmp_path):
    (tmp_path / "file").write_text("no run")
    for place in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        for words in (
            ["eval"],
            ["show"],
            ["inspect"],
            ["figures"],
            ["mnir"],
            ["play", TOY, "--run"],
        ):
            assert f"{place} is not a run directory" in refused(capsys, *words, place)
        assert "holds no runs" in refused(capsys, "report", place)


def test_a_run_without_a_checkpoint(capsys, runs, tmp_path):
    run = shutil.copytree(runs / TOY, tmp_path / "run")
    (run / "checkpoint.pt").unlink()
    for words in (["eval"], ["show"], ["inspect"], ["figures"], ["mnir"], ["play", TOY, "--run"]):
        assert "has no checkpoint.pt" in refused(capsys, *words, run)


def test_seeds_of_episodes_have_a_range(capsys, runs):
    for words in (["show"], ["inspect"], ["figures"], ["mnir"], ["play", TOY, "--run"]):
        for seed in (-1, 2**31):
            assert f"seed = {seed}" in refused(capsys, *words, runs / TOY, "--seed", seed)


@pytest.mark.parametrize("name", ["bars.xyz", "bars", "bars.json"])
def test_a_picture_or_video_of_another_kind_is_refused_before_the_work(
    capsys, runs, tmp_path, monkeypatch, name
):
    monkeypatch.setattr("surprise_memory.tools.episode.trained", None)  # would be a traceback
    monkeypatch.setattr("surprise_memory.tools.episode.play", None)
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "mnir", runs / TOY, "--out", name)
    assert f"out = '{name}' is not possible" in said and ".png, .jpg, .pdf or .svg" in said
    assert "neither an .mp4 nor a .gif" in refused(capsys, "play", TOY, "--out", name)


def test_what_cannot_be_written_is_one_sentence(capsys, runs, tmp_path):
    (tmp_path / "file").write_text("in the way")
    inside = tmp_path / "file" / "x"
    small = ["--preset", "debug", "--seeds", 1, "--rollouts", 2]
    assert "Not a directory" in refused(capsys, "doctor", TOY, *small, "--out", inside)
    assert str(tmp_path / "file") in refused(capsys, "inspect", runs / TOY, "--out", inside)
    assert "Not a directory" in refused(capsys, "figures", runs / TOY, "--out", inside)
    video = ["play", TOY, "--steps", 3, "--out", tmp_path / "file" / "x.gif"]
    assert str(tmp_path / "file") in refused(capsys, *video)


def test_what_needs_no_torch_does_not_wait_for_it(tmp_path):
    """Importing torch takes two seconds."""
    shutil.copytree(RESULTS / "t-maze", tmp_path / "t-maze")
    script = """
import sys
from surprise_memory.cli import main
listing = [], ["--help"], ["--version"], ["envs", "Lava"], ["reproduce"], ["no-such"]
for argv in (*listing, ["report", sys.argv[1]]):
    main(argv)
    assert "torch" not in sys.modules, argv
"""
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=True, stdout=subprocess.DEVNULL
    )
    assert "reproduce t-maze" in (tmp_path / "report.md").read_text()


def test_the_list_of_commands_shows_the_first_line_of_each_docstring():
    for name in COMMANDS:
        assert about(name) == (function_of(name).__doc__ or "").partition("\n")[0] != ""


@pytest.mark.parametrize("words", [["methods"], ["train", TOY]])
def test_without_the_extra_cli_a_command_says_what_to_install(capsys, monkeypatch, words):
    """`pip install .` brings the command, but nothing that it reads its options with."""
    for name in [name for name in sys.modules if name.startswith("surprise_memory.cli.")]:
        if name != "surprise_memory.cli.main":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tyro", None)
    said = refused(capsys, *words)
    assert "tyro is not installed: pip install 'surprise-memory[cli]'" in said


def test_an_environment_of_ones_own_that_is_not_found_is_told_how_to_be(capsys, tmp_path):
    where = ["--run-dir", tmp_path / "run"]
    said = refused(capsys, "train", "my_own_tasks:Maze-v0", *DEBUG, *where)
    assert "no Python module 'my_own_tasks'" in said and "PYTHONPATH=." in said
    said = refused(capsys, "train", "MyMaze-v0", *DEBUG, *where)
    assert "One of your own is module:ID" in said


def test_a_module_that_lacks_another_one_is_not_itself_called_missing(
    capsys, tmp_path, monkeypatch
):
    (tmp_path / "half_tasks.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = refused(capsys, "train", "half_tasks:Maze-v0", *DEBUG, "--run-dir", tmp_path / "run")
    assert "nowhere_at_all" in said and "no Python module 'half_tasks'" not in said


def test_names_with_commas_can_be_told_from_each_other(capsys, tmp_path):
    words = ["reproduce", "t-maze", "--dry-run", "--dir", tmp_path, "--methods", "?"]
    assert "There are: 'none, dqn', 'none, ppo'." in refused(capsys, *words)


def test_a_name_in_capitals_is_taken_for_the_nearest_in_any(capsys, tmp_path):
    for method, meant in (("RND", "rnd"), ("rnd+SM", "rnd+sm")):
        said = refused(capsys, "train", TOY, "--method", method, "--run-dir", tmp_path / "run")
        assert f"Did you mean '{meant}'?" in said


def test_playing_a_run_trusts_the_module_that_the_user_names(capsys, runs, tmp_path, monkeypatch):
    code = "import gymnasium, surprise_memory.envs.toy as toy\n"
    (tmp_path / "named_tasks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(runs / TOY, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["env"] = "named_tasks:Maze-v0"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    play = ["play", "named_tasks:Maze-v0", "--run", tmp_path / "run"]
    assert "--trust" not in refused(capsys, *play)  # it goes on to make the environment
    assert "--trust" in refused(capsys, "play", "other_tasks:Maze-v0", "--run", tmp_path / "run")


def test_runs_on_two_environments_are_named_when_they_are_compared(capsys, runs):
    said = refused(capsys, "show", runs / TOY, "--beside", runs / "Undrawn-v0")
    assert f"The runs are on {TOY} and Undrawn-v0: name runs on one environment." in said


def test_a_resumed_run_names_forgotten_options_before_it_plans(capsys, runs):
    """The plan of the preset's 64 x 128 steps would be refused, for a reason of no use."""
    said = refused(capsys, "train", TOY, "--resume", "--steps", 512, "--run-dir", runs / TOY)
    assert "preset" in said and "Repeat the options that it was begun with" in said


@pytest.mark.parametrize("words", ["--agent dqn", "--steps 1k", "--ppo.lr 1", "--eval_episodes=3"])
def test_the_doctor_refuses_what_it_has_no_use_for(capsys, tmp_path, words):
    said = refused(
        capsys, "doctor", TOY, "--preset", "debug", *words.split(), "--out", tmp_path / "x"
    )
    assert "is of no use to the doctor" in said and not (tmp_path / "x").exists()


def test_the_doctor_without_matplotlib_keeps_what_it_found(capsys, monkeypatch, tmp_path):
    """It failed after minutes of work, though the picture is the least of it."""
    for name in [*sys.modules, "matplotlib"]:
        if name.partition(".")[0] == "matplotlib":  # other tests may have imported it
            monkeypatch.setitem(sys.modules, name, None)
    small = ["--preset", "debug", "--seeds", "1", "--rollouts", "2", "--workers", "1"]
    assert main(["doctor", TOY, *small, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "There is no picture: matplotlib is not installed" in said.err
    assert "Is it alive?" in said.out and "Picture" not in said.out
    assert json.loads((tmp_path / "doctor.json").read_text())["env"] == TOY


@pytest.mark.parametrize("name", ["x[/b]y", "a[bold]run"])
def test_brackets_in_a_path_are_no_markup(tmp_path, capsys, name):
    """Rich reads them as its own: it failed, or left them out."""
    path = tmp_path / name
    words = ["--preset", "debug", "--steps", "65", "--eval-episodes", "1", "--logger", "jsonl"]
    assert main(["train", "ToyKeyDoor-v0", *words, "--run-dir", str(path)]) == 0
    said = capsys.readouterr().out.replace("\n", "")
    assert said.count(name) == 2  # at the start and at the end
