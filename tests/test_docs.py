"""What the documents say holds: links lead somewhere, commands and names exist, code runs."""

import ast
import contextlib
import doctest
import importlib
import io
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

import surprise_memory
from surprise_memory import cli
from surprise_memory.bonus.methods import check_method
from surprise_memory.cli.main import COMMANDS
from surprise_memory.stages import STAGES
from surprise_memory.surprise import RND, SURPRISES, RNDConfig

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "surprise_memory"
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]
WRITTEN = [page for page in PAGES if page.name != "results.md"]  # that one is made from runs
YOURS = ("mine", "cap", "coins", "NAME")  # parts that a reader adds


def name(page):
    return str(page.relative_to(ROOT))


def each(pages):
    return pytest.mark.parametrize("page", pages, ids=name)


# --- reading a page -------------------------------------------------------------------------------


def blocks(page, language):
    """The fenced blocks of a language; '' is none."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def prose(page):
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def spans(page):
    """Everything between backticks, on one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def slugs(page):
    """The anchors that GitHub makes of a page's headings."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.append(re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-"))
    return found


# --- the version ---------------------------------------------------------------------------------


def test_the_citation_and_the_changelog_have_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[:2] == ["Unreleased", version]


# --- links ----------------------------------------------------------------------------------------


@each(LINKED)
def test_relative_links_lead_to_a_file_and_an_anchor(page):
    text = re.sub(r"`[^`]*`", "", prose(page))  # code may look like a link
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), f"{name(page)} links to {target}"
        if anchor:
            assert anchor in slugs(goal), f"{name(page)} links to {target}"


@each(WRITTEN)
def test_files_that_are_named_exist(page):
    for span in spans(page):
        if re.fullmatch(r"(tests|examples|results|docs)/[\w./-]*", span):
            assert (ROOT / span).exists(), span


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def options():
    """The options of every command, from its own help."""
    found = {}
    for command in COMMANDS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), pytest.raises(SystemExit) as stopped:
            cli.main([command, "--help-all" if command in ("train", "doctor") else "--help"])
        assert stopped.value.code == 0
        found[command] = set(re.findall(r"--[a-z][\w.-]*", text.getvalue()))
    return found


def command_lines(page):
    """What follows `surprise-memory`, or a script that calls its main, wherever a page shows it."""
    shown = spans(page)
    for block in [*blocks(page, ""), *blocks(page, "bash")]:
        shown += block.splitlines()
    for line in shown:
        line = line.partition(" # ")[0]
        called = re.match(r"(?:\S*/)?surprise-memory\s+(.+)|python \S+\.py\s+(.+)", line)
        if called:
            yield called[1] or called[2]
        elif line.split()[:1] and line.split()[0] in COMMANDS and "--" in line:
            yield line


@each(PAGES)
def test_commands_and_their_options_exist(page, options):
    for line in command_lines(page):
        command, *words = line.split()
        assert command in COMMANDS, line
        for option in re.findall(r"--[a-z][\w.-]*", line):
            assert option in options[command] or is_yours(option), line
        if "--method" in words:
            method = words[words.index("--method") + 1]
            yours = {"change", "coins", "mine"} & set(method.split("+"))
            if not yours and not method.isupper():
                check_method(method)


@each(WRITTEN)
def test_options_that_are_named_exist(page, options):
    known = set().union(*options.values())
    for span in spans(page):
        if not span.startswith("--"):
            continue
        option = re.match(r"--[\w.*-]+", span)[0]
        if option.endswith(("*", ".")):  # a group of them
            exists = any(real.startswith(option.rstrip("*")) for real in known)
        else:
            exists = option in known
        assert exists or is_yours(option), f"{name(page)} names {span}"


def is_yours(option):
    """Whether it belongs to a part that the reader adds."""
    return option.startswith(tuple(f"--bonus.{part}." for part in YOURS))


def test_every_command_is_in_the_readme():
    shown = " ".join(spans(README))
    assert [command for command in COMMANDS if command not in shown] == []


# --- names ----------------------------------------------------------------------------------------


def members():
    """What each class of the package has, its bases' included."""
    own, bases = {}, {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            has = own.setdefault(node.name, set())
            for part in ast.walk(node):
                if isinstance(part, ast.FunctionDef):
                    has.add(part.name)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    has.add(part.target.id)
            bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def all_of(kind):
        found = set(own.get(kind, ()))
        for base in bases.get(kind, ()):
            found |= all_of(base)
        return found

    return {kind: all_of(kind) for kind in own}


@each(WRITTEN)
def test_methods_of_classes_that_are_named_exist(page):
    has = members()
    for kind, member in re.findall(r"\b([A-Z]\w+)\.(_?[a-z]\w*)", page.read_text()):
        if kind in has:
            assert member in has[kind], f"{name(page)} names {kind}.{member}"


@each(WRITTEN)
def test_tests_that_are_named_exist(page):
    code = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    for test in re.findall(r"`(test_\w+)`", page.read_text()):
        assert f"def {test}(" in code, f"{name(page)} names {test}"


# --- code -----------------------------------------------------------------------------------------


@each(WRITTEN)
def test_python_blocks_parse(page):
    for block in blocks(page, "python"):
        ast.parse(block)


def a_step(num_envs, width):
    """One vector step, by the names that the pages use."""
    return {
        "obs": torch.randn(num_envs, width),
        "action": torch.zeros(num_envs, dtype=torch.int64),
        "next_obs": torch.randn(num_envs, width),
        "done": torch.zeros(num_envs, dtype=torch.bool),
    }


@pytest.mark.parametrize("reward", [np.ones(4), torch.ones(4)], ids=["numpy", "torch"])
def test_the_readmes_five_lines_run(reward):
    code = blocks(README, "python")[0]
    lines = [line for line in code.splitlines() if line.strip(". ")]
    assert len(lines) == 5
    names = a_step(num_envs=4, width=3)
    names |= {"obs_shape": (3,), "num_envs": 4, "beta": 0.1, "reward": reward}
    names["action_space"] = gym.spaces.Discrete(2)
    exec(code, names)
    assert names["reward"].shape == (4,)
    assert names["bonus"].updates == 1


def test_the_readmes_lines_for_stable_baselines3_run(monkeypatch):
    stable_baselines3 = pytest.importorskip("stable_baselines3")

    class Short(stable_baselines3.PPO):
        """PPO for a few hundred steps."""

        def __init__(self, policy, env, n_steps):
            assert n_steps == 128
            super().__init__(policy, env, n_steps=16, batch_size=64, n_epochs=1)

        def learn(self, total_timesteps):
            assert total_timesteps == 400_000
            return super().learn(512)

    monkeypatch.setattr(stable_baselines3, "PPO", Short)
    names = {}
    exec(blocks(README, "python")[1], names)
    assert names["model"].num_timesteps == 512
    assert len(blocks(README, "python")) == 2  # no block of the README goes untested


def test_the_librarys_page_runs_from_top_to_bottom():
    envs = SimpleNamespace(single_action_space=gym.spaces.Discrete(3))
    names = a_step(num_envs=16, width=147) | {"envs": envs}
    for block in blocks(ROOT / "docs" / "library.md", "python"):
        exec(block, names)
    assert names["r_int"].shape == (16,)
    assert "intrinsic/novelty" in names["metrics"]


def test_the_page_about_adapters_runs(tmp_path, monkeypatch, capsys):
    for library in ("stable_baselines3", "rsl_rl", "torchrl"):
        pytest.importorskip(library)
    from rsl_rl.utils import resolve_callable
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv

    from surprise_memory.adapters.rsl_rl import SurprisePPO

    monkeypatch.chdir(tmp_path)
    env = GymEnv("CartPole-v1")
    theirs = {"env": env, "collector": Collector(env, frames_per_batch=32, total_frames=64)}
    names = {}
    gymnasium, sb3, rsl_rl, torchrl = blocks(ROOT / "docs" / "adapters.md", "python")
    for block in (gymnasium, sb3, rsl_rl):
        exec(block, names)
    exec(torchrl, theirs)
    assert capsys.readouterr().out.startswith("[0. 0. 0. 0.]")
    assert names["model"].num_timesteps == 1024 and (tmp_path / "bonus.pt").exists()
    assert resolve_callable(names["algorithm"]["class_name"]) is SurprisePPO
    assert int(theirs["surprise"].bonus.updates) == 2


def test_the_logger_of_the_page_about_runs_logs(tmp_path, monkeypatch, capsys):
    (block,) = blocks(ROOT / "docs" / "runs.md", "python")
    (tmp_path / "my_logs.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--steps", "256"]
    words += ["--logger", "my_logs:Printer", "--run-dir", str(tmp_path / "r")]
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    assert "\n192 " in printed.out and "\nthe end\n" in printed.out and printed.err == ""


def test_a_part_of_ones_own_is_registered_as_the_pages_say():
    try:
        exec(blocks(ROOT / "docs" / "stages.md", "python")[0], {})
        mine = {"MySurprise": lambda shape: RND(shape, RNDConfig(n=8))}
        exec(blocks(ROOT / "docs" / "methods" / "README.md", "python")[0], mine)
        check_method("mine+sm+root")
    finally:
        STAGES.pop("root", None)
        SURPRISES.pop("mine", None)


# --- docstrings -----------------------------------------------------------------------------------

PUBLIC = (
    "Bonus", "BonusConfig", "Memory", "Stage", "Surprise", "check_memory", "check_stage",
    "check_surprise", "register_memory", "register_stage", "register_surprise",
)  # fmt: skip


def modules():
    """All modules with an example in them."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if ">>>" in file.read_text():
            parts = file.relative_to(PACKAGE).with_suffix("").parts
            found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("module", modules())
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(f"surprise_memory.{module}".rstrip(".")))
    assert result.attempted and not result.failed


@pytest.mark.parametrize("public", PUBLIC)
def test_public_names_show_how_they_are_used(public):
    assert ">>>" in (getattr(surprise_memory, public).__doc__ or "")


def test_extras_are_spelt_as_every_pip_finds_them():
    """Before 23.3, pip installed nothing for an extra with an underscore, with a mere warning."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", extra) for extra in extras)
    named = []
    for path in (ROOT / "surprise_memory").rglob("*.py"):
        named += re.findall(r"(?:how_to_install\(|extra=)[\"']([\w-]+)[\"']", path.read_text())
    assert {"cli", "rsl-rl"} <= set(named) <= extras
    written = re.search(r"That is the bonus alone\.[^#]*", README.read_text())[0]
    inside = {"docs", "dev", "release"}  # for those who work on this package
    assert set(re.findall(r"`([a-z0-9-]+)`", written)) | {"cli", "report"} == (
        (extras - inside) | {"surprise-memory"}
    )
