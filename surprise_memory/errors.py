"""One way to say no: what was given, what is allowed, what to do. Imports nothing heavy."""

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")


class UserError(ValueError):
    """Something the user can fix, in one sentence. The command line prints it and exits with 2."""


def choose(table: Mapping[str, Item], name: str, what: str) -> Item:
    """Look a name up; refuse a misspelt one by naming the nearest that exists."""
    if name in table:
        return table[name]
    raise UserError(unknown(name, list(table), what))


def unknown(name: str, known: list[str], what: str) -> str:
    """What to say of a name that does not exist: the nearest match, or the list if it is short."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    allowed = f" There are: {', '.join(known)}." if len(known) <= 12 else ""
    return f"Unknown {what} {brief(name)}.{hint}{allowed}"


def one_of(value: str, allowed: Sequence[str], what: str) -> None:
    """Refuse a word that is not among those allowed."""
    if value not in allowed:
        raise UserError(unknown(value, list(allowed), what))


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Refuse an option out of range: its name, its value, and what is allowed."""
    if not ok:
        raise UserError(f"{name} = {brief(value)} is not possible: it must be {allowed}.")


def brief(value: object) -> str:
    """A value as one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def need(module: str, extra: str, package: str | None = None) -> Any:
    """Import an optional module, or say which extra brings it.

    >>> need("json", extra="cli").dumps({})
    '{}'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise UserError(
            f"{name} is not installed: pip install 'surprise-memory[{extra}]'."
        ) from error
