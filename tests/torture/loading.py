"""The ways in which damaged files are loaded, each compared with the undamaged file's numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture import fixtures
from tests.torture.cases import HARMLESS, REFUSED, SILENT, Verdict, printed
from tests.torture.commands import checkpoint, judge_command
from tests.torture.numbers import digest

Spoil = Callable[[Path], None]
Load = Callable[[Path, str, str, Spoil], Verdict]


def compare(
    good: Callable[[], Any], bad: Callable[[], Verdict], found: Callable[[], Any]
) -> Verdict:
    """Harmless only if what was found is what the undamaged file gives."""
    wanted = good()
    verdict = bad()
    if verdict.outcome != HARMLESS:
        return verdict
    if found() != wanted:
        return Verdict(SILENT, "loaded with other numbers")
    return verdict


def two_copies(where: Path, run: str, name: str, spoil: Spoil) -> tuple[Path, Path]:
    """An undamaged and a damaged copy of a run."""
    good = fixtures.copy(where / run, "good")
    bad = fixtures.copy(where / run, "bad")
    spoil(bad / name)
    return good, bad


def again(run: str, folder: Path) -> list[str]:
    """The command that made a fixture, to be continued."""
    return ["train", *fixtures.RUNS[run], "--run-dir", str(folder), "--resume"]


def resume(where: Path, run: str, name: str, spoil: Spoil) -> Verdict:
    """`train --resume` of a finished run loads everything and saves it again."""
    good, bad = two_copies(where, run, name, spoil)
    steps = rows(good)

    def after(folder: Path) -> Any:
        return digest(checkpoint(folder)), json.loads((folder / "config.json").read_text())

    def undamaged() -> Any:
        judge_command(again(run, good))
        return relocated(after(good))

    verdict = compare(
        undamaged, lambda: judge_command(again(run, bad)), lambda: relocated(after(bad))
    )
    if verdict.outcome != HARMLESS or "metrics.jsonl" in printed():
        return verdict
    left = rows(bad)
    if left not in (steps, steps[:-1]):  # a last row that was cut off by a crash may go
        lost = len(steps) - len(left)
        return Verdict(SILENT, f"{lost} rows of metrics.jsonl are gone or changed, without a word")
    return verdict


def relocated(value: Any) -> Any:
    """The same, whatever directory it was made in."""
    return json.loads(json.dumps(value).replace("/good", "/X").replace("/bad", "/X"))


def rows(folder: Path) -> list[Any]:
    """The rows of metrics without the speed."""
    found = []
    for line in (folder / "metrics.jsonl").read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            row.pop("charts/SPS", None)
        found.append(row)
    return found


def evaluate(where: Path, run: str, name: str, spoil: Spoil) -> Verdict:
    """`eval` plays the same episodes."""
    good, bad = two_copies(where, run, name, spoil)

    def command(folder: Path) -> Verdict:
        return judge_command(["eval", str(folder), "--episodes", "8"])

    def undamaged() -> Any:
        command(good)
        return json.loads((good / "eval-8.json").read_text())

    return compare(
        undamaged, lambda: command(bad), lambda: json.loads((bad / "eval-8.json").read_text())
    )


def show(where: Path, run: str, name: str, spoil: Spoil) -> Verdict:
    """`show` draws the same picture."""
    good, bad = two_copies(where, run, name, spoil)

    def picture(folder: Path) -> Any:
        import matplotlib.image

        return digest(matplotlib.image.imread(folder / "show.png"))

    def undamaged() -> Any:
        judge_command(["show", str(good)])
        return picture(good)

    verdict = compare(undamaged, lambda: judge_command(["show", str(bad)]), lambda: picture(bad))
    said = "metrics.jsonl" in printed()
    return Verdict(REFUSED, "said so") if verdict.outcome == SILENT and said else verdict


def report(where: Path, run: str, name: str, spoil: Spoil) -> Verdict:
    """`report` writes the same page, or says which run it leaves out."""
    root = fixtures.REPRODUCTION
    grid = fixtures.copy(where / root, root)
    judge_command(["report", root, "--out", "good"])
    wanted = Path("good.md").read_text().replace("good", "X")
    spoil(grid / Path(run).relative_to(root) / name)
    before = len(printed())
    verdict = judge_command(["report", root, "--out", "bad"])
    if verdict.outcome != HARMLESS:
        return verdict
    if Path("bad.md").read_text().replace("bad", "X") == wanted:
        return verdict
    said = printed()[before:]
    if "Left out" in said or name in said:
        return Verdict(REFUSED, said)
    return Verdict(SILENT, "the report has other numbers")


def report_outside(where: Path, run: str) -> Verdict:
    """A report must not write outside of its place, whatever a shipped grid says."""
    root = Path("inner/grids")
    root.parent.mkdir()
    shutil.copytree(where / fixtures.REPRODUCTION, root)
    for path in root.glob("*/*/cell.json"):
        cell = json.loads(path.read_text())
        cell["run"]["preset"] = "x/../../../../owned"
        path.write_text(json.dumps(cell))
    before = set(Path().rglob("*"))
    verdict = judge_command(["report", str(root), "--out", "inner/report"])
    for path in set(Path().rglob("*")) - before:
        if not str(path).startswith("inner/report"):
            return Verdict(SILENT, f"wrote {path}, outside of inner/report")
    return verdict


def wrapper(where: Path, run: str, name: str, spoil: Spoil) -> Verdict:
    """The bonus of Stable-Baselines3's wrapper."""
    path = Path(name).absolute()
    shutil.copy(where / name, path)
    good = fixtures.wrapped()
    good.load(where / name)
    spoil(path)
    bad = fixtures.wrapped()
    before = digest(bad.bonus.state_dict())
    try:
        bad.load(path)
    except Exception:
        if digest(bad.bonus.state_dict()) != before:
            return Verdict(SILENT, "the refused load changed the bonus")
        raise
    if digest(bad.bonus.state_dict()) != digest(good.bonus.state_dict()):
        return Verdict(SILENT, "loaded with other numbers")
    return Verdict(HARMLESS)
