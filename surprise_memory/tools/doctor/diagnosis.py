"""What a diagnosis is: measures over seeds, as plain data."""

from dataclasses import dataclass

# Measure -> column -> estimate. The column is norm, novelty, or all if it belongs to neither.
Measures = dict[str, dict[str, "Estimate"]]


@dataclass(frozen=True)
class Estimate:
    """A number over seeds; None where it could not be measured."""

    mean: float | None
    half: float | None
    """Half the width of the 95 % t interval of the mean."""
    seeds: list[float | None]


@dataclass(frozen=True)
class Diagnosis:
    """All that `examine` found out, as plain data: `json.dumps(dataclasses.asdict(diagnosis))`."""

    env: str
    method: str
    alone: str
    """The method without its memory and the stages that ask it: the column norm."""
    preset: str
    seeds: int
    steps: int
    """Steps of each seed that the bonus learnt from."""
    held_out: int
    """Steps of each seed that it was measured on."""
    warmup_rollouts: int
    counting: str
    """How visits were counted: exact, simhash or downsampled."""
    measures: Measures
    curves: dict[str, list[list[float | None]]]
    """Name -> one list per seed.

    The names are spectrum, visits/norm, visits/novelty (both relative to the mean bonus),
    rollouts/norm and rollouts/novelty.
    """
    noise: str
    """The kind of noise, see `noise.KINDS`."""
    verdict: list[str]


def get(measures: Measures, name: str, column: str) -> float | None:
    """A mean, or None where it was not measured."""
    estimate = measures.get(name, {}).get(column)
    if estimate is None:
        return None
    return estimate.mean


def titles(diagnosis: Diagnosis) -> dict[str, str]:
    """Column -> the method it is about: without its memory, and whole."""
    names = {"norm": diagnosis.alone}
    if "novelty" in diagnosis.measures["mean"]:
        names["novelty"] = diagnosis.method
    return names
