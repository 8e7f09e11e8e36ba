"""What can happen to a file: to its bytes, or to the JSON in it.

A change of a text file that is still JSON of the same shape and types is an edit, and no damage:
see docs/reliability.md.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    """Whether two files of metrics have as many rows of numbers, with growing steps.

    A row has no fixed columns: that of a rollout in which no episode ended has no return.
    """
    if len(a) != len(b) or not all(isinstance(row, dict) for row in b):
        return False
    steps = [row.get("step") for row in b]
    if not all(type(step) is int for step in steps) or steps != sorted(set(steps)):
        return False
    return all(type(value) in (int, float) for row in b for value in row.values())


def is_edit(name: str, before: bytes, after: bytes) -> bool:
    """Whether a text file became another one that is as good."""
    try:
        if name.endswith(".jsonl"):
            rows = [[json.loads(line) for line in text.splitlines()] for text in (before, after)]
            return same_rows(*rows)
        return same_shape(json.loads(before), json.loads(after))
    except ValueError:
        return False
