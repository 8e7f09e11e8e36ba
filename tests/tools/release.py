"""Is the package that was built complete, and does it work where it was installed?

    python tests/tools/release.py files DIST      # the sdist and the wheel in a folder
    VENV/bin/python -I tests/tools/release.py installed README.md

The second is called by a Python with the wheel and core dependencies alone.
"""

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CORE = {"torch", "numpy", "gymnasium"}
FIELDS = ("Name", "Version", "Summary", "Author", "Keywords", "Classifier", "License-Expression",
          "License-File", "Requires-Python", "Project-URL", "Description-Content-Type")  # fmt: skip
DATA = ("py.typed", "tools/inspector/template.html", "tools/inspector/script.js",
        "tools/inspector/style.css")  # fmt: skip


def check_files(dist: Path) -> None:
    """The wheel's fields, dependencies and files; the sdist's files; one version everywhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (where,) = [name for name in names if name.endswith("/METADATA")]
        fields = email.message_from_bytes(archive.read(where))
    assert [field for field in FIELDS if not fields[field]] == []
    assert fields["Version"] == version and fields.get_payload().startswith("# surprise-memory")
    assert set(fields.get_all("Provides-Extra")) == {
        extra.replace("_", "-") for extra in project["optional-dependencies"]
    }
    needed = [line for line in fields.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0] for line in needed} == CORE
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "surprise_memory").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {f"surprise_memory/{name}" for name in DATA} <= names
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert modules | {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO"} <= inside
    releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[:2] == ["Unreleased", version], releases[:2]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    print(f"{wheel.name}, {sdist.name}: complete")


def check_installed(readme: Path) -> None:
    """The README's five lines run, and the command says its version or which extra brings it."""
    import torch

    import surprise_memory

    place = Path(surprise_memory.__file__)
    assert place.is_relative_to(sys.prefix), f"{place} is not the installed package"
    version = metadata.version("surprise-memory")
    assert surprise_memory.__version__ == version
    code = re.search(r"^```python\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)[1]
    names = {"obs_shape": (3,), "num_envs": 4, "beta": 0.1, "reward": torch.ones(4)}
    names |= {"obs": torch.randn(4, 3), "next_obs": torch.randn(4, 3)}
    names |= {"action": torch.zeros(4, dtype=torch.int64), "done": torch.zeros(4, dtype=bool)}
    exec(code, names)
    assert names["reward"].shape == (4,) and names["bonus"].updates == 1
    command = Path(sys.executable).parent / "surprise-memory"
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    if done.returncode == 0:
        assert done.stdout == f"surprise-memory {version}\n", done.stdout
    else:
        assert done.returncode == 2 and "surprise-memory[cli]" in done.stderr, done.stderr
    said = (done.stdout or done.stderr).strip()
    python = sys.version.split()[0]
    print(f"Python {python}, torch {torch.__version__}: the README's five lines run; {said}")


if __name__ == "__main__":
    check = {"files": check_files, "installed": check_installed}[sys.argv[1]]
    check(Path(sys.argv[2]))
