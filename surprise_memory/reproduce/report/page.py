"""The report: tables, pictures and notes, as one HTML page and as Markdown."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from surprise_memory.errors import require
from surprise_memory.files import read_json, write_atomically, write_json
from surprise_memory.reproduce.report.figures import figures
from surprise_memory.reproduce.report.gather import Study, gather
from surprise_memory.reproduce.report.render import Section, html, markdown
from surprise_memory.reproduce.report.table import Table, without_empty_columns
from surprise_memory.reproduce.report.tables import tables

WRITTEN = "written.json"  # in OUT/: the pictures of the last report, name -> SHA-256
READING = (
    "Scores are means over evaluation episodes after training. ± is the standard deviation over "
    "runs. IQM is the mean of the middle half of the runs, or of all if there are only three. In "
    "brackets is its 95 % bootstrap interval. With so few runs it spans about the lowest to the "
    "highest of them. d (Cohen's) compares a generator with its memory to the generator alone; "
    "the paper draws the line at 0.5. A single run has no interval and no d. All tasks together: "
    "the mean is over the tasks' means. IQM and interval are given only where every task has the "
    "same number of runs, at least two. Solved: the first step, after a tenth of the run, at which "
    "the last 128 training episodes returned that much on average."
)
LEFT_OUT = (
    "These runs are in the directory, but no grid has them any more. "
    "They are in no table and in no picture."
)


@dataclass(frozen=True)
class Report:
    """What was written, and what a person should know about it."""

    html: Path
    markdown: Path
    left_out: dict[Path, str]  # runs that are in no table -> why
    removed: list[Path]  # pictures of an earlier report that this one no longer has


def write_report(root: Path, out: Path | None = None) -> Report:
    """Write a page about a directory of `reproduce`: OUT.html, OUT.md, and pictures in OUT/.

    OUT is root/report if not given.
    """
    stem = out or root / "report"
    require(stem.name != "", "out", str(stem), "the name of a file, such as report")
    if stem.suffix in (".html", ".md"):
        stem = stem.with_suffix("")
    studies, left_out = gather(root)
    sections = [preface(root)]
    for study in studies:
        sections.append(study_section(root, study))
    sections += more_pictures(root)
    sections += left_out_section(root, left_out)
    pictures: dict[str, bytes] = {}
    for section in sections:
        pictures |= section.pictures
    stem.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        write_picture(stem / name, picture)
    html_path = stem.with_name(stem.name + ".html")
    html_text = html(sections)
    write_atomically(html_path, lambda file: file.write(html_text.encode()))
    markdown_path = stem.with_name(stem.name + ".md")
    markdown_text = markdown(sections, stem.name)
    write_atomically(markdown_path, lambda file: file.write(markdown_text.encode()))
    return Report(
        html=html_path,
        markdown=markdown_path,
        left_out=left_out,
        removed=remove_stale(stem, pictures),
    )


def write_picture(path: Path, picture: bytes) -> None:
    """A new file in place of whatever is there: a link is replaced and not followed."""
    write_atomically(path, lambda file: file.write(picture))


def remove_stale(folder: Path, pictures: dict[str, bytes]) -> list[Path]:
    """Remove the pictures of an earlier report that this one no longer has.

    A file is removed only if an earlier report wrote exactly these bytes. Returns what was removed.
    """
    earlier: dict[str, str] = {}
    if (folder / WRITTEN).exists():
        found = read_json(folder / WRITTEN)
        if isinstance(found, dict):
            earlier = found
    removed = []
    for path in sorted(folder.glob("*.png")):
        stale = path.name in earlier and path.name not in pictures
        if stale and sha256(path.read_bytes()) == earlier[path.name]:
            path.unlink()
            removed.append(path)
    write_json(folder / WRITTEN, {name: sha256(picture) for name, picture in pictures.items()})
    return removed


def sha256(data: bytes) -> str:
    """The hash of a file's content."""
    return hashlib.sha256(data).hexdigest()


def preface(root: Path) -> Section:
    """How to read the tables, and DIR/notes.md."""
    return Section("Results", READING, notes=read_notes(root / "notes.md"))


def study_section(root: Path, study: Study) -> Section:
    """One study, with the notes in DIR/WHAT/notes-PRESET-BUDGET[-PRECISION].md."""
    pictures = {}
    for title, picture in figures(study).items():
        name = re.sub("[^A-Za-z0-9]+", "-", title)
        pictures[f"{study.id}-{name}.png"] = picture
    return Section(
        title=f"{study.name}, preset {', '.join(study.setting)}: {study.grid.title}",
        about=about(study),
        tables=[without_empty_columns(table) for table in tables(study)],
        pictures=pictures,
        notes=read_notes(root / study.name / f"notes-{'-'.join(study.setting)}.md"),
    )


def more_pictures(root: Path) -> list[Section]:
    """Pictures that other commands have put into DIR/pictures/, with its notes.md."""
    folder = root / "pictures"
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.png"))}
    if not found:
        return []
    return [Section("Pictures", "", pictures=found, notes=read_notes(folder / "notes.md"))]


def left_out_section(root: Path, runs: dict[Path, str]) -> list[Section]:
    """The runs that are in no table, and why."""
    if not runs:
        return []
    rows = [[str(path.relative_to(root)), why] for path, why in runs.items()]
    table = Table("runs", ["run", "why"], rows)
    return [Section("Left out", LEFT_OUT, tables=[table])]


def read_notes(path: Path) -> str:
    """A text that somebody may have written."""
    if not path.exists():
        return ""
    return path.read_text().strip()


def about(study: Study) -> str:
    """Setting, runs, hours and machine, and the environments without a table."""
    finished = 0
    filled = set()
    seconds = 0.0
    machines = set()
    precisions = sorted({result.precision for result in study.results})
    for result in study.results:
        if result.score is not None:
            finished += 1
            filled.add((result.env, result.entry))
        if result.machine:
            machines.add(result.machine)
        seconds += result.seconds
    wanted = len(study.grid.envs) * len(study.grid.entries)
    text = (
        f"Budget {study.budget}: {steps(study)} steps in {' and '.join(precisions)}. "
        f"{finished} of {len(study.results)} runs finished, "
        f"{len(filled)} of {wanted} cells filled; "
        f"{seconds / 3600:.1f} hours of training in all. {'; '.join(sorted(machines))}."
    )
    if study.empty_envs:
        names = [study.grid.short.get(env, env) for env in study.empty_envs]
        text += f" Missing, because nothing was run there: {', '.join(names)}."
    if study.grid.paper_says:
        text += f" The paper: {study.grid.paper_says}"
    return text


def steps(study: Study) -> str:
    """How many: one number, or from the fewest to the most."""
    found = sorted({result.steps for result in study.results})
    if len(found) == 1:
        return f"{found[0]:,}"
    return f"{found[0]:,} to {found[-1]:,}"
