"""Bad arguments, environments and files for the wrapper of Stable-Baselines3."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture import fixtures
from tests.torture.cases import HARMLESS, SILENT, Case, Verdict, judge
from tests.torture.commands import first_not_finite
from tests.torture.numbers import digest

FAMILY = "library"
NAN, INF = float("nan"), float("inf")
# Accepted or refused; if accepted, it must work.
FINE = (
    ("every", 10**20),
    ("beta", -1.0),
    ("beta", 0),
    ("ext", -1.0),
    ("ext", 0),
    ("method", "none"),
)
SENSELESS: dict[str, tuple[Any, ...]] = {
    "every": (0, -1, 1.5, NAN, INF, "x", None, [], "4"),
    "beta": (NAN, INF, -INF, "x", None, [1.0], "0.1"),
    "ext": (NAN, INF, -INF, "x", None, [1.0]),
    "method": ("", "x", "rnd+", None, 5),
    "config": ({}, 5, "x"),
    "seed": (1.5, "x", 2**70, NAN),
}


def cases(where: Path) -> Iterator[Case]:
    """All cases of the wrapper."""
    for name, values in SENSELESS.items():
        for value in values:
            call = f"SurpriseVecEnv(venv, {name}={value!r})"
            yield Case(FAMILY, call, lambda n=name, v=value: made(n, v, SILENT))
    for name, value in FINE:
        call = f"SurpriseVecEnv(venv, {name}={value!r})"
        yield Case(FAMILY, call, lambda n=name, v=value: made(n, v, HARMLESS))
    for column in ("obs", "reward"):
        for value in (NAN, INF, -INF, 1e38):
            call = f"SurpriseVecEnv.step where the environment returns {value} as {column}"
            yield Case(FAMILY, call, lambda c=column, v=value: broken(c, v))
    for name, how in FILES.items():
        call = f"SurpriseVecEnv.load({name})"
        yield Case(FAMILY, call, lambda h=how: loaded(where / fixtures.SB3, h))
    for path in ("missing/bonus.pt", "", ".", "/dev/null/x", "/proc/x"):
        yield Case(FAMILY, f"SurpriseVecEnv.save({path!r})", lambda p=path: saved(p))


def made(name: str, value: Any, if_accepted: str) -> Verdict:
    """An argument of the constructor."""
    env = fixtures.wrapped(**{name: value})
    if if_accepted == SILENT:
        return Verdict(SILENT, "accepted")
    return works(env)


def works(env: Any, start: bool = True) -> Verdict:
    """Some steps and updates later, all numbers are finite."""
    import math

    paid = fixtures.play(env, 13, start)
    if not all(math.isfinite(value) for value in paid):
        return Verdict(SILENT, "its rewards are not finite")
    bad = first_not_finite(env.bonus.state_dict(), "state")
    return Verdict(SILENT, f"{bad} is not finite") if bad else Verdict(HARMLESS)


def broken(column: str, value: float) -> Verdict:
    """The environment returns one bad number, and good ones afterwards."""
    env = fixtures.wrapped()
    fixtures.play(env, 9)
    before = digest(env.bonus.state_dict())
    inner = env.venv.step_wait

    def step_wait() -> Any:
        obs, reward, done, infos = inner()
        if column == "obs":
            obs[1, 2] = value
        else:
            reward[1] = value
        return obs, reward, done, infos

    env.venv.step_wait = step_wait
    try:
        fixtures.play(env, 1, start=False)
    except Exception as error:
        if digest(env.bonus.state_dict()) != before:
            return Verdict(SILENT, f"the refused step changed the bonus: {judge(error).why}")
        return judge(error)
    env.venv.step_wait = inner
    after = works(env, start=False)
    if column == "reward" and abs(value) == 1e38:
        return after
    if column == "reward" and after.outcome == HARMLESS:
        return Verdict(HARMLESS)  # the task's reward is the algorithm's to judge
    return after


def saved(path: str) -> Verdict:
    """A place that cannot be written to."""
    env = fixtures.wrapped()
    fixtures.play(env, 5)
    env.save(path)
    return Verdict(SILENT, "said nothing")


def loaded(good: Path, how: Callable[[Path], None]) -> Verdict:
    """Load a bad file; nothing may have changed afterwards."""
    path = Path("bonus.pt")
    path.write_bytes(good.read_bytes())
    how(path)
    env = fixtures.wrapped()
    fixtures.play(env, 5)
    before = digest(env.bonus.state_dict())
    try:
        env.load(path)
    except BaseException as error:
        if digest(env.bonus.state_dict()) != before:
            return Verdict(SILENT, f"the refused load changed the bonus: {judge(error).why}")
        return judge(error)
    return Verdict(SILENT, "accepted")


def _torch(value: Any) -> Callable[[Path], None]:
    """A file that torch can read, with something else in it."""

    def write(path: Path) -> None:
        import torch

        torch.save(value, path)

    return write


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


class Malicious:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch owned",)


def _another_method(path: Path) -> None:
    env = fixtures.wrapped(method="rnd")
    fixtures.play(env, 5)
    env.save(path)


FILES: dict[str, Callable[[Path], None]] = {
    "a missing file": lambda path: path.unlink(),
    "a directory": _directory,
    "an empty file": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("nothing"),
    "zeros": lambda path: path.write_bytes(bytes(5000)),
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a list": _torch([]),
    "a number": _torch(3),
    "{}": _torch({}),
    "None": _torch(None),
    "a pickle that runs a command": _torch(Malicious()),
    "another method's": _another_method,
}  # fmt: skip
