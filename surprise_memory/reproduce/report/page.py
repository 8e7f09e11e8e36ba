"""One self-contained HTML page, and the same as Markdown with its pictures beside it."""

import base64
import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from surprise_memory.files import write_atomically
from surprise_memory.reproduce.report.figures import figures
from surprise_memory.reproduce.report.gather import Study, gather
from surprise_memory.reproduce.report.tables import Table, tables

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd } h3 { margin-bottom: .3rem }
table { border-collapse: collapse; margin: .5rem 0 1.2rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #eee }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 2px solid #bbb; font-weight: 600 } td.missing { color: #b33 } img { max-width: 100% } p.about { color: #555 }
pre { background: #f5f5f5; padding: .6rem; overflow-x: auto }
"""
NEWLINE = "\n"
READING = (
    "Scores are means over evaluation episodes after training, ± is the standard deviation over runs. IQM is the mean of the "
    "middle half of the runs (with three runs: of all), in brackets its 95 % bootstrap interval, which with so few runs reaches "
    "from about the lowest to about the highest of them. d (Cohen's) compares a generator with its memory to the generator "
    "alone; the paper takes 0.5 as the line. A single run has no interval and no d. Solved: the first step, after a tenth of "
    "the run, at which the last 128 training episodes returned that much on average."
)


def write_report(root: Path, out: Path | None = None) -> tuple[Path, Path]:
    """OUT.html and OUT.md, with pictures in OUT/, of a directory of `reproduce`; OUT is root/report if not given."""
    studies, stem = gather(root), out or root / "report"
    sections = [preface(root), *(section(root, study) for study in studies), *more_pictures(root)]
    stem = stem.with_suffix("") if stem.suffix in (".html", ".md") else stem
    folder, page, text = (
        stem,
        stem.with_name(stem.name + ".html"),
        stem.with_name(stem.name + ".md"),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for one in sections:
        for name, picture in one.pictures.items():
            (folder / name).write_bytes(picture)
    write_atomically(page, lambda file: file.write(html(sections).encode()))
    write_atomically(text, lambda file: file.write(markdown(sections, folder.name).encode()))
    return page, text


@dataclass(frozen=True)
class Section:
    """A heading, what is said about it, tables, pictures by their file's name, and what a person has written to it."""

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    notes: str = ""


def preface(root: Path) -> Section:
    """How to read the tables, and DIR/notes.md."""
    return Section("Results", READING, notes=written(root / "notes.md"))


def section(root: Path, study: Study) -> Section:
    """One study, and what somebody wrote about it into DIR/WHAT/notes-PRESET-BUDGET.md."""
    pictures = {
        f"{study.id}-{re.sub('[^A-Za-z0-9]+', '-', title)}.png": png
        for title, png in figures(study).items()
    }
    notes = written(root / study.name / f"notes-{study.preset}-{study.budget}.md")
    return Section(
        f"{study.name}, preset {study.preset}: {study.grid.title}",
        about(study),
        tables(study),
        pictures,
        notes,
    )


def more_pictures(root: Path) -> list[Section]:
    """Pictures that other commands have put into DIR/pictures/, with its notes.md."""
    found = {path.name: path.read_bytes() for path in sorted((root / "pictures").glob("*.png"))}
    return (
        [Section("Pictures", "", pictures=found, notes=written(root / "pictures" / "notes.md"))]
        if found
        else []
    )


def written(path: Path) -> str:
    """A text that may be there."""
    return path.read_text().strip() if path.exists() else ""


def about(study: Study) -> str:
    """Setting, runs, hours and machine, in a sentence."""
    done = sum(r.score is not None for r in study.results)
    wanted = len(study.grid.envs) * len(study.grid.entries)
    hours = sum(r.seconds for r in study.results) / 3600
    machines = "; ".join(sorted({r.machine for r in study.results if r.machine}))
    cells = len({(r.env, r.entry) for r in study.results if r.score is not None})
    return (
        f"Budget {study.budget}: {steps(study)} steps. {done} of {len(study.results)} runs finished, "
        f"{cells} of {wanted} cells filled; {hours:.1f} hours of training in all. {machines}."
        + (f" The paper: {study.grid.says}" if study.grid.says else "")
    )


def steps(study: Study) -> str:
    """How many: one number, or from the fewest to the most."""
    found = sorted({r.steps for r in study.results})
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def html(sections: list[Section]) -> str:
    """The page; pictures are inside it, nothing is loaded from elsewhere."""
    parts = []
    for i, one in enumerate(sections):
        head = "h2" if i else "h1"
        parts += [
            f"<{head}>{escape(one.title)}</{head}>",
            f"<p class='about'>{escape(one.about)}</p>",
        ]
        parts += [html_table(table) for table in one.tables]
        parts += [html_image(name, picture) for name, picture in one.pictures.items()]
        parts.append(html_text(one.notes))
    head = f"<meta charset='utf-8'><title>surprise-memory: reproduction</title><link rel='icon' href='data:,'><style>{STYLE}</style>"
    return (
        f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"
    )


def html_text(text: str) -> str:
    """Notes: paragraphs, fenced code, lists, **bold** and `code`; tables and all else as they stand."""
    parts = []
    for i, block in enumerate(text.split("```")):
        if i % 2:
            parts.append(
                f"<pre>{escape(block.partition(NEWLINE)[2].strip())}</pre>"
            )  # a word after the fence names the language
            continue
        for paragraph in filter(None, (p.strip() for p in block.split(2 * NEWLINE))):
            table = paragraph.startswith("|")
            parts.append(
                f"<pre>{escape(paragraph)}</pre>" if table else f"<p>{html_line(paragraph)}</p>"
            )
    return "".join(parts)


def html_line(text: str) -> str:
    """**Bold**, links, which lead nowhere from a page that stands alone, list items; what is in `code` stays as it is."""
    pieces = [escape(piece) for piece in text.split("`")]
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", pieces[i])
        pieces[i] = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", pieces[i])
        pieces[i] = re.sub(r"\n(?=- )", "<br>", pieces[i])
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def html_table(table: Table) -> str:
    """With the missing cells marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    cell = lambda text: f"<td{' class=missing' if text == 'missing' else ''}>{escape(text)}</td>"  # noqa: E731
    rows = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in table.rows)
    return f"<h3>{escape(table.title)}</h3><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def html_image(title: str, picture: bytes) -> str:
    """Inline."""
    data = base64.b64encode(picture).decode()
    return f"<p><img alt='{escape(title)}' src='data:image/png;base64,{data}'></p>"


def markdown(sections: list[Section], folder: str) -> str:
    """The same as text; pictures by their place."""
    parts = []
    for i, one in enumerate(sections):
        parts += [f"{'##' if i else '#'} {one.title}", one.about]
        for table in one.tables:
            lines = [
                "| " + " | ".join(row) + " |"
                for row in (table.head, ["---"] * len(table.head), *table.rows)
            ]
            parts += [f"### {table.title}", "\n".join(lines)]
        parts += [f"![{name.removesuffix('.png')}]({folder}/{name})" for name in one.pictures]
        parts.append(one.notes)
    return "\n\n".join(part for part in parts if part) + "\n"
