"""Bad values for every field of `BonusConfig`, set from Python instead of the command line."""

from collections.abc import Iterator
from typing import Any

from tests.torture.cases import HARMLESS, SILENT, Case, Verdict
from tests.torture.fuzz_cli import METHODS, WORK, senseless
from tests.torture.options import Option, of_dataclass

FAMILY = "library"
VALUES: dict[str, tuple[Any, ...]] = {
    "float": (float("nan"), float("inf"), -1.0, "x", [], 1e308),
    "int": (float("nan"), -1, 0, 1.5, "x", 10**20),
    "bool": ("maybe",),
    "str": ("", "x", 5, None),
}
# None is a choice of its own in some options, and Python's truth takes the place of a bool.
SPELT = {"-1": "-1", "-1.0": "-1", "0": "0", "nan": "nan", "inf": "inf"}


def cases() -> Iterator[Case]:
    """Every field with every value of its kind."""
    from surprise_memory import BonusConfig

    for option in of_dataclass("bonus", BonusConfig):
        for value in VALUES[option.kind]:
            call = f"Bonus({method(option)!r}, ...) with config.{option.name} = {value!r}"
            endless = value == 10**20 and option.last in WORK
            limit = 8.0 if endless else 30.0
            yield Case(FAMILY, call, lambda o=option, v=value: one(o, v), limit, endless)


def method(option: Option) -> str:
    """A method that uses the option."""
    return METHODS.get(option.name.partition(".")[0], "rnd+sm")


def one(option: Option, value: Any) -> Verdict:
    """A senseless value must be refused; any other must work if it is accepted."""
    from surprise_memory.training.config import with_options
    from tests.torture.fuzz_library import made_and_used, small

    config = small()
    if option.name == "obs_scale":
        config = with_options(config, {"obs_norm": "scale"})
    config = with_options(config, {option.name: value})
    verdict = made_and_used(method(option), config=config)
    wrong = senseless(option, SPELT.get(str(value), "")) or isinstance(value, str | list)
    if verdict.outcome == HARMLESS and wrong:
        return Verdict(SILENT, f"accepted {option.name} = {value!r}")
    return verdict
