"""One self-contained HTML page, and the same as Markdown with its pictures beside it."""

import base64
from html import escape
from pathlib import Path

from surprise_memory.report.figures import curves
from surprise_memory.report.gather import Study, gather
from surprise_memory.report.tables import Table, tables
from surprise_memory.rundir import write_atomically

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd } h3 { margin-bottom: .3rem }
table { border-collapse: collapse; margin: .5rem 0 1.2rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #eee }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 2px solid #bbb; font-weight: 600 } td.missing { color: #b33 } img { max-width: 100% } p.about { color: #555 }
"""
READING = (
    "Scores are means over evaluation episodes after training. IQM is the mean of the middle half of the runs, with a 95 % "
    "bootstrap interval over runs. Cohen's d compares a generator with its memory to the generator alone; the paper calls 0.5 an "
    "improvement. One run has neither."
)


def write_report(root: Path) -> tuple[Path, Path]:
    """report.html and report.md, with figures/, into a directory of `reproduce`."""
    studies = gather(root)
    figures = {study_id(s): curves(s) for s in studies} | {"": own_figures(root)}
    page, text = root / "report.html", root / "report.md"
    folder = root / "figures"
    for name, drawn in figures.items():
        for title, picture in drawn.items() if name else ():
            folder.mkdir(exist_ok=True)
            (folder / file_name(name, title)).write_bytes(picture)
    write_atomically(page, lambda file: file.write(html(studies, figures).encode()))
    write_atomically(text, lambda file: file.write(markdown(studies, figures).encode()))
    return page, text


def own_figures(root: Path) -> dict[str, bytes]:
    """Pictures that other commands have put into pictures/."""
    return {path.stem: path.read_bytes() for path in sorted((root / "pictures").glob("*.png"))}


def study_id(study: Study) -> str:
    """Unique among the studies of a report."""
    return f"{study.name}-{study.preset}-{study.steps}"


def file_name(study: str, title: str) -> str:
    """Of a picture."""
    return f"{study}-{title.replace(' ', '-').replace(',', '')}.png"


def about(study: Study) -> str:
    """Setting, runs, hours and machine, in a sentence."""
    done = sum(r.score is not None for r in study.results)
    wanted = len(study.grid.envs) * len(study.grid.entries)
    hours = sum(r.seconds for r in study.results) / 3600
    machines = "; ".join(sorted({r.machine for r in study.results if r.machine}))
    cells = len({(r.env, r.entry) for r in study.results if r.score is not None})
    return (
        f"Preset {study.preset}, {study.steps:,} steps. {done} of {len(study.results)} runs finished, {cells} of {wanted} cells "
        f"filled; {hours:.1f} hours of training in all. {machines}."
        + (f" The paper: {study.grid.says}" if study.grid.says else "")
    )


def html(studies: list[Study], figures: dict[str, dict[str, bytes]]) -> str:
    """The page; pictures are inside it, nothing is loaded from elsewhere."""
    parts = [f"<h1>Reproduction report</h1><p>{escape(READING)}</p>"]
    for study in studies:
        parts.append(f"<h2 id='{escape(study_id(study))}'>{escape(study.name)}: {escape(study.grid.title)}</h2>")
        parts.append(f"<p class='about'>{escape(about(study))}</p>")
        parts += [html_table(table) for table in tables(study)]
        parts += [html_image(title, picture) for title, picture in figures[study_id(study)].items()]
    if figures[""]:
        parts.append("<h2>Pictures</h2>")
        parts += [html_image(title, picture) for title, picture in figures[""].items()]
    head = (
        f"<meta charset='utf-8'><title>surprise-memory: reproduction</title><link rel='icon' href='data:,'><style>{STYLE}</style>"
    )
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def html_table(table: Table) -> str:
    """With the missing cells marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    cell = lambda text: f"<td{' class=missing' if text == 'missing' else ''}>{escape(text)}</td>"  # noqa: E731
    rows = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in table.rows)
    return f"<h3>{escape(table.title)}</h3><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def html_image(title: str, picture: bytes) -> str:
    """Inline."""
    data = base64.b64encode(picture).decode()
    return f"<h3>{escape(title)}</h3><img alt='{escape(title)}' src='data:image/png;base64,{data}'>"


def markdown(studies: list[Study], figures: dict[str, dict[str, bytes]]) -> str:
    """The same as text; pictures by their place in figures/ and pictures/."""
    parts = ["# Reproduction report", READING]
    for study in studies:
        parts += [f"## {study.name}: {study.grid.title}", about(study)]
        for table in tables(study):
            lines = ["| " + " | ".join(row) + " |" for row in (table.head, ["---"] * len(table.head), *table.rows)]
            parts += [f"### {table.title}", "\n".join(lines)]
        parts += [f"![{title}](figures/{file_name(study_id(study), title)})" for title in figures[study_id(study)]]
    parts += [f"![{title}](pictures/{title}.png)" for title in figures[""]]
    return "\n\n".join(parts) + "\n"
