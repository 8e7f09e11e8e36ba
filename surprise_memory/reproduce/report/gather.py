"""What the runs of a reproduction have left behind, read from their directories alone."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.files import read_json
from surprise_memory.reproduce.grids import GRIDS, Grid
from surprise_memory.reproduce.probes import answer
from surprise_memory.training.rundir import RunDir


@dataclass(frozen=True)
class Result:
    """One run: what it was, how far it came, and its score if it was evaluated."""

    grid: str
    entry: str
    env: str
    seed: int
    preset: str
    steps: int  # asked for
    reached: int
    score: float | None  # mean task return over its evaluation episodes
    seconds: float  # about, from its own speed
    machine: str
    rows: list[dict[str, Any]]
    budget: str = "reduced"
    answers: dict[str, Any] = field(default_factory=dict)  # what its bonus was asked: mnir, doctor
    path: Path = Path()

    def later(self, name: str, share: float) -> list[float]:
        """A metric's values in the last `share` of the rows that have it."""
        values = [row[name] for row in self.rows if name in row]
        return values[-max(1, round(share * len(values))) :] if values else []


@dataclass(frozen=True)
class Study:
    """All runs of one grid that share preset and budget."""

    name: str
    grid: Grid
    preset: str
    budget: str
    results: list[Result]

    @property
    def id(self) -> str:
        """Unique among the studies of a report."""
        return f"{self.name}-{self.preset}-{self.budget}"

    def of(self, env: str, entry: str) -> list[Result]:
        """The runs of a cell, by seed."""
        return sorted(
            (r for r in self.results if (r.env, r.entry) == (env, entry)), key=lambda r: r.seed
        )

    def answers(self, env: str, entry: str, ask: str) -> list[Any]:
        """What the bonuses of a cell answered, by seed; only those that were asked."""
        return [r.answers[ask] for r in self.of(env, entry) if ask in r.answers]

    def scores(self, env: str, entry: str) -> list[float]:
        """By seed, times the grid's scale; only finished runs."""
        return [self.grid.scale * r.score for r in self.of(env, entry) if r.score is not None]


def gather(root: Path) -> list[Study]:
    """Everything under a directory that `reproduce` has filled, in the order of the grids."""
    found = [read(path.parent) for path in sorted(root.glob("*/*/cell.json"))]
    if not found:
        raise UserError(
            f"{root} holds no runs of `surprise-memory reproduce`: name the directory that was given there as --dir."
        )
    refuse_twins(found)
    studies = []
    for name, grid in GRIDS.items():
        names = {entry.name for entry in grid.entries}
        mine = [r for r in found if r.grid == name and r.entry in names and r.env in grid.envs]
        for preset, budget in sorted(
            {(r.preset, r.budget) for r in mine}, key=lambda key: (key[0] != grid.preset, key)
        ):
            studies.append(
                Study(
                    name,
                    grid,
                    preset,
                    budget,
                    [r for r in mine if (r.preset, r.budget) == (preset, budget)],
                )
            )
    return studies


def refuse_twins(found: list[Result]) -> None:
    """Two runs of one cell and seed have other settings: to count both would be wrong, to choose one a guess."""
    places: dict[tuple[str, ...], Path] = {}
    for r in found:
        key = (r.grid, r.preset, r.budget, r.env, r.entry, str(r.seed))
        if key in places:
            raise UserError(
                f"{places[key]} and {r.path} are both {r.entry} on {r.env}, seed {r.seed}, in different settings (see their "
                "config.json): move one of them elsewhere."
            )
        places[key] = r.path


def read(path: Path) -> Result:
    """One run's directory."""
    about, out = read_json(path / "cell.json"), RunDir(path)
    rows = list(out.rows())
    reached = rows[-1]["step"] if rows else 0
    speed = rows[-1].get("charts/SPS", 0) if rows else 0
    score = read_json(out.eval)["mean"] if out.done.exists() and out.eval.exists() else None
    versions = (
        (path / "versions.txt").read_text().splitlines() if (path / "versions.txt").exists() else []
    )
    machine = ", ".join(line for line in versions if line.startswith(("machine", "torch")))
    run, seconds = about["run"], reached / speed if speed else 0.0
    named = {name: about[name] for name in ("grid", "entry", "env", "seed", "budget")}
    return Result(
        **named,
        preset=run["preset"],
        steps=run["steps"],
        reached=reached,
        score=score,
        seconds=seconds,
        machine=machine,
        rows=rows,
        path=path,
        answers={
            ask: read_json(answer(path, ask)) for ask in about["asks"] if answer(path, ask).exists()
        },
    )
