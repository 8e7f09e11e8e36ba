"""One way to say no: what was given, what is allowed, what to do. Imports nothing heavy."""

import dataclasses
import difflib
import importlib
import math
import typing
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

Item = TypeVar("Item")

LARGEST = 1e38  # about what a float32 holds
MOST = 10**12  # of anything that is counted
WIDEST = 65_536  # units of a layer


class UserError(ValueError):
    """Something the user can fix, in one sentence. The command line prints it and exits with 2."""


class OtherVersion(UserError):
    """A file that another version of the package wrote, and what to do about it."""


def choose(table: Mapping[str, Item], name: str, what: str) -> Item:
    """Look a name up; refuse a misspelt one by naming the nearest that exists."""
    if name in table:
        return table[name]
    raise UserError(unknown(name, list(table), what))


def unknown(name: str, known: list[str], what: str) -> str:
    """What to say of a name that does not exist: the nearest match, or the list if it is short."""
    spelt = {word.lower(): word for word in known}
    near = difflib.get_close_matches(str(name).lower(), spelt, n=1, cutoff=0.5)
    hint = f" Did you mean '{spelt[near[0]]}'?" if near else ""
    allowed = f" There are: {listed(known)}." if len(known) <= 12 else ""
    return f"Unknown {what} {brief(name)}.{hint}{allowed}"


def listed(names: list[str]) -> str:
    """Names with commas between them; those that have a comma or a space are quoted.

    >>> listed(["rnd", "none, dqn", "none"])
    "rnd, 'none, dqn', none"
    """
    return ", ".join(f"'{name}'" if "," in name or " " in name else name for name in names)


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


def require_between(name: str, value: float, least: float, most: float) -> None:
    """Refuse an option outside of a range; both ends belong to it."""
    allowed = f"at least {least:,} and at most {most:,}"
    require(least <= value <= most, name, value, allowed)


def require_width(name: str, value: int) -> None:
    """Refuse a number of units that no layer can have."""
    require_between(name, value, 1, WIDEST)


def check_options(config: Any, prefix: str = "") -> None:
    """Refuse options of the wrong kind, NaN, infinity, and numbers that overflow.

    `config` is a dataclass. All options inside are checked too, also those of registered parts.
    """
    try:
        hints = typing.get_type_hints(type(config))
    except NameError:  # they name what only another file knows
        hints = {}
    for field in dataclasses.fields(config):
        name = prefix + field.name
        value = getattr(config, field.name)
        hint = hints.get(field.name, type(value))
        kinds = typing.get_args(hint) or (hint,)
        if dataclasses.is_dataclass(value):
            check_options(value, name + ".")
        elif value is not None or type(None) not in kinds:
            check_option(name, value, kinds)


def check_option(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Refuse a value that is of none of the kinds, or a number that cannot be computed with."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if bool in kinds:
        require(isinstance(value, bool), name, value, "true or false")
    elif str in kinds:
        require(isinstance(value, str), name, value, "a word")
    elif float in kinds:
        require(number, name, value, "a number")
        require(math.isfinite(value), name, value, "a finite number")
        require(abs(value) < LARGEST, name, value, f"below {LARGEST:g}")
    elif int in kinds:
        require(number and isinstance(value, Integral), name, value, "a whole number")
        require(abs(value) <= MOST, name, value, f"at most {MOST:,}")
    elif any(map(dataclasses.is_dataclass, kinds)):
        require(False, name, value, "a group of options")


def need(module: str, extra: str, package: str | None = None) -> Any:
    """Import an optional module, or say which extra brings it.

    >>> need("json", extra="cli").dumps({})
    '{}'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise UserError(f"{name} is not installed: {how_to_install(extra)}.") from error


def how_to_install(extra: str) -> str:
    """The command that brings an extra, for the package and for a clone of its repository."""
    return f"pip install 'surprise-memory[{extra}]', or in a clone pip install -e '.[{extra}]'"
