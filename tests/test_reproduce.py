"""Grids: what is run, that runs survive any death, that failures are told, that Ray agrees."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import surprise_memory
from surprise_memory.cli import main
from surprise_memory.envs import TOY
from surprise_memory.errors import UserError
from surprise_memory.files import read_json
from surprise_memory.reproduce import cells as cells_module
from surprise_memory.reproduce.celldir import ARCHIVED_FILES, PROBE_NAMES, in_use, probe_path
from surprise_memory.reproduce.cells import Cell, cells, digest, make, prepare, with_options
from surprise_memory.reproduce.command import small_piece
from surprise_memory.reproduce.grid import Entry, Grid, methods
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.live import Live, hours
from surprise_memory.reproduce.local import GridProgress, run_local, settle
from surprise_memory.reproduce.noise_grids import LATE_TRUST
from surprise_memory.reproduce.probes import PROBES
from surprise_memory.reproduce.published import ATARI, GAMES
from surprise_memory.reproduce.report.compact import FILE, record_of, write_records
from surprise_memory.reproduce.report.doctor_table import memory_table
from surprise_memory.reproduce.report.gather import Result, Study, gather
from surprise_memory.reproduce.report.page import about
from surprise_memory.reproduce.report.table import MISSING, number, without_empty_columns
from surprise_memory.reproduce.report.tables import (
    counterpart,
    human_table,
    overall_table,
    solved_at,
    tables,
)
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import Locked, RunDir, flatten

ROOT = Path(__file__).parents[1]

CHROMIUM = Path("/usr/bin/chromium")
OWN_PROCESS = "SURPRISE_MEMORY_TEST_ALONE"  # set where a test runs in a process of its own
TINY = Grid(
    "two methods on a toy",
    (TOY,),
    methods("rnd", "rnd+sm"),
    (1_000, 2_000),
    published={(TOY, "rnd"): (1.5, 0.5)},
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(GRIDS, "tiny", TINY)


def cell_of(path, **changes):
    run = dataclasses.replace(PRESETS["debug"](TOY), steps=512, eval_episodes=2, **changes)
    return Cell("tiny", run.method, run.env, run.seed, run, path)


# --- what is run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", GRIDS)
@pytest.mark.parametrize("budget", ["smoke", "reduced", "full"])
def test_every_grid_is_a_list_of_different_runs(tmp_path, what, budget):
    found = cells(what, budget, tmp_path)
    assert len({cell.path for cell in found}) == len(found)
    if budget != "smoke":  # whose settings have some options already
        assert len({digest(cell.run) for cell in found}) == len(found)
    reduced, full = GRIDS[what].steps
    assert reduced < full
    steps = {"smoke": 1_024, "reduced": reduced, "full": full}
    for cell in found:
        own = {}
        if budget == "reduced":
            own = GRIDS[what].env_steps
        assert cell.run.steps == own.get(cell.env, steps[budget])
    if budget == "full" and GRIDS[what].preset == "paper":
        assert {cell.run.preset for cell in found} == {"paper"}
        assert {cell.seed for cell in found} == set(range(5))


def test_grids_that_are_compared_give_a_task_the_same_steps():
    noise, parts, ablation = (GRIDS[name] for name in ("noise", "noise-parts", "noise-ablation"))
    assert noise.steps == parts.steps == ablation.steps
    for env in noise.envs:
        assert noise.env_steps.get(env) == parts.env_steps.get(env) == ablation.env_steps.get(env)


def test_an_environment_may_have_steps_of_its_own_at_the_budget_reduced_alone(tmp_path):
    def steps(budget):
        return {cell.env: cell.run.steps for cell in cells("noise", budget, tmp_path, seeds=1)}

    door_key = "NoisyTV/MiniGrid-DoorKey-8x8-v0"
    assert steps("reduced")[door_key] == 600_000
    assert steps("reduced")["MiniGrid-KeyCorridorS4R3-v0"] == 1_400_000
    assert set(steps("smoke").values()) == {1_024}
    assert set(steps("full").values()) == {5_000_000}


def test_table_1_is_the_papers():
    found = cells("table-1", "full", Path("x"))
    assert len(found) == 27 * 5 and {cell.run.steps for cell in found} == {10_000_000}
    assert {(cell.env, cell.entry) for cell in found} == set(GRIDS["table-1"].published)
    seeds = [cell.seed for cell in found]
    assert seeds == sorted(seeds)  # all cells once before any twice


def test_options_that_came_or_went_leave_a_runs_name_as_it_was():
    """Its settings of then, spelt as of today, are those of a run in the archive."""
    archived = (ROOT / "results" / "noise-ablation" / "runs.jsonl").read_text()
    env = "MiniGrid-KeyCorridorS4R3-v0"
    found = cells("noise-ablation", "reduced", Path("anywhere"), seeds=3)
    then = [c.path.name for c in found if (c.env, c.entry) == (env, LATE_TRUST.name)]
    assert len(then) == 3
    assert all(f'"{name}"' in archived for name in then)


def test_options_reach_the_run_and_change_its_name():
    run = PRESETS["debug"](TOY)
    other = with_options(run, {"bonus.memory.slots": 7, "ppo.lr": 0.5})
    assert other.bonus.memory.slots == 7
    assert other.ppo.lr == 0.5
    assert other.bonus.memory.width == run.bonus.memory.width
    assert digest(run) != digest(other)
    assert digest(run) == digest(dataclasses.replace(run, threads=2, save_minutes=9.0))
    assert digest(run) != digest(dataclasses.replace(run, seed=1))
    sizes = {
        (c.run.bonus.memory.slots, c.run.bonus.memory.width)
        for c in cells("ablation-size", "full", Path("x"))
    }
    assert sizes == {(32, 4), (128, 16), (1024, 64)}


def test_single_changes_account_for_all_that_the_presets_do_differently(tmp_path):
    # What is left concerns parts that RND+SM on Key-Door does not have, or rewards beyond 1.
    elsewhere = ("preset", "steps", "dqn.", "bonus.icm", "bonus.ae", "bonus.disagree", "bonus.lwm")
    elsewhere += ("ppo.reward_clip", "bonus.ignore_noise")

    def settings(cell):
        return flatten(dataclasses.asdict(cell.run))

    def left(run, other):
        return {k for k in run if run[k] != other[k] and not k.startswith(elsewhere)}

    key_door = [c for c in cells("our-settings", "reduced", tmp_path) if "DoorKey" in c.env]
    paper, *_, both = map(settings, key_door)
    ours, *changed = map(settings, cells("papers-settings", "reduced", tmp_path))
    assert not left(both, ours)
    single = [left(run, ours) for run in changed]
    assert set().union(*single) == left(paper, ours)
    for run, names in zip(changed, single, strict=True):
        assert names and all(run[name] == paper[name] for name in names)


def test_the_wish_for_something_else_is_refused(capsys, tmp_path):
    for words, says in (
        (["tabel-1"], "Did you mean 'table-1'"),
        (["table-1", "--jobs", "0"], "jobs = 0"),
        (["table-1", "--seeds", "0"], "seeds = 0"),
        (["table-1", "--methods", "rnd+smm"], "Did you mean 'rnd+sm'"),
        (["table-1", "--envs", "KeyDoor"], "Did you mean 'Key-Door'"),
    ):
        assert main(["reproduce", *words, "--dir", str(tmp_path)]) == 2
        assert says in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no runs" in capsys.readouterr().err
    assert main(["reproduce"]) == 0
    assert "table-1" in capsys.readouterr().out


def test_a_dry_run_makes_nothing(capsys, tmp_path, tiny):
    words = ["reproduce", "tiny", "--budget", "smoke", "--dir", str(tmp_path / "r"), "--dry-run"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "2 runs, 0 finished" in said and "steps a second" in said and "seed 0" in said
    assert not (tmp_path / "r").exists()


def test_rows_and_environments_of_a_table_can_be_selected(capsys, tmp_path):
    words = ["reproduce", "table-1", "--seeds", "1", "--dir", str(tmp_path), "--dry-run"]
    lava = "MiniGrid-LavaCrossingS11N5-v0"
    assert main([*words, "--methods", "none", "rnd", "--envs", "Key-Door", lava]) == 0
    said = capsys.readouterr().out
    assert "4 runs, 0 finished" in said
    for env in ("MiniGrid-DoorKey-16x16-v0", lava):
        for method in ("none", "rnd"):
            assert f"{env} · {method} · seed 0" in said


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_the_piece_that_is_timed_has_the_minibatches_of_its_run(preset):
    run = PRESETS[preset]("MiniGrid-DoorKey-16x16-v0")
    piece = small_piece(run)
    assert piece.envs == 8 < run.envs
    for part in ("ppo", "bonus"):
        rows = run.envs * run.rollout / getattr(run, part).minibatches
        assert piece.envs * piece.rollout / getattr(piece, part).minibatches == rows
    agent_steps = (piece.envs, run.envs)  # behind one step of all environments
    assert piece.dqn.updates / agent_steps[0] == run.dqn.updates / agent_steps[1]
    assert small_piece(piece) == piece


def test_one_run_takes_as_long_however_many_may_run(tmp_path):
    cell = cell_of(tmp_path / "a")
    assert hours([cell], {}, 4.0, 8) == hours([cell], {}, 4.0, 1)


def test_the_time_left_is_steps_over_speed(tmp_path):
    one, two = cell_of(tmp_path / "a"), cell_of(tmp_path / "b", method="rnd")
    known = {(TOY, "rnd+sm"): 8.0}
    assert 3600 * hours([one, two], known, 4.0, 2) == pytest.approx((3 + 512 / 8 + 3 + 512 / 4) / 2)
    two.path.mkdir()
    (two.path / "DONE").touch()
    assert 3600 * hours([one, two], known, 4.0, 1) == pytest.approx(3 + 512 / 8)


def test_the_newest_row_is_read_from_the_end_of_the_file(tmp_path, monkeypatch):
    out = RunDir(tmp_path)
    assert out.last_row() == {}
    for step in range(500):
        out.log({"step": step})
    assert out.last_row() == {"step": 499} == list(out.rows())[-1]
    with open(out.metrics, "a") as file:
        file.write('{"step": 5')  # cut off by a crash
    monkeypatch.setattr("surprise_memory.training.rundir.TAIL", 30)
    assert out.last_row() == {"step": 499}


# --- running --------------------------------------------------------------------------------------


def test_a_cell_that_fails_is_told_and_the_others_go_on(tmp_path):
    good, bad = cell_of(tmp_path / "t" / "good"), cell_of(tmp_path / "t" / "bad")
    bad = dataclasses.replace(bad, env="nonsense", run=dataclasses.replace(bad.run, env="nonsense"))
    progress = run_local([bad, good], 1, lambda progress: None)
    assert [cell.path.name for cell in progress.done] == ["good"]
    assert list(progress.failed) == [bad.name]
    why = progress.failed[bad.name]
    assert "exit code 1" in why and "Unknown environment 'nonsense'" in why
    settle(progress, good, -9)
    assert "killed by signal 9" in progress.failed[good.name]


def test_a_cell_that_cannot_begin_does_not_stop_the_others(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "file").touch()
    good, bad = cell_of(tmp_path / "t" / "good"), cell_of(tmp_path / "t" / "file", seed=1)
    progress = run_local([bad, good], 1, lambda progress: None)
    assert progress.done == [good] and "could not begin" in progress.failed[bad.name]


LONG = """
import dataclasses
import sys
from pathlib import Path

from test_reproduce import cell_of

from surprise_memory.reproduce.local import run_local

if __name__ == "__main__":
    cell = cell_of(Path(sys.argv[1]) / "t" / "long")
    run = dataclasses.replace(cell.run, steps=10**9, save_minutes=99.0)
    cell = dataclasses.replace(cell, run=run)
    run_local([cell], 1, lambda progress: None)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_whatever_ends_the_command_its_runs_save_and_end(tmp_path, number):
    """Ctrl-C goes to the whole group of processes, a kill -9 to one.

    No run may go on, and none may lose its steps.
    """
    (tmp_path / "long.py").write_text(LONG)
    package = Path(surprise_memory.__file__).parents[1]
    here = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{package}"}
    words = [sys.executable, str(tmp_path / "long.py"), str(tmp_path)]
    # In the background of a script a shell has Ctrl-C ignored, and children inherit that.
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    parent = subprocess.Popen(
        words, env=here, start_new_session=True, stderr=subprocess.DEVNULL, preexec_fn=heed
    )
    out = RunDir(tmp_path / "t" / "long")
    while not out.last_row():
        assert parent.poll() is None
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(parent.pid, number)
    else:
        parent.send_signal(number)
    parent.wait(timeout=60)
    until = time.monotonic() + 60
    while True:
        try:
            again = RunDir(out.path)
            again.open(read_json(out.config), resume=True)
            break
        except Locked:
            assert time.monotonic() < until, "the run goes on without its parent"
            time.sleep(0.1)
    again.close()
    assert out.checkpoint.exists() and not out.done.exists()


def test_a_cell_of_another_process_is_waited_for_while_the_others_go_on(tmp_path):
    """Two `reproduce` in one directory: no failure, and the free places are used meanwhile."""
    theirs, ours = cell_of(tmp_path / "t" / "theirs"), cell_of(tmp_path / "t" / "ours", seed=1)
    prepare(theirs)
    other = RunDir(theirs.path)
    other.open(dataclasses.asdict(theirs.run), resume=False)
    seen = []

    def show(progress):
        seen.append(list(progress.elsewhere))
        if progress.done == [ours]:
            other.close()

    progress = run_local([theirs, ours], 1, show)
    assert progress.failed == {} and progress.done == [ours, theirs]
    assert seen[0] == [theirs] and seen[-1] == []


def test_a_cell_that_another_process_begins_first_waits_again(tmp_path, monkeypatch):
    """The lock was free when the scheduler looked, and taken when the cell's process came."""
    cell = cell_of(tmp_path / "t" / "cell")
    prepare(cell)
    other = RunDir(cell.path)
    other.open(dataclasses.asdict(cell.run), resume=False)
    looks = []

    def look_too_early(path):
        looks.append(path)
        return len(looks) > 1 and in_use(path)

    def show(progress):
        if progress.elsewhere:
            assert not progress.running
            other.close()

    monkeypatch.setattr("surprise_memory.reproduce.local.in_use", look_too_early)
    progress = run_local([cell], 1, show)
    assert progress.failed == {} and progress.done == [cell] and len(looks) > 2


def test_what_another_process_finishes_is_not_made_again(tmp_path):
    theirs = cell_of(tmp_path / "t" / "theirs")
    prepare(theirs)
    other = RunDir(theirs.path)
    other.open(dataclasses.asdict(theirs.run), resume=False)

    def show(progress):
        other.finish()
        other.close()

    assert run_local([theirs], 1, show).done == [theirs]
    assert not theirs.path.with_name("logs").exists()  # no process was started


def test_the_cells_of_another_process_are_told_once(tmp_path, capsys):
    cell = cell_of(tmp_path / "t" / "a")
    show = Live(1)
    progress = GridProgress([cell], waiting=[cell], elsewhere=[cell])
    show(progress)
    show(progress)
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{cell.name} is trained by another process: waiting for it"]
    assert show.table(progress).row_count == 1


def test_every_cell_that_ends_is_told_once(tmp_path, capsys):
    cells_ = [cell_of(tmp_path / "t" / name, seed=seed) for seed, name in enumerate("abc")]
    show = Live(2)
    progress = GridProgress(cells_, done=cells_[:1])
    show(progress)
    progress.failed[cells_[2].name] = "why"
    show(progress)
    show(progress)
    said = capsys.readouterr().out.splitlines()
    assert [line.split(", about")[0] for line in said] == [
        f"1 of 3: {cells_[0].name} finished",
        f"2 of 3: {cells_[2].name} failed",
    ]


def test_failures_end_with_a_code_and_a_sentence(capsys, tmp_path, monkeypatch):
    grid = dataclasses.replace(TINY, envs=("nonsense",), entries=methods("rnd"))
    monkeypatch.setitem(GRIDS, "broken", grid)
    monkeypatch.setattr("surprise_memory.reproduce.command.measure_speed", lambda cell: 1.0)
    assert main(["reproduce", "broken", "--budget", "smoke", "--dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "1 of the runs failed" in said and "Unknown environment" in said


def test_a_finished_cell_is_never_made_again(tmp_path):
    cell = cell_of(tmp_path / "t" / "cell")
    prepare(cell)
    make(cell.path)
    before = {p.name: p.stat().st_mtime_ns for p in cell.path.iterdir()}
    make(cell.path)
    assert before == {p.name: p.stat().st_mtime_ns for p in cell.path.iterdir()}
    assert GridProgress.of([cell]).waiting == []
    assert GridProgress.of([cell]).done == [cell]


def test_a_cell_waits_for_the_process_that_still_holds_it(tmp_path, monkeypatch):
    cell = cell_of(tmp_path / "cell")
    prepare(cell)
    held = RunDir(cell.path)
    held.open(dataclasses.asdict(cell.run), resume=False)
    with pytest.raises(UserError, match="Another process"):
        make(cell.path, patience=0.1)
    monkeypatch.setattr(cells_module.time, "sleep", lambda seconds: held.close())
    make(cell.path)
    assert cell.finished


def test_an_identical_run_of_another_grid_is_reused(tmp_path, monkeypatch):
    one, same = cell_of(tmp_path / "a" / "one"), cell_of(tmp_path / "b" / "same")
    one = dataclasses.replace(one, path=one.path.with_name(f"one.{digest(one.run)}"))
    other = cell_of(tmp_path / "b" / "other", seed=1)
    prepare(one)
    make(one.path)
    for cell in (same, other):
        prepare(cell)
    copied = []

    def copy(source, target):  # killed after the second file
        if len(copied) == 2:
            raise KeyboardInterrupt
        copied.append(target.write_bytes(source.read_bytes()))

    with monkeypatch.context() as killed:
        killed.setattr(cells_module.shutil, "copy", copy)
        with pytest.raises(KeyboardInterrupt):
            make(same.path)
    assert not same.finished
    with monkeypatch.context() as without:
        without.setattr(cells_module, "train", None)
        make(same.path)
        with pytest.raises(TypeError):
            make(other.path)  # has to be trained
    assert same.finished and not other.finished
    assert '"grid": "tiny"' in (same.path / "cell.json").read_text()
    for name in ("eval.json", "metrics.jsonl"):
        assert (same.path / name).read_text() == (one.path / name).read_text()


def test_an_identical_run_that_was_archived_is_reused_too(tmp_path, monkeypatch):
    """But not for a cell whose probe it lacks: that needs the checkpoint, which no archive has."""
    one = cell_of(tmp_path / "a" / "one")
    one = dataclasses.replace(one, path=one.path.with_name(f"one.{digest(one.run)}"))
    prepare(one)
    make(one.path)
    (one.path / "doctor.json").write_text('{"corr": {"all": 0.5}}')
    record = record_of(one.path)
    write_records(tmp_path / "a" / FILE, [record])
    shutil.rmtree(one.path)
    monkeypatch.setattr(cells_module, "train", None)
    for name, probes, reused in (
        ("x", (), True),
        ("y", ("doctor",), True),
        ("z", ("mnir",), False),
    ):
        cell = dataclasses.replace(cell_of(tmp_path / "b" / name), probes=probes)
        prepare(cell)
        if not reused:
            with pytest.raises(TypeError):
                make(cell.path)
            continue
        make(cell.path)
        assert cell.finished
        copy = record_of(cell.path)
        for part in ("eval", "versions", "probes", "metrics"):
            assert copy[part] == record[part], part
        assert copy["cell"]["grid"] == cell.grid
    write_records(tmp_path / "a" / FILE, [record | {"done": False}])
    cell = cell_of(tmp_path / "b" / "unfinished")
    prepare(cell)
    with pytest.raises(TypeError):
        make(cell.path)


def test_every_probe_is_known_and_its_result_is_archived():
    assert set(PROBES) == set(PROBE_NAMES)
    for grid in GRIDS.values():
        assert set(grid.probes) <= set(PROBE_NAMES)
    for probe in PROBES:
        assert probe_path(Path(), probe).name in ARCHIVED_FILES


def test_the_probes_are_part_of_a_cell(tmp_path, monkeypatch):
    """Killed between run and probe, a cell is not finished. The second call probes, untrained."""
    cell = dataclasses.replace(cell_of(tmp_path / "t" / "cell"), probes=("doctor",))
    prepare(cell)

    def killed(run, out):
        raise KeyboardInterrupt

    monkeypatch.setitem(PROBES, "doctor", killed)
    with pytest.raises(KeyboardInterrupt):
        make(cell.path)
    assert (cell.path / "DONE").exists() and not cell.finished
    monkeypatch.undo()
    monkeypatch.setattr(cells_module, "train", None)
    make(cell.path)
    found = read_json(cell.path / "doctor.json")
    assert cell.finished and set(found["corr"]) == {"all"} and 0 < found["energy_left"]["all"] < 5


def test_mnir_is_measured_of_the_trained_bonus_and_drawn(tmp_path, monkeypatch):
    tv = "NoisyTV/MiniGrid-Empty-5x5-v0"
    grid = Grid("a TV", (tv,), methods("none", "rnd"), (1, 1), probes=("mnir",))
    monkeypatch.setitem(GRIDS, "tv", grid)
    for cell in cells("tv", "smoke", tmp_path):
        prepare(cell)
        make(cell.path)
        assert cell.finished and (cell.path / "mnir.json").exists() == (cell.entry == "rnd")
    result = (cell.path / "mnir.json").rename(tmp_path / "result")
    assert not cell.finished
    checkpoint = (cell.path / "checkpoint.pt").rename(tmp_path / "checkpoint")
    assert cell.finished  # an archived run has no bonus to measure
    result.rename(cell.path / "mnir.json")
    checkpoint.rename(cell.path / "checkpoint.pt")
    (study,), _ = gather(tmp_path)
    assert "noise" in study.of(tv, "rnd")[0].probe_results["mnir"]
    assert main(["report", str(tmp_path)]) == 0
    assert len(list((tmp_path / "report").glob("*MNIR*.png"))) == 1
    names = [table.title for table in tables(study)]
    assert names[-1] == "watching the TV, last quarter of training"


def finished(root):
    found = {}
    for done in root.glob("*/*/DONE"):
        found[done.parent.name] = (done.parent / "eval.json").stat().st_mtime_ns
    return found


@pytest.mark.parametrize(
    ("grid", "kill_at", "size"),
    [("ablation-memory", 2, 5), pytest.param("table-1", 6, 27, marks=pytest.mark.slow)],
)
def test_a_smoke_killed_half_way_continues_and_is_reported_whole(tmp_path, grid, kill_at, size):
    """The command of the documentation; the second call makes only what is missing."""
    command = f"-m surprise_memory reproduce {grid} --budget smoke --dir"
    words = [sys.executable, *command.split(), str(tmp_path)]
    parent = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while len(finished(tmp_path)) < kill_at:
        assert parent.poll() is None
        time.sleep(0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    time.sleep(2)  # its children are told, save and end
    first = finished(tmp_path)
    assert kill_at <= len(first) < size
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    assert len(finished(tmp_path)) == size and first.items() <= finished(tmp_path).items()
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert MISSING not in text and f"{size} of {size} cells filled" in text
    published = [
        f"{mean:.1f} ± {std:g}"
        for (_, name), (mean, std) in GRIDS[grid].published.items()
        if name == "rnd+sm"
    ]
    assert published and all(text.count(score) == 1 for score in published)
    look_at(tmp_path / "report.html", tmp_path)


def look_at(page, folder):
    """Open a page in a browser: nothing on the console, tables and pictures are there."""
    if not CHROMIUM.exists():
        pytest.skip("apt-get install chromium to look at the page in a browser")
    shot = folder / "shot.png"
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --hide-scrollbars --disable-component-update "
        "--disable-sync --enable-logging=stderr --window-size=1200,2600"
    )
    words = [
        str(CHROMIUM),
        *flags.split(),
        f"--user-data-dir={folder / 'browser'}",
        f"--screenshot={shot}",
        page.resolve().as_uri(),
    ]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120).stderr
    assert "CONSOLE" not in said
    import imageio.v3

    seen = imageio.v3.imread(shot)[..., :3].astype(int)
    ink = (np.abs(seen - 255).sum(2) > 60).mean(1)  # share of each line that is not white
    assert (ink > 0.01).sum() > 400
    colourful = (seen.max(2) - seen.min(2) > 60).any(1)  # curves
    assert colourful.sum() > 60


def test_a_page_shows_what_is_missing_and_what_was_published(tmp_path, tiny):
    for cell in cells("tiny", "smoke", tmp_path, seeds=2):
        prepare(cell)
        if cell.entry == "rnd":
            make(cell.path)
    assert main(["report", str(tmp_path)]) == 0
    (study,), _ = gather(tmp_path)
    (table,) = tables(study)
    rnd, sm = table.rows
    assert rnd[1] == "1.50 ± 0.5" and len(rnd[5].split(", ")) == 2 and "[" in rnd[3]
    assert sm[2] == sm[5] == MISSING
    page = (tmp_path / "report.html").read_text()
    assert "class=missing" in page
    assert "d over generator" not in page  # rnd+sm has no score to compare
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page


def test_a_page_has_no_empty_columns_and_names_what_was_not_run():
    grid = Grid("three", ("a", "b", "c"), methods("rnd", "rnd+sm"), (1, 1), solved=0.9)
    results = [
        Result("three", "rnd", "a", 0, "paper", 1, 1, 7.0, 0.0, "", []),
        Result("three", "rnd", "b", 0, "paper", 1, 0, None, 0.0, "", []),  # not finished
    ]
    study = Study("three", grid, "paper", "full", results)
    table, unfinished = map(without_empty_columns, tables(study))
    assert table.head == ["method", "here, mean ± std", "by seed", "solved (0.9) at"]
    assert table.rows == [["rnd", "7.0", "7.0", "-"], ["rnd+sm", MISSING, MISSING, ""]]
    assert unfinished.title == "b" and unfinished.rows[0] == ["rnd", MISSING, MISSING]
    assert "nothing was run there: c." in about(study)
    published = dataclasses.replace(grid, published={("c", "rnd"): (2.0, None)})
    study = Study("three", published, "paper", "full", results)
    assert tables(study)[2].rows[0][:3] == ["rnd", "2.0", MISSING]
    assert "nothing was run" not in about(study)


def test_what_is_archived_makes_the_same_tables(tmp_path, tiny, capsys):
    runs, archive = tmp_path / "runs", tmp_path / "archive"
    first, second = cells("tiny", "smoke", runs)
    prepare(second)  # never begun
    prepare(first)
    make(first.path)
    words = ["report", str(runs), "--archive", str(archive), "--out", str(tmp_path / "page")]
    assert main(words) == 0
    assert "1 runs archived" in capsys.readouterr().out and (tmp_path / "page.md").exists()
    assert [path.name for path in (archive / "tiny").iterdir()] == ["runs.jsonl"]
    (of_archive,), _ = gather(archive)
    (of_runs,), _ = gather(runs)
    assert tables(of_archive)[0].rows == tables(of_runs)[0].rows
    assert (first.path / "checkpoint.pt").exists()
    assert main(["report", str(runs), "--archive", str(runs)]) == 0  # it has a checkpoint
    assert "0 runs archived" in capsys.readouterr().out and first.path.exists()


def test_metrics_are_thinned_and_keep_their_end(tmp_path):
    from surprise_memory.reproduce.report.archive import ROWS, thin

    out = RunDir(tmp_path)
    for step in range(1003):
        out.log({"step": step, "charts/x": step / 7, "losses/policy": 1.0})
    rows = thin(tmp_path)
    assert ROWS <= len(rows) <= ROWS + 2 and rows[0]["step"] == 0
    assert rows[-1] == {"step": 1002, "charts/x": 143.1}


def test_runs_that_no_grid_has_any_more_are_named(tmp_path, tiny, monkeypatch, capsys):
    """On the page and on the terminal; they are in no table."""
    for cell in cells("tiny", "smoke", tmp_path):
        prepare(cell)
    assert main(["report", str(tmp_path)]) == 0
    assert "Left out" not in capsys.readouterr().out + (tmp_path / "report.md").read_text()

    grid = dataclasses.replace(TINY, entries=methods("rnd"))
    monkeypatch.setitem(GRIDS, "tiny", grid)
    gone = dataclasses.replace(cell, grid="old", path=tmp_path / "old" / "run")
    elsewhere = dataclasses.replace(cell, env="moved", path=tmp_path / "tiny" / "moved")
    for more in (gone, elsewhere):
        prepare(more)
    assert main(["report", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    text = (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    for run, why in (
        (cell.path, "'tiny' has no entry 'rnd+sm'"),
        (gone.path, "there is no grid 'old'"),
        (elsewhere.path, "'tiny' has no environment 'moved'"),
    ):
        assert f"Left out {run}: {why}." in said
        assert f"| {run.relative_to(tmp_path)} | {why} |" in text
        assert str(run.relative_to(tmp_path)) in page
    (study,), left_out = gather(tmp_path)
    assert len(study.results) == 1 and len(left_out) == 3


def test_pictures_of_studies_that_are_gone_are_removed_and_no_others(tmp_path, tiny, capsys):
    """Only what an earlier report wrote: a picture of somebody's own or an edited one stays."""
    runs, folder = tmp_path / "runs", tmp_path / "page"
    for budget in ("reduced", "full"):
        for cell in cells("tiny", "smoke", runs, seeds=1)[:1]:
            path = runs / "tiny" / budget
            prepare(dataclasses.replace(cell, budget=budget, path=path))
            RunDir(path).log({"step": 1, "charts/return_128": 0.5, "intrinsic/reward_norm": 1.0})
    (runs / "pictures").mkdir()
    (runs / "pictures" / "extra.png").write_bytes(b"a picture of another command")
    words = ["report", str(runs), "--out", str(folder)]
    assert main(words) == 0
    first = {path.name for path in folder.glob("*.png")}
    assert len(first) == 5
    (folder / "own.png").write_bytes(b"somebody's own")
    (folder / "tiny-debug-full-scaled-bonus-per-step.png").write_bytes(b"edited")

    shutil.rmtree(runs / "tiny" / "full")
    (runs / "pictures" / "extra.png").unlink()
    capsys.readouterr()
    assert main(words) == 0
    removed = {"extra.png", "tiny-debug-full-task-return-last-128-episodes.png"}
    assert {path.name for path in folder.glob("*.png")} == first - removed | {"own.png"}
    said = capsys.readouterr().out
    for name in removed:
        assert f"Removed {folder / name}" in said
    assert main(words) == 0
    assert "Removed" not in capsys.readouterr().out


def test_the_report_is_made_where_torch_cannot_be_imported(tmp_path):
    """Tables, curves and bars of a real study, from its files alone."""
    results = Path(surprise_memory.__file__).parents[1] / "results"
    for grid in ("noisy-tv", "w-study"):
        shutil.copytree(results / grid, tmp_path / grid)
    code = f"""
import sys
sys.modules["torch"] = None
from pathlib import Path
from surprise_memory.reproduce.report import archive_runs, write_report
archive_runs(Path({str(tmp_path)!r}), Path({str(tmp_path / "archive")!r}))
write_report(Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pictures = {path.name for path in (tmp_path / "report").glob("*.png")}
    assert "noisy-tv-default-reduced-MNIR-by-kind-of-state.png" in pictures
    assert "w-study-default-reduced-effect-of-the-size-of-W.png" in pictures
    assert "what the memory does" in (tmp_path / "report.md").read_text()


def test_a_cell_of_an_earlier_version_is_refused_with_a_sentence(tmp_path, tiny):
    cell, *_ = cells("tiny", "smoke", tmp_path)
    prepare(cell)
    about = cell.path / "cell.json"
    about.write_text(about.read_text().replace('"probes"', '"asks"'))
    with pytest.raises(UserError, match='Rename its key "asks" to "probes"'):
        gather(tmp_path)


def test_two_runs_of_one_cell_are_refused(tmp_path, tiny):
    cell, *_ = cells("tiny", "smoke", tmp_path)
    prepare(cell)
    other = dataclasses.replace(cell, path=cell.path.with_name("other"))
    prepare(other)
    with pytest.raises(UserError, match=r"both rnd on .* seed 0"):
        gather(tmp_path)
    prepare(dataclasses.replace(other, budget="full"))
    studies, _ = gather(tmp_path)
    assert len(studies) == 2


def test_a_generator_is_compared_where_only_the_memory_differs():
    names = {}
    for grid in ("generators", "recurrent", "ablation-size"):
        for entry in GRIDS[grid].entries:
            names[entry.name] = counterpart(entry)
    for name in ("rnd+sm", "rnd+m", "rnd+sm noisy", "rnd+sm 32-4"):
        assert names[name] == "rnd"
    assert names["lwm+sm"] == "lwm"
    for name in ("rnd", "none", "none, dqn", "rnd+sm expect"):
        assert names[name] == ""
    assert counterpart(Entry("lwm+sm", (("dqn.int_coef", 0.03),), "lwm+sm coef 0.03")) == ""


def test_notes_are_taken_into_the_page(tmp_path, tiny):
    for cell in cells("tiny", "smoke", tmp_path):
        prepare(cell)
    (tmp_path / "notes.md").write_text(
        "First **words** of 1 < 2.\n\n- one `a**b**`\n- [two](x.md)\n\n```bash\nrun it\n```\n"
    )
    (tmp_path / "tiny" / "notes-debug-smoke.md").write_text("About the toy.")
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    notes = (
        "<b>words</b> of 1 &lt; 2.</p><ul><li>one <code>a**b**</code></li><li>two</li></ul>"
        "<pre>run it</pre>"
    )
    assert notes in page.replace("\n", "")
    assert "About the toy." in page
    text = (tmp_path / "report.md").read_text()
    assert text.index("First **words**") < text.index("two methods on a toy")
    assert text.index("two methods on a toy") < text.index("About the")


def all_tasks_row(scores):
    """The row of all tasks together; scores by task and seed."""
    published = {("a", "rnd"): (1.0, None), ("b", "rnd"): (2.0, None)}
    grid = Grid("two", ("a", "b"), methods("rnd"), (1, 1), published=published)
    results = [
        Result("two", "rnd", env, seed, "paper", 1, 1, x, 0.0, "", [])
        for (env, seed), x in scores.items()
    ]
    (row,) = overall_table(Study("two", grid, "paper", "full", results)).rows
    return row


def test_all_tasks_together_are_resampled_task_by_task():
    """Two tasks far apart, two runs each.

    Whatever is drawn, half of the runs are of each task, so the middle stays between.
    """
    scores = {("a", 0): 0.0, ("a", 1): 10.0, ("b", 0): 90.0, ("b", 1): 100.0}
    # The IQM of the four is (10 + 90) / 2. Drawn by task, the middle two lie between (0 + 90) / 2
    # and (10 + 100) / 2.
    assert all_tasks_row(scores) == ["rnd", "1.50", "50.0", "50.0 [45.0, 55.0]"]
    assert all_tasks_row({("a", 0): 0.0, ("a", 1): 10.0})[2:] == [MISSING, MISSING]


def test_tasks_with_unequal_or_single_runs_have_a_mean_and_no_interval():
    """More runs of a task must not make it count for more: (5 + 90) / 2, not (0 + 10 + 90) / 3."""
    scores = {("a", 0): 0.0, ("a", 1): 10.0, ("b", 0): 90.0}
    assert all_tasks_row(scores)[2:] == ["47.5", ""]
    del scores["a", 1]
    assert all_tasks_row(scores)[2:] == ["45.0", ""]


def test_a_run_is_solved_when_its_training_return_is_enough():
    rows = [
        {"step": s, "charts/return_128": r}
        for s, r in ((50_000, 1.0), (200_000, 0.3), (400_000, 0.95), (600_000, 0.99))
    ]
    result = Result("g", "rnd", "e", 0, "paper", 1_000_000, 1, 1.0, 0.0, "", rows)
    assert solved_at(result, 0.9) == "0.40 M" and solved_at(result, 1.5) == "-"


def test_the_doctors_numbers_stand_beside_the_return():
    numbers = {
        "corr": {"all": 0.5},
        "first_z": {"norm": 3.0, "novelty": 4.0},
        "share/door": {"all": 0.2},
        "share/key": {"all": 0.01},
        "share/goal": {"all": 0.0},
        "event/door": {"norm": 5.0, "novelty": 6.0},
        "event/key": {"norm": 7.0, "novelty": 8.0},
    }
    entries = (Entry("rnd+sm", (), "rnd+sm W8"), Entry("rnd+sm", (), "rnd+sm W9"))
    grid = Grid("w", ("a",), entries, (1, 1))
    result = Result(
        "w", "rnd+sm W8", "a", 0, "default", 1, 1, 9.0, 0.0, "", [], "reduced", {"doctor": numbers}
    )
    table = memory_table(Study("w", grid, "default", "reduced", [result]))
    named = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["method"] for row in named] == ["rnd, its norm", "rnd+sm W8"]
    assert [row["z first sight"] for row in named] == ["3.0", "4.0"]
    assert [row["z rarest event"] for row in named] == ["7.0", "8.0"]
    assert [row["corr. with norm"] for row in named] == ["", "0.50"]
    assert named[1]["return"] == "9.0"


def test_scores_normalised_by_humans_need_every_game():
    study = gather_of({})
    rows = {row[0]: row[1:] for row in human_table(study).rows}
    assert rows["lwm+sm"] == ["97.0", "83.7", MISSING, MISSING]
    assert rows["emi (prior)"][2:] == ["", ""]
    full = gather_of(dict(zip(GAMES, ATARI["lwm+sm"], strict=True)))
    rows = {row[0]: row[1:] for row in human_table(full).rows}
    assert rows["lwm+sm"] == ["97.0", "83.7", "97.0", "83.8"]


def test_atari_tables_have_the_scores_that_the_paper_quotes():
    rows = {row[0]: row for row in tables(gather_of({}))[1].rows}  # Frostbite
    assert [
        rows[f"{name} (prior)"][1] for name in ("emi", "ex2", "icm", "ae-sh", "lwm", "rnd")
    ] == [
        "7,002",
        "3,387",
        "4,465",
        "5,214",
        "8,409",
        "2,227",
    ]
    assert {len(row) for row in rows.values()} == {6} and rows["emi (prior)"][2:] == [""] * 4
    assert rows["lwm"][1:3] == ["8,598", MISSING]
    others = tables(Study("expectation", GRIDS["expectation"], "default", "reduced", []))[0].rows
    assert [row[0] for row in others] == GRIDS["expectation"].entry_names


def gather_of(scores):
    """A study of table-2 with these scores of lwm+sm."""
    results = [
        Result("table-2", "lwm+sm", env, 0, "paper", 1, 1, score, 0.0, "", [])
        for env, score in scores.items()
    ]
    return Study("table-2", GRIDS["table-2"], "paper", "full", results)


def test_numbers_are_short():
    values = (0.0, 0.123, -1.5, 48.31, 5187.0)
    assert [number(x) for x in values] == ["0.0", "0.12", "-1.50", "48.3", "5,187"]
    assert Entry("rnd").name == "rnd" and Entry("rnd", (), "x").name == "x"


# --- Ray ------------------------------------------------------------------------------------------


def test_on_ray_a_dead_machine_costs_nothing_and_the_tables_are_the_same(tmp_path, monkeypatch):
    if OWN_PROCESS not in os.environ:
        # Ray does not reach its servers from a process that other tests loaded rsl_rl into.
        name = "test_on_ray_a_dead_machine_costs_nothing_and_the_tables_are_the_same"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words.append(f"{__file__}::{name}")
        env = os.environ | {OWN_PROCESS: "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout[-3000:]
        return
    # Without the last one Ray takes 127.0.0.1 for the machine's outer address.
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray = pytest.importorskip("ray", reason="pip install 'surprise-memory[ray]'")
    from ray.cluster_utils import Cluster

    from surprise_memory.reproduce.ray_tune import run_ray

    monkeypatch.setitem(GRIDS, "tiny", TINY)
    longer = {"local": [], "ray": []}
    for engine, todo in longer.items():
        for cell in cells("tiny", "smoke", tmp_path / engine, seeds=2):
            run = dataclasses.replace(cell.run, steps=3_072, save_minutes=0.0)
            todo.append(dataclasses.replace(cell, run=run))
    args = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    doomed = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        import threading

        def kill():
            while sum((c.path / "metrics.jsonl").exists() for c in longer["ray"]) < 2:
                time.sleep(0.05)
            cluster.remove_node(doomed, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        failed = run_ray(longer["ray"], tmp_path / "ray" / "tiny")
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert failed == {}
    assert run_local(longer["local"], 2, lambda progress: None).failed == {}
    for cell in longer["ray"]:
        steps = [row["step"] for row in RunDir(cell.path).rows()]
        assert steps == sorted(set(steps)) and steps[-1] >= 3_072  # nothing twice, nothing left out
    (of_local,), _ = gather(tmp_path / "local")
    (of_ray,), _ = gather(tmp_path / "ray")
    assert [t.rows for t in tables(of_local)] == [t.rows for t in tables(of_ray)]
