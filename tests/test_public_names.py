"""`import surprise_memory`: every public name is there, none of them is imported before its use."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import surprise_memory


def test_the_three_lists_of_public_names_agree():
    tree = ast.parse(Path(surprise_memory.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    for_checkers = {alias.name for node in block.body for alias in node.names}
    assert for_checkers == set(surprise_memory.MODULE_OF) == set(surprise_memory.__all__)


@pytest.mark.parametrize("name", surprise_memory.__all__)
def test_every_public_name_can_be_used(name):
    assert name in dir(surprise_memory)
    assert getattr(surprise_memory, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error():
    assert not hasattr(surprise_memory, "Bonsu")
    with pytest.raises(ImportError, match="Bonsu"):
        from surprise_memory import Bonsu  # noqa: F401


def test_the_version_is_that_of_the_installed_package():
    assert surprise_memory.__version__ == version("surprise-memory")


def test_the_package_and_a_run_directory_import_where_torch_cannot_be_imported():
    code = """
import sys
sys.modules["torch"] = None
import surprise_memory, surprise_memory.training.rundir
assert surprise_memory.UserError
assert "Bonus" in dir(surprise_memory)
try:
    surprise_memory.Bonus
except ImportError:
    print("Bonus needs torch")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Bonus needs torch\n", done.stderr
