"""The tutorials run as they are printed: Python, bash, and the notebook, top to bottom.

A page has one namespace and one directory. A Python block whose first line is `# name.py` is saved
as that file. A text block is what the block before it prints; numbers may differ.
"""

import importlib
import json
import re
import runpy
import shlex
import sys
import tokenize
from pathlib import Path

import numpy as np
import pytest

from surprise_memory import cli
from surprise_memory.registry import OPTIONS
from surprise_memory.stages import STAGES
from surprise_memory.surprise import SURPRISES

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
NOTEBOOK = FOLDER / "first_bonus.ipynb"
NUMBER = r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?"


def blocks(page):
    """(language, code) of every fenced block that has a language."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory, whose scripts can be imported, and tables that are as before after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = [(table, dict(table)) for table in (SURPRISES, STAGES, OPTIONS)]
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]
    restore(tables)


def restore(tables):
    for table, before in tables:
        table.clear()
        table.update(before)


def run_bash(code, monkeypatch):
    """Each line is the command, or a script that becomes it."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "surprise-memory":
            assert cli.main(words[1:]) == 0, line
            continue
        assert words[0] == "python", f"the tests cannot run: {line}"
        run_script(words[1:], monkeypatch)


def run_script(words, monkeypatch):
    """As a process of its own, which begins without what another script has registered."""
    tables = [(table, dict(table)) for table in (SURPRISES, STAGES, OPTIONS)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(words[0], run_name="__main__")
    assert ended.value.code == 0, words
    restore(tables)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_is_printed(page, place, monkeypatch, capsys):
    names = {}
    printed = ""
    for language, code in blocks(page):
        if language == "text":
            masked = [re.sub(NUMBER, "#", text).split() for text in (code, printed)]
            assert masked[0] == masked[1], f"it says {code}it prints {printed}"
            continue
        file = re.match(r"# (\w+\.py)\n", code)
        capsys.readouterr()
        if language == "bash":
            run_bash(code, monkeypatch)
        elif file:
            (place / file[1]).write_text(code)
            importlib.invalidate_caches()
        else:
            assert language == "python"
            exec(code, names)
        printed = capsys.readouterr().out


def test_every_tutorial_is_listed_and_short():
    listed = re.findall(r"^\d\. \[[^]]+\]\((\w+)\.md\)", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(page.stem for page in PAGES)
    for page in PAGES:
        assert len(page.read_text().splitlines()) <= 120, page.name  # two screens


def cells():
    return json.loads(NOTEBOOK.read_text())["cells"]


def test_the_notebook_runs_from_top_to_bottom(place):
    pytest.importorskip("matplotlib", reason="pip install 'surprise-memory[report]'").use("Agg")
    names = {}
    code = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    small, found = re.subn(r"(?m)^STEPS = \d[\d_]*", "STEPS = 8_192", code[0])
    assert found == 1
    for cell in [small, *code[1:]]:
        exec(cell, names)
    seen, pays = names["seen"], names["maps"]["rnd+sm"]
    valley = np.abs(names["positions"] - seen[:, 0].mean()).argmin()
    flag = np.abs(names["positions"] - 0.5).argmin()
    assert pays[14, flag] > 3 * pays[14, valley] > 0  # row 14 is a car that stands


def test_the_notebook_is_kept_without_outputs():
    """They would be a picture of one machine, and large."""
    for cell in cells():
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            source = "".join(cell["source"])
            list(tokenize.generate_tokens(iter(source.splitlines(True)).__next__))
