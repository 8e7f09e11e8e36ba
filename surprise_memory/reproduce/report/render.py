"""Sections as one self-contained HTML page, and as Markdown with its pictures beside it."""

import base64
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

from surprise_memory.reproduce.report.notes import html_notes
from surprise_memory.reproduce.report.table import MISSING, Table

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto;
       padding: 0 1rem }
h1 { font-size: 1.6rem }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
h3 { margin-bottom: .3rem }
table { border-collapse: collapse; margin: .5rem 0 1.2rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #eee }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 2px solid #bbb; font-weight: 600 }
td.missing { color: #b33 }
img { max-width: 100% }
p.about { color: #555 }
p, li, td { overflow-wrap: anywhere }
pre { background: #f5f5f5; padding: .6rem; white-space: pre-wrap }
table.words th, table.words td { text-align: left; vertical-align: top }
"""


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph about it, tables, pictures by their file's name, and notes."""

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    notes: str = ""


# --- HTML -----------------------------------------------------------------------------------------


def html(sections: list[Section]) -> str:
    """The page. Pictures are inside it, nothing is loaded from elsewhere."""
    body = ""
    heading = "h1"
    for section in sections:
        body += f"<{heading}>{escape(section.title)}</{heading}>"
        body += f"<p class='about'>{escape(section.about)}</p>"
        for table in section.tables:
            body += html_table(table)
        for name, picture in section.pictures.items():
            body += html_image(name, picture)
        if section is not sections[0]:
            body += html_notes(section.notes)
        heading = "h2"
    if sections[0].notes:  # about all of it: they may be long, and the tables come first
        body += f"<h2>Notes</h2>{html_notes(sections[0].notes)}"
    head = (
        "<meta charset='utf-8'><title>surprise-memory: reproduction</title>"
        f"<link rel='icon' href='data:,'><style>{STYLE}</style>"
    )
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def html_table(table: Table) -> str:
    """A table with the missing cells marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    body = ""
    for row in table.rows:
        cells = "".join(map(html_cell, row))
        body += f"<tr>{cells}</tr>"
    return (
        f"<h3>{escape(table.title)}</h3>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_cell(text: str) -> str:
    """One cell of a table."""
    if text == MISSING:
        return f"<td class=missing>{MISSING}</td>"
    return f"<td>{escape(text)}</td>"


def html_image(title: str, picture: bytes) -> str:
    """A picture, inline."""
    data = base64.b64encode(picture).decode()
    return f"<p><img alt='{escape(title)}' src='data:image/png;base64,{data}'></p>"


# --- Markdown -------------------------------------------------------------------------------------


def markdown(sections: list[Section], folder: str) -> str:
    """The same as text, with pictures in `folder`."""
    parts = []
    heading = "#"
    for section in sections:
        parts += [f"{heading} {text(section.title)}", text(section.about)]
        for table in section.tables:
            parts += [f"### {text(table.title)}", markdown_table(table)]
        for name in section.pictures:
            parts.append(f"![{name.removesuffix('.png')}]({quote(f'{folder}/{name}')})")
        parts.append(section.notes)
        heading = "##"
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown_table(table: Table) -> str:
    """A table as lines of cells between bars."""
    lines = []
    for row in (table.head, ["---"] * len(table.head), *table.rows):
        cells = [text(cell).replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(words: str) -> str:
    """On one line, and no markup: these words may come from somebody's cell.json."""
    return " ".join(words.split()).replace("<", "&lt;")
