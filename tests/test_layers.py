"""Imports point down the levels only; files of one level do not know each other."""

import ast
from pathlib import Path

import surprise_memory

ROOT = Path(surprise_memory.__file__).parent
LEVELS = [
    {"types"},
    {"nets", "returns", "buffers", "replay", "rundir", "stats", "shell", "plots"},
    {"normalise"},
    {"memory", "surprise", "envs"},
    {"methods"},
    {"bonus"},
    {"agents", "conformance", "replayed", "collect", "sb3"},
    {"config", "evaluate"},
    {"checkpoint", "progress"},
    {"train"},
    {"doctor", "bench", "pictures"},
    {"video", "sights", "gallery"},
    {"reproduce"},
    {"report"},
    {"commands"},
    {"cli"},
    {"__main__", "__init__"},
]
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
HEAVY = {"torch": {"rundir", "stats", "envs"}}  # what a file format, statistics and environments must not need


def imports(path):
    """Modules of ours and of others that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]


def part(path):
    """'memory/episodic.py' -> 'memory'."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_file_has_a_level():
    assert {part(path) for path in ROOT.rglob("*.py")} == set(LEVEL)


def test_imports_point_down():
    for path in ROOT.rglob("*.py"):
        for name in imports(path):
            words = name.split(".")
            if words[0] != "surprise_memory" or len(words) < 2 or words[1] not in LEVEL:
                continue
            same_folder = words[1] == part(path)
            assert same_folder or LEVEL[words[1]] < LEVEL[part(path)], f"{path.relative_to(ROOT)} imports {name}"


def test_only_tables_import_their_siblings():
    for path in ROOT.glob("*/*.py"):
        if path.name not in ("__init__.py", "base.py", "workers.py") and part(path) not in (
            "doctor",
            "bench",
            "reproduce",
            "report",
        ):  # pipelines
            siblings = {f"surprise_memory.{part(path)}.{p.stem}" for p in path.parent.glob("*.py")} - {
                f"surprise_memory.{part(path)}.{s}" for s in ("__init__", "base", "workers")
            }
            assert not [n for n in imports(path) if n.rpartition(".")[0] in siblings], path


def test_core_needs_no_extra():
    """`import surprise_memory` works with torch, numpy and gymnasium alone."""
    extras = {
        "tyro",
        "rich",
        "envpool",
        "minigrid",
        "miniworld",
        "pyglet",
        "imageio",
        "matplotlib",
        "tensorboard",
        "ray",
        "sklearn",
        "stable_baselines3",
    }
    for path in ROOT.rglob("*.py"):
        top = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)]
        names = {alias.name.split(".")[0] for n in top if isinstance(n, ast.Import) for alias in n.names}
        names |= {(n.module or "").split(".")[0] for n in top if isinstance(n, ast.ImportFrom)}
        assert not names & extras or path.name in ("cli.py", "commands.py"), path


def test_file_formats_and_environments_do_not_need_torch():
    for package, parts in HEAVY.items():
        for path in ROOT.rglob("*.py"):
            assert part(path) not in parts or package not in {n.split(".")[0] for n in imports(path)}, path
