"""Every option of every command, from the config dataclasses, the signatures and the help."""

import contextlib
import dataclasses
import inspect
import io
import re
import typing
from dataclasses import dataclass
from typing import Any

from surprise_memory import cli
from surprise_memory.cli.main import function_of
from surprise_memory.cli.train import Examination, Place
from surprise_memory.training.config import run_type

OF_A_RUN = ("train", "doctor")  # commands that take all options of a run


@dataclass(frozen=True)
class Option:
    """One option of a command: 'ppo.max_grad_norm', and what it takes."""

    command: str
    name: str
    kind: str  # int, float, bool, str or path; '' if unknown

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def last(self) -> str:
        """'max_grad_norm' of 'ppo.max_grad_norm'."""
        return self.name.rpartition(".")[2]


def kind_of(annotation: Any) -> str:
    """The simple type in an annotation such as 'float | None'."""
    text = str(getattr(annotation, "__name__", annotation))
    if typing.get_args(annotation):
        text = str(annotation)
    for kind in ("bool", "int", "float", "Path"):
        if re.search(rf"\b{kind}\b", text):
            return kind.lower()
    return "str"


def of_dataclass(command: str, kind: Any, prefix: str = "") -> list[Option]:
    """The fields of a config, those of its parts included."""
    types = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        name = prefix + field.name
        if dataclasses.is_dataclass(field.default_factory):
            found += of_dataclass(command, field.default_factory, f"{name}.")
        else:
            found.append(Option(command, name, kind_of(types[field.name])))
    return found


def of_signature(command: str, function: Any) -> list[Option]:
    """The parameters of a command's function; those without a default are positional."""
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if "Positional" not in str(parameter.annotation) and name != "argv":
            found.append(Option(command, name, kind_of(parameter.annotation)))
    return found


def in_help(command: str) -> set[str]:
    """Names of options that a command's help shows, as in a config: 'ppo.max_grad_norm'."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        cli.main([command, "--help"])
    shown = re.findall(r"(?<![\w-])--([a-z][\w.-]*)", text.getvalue())
    return {name.rstrip(".").replace("-", "_") for name in shown} - {"help"}


def options(command: str) -> list[Option]:
    """All options of a command."""
    function = function_of(command)
    found = of_signature(command, function)
    if command in OF_A_RUN:
        found = of_dataclass(command, run_type())
        for more in (Place, Examination):
            found += of_dataclass(command, more)
    known = {option.name for option in found}
    shown = in_help(command)
    for name in sorted(shown - known):
        positive = re.sub(r"(^|\.)no_", r"\1", name)
        if positive not in known:
            found.append(Option(command, name, ""))
    if shown and command in OF_A_RUN:  # Place is of train alone, Examination of the doctor
        found = [option for option in found if option.name in shown or "." in option.name]
    return found


def find(pattern: str) -> str | None:
    """The flag of train's first option whose name matches, or None."""
    for option in options("train"):
        if re.search(pattern, option.name):
            return option.flag
    return None
