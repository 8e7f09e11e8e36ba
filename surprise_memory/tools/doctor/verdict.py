"""What a diagnosis is, and what it says in plain sentences."""

from dataclasses import dataclass

IDLE = 0.98  # correlation of novelty with norm above which a memory changes nothing worth the name
SAME = 0.03  # a difference of correlations or z-scores too small to talk about
Measures = dict[
    str, dict[str, "Estimate"]
]  # measure -> column (norm, novelty, or all: about neither) -> estimate


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
    """Name -> one list per seed: spectrum, visits/norm, visits/novelty (over their mean), rollouts/norm, rollouts/novelty."""
    verdict: list[str]


def get(measures: Measures, name: str, column: str) -> float | None:
    """A mean, or None where it was not measured."""
    estimate = measures.get(name, {}).get(column)
    return estimate.mean if estimate else None


def verdict(measures: Measures, autoencoder: bool = True) -> list[str]:
    """A few sentences, each with its numbers; `autoencoder` says whether the method's memory has one (W)."""
    if "corr" not in measures:
        sentences = [alive(measures, "norm"), rarity_alone(measures), noise_alone(measures)]
    else:
        sentences = [
            alive(measures, "novelty"),
            memory(measures, autoencoder),
            rarity(measures),
            noise(measures),
            episode(measures),
        ]
    return [sentence for sentence in sentences if sentence]


def alive(measures: Measures, paid: str) -> str:
    """Finite, not zero, not constant, and on a scale that is not its own start's."""
    mean, cv, zeros, bad = (
        get(measures, name, paid) for name in ("mean", "cv", "zeros", "nonfinite")
    )
    scaled, stale = get(measures, "scaled_mean", paid), get(measures, "scale_over_today", paid)
    if bad:
        return f"The bonus is broken: {bad:.0f} values are NaN or infinite. Lower bonus.lr and bonus.memory_lr."
    if mean is None or mean == 0 or (zeros or 0) > 0.5:
        return f"The bonus is dead: it is zero on {100 * (zeros or 0):.0f} % of the steps."
    if cv is None or cv < 0.01:
        return "The bonus is blind: it pays the same for every step, so it cannot guide anything."
    if stale is not None and stale > 10:
        cure = "Raise warmup_rollouts or set bonus.scale_momentum."
        return f"The bonus is drowned: its scale is {stale:.0f} times the spread of today's returns. {cure}"
    return f"The bonus is alive: finite, std {100 * cv:.0f} % of its mean, {scaled or 0:.2g} a step after scaling."


def memory(measures: Measures, autoencoder: bool) -> str:
    """Does the memory change anything?"""
    corr, left = get(measures, "corr", "all"), get(measures, "energy_left", "all")
    close = "undefined" if corr is None else f"{corr:.3f}"
    facts = f"correlation with the norm {close}"
    facts += "" if left is None else f", {100 * left:.0f} % of the surprise's energy left"
    if corr is None or corr > IDLE:
        cure = "Widen bonus.memory.w_hidden, narrow the surprise (its generator's n) or raise bonus.memory_lr."
        cure = (
            cure
            if autoencoder
            else "Raise bonus.memory_lr or bonus.memory.m_coef, or choose a memory with W, such as sm."
        )
        return f"The memory is idle: novelty is the norm under another name ({facts}). {cure}"
    if left is not None and left > 1.05:
        return f"The memory adds to the surprise instead of recalling it ({facts}): it has not learnt enough yet."
    return f"The memory changes what is paid ({facts})."


def compare(measures: Measures, name: str) -> tuple[str, str] | None:
    """('higher' | 'lower' | 'about the same', ' (so in all 3 seeds)') for novelty against norm; None where it was not measured.

    Paired by seed: both columns come from the same bonus and the same steps.
    """
    row = measures.get(name, {})
    if "norm" not in row or "novelty" not in row:
        return None
    pairs = zip(row["norm"].seeds, row["novelty"].seeds, strict=True)
    change = [b - a for a, b in pairs if a is not None and b is not None]
    if not change:
        return None
    mean = sum(change) / len(change)
    agree = sum(x * mean > 0 for x in change)
    if abs(mean) < SAME:
        return "about the same", ""
    of = f"all {agree}" if agree == len(change) else f"{agree} of {len(change)}"
    return ("higher" if mean > 0 else "lower"), f" (so in {of} seeds)" if len(
        change
    ) > 1 else " (one seed only)"


def rarity(measures: Measures) -> str:
    """Does novelty follow rarity better than the norm does?"""
    found = compare(measures, "rarity")
    if found is None:
        return "Rarity could not be measured: all observations were seen equally often."
    word = {
        "higher": "better than the norm",
        "lower": "worse than the norm",
        "about the same": "as well as the norm",
    }[found[0]]
    a, b = get(measures, "rarity", "norm"), get(measures, "rarity", "novelty")
    return f"Novelty follows rarity {word}: rank correlation {b:.2f} against {a:.2f}{found[1]}."


def noise(measures: Measures) -> str:
    """Is novelty less fooled by noise than the norm is?"""
    found = compare(measures, "noise_z")
    if found is None:
        return "Noise could not be measured: no held-out step had any."
    word = {
        "higher": "more than the norm",
        "lower": "less than the norm",
        "about the same": "as much as the norm",
    }[found[0]]
    z, pay = (
        {c: get(measures, name, c) or 0 for c in ("norm", "novelty")}
        for name in ("noise_z", "noise_pay")
    )
    shares = (
        f"{100 * pay['novelty']:.0f} % of the reward, against {100 * pay['norm']:.0f} % by the norm"
    )
    return (
        f"Novelty is drawn to noise {word}: mean z-score {z['novelty']:.2f} against {z['norm']:.2f}{found[1]}. "
        f"Noise is one step in eight and gets {shares}."
    )


def episode(measures: Measures) -> str:
    """Is the first sight in an episode worth more than the next?"""
    begin, again = get(measures, "first_z", "novelty"), get(measures, "repeat_z", "novelty")
    if begin is None or again is None:
        return ""
    gap = begin - again
    word = "more than" if gap > SAME else "less than" if gap < -SAME else "the same as"
    return f"Within an episode a first sight is paid {word} its repeats: mean z-score {begin:.2f} against {again:.2f}."


def rarity_alone(measures: Measures) -> str:
    """Does a bonus without memory follow rarity?"""
    rank = get(measures, "rarity", "norm")
    if rank is None:
        return "Rarity could not be measured: all observations were seen equally often."
    word = "follows" if rank > 0.3 else "hardly follows" if rank > 0.1 else "does not follow"
    return f"It {word} rarity: rank correlation {rank:.2f}."


def noise_alone(measures: Measures) -> str:
    """Is a bonus without memory fooled by noise?"""
    z, pay = get(measures, "noise_z", "norm"), get(measures, "noise_pay", "norm")
    if z is None or pay is None:
        return "Noise could not be measured: no held-out step had any."
    word = "strongly drawn" if z > 1 else "drawn" if z > 0.25 else "not drawn"
    return f"It is {word} to noise: mean z-score {z:.2f}; noise is one step in eight and gets {100 * pay:.0f} % of the reward."
