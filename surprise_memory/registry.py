"""Tables that others may add to: parts of a bonus, environment families, their options."""

from dataclasses import is_dataclass
from typing import TypeVar

from surprise_memory.errors import UserError

Item = TypeVar("Item")

OPTIONS: dict[str, type] = {}  # part registered from outside -> frozen dataclass of its options


def register(
    table: dict[str, Item], name: str, entry: Item, what: str, options: type | None = None
) -> None:
    """Add an entry to one of our tables, under a free name that can be spelt in a method.

    A part's `options` then appear as `BonusConfig.NAME` and `--bonus.NAME.*`.
    """
    if not name.isidentifier():
        raise UserError(f"'{name}' cannot name a {what}: use letters, digits and underscores.")
    if name in table or name == "none":
        raise UserError(f"There is a {what} '{name}' already: choose another name.")
    if options is not None:
        if not is_dataclass(options):
            raise UserError(
                f"The options of '{name}' must be a dataclass with defaults, not {options}."
            )
        if name in OPTIONS:
            raise UserError(f"There is an option '{name}' already: choose another name.")
        OPTIONS[name] = options
    table[name] = entry
