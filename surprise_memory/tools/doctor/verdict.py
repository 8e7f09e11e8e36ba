"""What a diagnosis says, in plain sentences."""

from surprise_memory.bonus.methods import DEFAULT_METHOD, split_method
from surprise_memory.bonus.metrics import IDLE_CORRELATION
from surprise_memory.tools.doctor.diagnosis import Measures, get

BUYS = 1.0  # price of noise, in usual steps, from which an agent is better off watching it
HARMLESS = 0.2  # price below which it is better off anywhere else
DEAD = 0.98  # share of steps without pay from which a bonus cannot guide anything
SAME = 0.03  # a difference of correlations or z-scores too small to mention


def verdict(
    measures: Measures, method: str = "rnd+sm", noise_step: str = "a step of noise"
) -> list[str]:
    """A few sentences with their numbers. `noise_step`: the words for a step of noise."""
    _, memory_name, stages = split_method(method)
    autoencoder = memory_name in ("sm", "w")
    cure = f"Take --method {DEFAULT_METHOD}."
    if "recognise" in stages:
        cure = f"{method} filters noise already: docs/noise.md says which it does not resist."
    if "corr" not in measures:
        return [
            alive(measures, "norm"),
            bought(measures, "norm", noise_step, cure),
            rarity_alone(measures),
            noise_alone(measures),
        ]
    sentences = [
        alive(measures, "novelty"),
        bought(measures, "novelty", noise_step, cure),
        memory(measures, autoencoder),
        rarity(measures),
        noise(measures),
    ]
    repeats = episode(measures)
    if repeats is not None:
        sentences.append(repeats)
    return sentences


def alive(measures: Measures, paid: str) -> str:
    """Is it finite, not zero, not constant, and not on the scale of its first rollouts?"""
    bad = get(measures, "nonfinite", paid)
    if bad:
        cure = "Lower --bonus.lr and --bonus.memory-lr."
        return f"The bonus is broken: {bad:.0f} values are NaN or infinite. {cure}"
    mean = get(measures, "mean", paid)
    zeros = get(measures, "zeros", paid) or 0
    if mean is None or mean == 0 or zeros > DEAD:
        cure = "Take another --method, or look for a stage that withholds everything."
        return f"The bonus is dead: it is zero on {100 * zeros:.0f} % of the steps. {cure}"
    cv = get(measures, "cv", paid)
    if cv is None or cv < 0.01:
        return "The bonus is blind: it pays the same for every step, so it cannot guide anything."
    stale = get(measures, "scale_over_today", paid)
    if stale is not None and stale > 10:
        cure = "Raise --warmup-rollouts or set --bonus.scale-momentum."
        times = f"{stale:.0f} times the spread of today's returns"
        return f"The bonus is drowned: its scale is {times}. {cure}"
    scaled = get(measures, "scaled_mean", paid) or 0
    spread = f"std {100 * cv:.0f} % of its mean"
    facts = f"finite, {spread}, {scaled:.2g} per step after scaling"
    if zeros > 0.5:  # `expect` and a young `trust` pay what is above the expected alone
        facts += f", and zero on {100 * zeros:.0f} % of the steps"
    return f"The bonus is alive: {facts}."


def bought(measures: Measures, paid: str, noise_step: str, cure: str) -> str:
    """Can noise buy it? What noise, first sights and repeats would be paid, in mean real steps."""
    noise = get(measures, "price_noise", paid)
    if noise is None:
        return "Whether noise can buy it could not be measured: no held-out step had any."
    first = get(measures, "price_first", paid)
    repeat = get(measures, "price_repeat", paid)
    prices = f"{noise_step} pays {noise:.2g} times a usual step"
    if first is not None and repeat is not None:
        prices += f", a first sight {first:.2g} times, a repeat {repeat:.2g} times"
    seeds = [price for price in measures["price_noise"][paid].seeds if price is not None]
    buys = sum(price > BUYS for price in seeds)
    if buys == len(seeds):
        return f"Noise can buy this bonus: {prices}. {cure}"
    if buys:
        return f"Noise can buy this bonus in {buys} of {len(seeds)} seeds: {prices}. {cure}"
    if noise > HARMLESS:
        return f"Noise is not worth more than anything else here: {prices}."
    return f"Noise cannot buy this bonus: {prices}."


def memory(measures: Measures, autoencoder: bool) -> str:
    """Does the memory change anything?"""
    corr = get(measures, "corr", "all")
    left = get(measures, "energy_left", "all")
    facts = "correlation with the norm undefined"
    if corr is not None:
        facts = f"correlation with the norm {corr:.3f}"
    if left is not None:
        facts += f", {100 * left:.0f} % of the surprise's energy left"
    if corr is None or corr > IDLE_CORRELATION:
        cure = (
            "Raise --bonus.memory-lr or --bonus.memory.m-coef, or choose a memory with W, "
            "such as sm."
        )
        if autoencoder:
            cure = (
                "Widen W (--bonus.memory.w-hidden), narrow the surprise (its generator's n, such "
                "as --bonus.rnd.n), or raise --bonus.memory-lr."
            )
        return f"The memory is idle: novelty is the norm under another name ({facts}). {cure}"
    if left is not None and left > 1.05:
        return (
            f"The memory adds to the surprise instead of recalling it ({facts}): "
            "it has not learnt enough yet."
        )
    return f"The memory changes what is paid ({facts})."


def compare(measures: Measures, name: str) -> tuple[str, str] | None:
    """How novelty compares with norm, paired by seed; None where it was not measured.

    Such as ('higher', ' (in all 3 seeds)'); the word may also be 'lower' or 'about the same'. Both
    columns come from the same bonus and the same steps.
    """
    row = measures.get(name, {})
    if "norm" not in row or "novelty" not in row:
        return None
    changes = []
    for norm, novelty in zip(row["norm"].seeds, row["novelty"].seeds, strict=True):
        if norm is not None and novelty is not None:
            changes.append(novelty - norm)
    if not changes:
        return None
    mean = sum(changes) / len(changes)
    if abs(mean) < SAME:
        return "about the same", ""
    word = "lower"
    if mean > 0:
        word = "higher"
    return word, agreement(changes, mean)


def agreement(changes: list[float], mean: float) -> str:
    """How many seeds changed in the direction of the mean."""
    if len(changes) == 1:
        return " (one seed only)"
    agree = sum(change * mean > 0 for change in changes)
    if agree == len(changes):
        return f" (in all {agree} seeds)"
    return f" (in {agree} of {len(changes)} seeds)"


def rarity(measures: Measures) -> str:
    """Does novelty follow rarity better than the norm does?"""
    found = compare(measures, "rarity")
    if found is None:
        return "Rarity could not be measured: all observations were seen equally often."
    word, seeds = found
    words = {"higher": "better than", "lower": "worse than", "about the same": "as well as"}
    novelty = get(measures, "rarity", "novelty")
    norm = get(measures, "rarity", "norm")
    numbers = f"rank correlation {novelty:.2f} against {norm:.2f}{seeds}"
    return f"Novelty follows rarity {words[word]} the norm: {numbers}."


def noise(measures: Measures) -> str:
    """Is novelty less fooled by noise than the norm is?"""
    found = compare(measures, "noise_z")
    if found is None:
        return "Noise could not be measured: no held-out step had any."
    word, seeds = found
    words = {"higher": "more than", "lower": "less than", "about the same": "as much as"}
    novelty_z = get(measures, "noise_z", "novelty") or 0
    norm_z = get(measures, "noise_z", "norm") or 0
    novelty_pay = 100 * (get(measures, "noise_pay", "novelty") or 0)
    norm_pay = 100 * (get(measures, "noise_pay", "norm") or 0)
    numbers = f"mean z-score {novelty_z:.2f} against {norm_z:.2f}{seeds}"
    shares = f"{novelty_pay:.0f} % of the reward, against {norm_pay:.0f} % with the norm"
    return (
        f"Novelty is drawn to noise {words[word]} the norm: {numbers}. "
        f"Noise is one step in eight and gets {shares}."
    )


def episode(measures: Measures) -> str | None:
    """Is the first sight in an episode worth more than its repeats? None where nothing repeated."""
    first = get(measures, "first_z", "novelty")
    again = get(measures, "repeat_z", "novelty")
    if first is None or again is None:
        return None
    word = "the same as"
    if first - again > SAME:
        word = "more than"
    elif again - first > SAME:
        word = "less than"
    numbers = f"mean z-score {first:.2f} against {again:.2f}"
    return f"Within an episode, a first sight is paid {word} its repeats: {numbers}."


def rarity_alone(measures: Measures) -> str:
    """Does a bonus without memory follow rarity?"""
    rank = get(measures, "rarity", "norm")
    if rank is None:
        return "Rarity could not be measured: all observations were seen equally often."
    word = "does not follow"
    if rank > 0.3:
        word = "follows"
    elif rank > 0.1:
        word = "hardly follows"
    return f"It {word} rarity: rank correlation {rank:.2f}."


def noise_alone(measures: Measures) -> str:
    """Is a bonus without memory fooled by noise?"""
    z = get(measures, "noise_z", "norm")
    pay = get(measures, "noise_pay", "norm")
    if z is None or pay is None:
        return "Noise could not be measured: no held-out step had any."
    word = "not drawn"
    if z > 1:
        word = "strongly drawn"
    elif z > 0.25:
        word = "drawn"
    share = f"noise is one step in eight and gets {100 * pay:.0f} % of the reward"
    return f"It is {word} to noise: mean z-score {z:.2f}; {share}."
