"""A report of somebody else's runs: nothing is written elsewhere, nothing becomes markup."""

import json
from pathlib import Path

import numpy as np
import pytest

from surprise_memory.cli import main
from surprise_memory.errors import UserError
from surprise_memory.reproduce.grid import Grid, methods
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.report.figures import band, draw_band, panels, style_of
from surprise_memory.reproduce.report.gather import Result, Study, gather, studies_of
from surprise_memory.reproduce.report.notes import html_notes
from surprise_memory.reproduce.report.page import about
from surprise_memory.reproduce.report.render import Section, markdown
from surprise_memory.reproduce.report.tables import tv_table
from surprise_memory.tools.plots import plotting

CELL = {
    "grid": "generators",
    "entry": "rnd",
    "env": "MiniGrid-KeyCorridorS4R3-v0",
    "seed": 0,
    "budget": "reduced",
    "probes": [],
    "run": {"preset": "default", "steps": 1000},
}
ROW = {"step": 500, "charts/SPS": 10, "charts/return_128": 0.5}
SCRIPT = "<script>alert(1)</script>"


def cell_at(root, about=None, name="run", **changes):
    """A run's directory as `reproduce` leaves it, with some keys of cell.json changed."""
    path = root / "generators" / name
    path.mkdir(parents=True)
    about = CELL | changes if about is None else about
    (path / "cell.json").write_text(json.dumps(about))
    (path / "metrics.jsonl").write_text(json.dumps(ROW) + "\n")
    return path


def report(root, capsys):
    """The exit code, and what was said on standard error."""
    code = main(["report", str(root)])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return code, said


def test_a_plain_cell_is_reported(tmp_path, capsys):
    cell_at(tmp_path)
    assert report(tmp_path, capsys) == (0, "")


def test_a_report_without_a_name_is_refused(tmp_path, capsys):
    cell_at(tmp_path)
    assert main(["report", str(tmp_path), "--out", ""]) == 2
    assert "out = '.' is not possible" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"preset": "x/../../../../stolen", "steps": 1}},
        {"run": {"preset": "..", "steps": 1}},
        {"run": {"preset": "", "steps": 1}},
        {"run": {"preset": ["default"], "steps": 1}},
        {"run": {"preset": "default", "steps": "many"}},
        {"run": {"preset": "default"}},
        {"run": {"preset": "default", "steps": 1, "precision": "../stolen"}},
        {"run": None},
        {"budget": "../../stolen"},
        {"probes": ["../../secret"]},
        {"probes": [["mnir"]]},
        {"probes": "mnir"},
        {"env": 3},
        {"seed": "0"},
        {"grid": ["generators"]},
    ],
)
def test_a_cell_that_reproduce_cannot_have_written_is_refused(tmp_path, capsys, changes):
    root = tmp_path / "a" / "b" / "runs"
    path = cell_at(root, **changes)
    (root / "generators" / "generators-x").mkdir()
    code, said = report(root, capsys)
    assert code == 2 and str(path / "cell.json") in said and said.count("\n") == 1
    assert not list(tmp_path.rglob("*.png")) and not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize("about", [[], None, "cell", 3, {}])
def test_a_cell_that_is_something_else_is_refused(tmp_path, capsys, about):
    path = tmp_path / "generators" / "run"
    path.mkdir(parents=True)
    (path / "cell.json").write_text(json.dumps(about))
    code, said = report(tmp_path, capsys)
    assert code == 2 and "damaged" in said


def test_a_link_in_the_place_of_a_picture_is_not_followed(tmp_path, capsys):
    cell_at(tmp_path / "runs")
    assert report(tmp_path / "runs", capsys)[0] == 0
    (picture,) = (tmp_path / "runs" / "report").glob("*.png")
    own = tmp_path / "own.txt"
    own.write_text("mine")
    picture.unlink()
    picture.symlink_to(own)
    assert report(tmp_path / "runs", capsys)[0] == 0
    assert own.read_text() == "mine" and not picture.is_symlink()


def test_words_of_a_cell_do_not_become_markup(tmp_path, capsys):
    cell_at(tmp_path, grid=SCRIPT, name="one")
    cell_at(tmp_path, env=f"x | y\n\n{SCRIPT}", name="two")
    cell_at(tmp_path, entry=SCRIPT, name="three")
    machine = f"machine {SCRIPT}"
    (cell_at(tmp_path, name="four") / "versions.txt").write_text(machine)
    (tmp_path / "notes.md").write_text(f"{SCRIPT} [a](javascript:alert) `{SCRIPT}`\n\n| {SCRIPT} |")
    assert report(tmp_path, capsys)[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page and "javascript" not in page
    assert page.count("&lt;script&gt;") >= 7
    text = (tmp_path / "report.md").read_text().replace((tmp_path / "notes.md").read_text(), "")
    assert "<script" not in text and "x \\| y &lt;script" in text


def test_damaged_results_are_named(tmp_path, capsys):
    path = cell_at(tmp_path, probes=["mnir"])
    (path / "DONE").touch()
    for name, content in (("eval.json", "[]"), ("eval.json", '{"mean": "x"}'), ("mnir.json", "3")):
        (path / name).write_text(content)
        code, said = report(tmp_path, capsys)
        assert code == 2 and str(path / name) in said
        (path / name).unlink()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "written.json").write_text("[]")
    assert report(tmp_path, capsys)[0] == 0


def test_notes_are_html():
    notes = """
# A **title**

Words and *more*, 1 < 2, `a**b**` and
[a page](https://example.org/x?a=1&b=2), [a file](x.md).

- one
- two
  goes on

| a | b |
|---|:-:|
| `c` | *d* |

```bash
run it
```
"""
    assert html_notes(notes) == (
        "<h3>A <b>title</b></h3>"
        "<p>Words and <i>more</i>, 1 &lt; 2, <code>a**b**</code> and\n"
        "<a href='https://example.org/x?a=1&amp;b=2'>a page</a>, a file.</p>"
        "<ul><li>one</li><li>two\ngoes on</li></ul>"
        "<table class='words'><tr><th>a</th><th>b</th></tr>"
        "<tr><td><code>c</code></td><td><i>d</i></td></tr></table>"
        "<pre>run it</pre>"
    )


def test_notes_about_all_runs_come_below_the_tables(tmp_path, capsys):
    cell_at(tmp_path)
    (tmp_path / "notes.md").write_text("About all of it.")
    assert report(tmp_path, capsys)[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert page.index("</table>") < page.index("About all of it.")
    assert Path(tmp_path / "report.md").read_text().count("About all of it.") == 1


@pytest.mark.parametrize("what", GRIDS)
def test_no_two_lines_of_a_picture_look_alike(what):
    grid = GRIDS[what]
    rows = [{"step": 1, "charts/return_128": 0.0}]
    results = [Result(what, "", env, 0, "default", 1, 1, None, 0.0, "", rows) for env in grid.envs]
    drawn = panels(Study(what, grid, "default", "reduced", results), "charts/return_128")
    assert drawn
    for panel in drawn:
        styles = [
            tuple(style_of(entry, i, bool(panel.generator)).items())
            for i, entry in enumerate(panel.entries)
        ]
        assert len(set(styles)) == len(styles)


def test_what_was_run_most_comes_first():
    runs = []
    for preset, budget, seeds in (
        ("default", "reduced", 1),
        ("default", "full", 3),
        ("paper", "full", 1),
        ("paper", "reduced", 2),
    ):
        for seed in range(seeds):
            rest = (1, 1, None, 0.0, "", [], budget)
            runs.append(Result("table-1", "rnd", "e", seed, preset, *rest))
    found = [(study.preset, study.budget) for study in studies_of(runs)]
    assert found == [
        ("default", "full"),
        ("paper", "reduced"),
        ("paper", "full"),  # the grid's own preset, where it is a tie
        ("default", "reduced"),
    ]


def test_a_run_in_another_precision_is_a_study_of_its_own_where_a_cell_has_both(tmp_path):
    bf16 = CELL["run"] | {"precision": "bf16"}
    cell_at(tmp_path, name="a")
    cell_at(tmp_path, name="b", run=bf16)
    usual, other = gather(tmp_path)[0]
    assert usual.id == "generators-default-reduced" and other.id == f"{usual.id}-bf16"
    assert "1,000 steps in float32." in about(usual)
    assert "1,000 steps in bf16." in about(other)
    for name in "cd":
        cell_at(tmp_path, name=name, run=bf16, seed=1)
    with pytest.raises(UserError, match="are both rnd on"):
        gather(tmp_path)


def test_precisions_of_different_tasks_stay_in_one_study():
    rest = (0, "default", 1, 1, None, 0.0, "", [])
    runs = [Result("table-1", "rnd", "grid", *rest)]
    runs.append(Result("table-1", "rnd", "images", *rest, precision="bf16"))
    (study,) = studies_of(runs)
    assert study.id == "table-1-default-reduced" and study.results == runs


def test_tasks_without_a_tv_have_no_panel_about_watching_it():
    results = []
    for env, metrics in (("plain", {}), ("with TV", {"noisy_tv/share": 0.5})):
        rows = [{"step": 1, "charts/return_128": 0.0} | metrics]
        results.append(Result("g", "rnd", env, 0, "default", 1, 1, None, 0.0, "", rows))
    grid = Grid("two tasks", ("plain", "with TV", "not run"), methods("rnd"), (1, 1))
    study = Study("g", grid, "default", "reduced", results)
    assert [panel.env for panel in panels(study, "charts/return_128")] == ["plain", "with TV"]
    assert [panel.env for panel in panels(study, "noisy_tv/share")] == ["with TV"]
    assert [row[:2] for row in tv_table(study).rows] == [["rnd", "50 %"]]


def test_a_curve_is_the_mean_of_the_runs_that_have_come_so_far():
    """One seed has just begun: it must not cut the other one's curve, nor turn it round."""
    finished = np.array([0.0, 2.0]), np.array([10.0, 10.0])
    begun = np.array([0.0, 0.1]), np.array([20.0, 20.0])
    x, centre, std = band([finished, begun])
    assert (x[0], x[-1]) == (0.0, 2.0) and (np.diff(x) > 0).all()
    assert set(centre[x <= 0.1]) == {15.0} and set(std[x <= 0.1]) == {5.0}
    assert set(centre[x > 0.1]) == {10.0} and set(std[x > 0.1]) == {0.0}
    later = np.array([3.0, 4.0]), np.array([30.0, 30.0])  # its first value comes after the others
    x, centre, _ = band([finished, later])
    assert np.isnan(centre[(x > 2.0) & (x < 3.0)]).all() and set(centre[x >= 3.0]) == {30.0}


def test_a_curve_is_thin_where_not_all_runs_go_on():
    """There the mean is about other runs, and may jump."""
    axis = plotting().figure().subplots()
    whole = np.array([0.0, 2.0]), np.array([10.0, 10.0])
    half = np.array([0.0, 1.0]), np.array([20.0, 20.0])
    draw_band(axis, [whole, half], "rnd", {"color": "red"})
    thick, thin = axis.lines
    shown = [line.get_xdata()[~np.isnan(line.get_ydata())] for line in (thick, thin)]
    assert shown[0].max() <= 1 < shown[1].min()
    assert thick.get_linewidth() > thin.get_linewidth()
    assert thin.get_label().startswith("_")  # no second line in the legend
    (filled,) = axis.collections
    assert filled.get_paths()[0].vertices[:, 0].max() <= 1


def test_a_curve_is_thin_until_all_runs_have_begun():
    axis = plotting().figure().subplots()
    whole = np.array([0.0, 2.0]), np.array([10.0, 10.0])
    late = np.array([1.0, 2.0]), np.array([20.0, 20.0])
    draw_band(axis, [whole, late], "rnd", {"color": "red"})
    thick, thin = axis.lines
    assert set(thick.get_ydata()[~np.isnan(thick.get_ydata())]) == {15.0}
    assert set(thin.get_ydata()[~np.isnan(thin.get_ydata())]) == {10.0}


def test_names_with_spaces_are_pictures_in_markdown():
    page = markdown([Section("t", "", pictures={"a b.png": b""})], "my report")
    assert "![a b](my%20report/a%20b.png)" in page
