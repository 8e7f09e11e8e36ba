"""Bad calls of `Bonus`: steps, rollouts, states, and what it is made with."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture import bad_rollouts, bad_steps, fuzz_config, fuzz_sb3
from tests.torture.cases import HARMLESS, REFUSED, SILENT, Case, Verdict, judge
from tests.torture.commands import first_not_finite
from tests.torture.numbers import digest

FAMILY = "library"
METHODS = (
    "rnd+sm", "icm+sm", "ngu", "disagreement", "lwm+sm", "rnd+counts", "ae+w", "rnd+m",
    "rnd+sm+trust+recognise", "rnd+sm+expect",
)  # fmt: skip
B, K, ACTIONS = 3, 5, 4
NAN = float("nan")


def cases(seed: int, where: Path) -> list[Case]:
    """All cases in a random order."""
    found = [*step_cases(), *chunk_cases(), *state_cases(), *making_cases()]
    found += [*fuzz_config.cases(), *fuzz_sb3.cases(where)]
    random.Random(seed).shuffle(found)
    return found


def small() -> Any:
    """Options that make a bonus quick."""
    from surprise_memory.training.presets import PRESETS

    return PRESETS["debug"]("ToyKeyDoor-v0").bonus


def make(method: str, **changes: Any) -> Any:
    """A small bonus."""
    import gymnasium as gym

    from surprise_memory import Bonus

    given = {
        "method": method,
        "obs_shape": (K,),
        "num_envs": B,
        "config": small(),
        "action_space": gym.spaces.Discrete(ACTIONS),
    }
    return Bonus(**given | changes)


def a_step(t: int) -> dict[str, Any]:
    """A good step, always the same for a t."""
    import torch

    draw = torch.Generator().manual_seed(t)
    return {
        "obs": torch.randn(B, K, generator=draw),
        "action": torch.randint(ACTIONS, (B,), generator=draw),
        "next_obs": torch.randn(B, K, generator=draw),
        "done": torch.tensor([t % 5 == 4, False, t % 7 == 6]),
    }


def warm(method: str) -> Any:
    """A bonus after two rollouts, in the middle of the third."""
    bonus = make(method)
    for t in range(14):
        bonus.step(**a_step(t))
        if t in (5, 11):
            bonus.update()
    return bonus


def step_cases() -> Iterator[Case]:
    """One bad step in the middle of good ones."""
    for method in METHODS:
        for name, (expect, bad) in bad_steps.all_steps().items():
            call = f"Bonus({method!r}, ({K},), {B}).step({name})"
            column = name.partition("=")[0]
            run = lambda m=method, c=column, e=expect, b=bad: one_step(m, c, e, b)  # noqa: E731
            yield Case(FAMILY, call, run)


def one_step(method: str, column: str, expect: str, bad: bad_steps.Change) -> Verdict:
    """Judge a step by what `bad_steps` expects of it."""
    bonus = warm(method)
    if expect == bad_steps.USED:
        used = column in bonus.model.uses
        expect = bad_steps.REFUSE if used else bad_steps.FINITE
    normal = 0
    if expect == bad_steps.SAME:
        normal = warm(method).step(**a_step(14))
    before = digest(bonus.state_dict())
    step = bad(a_step(14))
    try:
        reward = bonus.step(**step)
    except BaseException as error:
        return after_refusal(bonus, before, judge(error))
    if expect == bad_steps.REFUSE:
        return Verdict(SILENT, "accepted")
    if tuple(reward.shape) != (B,):
        return Verdict(SILENT, f"paid a reward of shape {tuple(reward.shape)}")
    if expect == bad_steps.SAME and not bool((reward == normal).all()):
        return Verdict(SILENT, f"paid {reward.tolist()} instead of {normal}")
    return keeps_working(bonus)


def after_refusal(bonus: Any, before: str, verdict: Verdict) -> Verdict:
    """A refused call must leave no trace."""
    if digest(bonus.state_dict()) != before:
        return Verdict(SILENT, f"the refused call changed the state; it said: {verdict.why}")
    if verdict.outcome != REFUSED:
        return verdict
    worked = keeps_working(bonus)
    return verdict if worked.outcome == HARMLESS else worked


def keeps_working(bonus: Any) -> Verdict:
    """Good steps and an update later, all numbers are finite."""
    for t in range(15, 18):
        reward = bonus.step(**a_step(t))
        if not bool(reward.isfinite().all()):
            return Verdict(SILENT, f"pays {reward.tolist()} from then on")
    try:
        bonus.update()
    except Exception as error:
        return Verdict(SILENT, f"the next update fails: {judge(error).why}")
    bad = first_not_finite(bonus.state_dict(), "state")
    return Verdict(SILENT, f"{bad} is not finite") if bad else Verdict(HARMLESS)


# --- whole rollouts -------------------------------------------------------------------------------


def chunk_cases() -> Iterator[Case]:
    """Bad rollouts for `train_on`, bad carries, and updates without steps."""
    for method in METHODS:
        for name, (expect, bad) in bad_rollouts.all_chunks().items():
            call = f"Bonus({method!r}, ({K},), {B}).{name}"
            run = lambda m=method, e=expect, b=bad: one_call(m, e, b)  # noqa: E731
            yield Case(FAMILY, call, run)


def one_call(method: str, expect: str, bad: Callable[[Any], Any]) -> Verdict:
    """A call of a warm bonus that must be refused, or be taken without harm."""
    bonus = warm(method)
    before = digest(bonus.state_dict())
    try:
        bad(bonus)
    except BaseException as error:
        return after_refusal(bonus, before, judge(error))
    if expect == bad_steps.REFUSE:
        return Verdict(SILENT, "accepted")
    return keeps_working(bonus)


# --- states ---------------------------------------------------------------------------------------


def state_cases() -> Iterator[Case]:
    """Bad states for `load_state_dict`."""
    for method in ("rnd+sm", "icm+sm", "ngu", "lwm+sm", "rnd+counts", "rnd+sm+trust+recognise"):
        for name, change in bad_rollouts.all_states().items():
            call = f"Bonus({method!r}, ({K},), {B}).load_state_dict({name})"
            bad = lambda bonus, c=change, m=method: bonus.load_state_dict(c(make_state(m)))  # noqa: E731
            run = lambda m=method, b=bad: one_call(m, bad_steps.REFUSE, b)  # noqa: E731
            yield Case(FAMILY, call, run)


def make_state(method: str) -> Any:
    """The state of another bonus of the same method, after one rollout."""
    bonus = make(method, seed=1)
    for t in range(4):
        bonus.step(**a_step(t))
    bonus.update()
    bonus.step(**a_step(5))
    return bonus.state_dict()


# --- making one -----------------------------------------------------------------------------------

MAKING: dict[str, tuple[Any, ...]] = {
    "method": ("", "x", "rnd+", "+sm", "rnd+sm+sm", "sm", "rnd+x", "none+sm", "RND", None, 5, []),
    "obs_shape": (
        (0,), (-1,), 5, "x", (5.5,), (NAN,), None, (3, 2, 2), (0, 9, 9), (2, -5), (10**20,),
        ("5",),
    ),
    "num_envs": (0, -1, 1.5, NAN, "3", None, 10**20, []),
    "seed": (1.5, "x", None, 2**70, NAN, []),
    "action_space": (5, "x", [], float),
    "config": ({}, 5, "x", []),
}  # fmt: skip


def making_cases() -> Iterator[Case]:
    """Bad arguments of the constructor, one at a time."""
    for name, values in MAKING.items():
        for value in values:
            call = f"Bonus('icm+sm', ({K},), {B}, ...) with {name}={value!r}"
            yield Case(FAMILY, call, lambda n=name, v=value: one_making(n, v))
    for method in ("none", "icm", "ngu", "rnd"):
        call = f"Bonus({method!r}, ({K},), {B}), without an action space"
        yield Case(FAMILY, call, lambda m=method: made_and_used(m, action_space=None))
    yield Case(FAMILY, "Bonus('rnd+sm', ...).update() before any step", update_at_once)


def one_making(name: str, value: Any) -> Verdict:
    """All of these must be refused."""
    make(**{"method": "icm+sm", name: value})
    return Verdict(SILENT, "accepted")


def update_at_once() -> Verdict:
    """There is nothing to learn from."""
    make("rnd+sm").update()
    return Verdict(SILENT, "accepted")


def made_and_used(method: str, **changes: Any) -> Verdict:
    """If it is accepted it must work."""
    bonus = make(method, **changes)
    for t in range(6):
        bonus.step(**a_step(t))
    bonus.update()
    return keeps_working(bonus)
