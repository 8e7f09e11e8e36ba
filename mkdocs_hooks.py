"""What the site has beside docs/: README, CHANGELOG, the API, and the source that pages link to.

The pages are written for GitHub, with links relative to the repository. Here every link is led to
the page of the site that shows the same file.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent
# Files of the repository that are pages of another name. methods/README.md has the name of methods.
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/methods.md": "the-method.md",
}
HIDDEN = "---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n"
LANGUAGES = {".py": "python", ".cff": "yaml", ".js": "javascript", ".css": "css", ".html": "html"}
API = {
    "README": (
        "API reference",
        "The names of `surprise_memory`. [The library's page](../library.md) shows them in use.",
        [
            "bonus.online.Bonus",
            "surprise.register_surprise",
            "memory.register_memory",
            "stages.register_stage",
            "bonus.check.surprise.check_surprise",
            "bonus.check.memory.check_memory",
            "bonus.check.stage.check_stage",
            "types.Chunk",
            "errors.UserError",
        ],
    ),
    "parts": (
        "Parts",
        "What a part of your own is a subclass of ([contract](../architecture.md)).",
        ["surprise.base.Surprise", "memory.base.Memory", "stages.base.Stage"],
    ),
    "configs": (
        "Configs",
        "Every option, as a dataclass. On the command line `BonusConfig.memory_lr` is "
        "`--bonus.memory-lr`.",
        [
            "bonus.config.BonusConfig",
            "surprise.rnd.RNDConfig",
            "surprise.icm.ICMConfig",
            "surprise.ae.AEConfig",
            "surprise.disagreement.DisagreementConfig",
            "surprise.lwm.LWMConfig",
            "memory.surprise_memory.MemoryConfig",
            "memory.counts.CountsConfig",
            "stages.episodic.NGUConfig",
            "stages.expect.ExpectConfig",
            "stages.trust.TrustConfig",
            "stages.recognise.RecogniseConfig",
            "stages.gain.GateConfig",
        ],
    ),
    "adapters": (
        "Adapters",
        "The bonus in other libraries ([how](../adapters.md)).",
        [
            "adapters.gymnasium.BonusVectorEnv",
            "adapters.sb3.SurpriseVecEnv",
            "adapters.rsl_rl.SurprisePPO",
            "adapters.torchrl.SurpriseModule",
        ],
    ),
    "environments": (
        "Environments",
        "Environments by id, and how to add some ([which there are](../environments.md)).",
        [
            "envs.make_vec",
            "envs.list_envs",
            "envs.register_family",
            "envs.base.Family",
            "envs.base.VecEnv",
            "envs.base.Step",
        ],
    ),
    "training": (
        "Training",
        "One run ([its files](../runs.md)).",
        [
            "training.config.RunConfig",
            "training.loop.train",
            "training.loggers.Logger",
            "training.rundir.RunDir",
            "agents.base.Agent",
        ],
    ),
}


class Examples(griffe.Extension):
    """Examples in docstrings as code: Markdown takes `>>>` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **more: object) -> None:
        """Put a fence around each."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""A docstring with a fence around every paragraph that is an example.

    >>> fenced("Twice x.\n\n>>> f(1)\n2")
    'Twice x.\n\n```pycon\n>>> f(1)\n2\n```'
    """
    return re.sub(r"(?:^>>> .*(?:\n.+)*\n?)+", wrap, text, flags=re.MULTILINE)


def wrap(match: re.Match[str]) -> str:
    """One example between fences."""
    return f"```pycon\n{match[0].rstrip()}\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not have."""
    for path, uri in MOVED.items():
        if path.startswith("docs/"):
            files.remove(files.get_file_from_path(path.removeprefix("docs/")))
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    for name, (title, about, members) in API.items():
        blocks = [f"::: surprise_memory.{member}" for member in members]
        content = "\n\n".join([f"# {title}", about, *blocks])
        files.append(File.generated(config, f"api/{name}.md", content=content))
    for path in sorted(shown_sources()):
        uri = site_uri(path.relative_to(ROOT).as_posix())
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to other pages of the site."""
    uri = page.file.src_uri
    path = repository_path(uri)
    if path is None:  # made here, with links of the site
        return markdown

    def lead(match: re.Match[str]) -> str:
        target, hash_sign, anchor = match[1].partition("#")
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        there = posixpath.relpath(site_uri(goal), posixpath.dirname(uri) or ".")
        return f"]({there}{hash_sign}{anchor})"

    if uri == "results.md" and (ROOT / "docs/results.html").exists():  # made by `report`, not kept
        markdown = markdown.replace("\n\n", "\n\n[The same as one page](results.html).\n\n", 1)
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", markdown, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):  # those between code
        parts[i] = re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", lead, parts[i])
    # A bar within code in a table needs a backslash on GitHub alone.
    for i in range(1, len(parts), 2):
        if not parts[i].startswith("```"):
            parts[i] = parts[i].replace(r"\|", "|")
    return "".join(parts)


def site_uri(path: str) -> str:
    """The page or file of the site for a file of the repository.

    >>> site_uri("docs/noise.md"), site_uri("surprise_memory/nn")
    ('noise.md', 'source/surprise_memory/nn/README.md')
    """
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/README.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def repository_path(uri: str) -> str | None:
    """The file of the repository that a page shows; None for one that is made here."""
    for path, moved in MOVED.items():
        if uri == moved:
            return path
    if uri.startswith("source/results/"):
        return uri.removeprefix("source/")
    if uri.startswith(("api/", "source/")):
        return None
    return f"docs/{uri}"


def shown_sources() -> set[Path]:
    """Files and folders outside of docs/ that the pages link to, and what is in these folders."""
    found = set()
    pages = [*(ROOT / path for path in MOVED), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", page.read_text()):
            goal = (page.parent / target).resolve()
            outside = goal.is_relative_to(ROOT) and not goal.is_relative_to(ROOT / "docs")
            if outside and goal.exists() and str(goal.relative_to(ROOT)) not in MOVED:
                found.add(goal)
    for folder in [path for path in found if path.is_dir()]:
        found.update(contents(folder))
    return found


def contents(folder: Path) -> Iterator[Path]:
    """The sources in a folder, those of its folders included."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in LANGUAGES and "__pycache__" not in path.parts:
            yield path


def source_page(path: Path) -> str:
    """A file as a page, or a folder as a list of its files with the first line of each."""
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        return HIDDEN + path.read_text()
    if path.is_dir():
        lines = [f"{HIDDEN}# {name}/\n", "| file | what it is for |", "|---|---|"]
        for file in contents(path):
            link = file.relative_to(path).as_posix()
            lines.append(f"| [`{link}`]({link}.md) | {purpose(file)} |")
        return "\n".join(lines)
    language = LANGUAGES.get(path.suffix, "text")
    return f"{HIDDEN}# {name}\n\n````{language}\n{path.read_text()}\n````\n"


def purpose(path: Path) -> str:
    """The first sentence of a module."""
    if path.suffix != ".py":
        return ""
    words = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.sub(r"([|\[\]])", r"\\\1", words.partition("\n")[0])
