"""Damaged files: bit flips, truncations, zeroed pages, swapped files, and JSON of other types.

The file is refused in a sentence, or the numbers are those of the undamaged file. A change of a
text file that is still JSON of the same shape and types is an edit: see docs/reliability.md.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture import fixtures, loading
from tests.torture.cases import Case, Verdict

FAMILY = "damaged files"
PAGE = 4096
Damage = Callable[[Path, random.Random], None]


# --- bytes ----------------------------------------------------------------------------------------


def flip_bit(path: Path, rng: random.Random) -> None:
    """One bit of the file."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flip_ten(path: Path, rng: random.Random) -> None:
    """Ten bits of the file."""
    for _ in range(10):
        flip_bit(path, rng)


def zero_page(path: Path, rng: random.Random) -> None:
    """A page that never reached the disk."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(0, len(data), PAGE)
    end = min(at + PAGE, len(data))
    data[at:end] = bytes(end - at)
    path.write_bytes(data)


def zero_some(path: Path, rng: random.Random) -> None:
    """A few bytes, anywhere."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    end = min(at + rng.randrange(1, 64), len(data))
    data[at:end] = bytes(end - at)
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    """The end is missing."""
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def behead(path: Path, rng: random.Random) -> None:
    """The start is missing."""
    path.write_bytes(path.read_bytes()[rng.randrange(1, path.stat().st_size) :])


def append(path: Path, rng: random.Random) -> None:
    """Something more at the end."""
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 200)))


def garbage(path: Path, rng: random.Random) -> None:
    """Something else."""
    path.write_bytes(rng.randbytes(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    """Nothing."""
    path.write_bytes(b"")


def directory(path: Path, rng: random.Random) -> None:
    """A directory in its place."""
    path.unlink()
    path.mkdir()


BYTES: tuple[Damage, ...] = (
    flip_bit, flip_bit, flip_bit, flip_bit, flip_ten, zero_page, zero_some, truncate, append,
)  # fmt: skip
ONCE: tuple[Damage, ...] = (behead, garbage, empty, directory)

# --- JSON -----------------------------------------------------------------------------------------

OTHER: tuple[Any, ...] = (
    None,
    [],
    {},
    "x",
    -1,
    1.5,
    True,
    {"x": 1},
    [1],
    10**30,
    "☃",
    float("nan"),
)


def other_top(path: Path, rng: random.Random) -> None:
    """JSON, but of another kind."""
    path.write_text(json.dumps(rng.choice((None, [], {}, "x", 5, [{}], {"x": 1}))))


def other_value(path: Path, rng: random.Random) -> None:
    """One value, at any depth, is of another type."""
    value = json.loads(path.read_text())
    holder, key = rng.choice(list(leaves(value)))
    holder[key] = rng.choice([x for x in OTHER if type(x) is not type(holder[key])])
    path.write_text(json.dumps(value))


def missing_key(path: Path, rng: random.Random) -> None:
    """One key, at any depth, is missing."""
    value = json.loads(path.read_text())
    holder, key = rng.choice(list(leaves(value)))
    del holder[key]
    path.write_text(json.dumps(value))


def another_key(path: Path, rng: random.Random) -> None:
    """One key more."""
    value = json.loads(path.read_text())
    value["another"] = rng.choice(OTHER)
    path.write_text(json.dumps(value))


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested containers, as the container and the key."""
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, part in items:
        yield value, key
        yield from leaves(part)


def line_wise(damage: Damage) -> Damage:
    """The same damage to one line of a file of JSON lines."""

    def how(path: Path, rng: random.Random) -> None:
        lines = path.read_text().splitlines()
        i = rng.randrange(len(lines))
        one = path.with_suffix(".line")
        one.write_text(lines[i])
        damage(one, rng)
        lines[i] = one.read_text()
        one.unlink()
        path.write_text("\n".join(lines) + "\n")

    how.__name__ = f"one line: {damage.__name__}"
    return how


JSON: tuple[Damage, ...] = (
    other_top,
    other_value,
    other_value,
    other_value,
    missing_key,
    another_key,
)
LINES: tuple[Damage, ...] = tuple(line_wise(damage) for damage in JSON)


def same_shape(a: Any, b: Any) -> bool:
    """Whether two JSON values differ in numbers, words and truths alone."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_shape(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_shape, a, b))
    return True


def same_rows(a: list[Any], b: list[Any]) -> bool:
    """Whether two files of metrics have the same steps and as many numbers in each row."""
    if len(a) != len(b) or not all(isinstance(row, dict) and "step" in row for row in b):
        return False
    values = [(list(x.values()), list(y.values())) for x, y in zip(a, b, strict=True)]
    return all(same_shape(x, y) for x, y in values)


def is_edit(name: str, before: bytes, after: bytes) -> bool:
    """Whether a text file became another one that is as good."""
    try:
        if name.endswith(".jsonl"):
            rows = [[json.loads(line) for line in text.splitlines()] for text in (before, after)]
            return same_rows(*rows)
        return same_shape(json.loads(before), json.loads(after))
    except ValueError:
        return False


# --- the cases ------------------------------------------------------------------------------------


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
