"""Training runs on environments that misbehave, in this process and in workers."""

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.torture.bad_envs import (
    DEADLY,
    KINDS,
    SIDE,
    SLOW,
    env_id,
    make_in_worker,
    register,
)
from tests.torture.cases import HARMLESS, REFUSED, SILENT, Case, Verdict
from tests.torture.commands import judge_training
from tests.torture.options import options

FAMILY = "environments"
WORKERS = "InWorkers/"  # before an id: the same environment in worker processes
SETTINGS = {"ppo": [], "dqn": ["--agent", "dqn"], "ppo, no bonus": ["--method", "none"]}
# Numbers that an image of bytes cannot hold.
VECTORS = ("NaN in obs", "inf in obs", "obs of 1e30", "NaN in the first obs")


def cases(seed: int, where: Path) -> list[Case]:
    """All cases in a random order."""
    found = [*in_process(), *in_workers()]
    random.Random(seed).shuffle(found)
    return found


def in_process() -> Iterator[Case]:
    """Gymnasium's own vector environment, with each agent."""
    for kind in KINDS:
        if kind in DEADLY:
            continue
        for setting, words in SETTINGS.items():
            if kind in SLOW and setting != "ppo":
                continue
            name = f"train {env_id(kind)} ({kind}), {setting}"
            yield Case(
                FAMILY,
                name,
                lambda k=kind, w=words: one(k, env_id(k), w),
                limit=45.0,
            )


def in_workers() -> Iterator[Case]:
    """Worker processes, as for MiniWorld."""
    for kind in KINDS:
        if kind in VECTORS:
            continue
        name = f"train {WORKERS}{env_id(kind)} ({kind}) in workers"
        yield Case(FAMILY, name, lambda k=kind: one(k, WORKERS + env_id(k), []), limit=60.0)


def one(kind: str, name: str, words: list[str]) -> Verdict:
    """Train on it: three rollouts after the warm-up, and an evaluation."""
    register()
    register_workers()
    argv = ["train", name, "--preset", "debug", "--steps", "256", "--envs", "2"]
    argv += ["--eval-episodes", "2", "--save-minutes", "0", "--run-dir", "run", *limits(), *words]
    verdict = judge_training(argv)
    wanted = KINDS[kind]
    if kind in DEADLY and verdict.why.startswith("exit code 0"):
        return Verdict(HARMLESS)  # the worker's own traceback; another took its place
    if verdict.outcome == HARMLESS and wanted == "refuse" and kind not in DEADLY:
        return Verdict(SILENT, "trained as if nothing had happened")
    if verdict.outcome == REFUSED and wanted == "go on":
        return Verdict(SILENT, f"refused what it should take: {verdict.why[-200:]}")
    if kind == "raises KeyboardInterrupt" and "exit code 130" in verdict.why:
        return Verdict(HARMLESS)  # as Ctrl-C
    return verdict


@cache
def limits() -> tuple[str, ...]:
    """Short limits for environments that hang and episodes that never end, where train has them."""
    words: list[str] = []
    for option in options("train"):
        slow = re.search(
            r"timeout|hang|patience|stuck|(env|step)_(seconds|minutes)|step_limit", option.name
        )
        endless = re.search(r"eval_(steps|limit|minutes|seconds|length|max)", option.name)
        if option.kind not in ("int", "float") or not (slow or endless):
            continue
        value = "5"
        if "steps" in option.name or "length" in option.name:
            value = "200"
        elif "minutes" in option.name:
            value = "0.1"
        words += [option.flag, value]
    return tuple(words)


def register_workers() -> None:
    """A family of the same environments in worker processes."""
    from surprise_memory.envs import FAMILIES, register_family
    from surprise_memory.envs.base import Family
    from surprise_memory.envs.workers import Workers

    def make(env_id_: str, num_envs: int, seed: int, threads: int, render: bool) -> Workers:
        kind = next(kind for kind in KINDS if WORKERS + env_id(kind) == env_id_)
        frame = (SIDE, SIDE, 3)
        return Workers(make_in_worker, {"kind": kind}, frame, num_envs, seed, workers=2)

    if "torture" not in FAMILIES:
        register_family(
            "torture",
            Family(
                about="environments that misbehave, in workers",
                ids=lambda: [WORKERS + env_id(kind) for kind in KINDS],
                owns=lambda name: name.startswith(WORKERS),
                make=make,
            ),
        )
