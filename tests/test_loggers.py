"""Loggers: what they get, what a resumed run sends, and that none of them can cost a run."""

import inspect
import json
import random
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import matplotlib.figure
import pytest

from surprise_memory.cli import main
from surprise_memory.envs import TOY
from surprise_memory.errors import UserError
from surprise_memory.training import logger_kinds
from surprise_memory.training.config import RunConfig
from surprise_memory.training.logger_kinds import pixels
from surprise_memory.training.loggers import LOGGERS, Loggers, find_loggers, split_names

DEBUG = ["--preset", "debug", "--steps", "512", "--eval-episodes", "2"]


class Kept:
    """A logger that keeps what it gets, over processes."""

    made: ClassVar[list] = []

    def __init__(self, run_dir, config):
        self.run_dir = run_dir
        self.config = config
        self.rows = []
        self.figures = []
        self.closed = False
        Kept.made.append(self)

    def log(self, row):
        random.random()  # a library may draw from a global stream
        self.rows.append(row)

    def log_figure(self, name, figure, step):
        self.figures.append((name, pixels(figure).shape[2], step))

    def close(self):
        self.closed = True


class Failing(Kept):
    """Raises in one of its methods."""

    where = "log"

    def __init__(self, run_dir, config):
        super().__init__(run_dir, config)
        if self.where == "init":
            raise RuntimeError("no network")

    def log(self, row):
        super().log(row)
        if self.where == "log":
            raise RuntimeError("no network")

    def close(self):
        if self.where == "close":
            raise RuntimeError("no network")


class Half:
    def log(self, row):
        """All that it has."""


KEPT, FAILING = f"{__name__}:Kept", f"{__name__}:Failing"


@pytest.fixture(autouse=True)
def nothing_kept():
    Kept.made.clear()


def train(folder, *words):
    assert main(["train", TOY, *DEBUG, "--run-dir", str(folder), *words]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").open()]


def refused(capsys, *words):
    capsys.readouterr()
    assert main(["train", TOY, *DEBUG, *words]) == 2
    return capsys.readouterr().err


# --- what they get --------------------------------------------------------------------------------


def test_a_logger_of_ones_own_gets_every_row_the_score_and_the_picture(tmp_path):
    rows = train(tmp_path / "r", "--logger", KEPT, "--picture")
    (kept,) = Kept.made
    mean = json.loads((tmp_path / "r/eval.json").read_text())["mean"]
    assert kept.rows == [*rows, {"step": 512, "charts/eval_return": mean}]
    assert kept.figures == [("show", 3, 512)]
    assert kept.closed and kept.run_dir == tmp_path / "r"
    assert kept.config["env"] == TOY and kept.config["ppo.lr"] > 0
    assert json.loads((tmp_path / "r/config.json").read_text())["logger"] == KEPT
    assert not list((tmp_path / "r").glob("events*"))  # TensorBoard was not asked for


def test_a_logger_changes_no_number_of_the_run(tmp_path):
    with_one = train(tmp_path / "a", "--logger", KEPT)
    without = train(tmp_path / "b", "--logger", "jsonl")
    for row in with_one + without:
        del row["charts/SPS"]
    assert with_one == without


def test_a_resumed_run_sends_no_row_twice(tmp_path):
    """The second process begins again at the checkpoint, and the first had logged beyond it."""
    train(tmp_path / "r", "--logger", KEPT, "--steps", "256", "--eval-episodes", "0")
    logged = [row["step"] for row in Kept.made[0].rows]
    metrics = tmp_path / "r/metrics.jsonl"
    last = json.loads(metrics.read_text().splitlines()[-1])
    with metrics.open("a") as file:  # as a process that was killed before it could save
        file.write(json.dumps(last | {"step": 320}) + "\n")
    rows = train(tmp_path / "r", "--logger", KEPT, "--resume")
    assert [row["step"] for row in rows][: len(logged) + 1] == [*logged, 320]
    again = [row["step"] for row in Kept.made[1].rows]
    assert again == [384, 448, 512, 512]  # 320 was logged before; the last is the evaluation


def test_loggers_may_be_added_when_a_run_is_resumed(tmp_path):
    train(tmp_path / "r", "--logger", "jsonl", "--steps", "256")
    train(tmp_path / "r", "--logger", f"{KEPT},tensorboard", "--resume")
    assert [row["step"] for row in Kept.made[0].rows] == [320, 384, 448, 512, 512]
    assert list((tmp_path / "r").glob("events*"))


def in_tensorboard(path, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def in_another_second():
    """TensorBoard reads files by name, which has the second, then a process's own count of files.

    The tenth of a second would come before its ninth.
    """
    time.sleep(1)


def test_tensorboard_keeps_every_row_when_a_run_is_resumed_to_be_evaluated(tmp_path):
    with Loggers(find_loggers("tensorboard"), tmp_path, {}, 0) as loggers:
        for step in (100, 200, 300):
            loggers.log({"step": step, "a": step / 4}, 0)
    in_another_second()
    with Loggers(find_loggers("tensorboard"), tmp_path, {}, 300) as loggers:
        loggers.log_score(0.5, 300)
    assert in_tensorboard(tmp_path, "a") == [(100, 25), (200, 50), (300, 75)]
    assert in_tensorboard(tmp_path, "charts/eval_return") == [(300, 0.5)]


def test_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path):
    """Also where the first new row is later than the last old one: a replay was refilled."""
    with Loggers(find_loggers("tensorboard"), tmp_path, {}, 0) as loggers:
        for step in (100, 200, 300):
            loggers.log({"step": step, "a": 1.0}, 0)
    in_another_second()
    with Loggers(find_loggers("tensorboard"), tmp_path, {}, 300) as loggers:
        loggers.log({"step": 400, "a": 2.0}, 100)
    assert in_tensorboard(tmp_path, "a") == [(100, 1), (400, 2)]


def test_a_command_tells_its_loggers_what_it_took_back(tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "rewinds", True, raising=False)
    train(tmp_path / "r", "--logger", KEPT, "--steps", "256", "--eval-episodes", "0")
    train(tmp_path / "r", "--logger", KEPT, "--resume")
    assert [logger.rewound for logger in Kept.made] == [0, 256]


# --- what fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["init", "log", "close"])
def test_a_logger_that_raises_costs_one_sentence(tmp_path, capsys, monkeypatch, where):
    monkeypatch.setattr(Failing, "where", where)
    rows = train(tmp_path / "r", "--logger", f"{FAILING},{KEPT}")
    said = capsys.readouterr().err
    assert said.count("RuntimeError: no network") == said.count(f"The logger {FAILING} has") == 1
    assert (tmp_path / "r/DONE").exists() and rows[-1]["step"] == 512
    failing, kept = Kept.made
    assert len(failing.rows) == {"init": 0, "log": 1, "close": len(rows) + 1}[where]
    assert len(kept.rows) == len(rows) + 1 and kept.closed


def test_a_full_disk_of_tensorboard_is_one_sentence(tmp_path, capsys):
    class Writer:
        def __init__(self, path, purge_step):
            pass

        def add_scalar(self, name, value, step):
            raise OSError(28, "No space left on device")

    with Loggers(find_loggers("tensorboard"), tmp_path, {}, 0) as loggers:
        loggers.open["tensorboard"].make = Writer
        loggers.log({"step": 1, "a": 1.0}, 0)
        loggers.log({"step": 2, "a": 1.0}, 0)
    assert capsys.readouterr().err.count("No space left on device") == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tensorbord", "Did you mean 'tensorboard'?"),
        ("os.path:join", "has no log, log_figure, close"),
        ("no_such_module:Mine", "cannot be imported (ModuleNotFoundError"),
        (f"{__name__}:Nobody", "cannot be imported (AttributeError"),
        (f"{__name__}:Half", "has no log_figure, close"),
        ("a b:C", "package.module:Class"),
        ("", "Unknown logger ''"),
        ("jsonl,", "Unknown logger ''"),
    ],
)
def test_a_logger_that_cannot_be_is_refused_before_there_is_a_directory(
    tmp_path, capsys, name, says
):
    said = refused(capsys, "--logger", name, "--run-dir", str(tmp_path / "r"))
    assert says in said and not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_logger_that_is_not_installed_names_its_extra(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    said = refused(capsys, "--logger", name, "--run-dir", str(tmp_path / "r"))
    assert f"{name} is not installed" in said and f"surprise-memory[{name}]" in said


def test_a_picture_that_cannot_be_drawn_costs_one_sentence(tmp_path, capsys, monkeypatch):
    from surprise_memory.tools import run_figures

    def refuse(config, out, seed):
        raise UserError("It cannot be drawn.")

    monkeypatch.setattr(run_figures, "run_figure", refuse)
    train(tmp_path / "r", "--logger", KEPT, "--picture")
    assert "There is no picture: It cannot be drawn." in capsys.readouterr().err
    assert Kept.made[0].figures == []


# --- trust ----------------------------------------------------------------------------------------


def test_no_command_imports_the_logger_that_a_run_names(tmp_path, capsys, monkeypatch):
    """The run's directory may be somebody else's."""
    train(tmp_path / "r", "--logger", "jsonl")
    marker = tmp_path / "imported"
    (tmp_path / "payload.py").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = json.loads((tmp_path / "r/config.json").read_text())
    config["logger"] = "payload:Logger"
    (tmp_path / "r/config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    few = ["--episodes", "2"]
    for command, *words in (["eval", "--trust", *few], ["mnir", *few], ["inspect", "--steps", "5"]):
        main([command, str(tmp_path / "r"), *words])
    assert "Return over 2 episodes" in capsys.readouterr().out
    assert not marker.exists()
    refused(capsys, "--run-dir", str(tmp_path / "r"), "--resume", "--logger", "payload:Logger")
    assert marker.exists()  # the person at the keyboard has named it


# --- those that come with the package -------------------------------------------------------------


def test_each_service_is_at_most_25_lines():
    for name in ("wandb", "mlflow", "trackio"):
        lines = [line for line in inspect.getsource(LOGGERS[name]).splitlines() if line.strip()]
        assert len(lines) <= 25, name


class FakeRun:
    """A run of W&B or trackio."""

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda *args, **more: self.calls.append((name, args, more))


def fake_service(calls):
    def init(**options):
        calls.append(("init", (), options))
        return FakeRun(calls)

    return SimpleNamespace(init=init, Image=lambda value: ("image", value))


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_wandb_and_trackio_go_on_in_the_same_run(tmp_path, monkeypatch, name):
    calls = []
    monkeypatch.setitem(sys.modules, name, fake_service(calls))
    monkeypatch.setenv(f"{name.upper()}_PROJECT", "mine")
    figure = matplotlib.figure.Figure()
    for last, steps in ((0, (10, 20)), (20, (20, 30))):  # killed, and resumed from step 10
        with Loggers(find_loggers(name), tmp_path, {"seed": 3}, last) as loggers:
            for step in steps:
                loggers.log({"step": step, "a": 0.5}, 0)
            loggers.log_figure("show", figure, steps[-1])
    begun = [more for call, _, more in calls if call == "init"]
    assert len(begun) == 2 and begun[0] == begun[1]
    assert begun[0]["project"] == "mine" and begun[0]["resume"] == "allow"
    assert begun[0]["config"] == {"seed": 3}
    logged = [(args[0], more) for call, args, more in calls if call == "log"]
    if name == "wandb":  # its own counter must not see our steps: it refuses older ones
        assert [row["step"] for row, _ in logged] == [10, 20, 20, 30, 30]
        assert ("define_metric", ("*",), {"step_metric": "step"}) in calls
        assert logged[2][0]["show"] == ("image", figure)
    else:
        assert [more["step"] for _, more in logged] == [10, 20, 20, 30, 30]
        assert [set(row) for row, _ in logged] == [{"a"}, {"a"}, {"show"}, {"a"}, {"show"}]
    assert [call for call, _, _ in calls].count("finish") == 2
    assert find_loggers(name) == {name: LOGGERS[name]}


def test_two_runs_are_two_runs_of_a_service(tmp_path):
    ids = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        ids.add(logger_kinds.identity(tmp_path / folder, "wandb"))
    assert len(ids) == 2


def test_mlflow_has_every_row_once_after_a_resume(tmp_path, monkeypatch):
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install mlflow-skinny, or make setup"
    )
    store = f"file://{tmp_path}/mlruns"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs the whole of MLflow
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "toys")
    mlflow.set_tracking_uri(store)
    run = ["--logger", "mlflow", "--run-dir", str(tmp_path / "r")]
    assert main(["train", TOY, *DEBUG, *run, "--steps", "256", "--eval-episodes", "0"]) == 0
    with (tmp_path / "r/metrics.jsonl").open("a") as file:  # beyond the checkpoint
        file.write(json.dumps({"step": 320, "charts/SPS": 1}) + "\n")
    rows = train(tmp_path / "r", "--logger", "mlflow", "--resume", "--picture")

    client = mlflow.MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'toys'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["env"] == TOY
    history = client.get_metric_history(found.info.run_id, "charts/SPS")
    steps = [row["step"] for row in rows if row["step"] != 320]
    assert [point.step for point in history] == steps
    mean = json.loads((tmp_path / "r/eval.json").read_text())["mean"]
    assert found.data.metrics["charts/eval_return"] == pytest.approx(mean)
    assert [file.path for file in client.list_artifacts(found.info.run_id)] == ["show-512.png"]


def test_the_names_of_loggers_are_checked_without_importing_them():
    assert RunConfig(TOY, logger="no_such_module:Mine").logger == "no_such_module:Mine"
    assert split_names("mlflow, mlflow,jsonl") == ["mlflow"]
    with pytest.raises(UserError, match="Unknown logger 'wand'"):
        RunConfig(TOY, logger="wand")
