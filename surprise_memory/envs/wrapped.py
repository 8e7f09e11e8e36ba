"""Ids of wrapped environments: Wrapper[:option=value,...]/<id>, such as NoisyTV:channels=8/<id>."""

import dataclasses
import re
from typing import Any, NamedTuple, TypeVar

from surprise_memory.errors import UserError, choose

Options = TypeVar("Options")


class Wrapped(NamedTuple):
    """The parts of such an id."""

    wrapper: str
    options: dict[str, str]
    inner: str


def split_id(env_id: str, wrappers: dict[str, Any]) -> Wrapped | None:
    """'NoisyTV:channels=8/MiniGrid-…' in its parts; None for an id without a wrapper.

    >>> split_id("NoisyTV:channels=8/CartPole-v1", {"NoisyTV": None})
    Wrapped(wrapper='NoisyTV', options={'channels': '8'}, inner='CartPole-v1')
    """
    match = re.fullmatch(r"(\w+)(?::([^/]*))?/(.+)", env_id)
    if match is None or match[1] not in wrappers:
        return None
    options = {}
    for word in (match[2] or "").split(","):
        name, _, value = word.partition("=")
        if name:
            options[name] = value
    return Wrapped(match[1], options, match[3])


def parse_options(kind: type[Options], words: dict[str, str], env_id: str) -> Options:
    """The options of a wrapper from the words of an id, numbers all of them."""
    known: Any = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, word in words.items():
        field = choose(known, name, "option of a wrapper")
        number = type(field.default)
        try:
            values[name] = number(word)
        except ValueError as error:
            raise UserError(f"'{env_id}': {name} = '{word}' is not a number.") from error
    return kind(**values)
