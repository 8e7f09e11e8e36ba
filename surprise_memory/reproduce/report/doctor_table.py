"""The doctor's numbers of each memory beside the return of its run."""

import math

from surprise_memory.reproduce.report.gather import Study
from surprise_memory.reproduce.report.table import Table, mean, number, spread

# The doctor's numbers that are shown, by the column's name.
MEMORY_COLUMNS = {
    "corr. with norm": "corr",
    "energy left": "energy_left",
    "z first sight": "first_z",
    "z repeats": "repeat_z",
    "z rarest event": "rarest",
    "z noise": "noise_z",
    "share paid for noise": "noise_pay",
}
DoctorResult = dict[str, dict[str, float | None]]  # measure -> norm, novelty or all -> number


def memory_table(study: Study) -> Table:
    """What each memory does to its generator's surprise, and the run's return.

    The numbers are the doctor's, from a random policy.
    """
    rows: list[list[str]] = []
    shown: set[str] = set()  # generators
    for env in study.grid.envs:
        for entry in study.grid.entries:
            found = study.probe_results(env, entry.name, "doctor")
            if not found:
                continue
            if entry.generator not in shown:
                shown.add(entry.generator)
                rows.append([f"{entry.generator}, its norm", *memory_columns(found, "norm"), ""])
            returns = spread(study.scores(env, entry.name))
            rows.append([entry.name, *memory_columns(found, "novelty"), returns])
    return Table("what the memory does", ["method", *MEMORY_COLUMNS, "return"], rows)


def memory_columns(found: list[DoctorResult], about: str) -> list[str]:
    """All columns of a row of `memory_table`, about the norm or the novelty."""
    return [number(doctor_mean(found, measure, about)) for measure in MEMORY_COLUMNS.values()]


def doctor_mean(found: list[DoctorResult], measure: str, about: str) -> float:
    """Mean over runs of one of the doctor's numbers, about the norm or the novelty.

    What the doctor says about all counts for the novelty. nan where no run has the number.
    """
    columns = [about]
    if about == "novelty":
        columns.append("all")
    values = []
    for result in found:
        numbers = result.get(measure, {})
        if measure == "rarest":
            numbers = rarest_event(result)
        for column in columns:
            value = numbers.get(column)
            if value is not None:
                values.append(value)
    return mean(values)


def rarest_event(result: DoctorResult) -> dict[str, float | None]:
    """The numbers of the event with the smallest share of the steps; empty where there is none."""
    rarest = ""
    smallest = math.inf
    for name, numbers in result.items():
        share = numbers.get("all")
        if name.startswith("share/") and share and share < smallest:
            rarest = name.removeprefix("share/")
            smallest = share
    if not rarest:
        return {}
    return result[f"event/{rarest}"]
