"""ENV and the options of a run, from the command line; the preset fills in what is not given."""

import contextlib
import dataclasses
import re
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import tyro

from surprise_memory.errors import UserError, choose
from surprise_memory.training.config import RunConfig, with_part_options
from surprise_memory.training.loop import build
from surprise_memory.training.presets import PRESETS

NOWHERE = "ENV"
UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
LARGEST = 20  # powers of ten: 1e999999999 would fill the memory with digits
HELP = ("-h", "--help")
ALL = "--help-all"
RARE = ("same_layouts",)  # options of a run that only --help-all shows
MORE = f"{ALL} also shows the options of the agents and the bonus: --ppo.*, --dqn.*, --bonus.*"
Options = TypeVar("Options")


def count(text: str) -> int:
    """'10M' -> 10,000,000; also k, and plain or scientific numbers."""
    thousands = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"  # a comma in another place may be a decimal one
    match = re.fullmatch(rf"(-?(?:{thousands}|[\d_.]+)(?:e\d+)?)([kKmM]?)", text)
    value = Decimal("NaN")
    if match:
        digits = match[1].replace(",", "").replace("_", "")
        with contextlib.suppress(ArithmeticError):  # such as 1.2.3
            value = Decimal(digits) * UNITS[match[2].lower()]  # exact: 4.1 * 1e6 is not, as floats
    if not value.is_finite() or value.adjusted() > LARGEST or value % 1:
        raise UserError(f"'{text}' is not a number of steps: write it as 500000, 500k or 10M.")
    return int(value)


def parse_run(
    argv: list[str], command: str, about: str, more: Options
) -> tuple[RunConfig, Options]:
    """The run, defaults from its preset, and some options more.

    --help shows the options of a run alone: all of them are hundreds of lines.
    """
    env = argv[0] if argv and not argv[0].startswith("-") else peek(argv, "--env") or NOWHERE
    if env == NOWHERE and not {*HELP, ALL} & set(argv):
        raise UserError(
            f"Which environment? It comes first: surprise-memory {command} ENV [options]. "
            "`surprise-memory envs` lists them."
        )
    named = peek(argv, "--preset")
    preset = choose(PRESETS, "default" if named is None else named, "preset")
    default = with_part_options(preset(env))
    if set(HELP) & set(argv):
        default = without_groups(default)
    argv = ["--help" if word == ALL else word for word in argv]
    flat = tyro.conf.arg(name="")
    kind = dataclasses.make_dataclass(
        "Words", [("run", Annotated[type(default), flat]), ("more", Annotated[type(more), flat])]
    )
    words: Any = tyro.cli(
        kind,
        default=kind(default, more),
        args=with_numbers(argv),
        prog=f"surprise-memory {command} ENV",
        description=f"{about} {MORE}",
    )
    build(words.run)[0].close()  # whatever does not fit is said before anything is written
    return words.run, words.more


def with_numbers(argv: list[str]) -> list[str]:
    """The words with '--steps 10M' as a number, and with the first bare word as --env."""
    words = []
    for word in argv:
        words += word.split("=", 1) if word.startswith("--steps=") else [word]
    for i, word in enumerate(words):
        if i and words[i - 1] == "--steps":
            words[i] = str(count(word))
    if words and not words[0].startswith("-"):
        words.insert(0, "--env")
    return words


def without_groups(run: RunConfig) -> RunConfig:
    """The same run, of a kind that hides the options of the agents and the bonus, and rare ones."""
    values = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    hidden = []
    for name, value in values.items():
        if dataclasses.is_dataclass(value) or name in RARE:
            kind: Any = type(value)
            hidden.append(
                (name, Annotated[kind, tyro.conf.Suppress], dataclasses.field(default=value))
            )
    short = dataclasses.make_dataclass("Short", hidden, bases=(type(run),), frozen=True)
    made: RunConfig = short(**values)
    return made


def peek(argv: list[str], option: str) -> str | None:
    """The value of an option that must be known before the others are parsed."""
    for i, word in enumerate(argv):
        if word == option and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


def given(argv: list[str], name: str) -> bool:
    """Whether an option is among the words, in any spelling, or one of a group of options.

    >>> given(["ENV", "--ppo.end_discount=1"], "ppo.end_discount"), given(["--ppo.lr", "1"], "ppo")
    (True, True)
    """
    flag = f"--{name.replace('_', '-')}"
    for word in argv:
        option = word.partition("=")[0].replace("_", "-")
        if option == flag or option.startswith(f"{flag}."):
            return True
    return False
