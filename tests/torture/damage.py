"""Damaged files: bit flips, truncations, zeroed pages, swapped files, and JSON of other types.

The file is refused in a sentence, or the numbers are those of the undamaged file.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.torture import fixtures, loading
from tests.torture.cases import Case, Verdict
from tests.torture.harm import BYTES, JSON, LINES, ONCE, Damage, is_edit, truncate

FAMILY = "damaged files"


def cases(seed: int, where: Path) -> list[Case]:
    """All cases in a random order."""
    rng = random.Random(seed)
    plans: list[tuple[str, str, tuple[Damage, ...], int, loading.Load]] = []
    for run in ("ppo", "dqn", "grid"):
        plans.append((run, "checkpoint.pt", BYTES, 40, loading.resume))
        plans.append((run, "checkpoint.pt", ONCE, 4, loading.resume))
        plans.append((run, "checkpoint.pt", BYTES, 9, loading.evaluate))
    for name in more_checkpoints(where / "ppo"):
        plans.append(("ppo", name, BYTES, 20, loading.resume))
    for load in (loading.resume, loading.evaluate, loading.show):
        plans.append(("other", "config.json", BYTES + JSON, 25, load))
        plans.append(("other", "config.json", ONCE, 4, load))
    for load in (loading.resume, loading.show):
        damages = BYTES + LINES + ONCE
        if load is loading.show:  # a file that ends early is that of a run that was killed
            damages = tuple(damage for damage in damages if damage is not truncate)
        plans.append(("ppo", "metrics.jsonl", damages, 29, load))
    cell = cell_of(where)
    for name, number in {"cell.json": 25, "eval.json": 15, "metrics.jsonl": 12}.items():
        damages = BYTES + (LINES if name == "metrics.jsonl" else JSON)
        if name == "metrics.jsonl":
            damages = tuple(damage for damage in damages if damage is not truncate)
        plans.append((cell, name, damages, number, loading.report))
    plans.append(("", fixtures.SB3, BYTES, 60, loading.wrapper))
    found = [one for plan in plans for one in planned(where, rng, *plan)]
    found += list(swapped(where))
    found.append(Case(FAMILY, "report where cell.json says preset = x/../../..", outside(where)))
    rng.shuffle(found)
    return found


def planned(
    where: Path,
    rng: random.Random,
    run: str,
    name: str,
    damages: tuple[Damage, ...],
    number: int,
    load: loading.Load,
) -> Iterator[Case]:
    """So many damages of one file, loaded in one way."""
    for i in range(number):
        damage = damages[i % len(damages)]
        seed = rng.randrange(2**32)
        call = f"{load.__name__} after {damage.__name__}, seed {seed}, in {run or '.'}/{name}"
        yield Case(
            FAMILY,
            call,
            lambda r=run, n=name, d=damage, s=seed, how=load: one(where, r, n, d, s, how),
        )


def one(where: Path, run: str, name: str, damage: Damage, seed: int, load: loading.Load) -> Verdict:
    """Damage a copy and load it."""
    rng = random.Random(seed)

    def spoil(path: Path) -> None:
        good = path.read_bytes()
        for _ in range(1000):
            damage(path, rng)
            if path.is_dir():
                return
            now = path.read_bytes()
            if now != good and not is_edit(name, good, now):
                return
            path.write_bytes(good)

    return load(where, run, name, spoil)


def more_checkpoints(run: Path) -> list[str]:
    """Checkpoints that are kept beside the newest."""
    return sorted(p.name for p in run.glob("*.pt") if p.name != "checkpoint.pt")


def cell_of(where: Path) -> str:
    """The first cell of the grid that was made."""
    found = sorted((where / fixtures.REPRODUCTION).glob("*/*/cell.json"))
    return str(found[0].parent.relative_to(where))


def swapped(where: Path) -> Iterator[Case]:
    """A file of one run in the place of another's."""
    for run, source in (("ppo", "other"), ("ppo", "dqn"), ("dqn", "ppo"), ("ppo", "grid")):
        for load in (loading.resume, loading.evaluate):
            call = f"{load.__name__} with the checkpoint of {source} in {run}"
            yield Case(FAMILY, call, lambda r=run, s=source, how=load: swap(where, r, s, how))


def swap(where: Path, run: str, source: str, load: loading.Load) -> Verdict:
    """Load it."""

    def spoil(path: Path) -> None:
        shutil.copy(where / source / "checkpoint.pt", path)

    return load(where, run, "checkpoint.pt", spoil)


def outside(where: Path) -> Callable[[], Verdict]:
    """A shipped grid whose cell names a place outside of the report."""
    return lambda: loading.report_outside(where, cell_of(where))
