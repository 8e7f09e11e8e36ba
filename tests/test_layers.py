"""The house: every room has a level, imports point down, and what must be light stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import surprise_memory

ROOT = Path(surprise_memory.__file__).parent
LEVELS = [
    {"errors", "files", "observations", "registry", "torch_files", "types"},
    {"nn"},
    {"surprise", "memory", "stages", "bonus"},
    {"adapters", "envs", "agents", "training"},
    {"tools"},
    {"reproduce"},
    {"cli", "__init__", "__main__"},
]
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
SAME_LEVEL = {
    "bonus": {"surprise", "memory", "stages"},
    "training": {"envs", "agents"},
    "types": {"errors"},
    "files": {"errors"},
    "torch_files": {"errors", "files", "types"},
    "observations": {"errors"},
    "registry": {"errors"},
    "__main__": {"cli"},
}
LIGHT = ("errors", "files", "tools.stats", "reproduce.grids", "reproduce.report", "envs.base")
EXTRAS = {
    "tyro", "rich", "envpool", "minigrid", "miniworld", "pyglet", "imageio", "matplotlib",
    "tensorboard", "ray", "sklearn", "stable_baselines3",
}  # fmt: skip


def imports(path):
    """Modules of ours and of others that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]


def room(path):
    """'memory/episodic.py' -> 'memory'."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_file_has_a_level():
    assert {room(path) for path in ROOT.rglob("*.py")} == set(LEVEL)


def test_imports_point_down():
    for path in ROOT.rglob("*.py"):
        here = room(path)
        for name in imports(path):
            words = name.split(".")
            if words[0] != "surprise_memory" or len(words) < 2 or words[1] not in LEVEL:
                continue
            there = words[1]
            allowed = there == here or there in SAME_LEVEL.get(here, ())
            assert allowed or LEVEL[there] < LEVEL[here], f"{path.relative_to(ROOT)} imports {name}"


def test_adapters_import_the_bonus_alone():
    for path in (ROOT / "adapters").glob("*.py"):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("surprise_memory.")}
        assert ours <= {"bonus", "errors", "files", "observations", "torch_files", "types"}, path


def test_core_needs_no_extra():
    """`import surprise_memory` works with torch, numpy and gymnasium alone."""
    for path in ROOT.rglob("*.py"):
        top = ast.parse(path.read_text()).body
        names = {a.name.split(".")[0] for n in top if isinstance(n, ast.Import) for a in n.names}
        names |= {(n.module or "").split(".")[0] for n in top if isinstance(n, ast.ImportFrom)}
        assert not names & EXTRAS or room(path) == "cli", path


def test_what_must_be_light_imports_where_torch_cannot_be_imported():
    """Files, statistics, grids, environments and the report work on a machine without torch."""
    modules = ", ".join(f"surprise_memory.{name}" for name in LIGHT)
    code = f"import sys; sys.modules['torch'] = None\nimport {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
