"""What a page need not show: empty columns, and tables of environments where nothing was run."""

from surprise_memory.reproduce.report.tables import MISSING, Table


def tidy(tables: list[Table]) -> tuple[list[Table], list[str]]:
    """The tables that say something, without empty columns, and the titles of the others."""
    shown = []
    not_run = []
    for table in tables:
        if says_something(table):
            shown.append(without_empty_columns(table))
        else:
            not_run.append(table.title)
    return shown, not_run


def says_something(table: Table) -> bool:
    """Whether any cell beside the rows' names has a number, the paper's or ours."""
    return any(cell not in ("", MISSING) for row in table.rows for cell in row[1:])


def without_empty_columns(table: Table) -> Table:
    """A table without the columns in which no row has a word."""
    kept = [i for i in range(len(table.head)) if any(row[i] for row in table.rows)]
    rows = [[row[i] for i in kept] for row in table.rows]
    return Table(table.title, [table.head[i] for i in kept], rows)
