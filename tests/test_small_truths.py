"""Small truths about commands: what is listed, what is told on the way, what a cell remembers."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

from surprise_memory import register_stage
from surprise_memory.cli import main
from surprise_memory.envs import TOY, list_envs
from surprise_memory.registry import OPTIONS
from surprise_memory.reproduce import cells as cells_module
from surprise_memory.reproduce.cells import cells, make, prepare
from surprise_memory.reproduce.grid import Entry, Grid
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.stages import STAGES
from surprise_memory.tools.doctor.stream import _bytes_to_keys
from surprise_memory.training.progress import status


def test_every_environment_is_listed_once():
    pytest.importorskip("minigrid.envs")  # registers its ids with Gymnasium
    names = list_envs()
    assert len(names) == len(set(names)) and "MiniGrid-DoorKey-8x8-v0" in names


def test_without_a_terminal_every_quarter_is_told_with_the_time_that_is_left(capsys, monkeypatch):
    seconds = iter(range(0, 1000, 40))  # begun at 0; the quarters are told after 40, 80, 120
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    with status("examining") as progress:
        for i in range(41):
            progress("seed 0", i / 40)
    told = capsys.readouterr().err.splitlines()
    left = ("", ", 2 min left", ", 1 min left", ", 40 s left", "")
    quarters = zip((0, 25, 50, 75, 100), left, strict=True)
    assert told == [f"examining: {share} % (seed 0){rest}" for share, rest in quarters]


def test_the_doctor_tells_where_it_is(capsys, tmp_path):
    words = ["--preset", "debug", "--seeds", "1", "--rollouts", "3", "--workers", "1"]
    assert main(["doctor", TOY, *words, "--out", str(tmp_path)]) == 0
    assert "examining: 50 %" in capsys.readouterr().err


def test_visit_keys_are_the_same_in_every_process():
    """They are no Python hashes, which every process salts anew."""
    keys = _bytes_to_keys(np.arange(6, dtype=np.int64).reshape(3, 2))
    assert keys.tolist() == [8118103383084794603, 2068279573001530991, -5908861140318156834]


@dataclass(frozen=True)
class Mine:
    """The options of a part from outside."""

    rate: float = 0.5


def test_a_cell_has_the_options_of_registered_parts(tmp_path, monkeypatch):
    register_stage("mine", lambda *_: None, "for this test", options=Mine)
    entry = Entry("rnd", (("bonus.mine.rate", 0.25),), "quarter")
    monkeypatch.setitem(GRIDS, "own", Grid("own", (TOY,), (entry,), (100, 100)))
    trained = []
    monkeypatch.setattr(cells_module, "train", lambda run, out: (trained.append(run), out.finish()))
    try:
        (cell,) = cells("own", "smoke", tmp_path)
        prepare(cell)
        make(cell.path)
        (run,) = trained
        assert run.bonus.mine.rate == 0.25
        assert dataclasses.asdict(run) == dataclasses.asdict(cell.run)
    finally:
        del OPTIONS["mine"], STAGES["mine"]
