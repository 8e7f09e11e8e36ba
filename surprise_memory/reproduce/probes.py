"""What a finished run's bonus is asked for the figures: MNIR by kind of state, and the doctor's questions."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from surprise_memory.tools.doctor import examine
from surprise_memory.tools.episode import trained
from surprise_memory.tools.mnir import mnir_by_event as mnir_by_kind
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir

LONGEST = 640  # steps of an episode about which MNIR is asked
ROLLOUTS = 20  # of a random policy, for the doctor


def answer(path: Path, ask: str) -> Path:
    """Where the answer to a question is."""
    return path / f"{ask}.json"


def unanswered(path: Path, asks: Iterable[str]) -> list[str]:
    """What is still to be asked; MNIR is asked of a checkpoint, which a run that was kept for its numbers has no more."""
    kept = not (path / "checkpoint.pt").exists()
    return [ask for ask in asks if not answer(path, ask).exists() and not (ask == "mnir" and kept)]


def ask_mnir(run: RunConfig, out: RunDir) -> dict[str, float]:
    """MNIR by kind of state, of the trained bonus."""
    _, bonus = trained(run, out, run.seed)
    assert bonus is not None, "grids ask only bonuses"
    return mnir_by_kind(run.env, bonus, run.eval_episodes, run.seed, LONGEST)


def ask_doctor(run: RunConfig, out: RunDir) -> dict[str, dict[str, float | None]]:
    """The doctor's numbers for the run's settings, from a random policy; measure -> norm, novelty or all -> number."""
    found = examine(run, 1, ROLLOUTS if run.preset != "debug" else 2)
    return {
        name: {column: estimate.mean for column, estimate in columns.items()}
        for name, columns in found.measures.items()
    }


ASKS: dict[str, Callable[[RunConfig, RunDir], Any]] = {"mnir": ask_mnir, "doctor": ask_doctor}
