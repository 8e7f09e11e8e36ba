"""`make torture`: run the families of cases, print the table, and name every bad case.

python -m tests.torture                            all families, about a quarter of an hour
python -m tests.torture library damage --minutes 2
python -m tests.torture --list                     the families
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.torture import damage, fixtures, fuzz_cli, fuzz_library, kills, misbehave
from tests.torture.cases import BAD, OUTCOMES, Case, Ended, run_all
from tests.torture.commands import preload

Build = Callable[[int, Path], list[Case]]
# Name -> the cases, and the share of the time.
FAMILIES: dict[str, tuple[Build, float]] = {
    "cli": (fuzz_cli.cases, 5),
    "library": (fuzz_library.cases, 2),
    "damage": (damage.cases, 4),
    "envs": (misbehave.cases, 3),
    "kills": (kills.cases, 3),
}


def main() -> int:
    """Exit code 1 if anything bad was found."""
    options = arguments()
    preload()
    until = time.monotonic() + 60 * options.minutes
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="torture-fixtures-") as folder:
        fixtures.build(Path(folder))
        with contextlib.suppress(KeyboardInterrupt):  # the table of what was tried so far
            for i, name in enumerate(options.families):
                build, _ = FAMILIES[name]
                cases = chosen(build(options.seed, Path(folder)), options.only)
                end = time.monotonic() + share(options.families[i:]) * (until - time.monotonic())
                ended += run_family(name, cases, options.jobs, end)
    print(table(ended))
    return int(any(one.verdict.outcome in BAD for one in ended))


def share(families: list[str]) -> float:
    """The first family's share of the time that is left."""
    weights = [FAMILIES[name][1] for name in families]
    return weights[0] / sum(weights)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; all if none")
    parser.add_argument("--minutes", type=float, default=15, help="then no new case is begun")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--jobs", type=int, default=2, help="cases side by side")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    options.families = options.families or list(FAMILIES)
    for name in options.families:
        if name not in FAMILIES:
            parser.error(f"no family '{name}': there are {', '.join(FAMILIES)}")
    return options


def chosen(cases: list[Case], only: str) -> list[Case]:
    """The cases whose name contains a word."""
    return [case for case in cases if only in case.name]


def run_family(name: str, cases: list[Case], jobs: int, until: float) -> list[Ended]:
    """All cases of a family. Names every bad one, and prints a line of progress now and then."""
    ended = []
    for one in run_all(cases, jobs, until):
        ended.append(one)
        if one.verdict.outcome in BAD:
            print(f"{one.verdict.outcome.upper()} [{one.case.family}] {one.case.name}")
            print(f"    {one.verdict.why}", flush=True)
        if len(ended) % 50 == 0:
            bad = sum(e.verdict.outcome in BAD for e in ended)
            print(f"{name}: {len(ended)} of {len(cases)}, {bad} bad", file=sys.stderr, flush=True)
    if len(ended) < len(cases):
        print(f"{name}: out of time after {len(ended)} of {len(cases)} cases", file=sys.stderr)
    return ended


def table(ended: list[Ended]) -> str:
    """The counts in Markdown, a line for each family and one for all."""
    counts: dict[str, Counter[str]] = {}
    for one in ended:
        counts.setdefault(one.case.family, Counter())[one.verdict.outcome] += 1
    lines = [
        "| family | tried | refused clearly | harmless | traceback | silent | hang |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        numbers = [count.total(), *(count[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {family} | {' | '.join(f'{n:,}' for n in numbers)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
