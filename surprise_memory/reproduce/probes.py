"""Probes: what is measured of a finished run's bonus, for the figures."""

from collections.abc import Callable
from typing import Any

from surprise_memory.tools.doctor import examine
from surprise_memory.tools.episode import trained
from surprise_memory.tools.mnir import mnir_by_event
from surprise_memory.training.config import RunConfig
from surprise_memory.training.rundir import RunDir

LONGEST = 640  # steps of an episode that MNIR is measured on
ROLLOUTS = 20  # of a random policy, for the doctor
DEBUG_ROLLOUTS = 2  # the same for the debug preset


def probe_mnir(run: RunConfig, out: RunDir) -> dict[str, float]:
    """MNIR by kind of state, of the trained bonus."""
    _, bonus = trained(run, out, run.seed)
    assert bonus is not None, "grids have probes only for runs with a bonus"
    return mnir_by_event(
        run.env, bonus, run.eval_episodes, run.seed, LONGEST, fixed_seed=run.fixed_seed
    )


def probe_doctor(run: RunConfig, out: RunDir) -> dict[str, dict[str, float | None]]:
    """The doctor's numbers for the run's settings, from a random policy.

    Measure -> "norm", "novelty" or "all" -> number.
    """
    rollouts = ROLLOUTS
    if run.preset == "debug":
        rollouts = DEBUG_ROLLOUTS
    found: dict[str, dict[str, float | None]] = {}
    for name, columns in examine(run, 1, rollouts).measures.items():
        found[name] = {column: estimate.mean for column, estimate in columns.items()}
    return found


PROBES: dict[str, Callable[[RunConfig, RunDir], Any]] = {
    "mnir": probe_mnir,
    "doctor": probe_doctor,
}
