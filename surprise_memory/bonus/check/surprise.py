"""Does a surprise generator keep its contract?"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from surprise_memory.bonus.check.promises import (
    FAKE,
    ONE_BY_ONE,
    RESET,
    B,
    T,
    before_reset,
    check_losses,
    check_reach,
    check_type,
    check_weight,
    close,
    episodes,
    equal,
    fixed_rng,
    open_game,
    promise,
    spoil_columns,
    take_steps,
    through_a_file,
    trained,
    unpack,
)
from surprise_memory.bonus.config import BonusConfig
from surprise_memory.surprise import Surprise

MakeSurprise = Callable[[tuple[int, ...], Space[Any] | None, Any], Surprise]


def check_surprise(
    make: MakeSurprise,
    obs_shape: tuple[int, ...] = (5,),
    action_space: Space[Any] | None = None,
    config: BonusConfig | None = None,
) -> None:
    """`make(obs_shape, action_space, config)` builds it, as in `register_surprise`.

    >>> from surprise_memory import check_surprise
    >>> from surprise_memory.surprise import SURPRISES
    >>> check_surprise(SURPRISES["icm"].make)
    """
    surprise, other, seen = open_game(make, Surprise, "generator", obs_shape, action_space, config)
    _check_asking(surprise, seen)
    _check_training(surprise, seen)
    _check_episodes(surprise, seen)
    before = surprise(surprise.prepare(seen))
    other.load_state_dict(through_a_file(surprise.state_dict()))
    promise(
        torch.equal(other(other.prepare(seen)), before),
        "After state_dict -> load_state_dict u is another: register every network, also frozen "
        "ones, and buffers.",
    )


def _check_asking(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    state = copy.deepcopy(surprise.state_dict())
    given = copy.deepcopy(seen)
    chance = torch.get_rng_state()
    inputs = surprise.prepare(seen)
    check_type("What prepare returns", inputs, dict)
    for name, column in inputs.items():
        promise(
            len(column) == T * B,
            f"prepare()['{name}'] has {len(column)} rows for {T * B} steps: one row a step.",
        )
        promise(
            not column.requires_grad,
            f"prepare()['{name}'] carries a gradient: it is kept for a rollout, so detach it.",
        )
    u = surprise(inputs)
    check_type("What forward returns", u, Tensor)
    promise(hasattr(surprise, "n"), "It has no n: set it to the width of u.")
    shape = (T * B, surprise.n)
    promise(u.shape == shape, f"u has shape {tuple(u.shape)}, (K, n) is {shape}.")
    promise(bool(u.isfinite().all()), "u is not finite.")
    again = surprise(surprise.prepare(seen))
    unmoved = equal(state, surprise.state_dict()) and torch.equal(chance, torch.get_rng_state())
    promise(
        unmoved and torch.equal(u, again),
        "Asking for u changed something: draw from `rng`, keep no state.",
    )
    promise(equal(given, seen), "prepare or forward wrote into the columns that it was given.")
    rows = torch.arange(T * B, device="cpu").flip(0)[::2]
    alone = surprise(surprise.prepare({name: x[rows] for name, x in seen.items()}))
    promise(
        close(alone, u[rows]),
        "u of a step depends on the other steps of its batch: use no means over the batch and no "
        "batch norm.",
    )


def _check_training(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    inputs = surprise.prepare(seen)
    rng = fixed_rng()
    promise(
        bool(trained(surprise)),
        "It has no parameter to train: a generator must learn, or its surprise never fades.",
    )
    for kind in ("norm", "squared"):
        u, losses = unpack("losses", surprise.losses(inputs, kind, rng), "u, losses")
        check_type("What losses returns second", losses, dict)
        promise(close(u, surprise(inputs)), "losses() returns another u than forward().")
        check_losses(losses)
    if type(surprise).sequence_losses is Surprise.sequence_losses:  # others get weights there
        _, once = surprise.losses(inputs, "squared", fixed_rng())
        _, twice = surprise.losses(
            inputs, "squared", fixed_rng(), torch.full((T * B,), 2.0, device="cpu")
        )
        check_weight(once, twice)
    check_reach(surprise, losses)


def _check_episodes(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    """A generator with an episodic state is the same step by step, and forgets old episodes."""
    first, valid = episodes()

    def ask(columns: dict[str, Tensor], steps: slice, carry: Any) -> tuple[Tensor, Any]:
        inputs = surprise.prepare(take_steps(columns, steps))
        answer = surprise.unroll(inputs, first[steps], valid[steps], carry)
        inputs, carry = unpack("unroll", answer, "inputs, carry")
        return surprise(inputs).detach().unflatten(0, first[steps].shape), carry

    everything = slice(None)
    start = surprise.start(B)
    kept = copy.deepcopy(start)
    whole, _ = ask(seen, everything, start)
    promise(equal(kept, start), "unroll() changed the carry it was given: return a new one.")
    carry = surprise.start(B)
    single = []
    for t in range(T):
        u, carry = ask(seen, slice(t, t + 1), carry)
        single.append(u)
    promise(close(torch.cat(single)[valid], whole[valid]), ONE_BY_ONE)
    changed, _ = ask(spoil_columns(seen, ~valid), everything, surprise.start(B))
    promise(close(changed[valid], whole[valid]), FAKE)
    past, after = before_reset(first)
    changed, _ = ask(spoil_columns(seen, past), everything, surprise.start(B))
    promise(close(changed[after & valid], whole[after & valid]), RESET)
