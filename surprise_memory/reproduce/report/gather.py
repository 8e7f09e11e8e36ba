"""What the runs of a reproduction have left behind: in their directories, or in an archive."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.reproduce.grid import Grid
from surprise_memory.reproduce.grids import GRIDS
from surprise_memory.reproduce.report.compact import (
    FILE,
    Record,
    as_rows,
    read_records,
    record_of,
)

USUAL = "float32"  # precision of runs that do not say


@dataclass(frozen=True)
class Result:
    """One run: what it was, how far it got, and its score if it was evaluated."""

    grid: str
    entry: str
    env: str
    seed: int
    preset: str
    steps: int  # wanted
    reached: int
    score: float | None  # mean task return over its evaluation episodes
    seconds: float  # about, from its own speed
    machine: str
    rows: list[dict[str, Any]]
    budget: str = "reduced"
    probe_results: dict[str, Any] = field(default_factory=dict)  # by the probe's name
    path: Path = Path()
    precision: str = USUAL

    def last(self, metric: str, share: float) -> list[float]:
        """A metric's values in the last `share` of the rows that have it."""
        values = [row[metric] for row in self.rows if metric in row]
        return values[-max(1, round(share * len(values))) :]


@dataclass(frozen=True)
class Study:
    """All runs of one grid that share preset and budget, and precision where cells have several."""

    name: str
    grid: Grid
    preset: str
    budget: str
    results: list[Result]
    precision: str = ""  # where it is apart

    @property
    def setting(self) -> tuple[str, ...]:
        """What tells it from the grid's other studies, in words."""
        return tuple(filter(None, (self.preset, self.budget, self.precision)))

    @property
    def id(self) -> str:
        """Unique among the studies of a report."""
        return "-".join((self.name, *self.setting))

    @property
    def empty_envs(self) -> list[str]:
        """The environments on which nothing was begun and the paper has no number either."""
        known = {result.env for result in self.results} | {env for env, _ in self.grid.published}
        return [env for env in self.grid.envs if env not in known]

    def of(self, env: str, entry: str) -> list[Result]:
        """The runs of a cell, by seed."""
        mine = [r for r in self.results if r.env == env and r.entry == entry]
        return sorted(mine, key=lambda r: r.seed)

    def probe_results(self, env: str, entry: str, probe: str) -> list[Any]:
        """The results of a probe in a cell, by seed. Runs without that probe are passed over."""
        found = []
        for result in self.of(env, entry):
            if probe in result.probe_results:
                found.append(result.probe_results[probe])
        return found

    def has_metric(self, metric: str) -> bool:
        """Whether any run has logged a metric."""
        return any(result.last(metric, 1.0) for result in self.results)

    def scores(self, env: str, entry: str) -> list[float]:
        """By seed, times the grid's scale. Only finished runs have one."""
        found = []
        for result in self.of(env, entry):
            if result.score is not None:
                found.append(self.grid.scale * result.score)
        return found


def gather(root: Path) -> tuple[list[Study], dict[Path, str]]:
    """Everything under a directory that `reproduce` has filled.

    Returns the studies in the order of the grids, and the runs that no grid has any more -> why.
    """
    runs = read_all(root)
    if not runs:
        raise UserError(
            f"{root} holds no runs of `surprise-memory reproduce`: "
            "name the directory that was given there as --dir."
        )
    refuse_twins(runs)
    known = []
    left_out = {}
    for run in runs:
        why = why_left_out(run)
        if why:
            left_out[run.path] = why
        else:
            known.append(run)
    return studies_of(known), left_out


def studies_of(runs: list[Result]) -> list[Study]:
    """The runs by grid, preset and budget; of a grid, what has the most runs comes first."""
    studies = []
    for name, grid in GRIDS.items():
        groups: dict[tuple[str, str], list[Result]] = {}
        for run in runs:
            if run.grid == name:
                groups.setdefault((run.preset, run.budget), []).append(run)
        order = sorted(groups, key=lambda key: (-len(groups[key]), key[0] != grid.preset, key))
        for preset, budget in order:
            for precision, group in by_precision(groups[preset, budget]).items():
                studies.append(Study(name, grid, preset, budget, group, precision))
    return studies


def by_precision(runs: list[Result]) -> dict[str, list[Result]]:
    """The runs as they are, under no name; those of an unusual precision apart, under its name.

    They are apart only if a cell has more than one: its seeds must not be mixed.
    """
    found = {(run.env, run.entry, run.precision) for run in runs}
    if len(found) == len({(env, entry) for env, entry, _ in found}):
        return {"": runs}
    apart: dict[str, list[Result]] = {}
    for run in sorted(runs, key=lambda run: run.precision != USUAL):  # the usual ones come first
        apart.setdefault(run.precision.removeprefix(USUAL), []).append(run)
    return apart


def why_left_out(run: Result) -> str:
    """Why a run belongs to no cell of any grid; empty if it does."""
    if run.grid not in GRIDS:
        return f"there is no grid '{run.grid}'"
    grid = GRIDS[run.grid]
    if run.env not in grid.envs:
        return f"'{run.grid}' has no environment '{run.env}'"
    if run.entry not in grid.entry_names:
        return f"'{run.grid}' has no entry '{run.entry}'"
    return ""


def refuse_twins(runs: list[Result]) -> None:
    """Refuse two runs of one cell and seed.

    Their settings differ: to count both would be wrong, to choose one a guess.
    """
    places: dict[tuple[str, ...], Path] = {}
    for r in runs:
        key = (r.grid, r.preset, r.budget, r.precision, r.env, r.entry, str(r.seed))
        if key in places:
            raise UserError(
                f"{places[key]} and {r.path} are both {r.entry} on {r.env}, seed {r.seed}, in "
                "different settings (see their config.json): move one of them elsewhere."
            )
        places[key] = r.path


def read_all(root: Path) -> list[Result]:
    """All runs, from their directories and from the files of an archive, by grid and name."""
    records = {path.parent: record_of(path.parent) for path in root.glob("*/*/cell.json")}
    for file in root.glob(f"*/{FILE}"):
        for record in read_records(file):
            path = file.parent / record["name"]
            if path in records:
                raise UserError(
                    f"{path} is a directory, and also in {file}: "
                    "delete the directory if they are the same, or move it elsewhere."
                )
            records[path] = record
    return [result_of(record, path) for path, record in sorted(records.items())]


def result_of(record: Record, path: Path) -> Result:
    """What the report needs of a record; `path` is where the run's directory is or was."""
    about = record["cell"]
    rows = as_rows(record["metrics"])
    last: dict[str, Any] = {}
    if rows:
        last = rows[-1]
    reached = last.get("step", 0)
    speed = last.get("charts/SPS", 0)
    seconds = 0.0
    if speed:
        seconds = reached / speed
    score = None
    if record.get("done") and "eval" in record:
        score = read_score(record["eval"], path / "eval.json")
    made = record.get("probes", {})
    probes = {name: x for name, x in made.items() if name in about["probes"]}
    return Result(
        grid=about["grid"],
        entry=about["entry"],
        env=about["env"],
        seed=about["seed"],
        budget=about["budget"],
        precision=about["run"].get("precision", USUAL),
        preset=about["run"]["preset"],
        steps=about["run"]["steps"],
        reached=reached,
        score=score,
        seconds=seconds,
        machine=machine(record.get("versions", "")),
        rows=rows,
        path=path,
        probe_results=probes,
    )


def read_score(result: Any, path: Path) -> float:
    """The mean return in an eval.json."""
    mean = result.get("mean") if isinstance(result, dict) else None
    if not isinstance(mean, int | float):
        raise UserError(f"{path} is damaged: it has no mean. Delete it to leave the score out.")
    return mean


def machine(versions: str) -> str:
    """The machine and the torch that a run was made with."""
    lines = versions.splitlines()
    return ", ".join(line for line in lines if line.startswith(("machine", "torch")))
