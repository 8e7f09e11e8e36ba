"""What a grid's runs compute with: devices, precision, threads."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from surprise_memory.cli import main
from surprise_memory.errors import UserError
from surprise_memory.reproduce import command
from surprise_memory.reproduce.cells import cells, digest
from surprise_memory.reproduce.command import Machine, on_machine
from surprise_memory.reproduce.grid import Grid, methods
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.ray_tune import errors_by_path, resources
from surprise_memory.training.presets import PRESETS

TOY = "ToyKeyDoor-v0"
RUN = PRESETS["debug"](TOY)


@pytest.fixture
def found(monkeypatch):
    grid = Grid("Two runs", (TOY,), methods("none", "rnd"), steps=(512, 1024))
    monkeypatch.setitem(GRIDS, "two", grid)
    return cells("two", "smoke", Path("x"), seeds=2)


def test_a_machines_gpus_take_the_runs_in_turn(found, monkeypatch):
    monkeypatch.setattr(command, "pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    placed = on_machine(found, Machine("cuda", threads=4), "local")
    assert [cell.run.device for cell in placed] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert {cell.run.threads for cell in placed} == {4}
    placed = on_machine(found, Machine("cuda:1"), "local")
    assert {cell.run.device for cell in placed} == {"cuda:1"}


def test_a_device_that_is_not_there_is_refused(found):
    with pytest.raises(UserError, match="device = 'cuda:7' is not there"):
        on_machine(found, Machine("cuda:7"), "local")


def test_ray_chooses_the_gpu_also_where_this_machine_has_none(found):
    placed = on_machine(found, Machine("cuda", threads=4), "ray")
    assert {cell.run.device for cell in placed} == {"cuda"}
    assert resources(placed[0].run) == {"cpu": 4, "gpu": 1}
    assert resources(found[0].run) == {"cpu": 1}
    with pytest.raises(UserError, match="device = 'cuda:1'"):
        on_machine(found, Machine("cuda:1"), "ray")


def test_a_device_leaves_a_runs_name_as_it_was_and_a_precision_does_not():
    assert digest(RUN) == digest(replace(RUN, device="cuda:1"))
    assert digest(RUN) != digest(replace(RUN, precision="bf16"))


def test_the_command_hands_all_of_it_to_the_runs(found, tmp_path, capsys):
    words = ["reproduce", "two", "--budget", "smoke", "--seeds", "1", "--dir", str(tmp_path)]
    assert main([*words, "--precision", "bf16", "--threads", "2", "--device", "auto"]) == 0
    configs = [json.loads(path.read_text()) for path in tmp_path.glob("two/*/config.json")]
    assert len(configs) == 2
    here = "cuda:0" if torch.cuda.is_available() else "cpu"
    told = {(c["precision"], c["threads"], c["device"]) for c in configs}
    assert told == {("bf16", 2, here)}


def test_a_runs_speed_is_measured_with_its_own_threads(monkeypatch):
    build = command.build
    threads = []

    def counting_build(run):
        threads.append(torch.get_num_threads())
        return build(run)

    monkeypatch.setattr(command, "build", counting_build)
    for number in (1, 2):
        assert command.measure_speed(replace(RUN, method="none", threads=number)) > 0
    assert threads == [1, 2]


def test_a_cluster_with_gpus_is_planned_on_a_machine_without(found, tmp_path, capsys):
    words = ["reproduce", "two", "--budget", "smoke", "--engine", "ray", "--device", "cuda"]
    assert main([*words, "--dry-run", "--dir", str(tmp_path)]) == 0
    assert f"measured just now on {TOY}, rnd, cpu" in " ".join(capsys.readouterr().out.split())


def test_of_rays_traceback_only_the_error_is_told():
    text = "ray::trial() (pid=7)\n  File 'x.py', line 1\nsurprise_memory.errors.UserError: no\n\n"
    failed = SimpleNamespace(error=RuntimeError(text), config={"path": "a"})
    silent = SimpleNamespace(error=RuntimeError(), config={"path": "b"})
    fine = SimpleNamespace(error=None, config={"path": "c"})
    assert errors_by_path([failed, silent, fine]) == {
        "a": "surprise_memory.errors.UserError: no",
        "b": "it did not say why",
    }
