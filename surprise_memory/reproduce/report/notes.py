"""Notes in Markdown as HTML: the few forms that notes have. Whatever else is in them is text."""

import re
from html import escape

Lines = list[str]


def html_notes(text: str) -> str:
    """Paragraphs, headings, lists, tables, fenced code, and what `html_line` knows."""
    parts = []
    for i, block in enumerate(text.split("```")):
        if i % 2:
            _language, _, code = block.partition("\n")
            parts.append(f"<pre>{escape(code.strip())}</pre>")
            continue
        for paragraph in re.split(r"\n\s*\n", block):
            if paragraph.strip():
                parts.append(html_paragraph(paragraph.strip().splitlines()))
    return "".join(parts)


def html_paragraph(lines: Lines) -> str:
    """One block between empty lines."""
    first = lines[0]
    if first.startswith("#"):
        rest = "\n".join(lines[1:])
        return f"<h3>{html_line(first.lstrip('# '))}</h3>" + (rest and f"<p>{html_line(rest)}</p>")
    if first.startswith("|"):
        return html_rows(lines)
    if first.startswith("- "):
        return html_list(lines)
    return f"<p>{html_line(chr(10).join(lines))}</p>"


def html_list(lines: Lines) -> str:
    """Items that begin with '- '; another line continues the item before it."""
    items: Lines = []
    for line in lines:
        if line.startswith("- "):
            items.append(line.removeprefix("- "))
        else:
            items[-1] += "\n" + line.strip()
    return "<ul>" + "".join(f"<li>{html_line(item)}</li>" for item in items) + "</ul>"


def html_rows(lines: Lines) -> str:
    """A table of words: its first row is the head, a row of dashes is left out."""
    body = ""
    tag = "th"
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if all(re.fullmatch(":?-+:?", cell) for cell in cells):
            continue
        row = "".join(f"<{tag}>{html_line(cell)}</{tag}>" for cell in cells)
        body += f"<tr>{row}</tr>"
        tag = "td"
    return f"<table class='words'>{body}</table>"


def html_line(text: str) -> str:
    """**Bold**, *emphasis* and links; what is in `code` stays as it is.

    Of links to other files only the text is left: they lead nowhere from a page that stands alone.
    """
    pieces = escape(text).split("`")
    for i, piece in enumerate(pieces):
        if i % 2:
            pieces[i] = f"<code>{piece}</code>"
            continue
        piece = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", piece)
        piece = re.sub(r"\*([^*\s][^*]*)\*", r"<i>\1</i>", piece)
        piece = re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)", r"<a href='\2'>\1</a>", piece)
        pieces[i] = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", piece)
    return "".join(pieces)
