"""Files that torch saves: whole, checked, harmless; and the checkpoint before the damaged one."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import torch

from surprise_memory import torch_files
from surprise_memory.cli import main
from surprise_memory.envs import TOY
from surprise_memory.errors import UserError
from surprise_memory.torch_files import Damaged, load, save
from surprise_memory.training.checkpoint import read_checkpoint
from surprise_memory.training.rundir import RunDir

DEBUG = ["--preset", "debug", "--eval-episodes", "0", "--save-minutes", "0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small finished run."""
    path = tmp_path_factory.mktemp("runs") / "a run"
    assert main(["train", TOY, *DEBUG, "--steps", "256", "--run-dir", str(path)]) == 0
    return path


@pytest.fixture
def run_dir(finished, tmp_path):
    """A copy of it that a test may break; its name has a space."""
    return shutil.copytree(finished, tmp_path / "a run")


def test_what_is_saved_is_loaded(tmp_path):
    content = {"weights": torch.arange(6.0).reshape(2, 3), "names": ["a", "b"], "steps": 7}
    save(content, tmp_path / "x.pt")
    found = load(tmp_path / "x.pt")
    assert torch.equal(found.pop("weights"), content.pop("weights"))
    assert found == content


def test_every_flipped_bit_is_refused(finished, tmp_path):
    """Also in the checksum itself, and in every part of the archive."""
    good = (finished / "checkpoint.pt").read_bytes()
    bad = tmp_path / "bad.pt"
    rng = np.random.default_rng(0)
    places = [*rng.integers(0, len(good), 100).tolist(), *range(len(good) - 60, len(good))]
    for place in places:
        data = bytearray(good)
        data[place] ^= 1 << int(rng.integers(8))
        bad.write_bytes(data)
        with pytest.raises(Damaged):
            load(bad)


@pytest.mark.parametrize("length", [0, 5, 60, 5000, -1, -55])
def test_a_cut_file_is_refused(finished, tmp_path, length):
    (tmp_path / "cut.pt").write_bytes((finished / "checkpoint.pt").read_bytes()[:length])
    with pytest.raises(Damaged, match="does not end with its checksum"):
        load(tmp_path / "cut.pt")


def test_a_zeroed_page_is_refused(finished, tmp_path):
    data = bytearray((finished / "checkpoint.pt").read_bytes())
    for start in range(0, len(data), 4096):
        damaged = data.copy()
        damaged[start : start + 4096] = bytes(len(damaged[start : start + 4096]))
        (tmp_path / "z.pt").write_bytes(damaged)
        with pytest.raises(Damaged):
            load(tmp_path / "z.pt")


def test_a_file_larger_than_a_piece_is_checked_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_files, "PIECE", 64)
    save(torch.arange(100), tmp_path / "x.pt")
    assert load(tmp_path / "x.pt")[-1] == 99
    data = bytearray((tmp_path / "x.pt").read_bytes())
    data[-torch_files.END - 1] ^= 1
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(Damaged, match="checksum is wrong"):
        load(tmp_path / "x.pt")


def test_checkpoints_run_no_code(tmp_path):
    """Not even one with a right checksum."""

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    out = RunDir(tmp_path)
    save({"format": Evil()}, out.checkpoint)
    with pytest.raises(UserError, match="nothing in it was run"):
        read_checkpoint(out)
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_of_an_earlier_version_is_refused(finished, tmp_path):
    out = RunDir(tmp_path)
    content = load(finished / "checkpoint.pt") | {"format": "surprise-memory checkpoint 2"}
    torch.save(content, out.checkpoint)
    with pytest.raises(UserError, match="an earlier version wrote it"):
        read_checkpoint(out)
    save(content, out.checkpoint)
    with pytest.raises(UserError, match="not a 'surprise-memory checkpoint 4'"):
        read_checkpoint(out)


def test_the_checkpoint_before_a_damaged_one_is_offered_and_the_cure_works(run_dir, capsys):
    out = RunDir(run_dir)
    newest = read_checkpoint(out)["runner"]["steps"]
    data = bytearray(out.checkpoint.read_bytes())
    data[len(data) // 2] ^= 1
    out.checkpoint.write_bytes(data)
    words = ["train", TOY, *DEBUG, "--steps", "512", "--run-dir", str(run_dir), "--resume"]
    rows = out.metrics.read_text()
    for command in (["eval", str(run_dir)], words):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "checksum is wrong" in said and "Traceback" not in said
    assert out.metrics.read_text() == rows
    cure = said.split("`")[1]
    assert cure.startswith("mv ")
    subprocess.run(cure, shell=True, check=True)
    assert 0 < read_checkpoint(out)["runner"]["steps"] <= newest
    assert main(words) == 0
    assert read_checkpoint(out)["runner"]["steps"] == 512


def test_the_checkpoint_before_is_kept_without_links(tmp_path, monkeypatch):
    def link(source, target):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", link)
    for number in (1, 2, 3):
        save(number, tmp_path / "x.pt", tmp_path / "before.pt")
    assert (load(tmp_path / "x.pt"), load(tmp_path / "before.pt")) == (3, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.pt", "x.pt"]
