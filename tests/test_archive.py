"""One file for each grid: from it the same report, byte for byte, and nothing is lost."""

import json
import shutil

import pytest

from surprise_memory.cli import main
from surprise_memory.errors import UserError
from surprise_memory.reproduce.cells import Cell
from surprise_memory.reproduce.report.archive import archive_runs
from surprise_memory.reproduce.report.compact import FILE, as_columns, as_rows, read_records
from surprise_memory.reproduce.report.gather import gather
from surprise_memory.training.presets import PRESETS

ENV = "MiniGrid-KeyCorridorS4R3-v0"


def run_at(root, seed=0, entry="rnd", done=True, **files):
    """A run's directory as the archive kept it: its metrics are thinned already."""
    path = root / "generators" / f"{ENV}.{entry}.{seed}.{seed:08x}"
    path.mkdir(parents=True)
    run = {"preset": "default", "steps": 1000, "ppo": {"lr": 0.5}}
    about = {"grid": "generators", "entry": entry, "env": ENV, "seed": seed, "budget": "reduced"}
    written = {
        "cell.json": about | {"probes": ["doctor"], "run": run},
        "config.json": run | files.pop("config", {}),
        "eval.json": {"mean": 0.1 + seed / 7, "std": 0.0, "returns": [0.1, 1 / 3]},
        "doctor.json": {"corr": {"all": 0.25}, "first_z": {"norm": None}},
    }
    for name, content in written.items():
        (path / name).write_text(json.dumps(content, indent=2))
    rows = [{"step": 500, "charts/SPS": 7}, {"step": 1000, "charts/SPS": 9, "charts/x": 1e-7}]
    rows[seed % 2]["charts/return_128"] = 0.1234
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "versions.txt").write_text("python 3\nmachine x86_64, 2 cores\ntorch 2\n")
    if done:
        (path / "DONE").touch()
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


def pages(root, out):
    """All that a report writes, by name."""
    assert main(["report", str(root), "--out", str(out / "page")]) == 0
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_columns_and_back():
    rows = [{"step": 1, "b": 0.1}, {"step": 2, "a": 3}, {"step": 3, "b": -0.0, "a": 4}]
    assert as_rows(json.loads(json.dumps(as_columns(rows)))) == rows
    assert as_rows(as_columns([])) == []


def test_the_same_report_byte_for_byte_from_directories_from_a_file_and_from_both(tmp_path):
    root = tmp_path / "runs"
    for seed in range(3):
        run_at(root, seed)
    run_at(root, 3, "icm", done=False, config={"threads": 2})
    run_at(root, 4, "gone", config={"threads": 2})  # no grid has it, nor the next one
    lost = run_at(root, 5, "lost")
    before = pages(root, tmp_path / "a")
    assert len(before) == 4  # page.html, page.md, a picture and the list of pictures
    late = [root / "generators" / f"{ENV}.rnd.{seed}.{seed:08x}" for seed in (0, 2)]
    late.append(lost)
    for path in late:
        shutil.move(path, tmp_path / path.name)
    assert len(archive_runs(root, root)) == 3
    assert sorted(p.name for p in (root / "generators").iterdir()) == [FILE]
    for path in late:
        shutil.move(tmp_path / path.name, path)
    assert pages(root, tmp_path / "b") == before
    assert len(archive_runs(root, root)) == 3
    assert sorted(p.name for p in (root / "generators").iterdir()) == [FILE]
    assert pages(root, tmp_path / "c") == before


def test_the_file_holds_everything_but_what_was_thinned(tmp_path):
    path = run_at(tmp_path / "runs", 1, config={"threads": 2})
    content = {name: json.loads((path / name).read_text()) for name in ("cell.json", "config.json")}
    archive_runs(tmp_path / "runs", tmp_path / "archive")
    assert path.exists()  # copied, not moved
    (record,) = read_records(tmp_path / "archive" / "generators" / FILE)
    assert record["name"] == path.name and record["done"] is True
    assert record["cell"] == content["cell.json"] and record["config"] == content["config.json"]
    assert record["eval"]["returns"] == [0.1, 1 / 3]
    assert record["probes"] == {"doctor": {"corr": {"all": 0.25}, "first_z": {"norm": None}}}
    assert record["versions"].splitlines()[0] == "python 3"
    assert as_rows(record["metrics"])[1]["charts/x"] == 1e-7


def test_archiving_again_replaces_a_run_and_keeps_the_others(tmp_path):
    for seed in range(2):
        run_at(tmp_path / "a", seed)
    archive_runs(tmp_path / "a", tmp_path / "archive")
    path = run_at(tmp_path / "b", 1)
    (path / "eval.json").write_text('{"mean": 9.0}')
    run_at(tmp_path / "b", 2)
    archive_runs(tmp_path / "b", tmp_path / "archive")
    records = read_records(tmp_path / "archive" / "generators" / FILE)
    assert [record["cell"]["seed"] for record in records] == [0, 1, 2]
    assert [record["eval"]["mean"] for record in records] == [0.1, 9.0, 0.1 + 2 / 7]
    lines = (tmp_path / "archive" / "generators" / FILE).read_text().splitlines()
    assert len(lines) == 4  # one for each run, so that a diff shows the run


def test_nothing_is_moved_that_may_still_be_needed(tmp_path):
    trained = run_at(tmp_path, 0, checkpoint_pt="weights")
    strange = run_at(tmp_path, 1, notes_txt="mine")
    begun = run_at(tmp_path, 2, done=False)
    (begun / "doctor.json").unlink()
    assert archive_runs(tmp_path, tmp_path) == []
    assert all((path / "metrics.jsonl").exists() for path in (trained, strange, begun))


def test_a_finished_cell_is_not_made_again_after_it_was_moved_into_the_file(tmp_path):
    paths = [run_at(tmp_path, 0), run_at(tmp_path, 1, done=False)]
    run = PRESETS["debug"](ENV)
    done, undone = (Cell("generators", "rnd", ENV, 0, run, path) for path in paths)
    assert done.finished and not undone.finished
    archive_runs(tmp_path, tmp_path)
    assert not any(path.exists() for path in paths)
    assert done.finished and not undone.finished
    (tmp_path / "generators" / FILE).unlink()
    assert not done.finished


def test_a_run_that_is_there_twice_is_refused(tmp_path):
    path = run_at(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    archive_runs(tmp_path, tmp_path)
    shutil.move(tmp_path / "copy", path)
    with pytest.raises(UserError, match="is a directory, and also in"):
        gather(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "../x"}, "its name is"),
        ({"name": ".."}, "its name is"),
        ({"name": 3}, "its name is"),
        ({"cell": {}}, "in its cell, its 'grid' is missing"),
        ({"metrics": {"step": [1], "x": [1, 2]}}, "no rows"),
        ({"metrics": {"x": [1]}}, "no rows"),
        ({"metrics": [1]}, "no columns"),
        ({"probes": {"../secret": {}}}, "a probe"),
        ({"done": "yes"}, "its 'done' is no bool"),
        ({"versions": 7}, "its 'versions' is no str"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, change, says):
    run_at(tmp_path)
    archive_runs(tmp_path, tmp_path)
    file = tmp_path / "generators" / FILE
    head, line = file.read_text().splitlines()
    file.write_text(f"{head}\n{json.dumps(json.loads(line) | change)}\n")
    with pytest.raises(UserError, match=says) as caught:
        gather(tmp_path)
    assert "line 2" in str(caught.value)


def test_a_file_that_was_cut_or_is_from_elsewhere_is_refused(tmp_path):
    run_at(tmp_path)
    archive_runs(tmp_path, tmp_path)
    file = tmp_path / "generators" / FILE
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged at line 2"):
        gather(tmp_path)
    file.write_text(whole.split("\n", 1)[1])
    with pytest.raises(UserError, match="it is from elsewhere"):
        gather(tmp_path)


@pytest.mark.parametrize("key", ["done", "probes", "versions", "eval"])
def test_what_a_record_may_lack_is_no_error(tmp_path, key):
    run_at(tmp_path / "runs")
    archive_runs(tmp_path / "runs", tmp_path / "kept")
    file = tmp_path / "kept" / "generators" / FILE
    head, line = file.read_text().splitlines()
    record = json.loads(line)
    del record[key]
    file.write_text(f"{head}\n{json.dumps(record)}\n")
    ((study,), _) = gather(tmp_path / "kept")
    assert len(study.results) == 1
    assert (study.results[0].score is None) == (key in ("done", "eval"))
