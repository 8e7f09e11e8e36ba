"""Does a memory keep its contract?"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surprise_memory.bonus.check.promises import (
    FAKE,
    NO_LOSS,
    RESET,
    B,
    T,
    before_reset,
    build_two,
    check_losses,
    check_reach,
    check_type,
    check_weight,
    close,
    episodes,
    equal,
    fixed_rng,
    promise,
    spoil,
    through_a_file,
    trained,
    unpack,
)
from surprise_memory.bonus.config import BonusConfig
from surprise_memory.memory import Memory


def check_memory(
    make: Callable[[int, Any], Memory], n: int = 6, config: BonusConfig | None = None
) -> None:
    """`make(n, config)` builds it for surprises of width n, as in `register_memory`.

    >>> from surprise_memory import check_memory
    >>> from surprise_memory.memory import MEMORIES
    >>> check_memory(MEMORIES["sm"].make)
    """
    memory, other = build_two(lambda c: make(n, c), Memory, config)
    first, valid = episodes()
    u = torch.randn(T, B, n, generator=fixed_rng(), device="cpu")
    u = torch.where(valid[..., None], u, 0.0)  # as a bonus hands it over
    _check_asking(memory, u, first, valid)
    _check_episodes(memory, u, first, valid)
    _check_training(memory, u, first, valid)
    _, _, log, carry = memory(u, first, valid, memory.start(B))
    memory.commit(log, valid, carry)
    v = recall(memory, u, first, valid)
    other.load_state_dict(through_a_file(memory.state_dict()))
    promise(
        torch.equal(recall(other, u, first, valid), v),
        "After state_dict -> load_state_dict v is another: register networks and buffers, or use "
        "get_extra_state.",
    )


def recall(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> Tensor:
    """The v of a rollout that begins with an empty memory."""
    v: Tensor = memory(u, first, valid, memory.start(B))[0]
    return v


def _check_asking(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> None:
    state = copy.deepcopy(memory.state_dict())
    given = u.clone()
    start = memory.start(B)
    kept = copy.deepcopy(start)
    chance = torch.get_rng_state()
    v, q, _, _ = unpack("forward", memory(u, first, valid, start), "v, q, log, carry")
    check_type("v", v, Tensor)
    check_type("q", q, Tensor)
    shape = tuple(v.shape)
    fits = shape[:2] == (T, B) and len(shape) == 3
    promise(fits, f"v has shape {shape}: it must be (T, B, width).")
    promise(q.shape[:2] == (T, B), f"q has shape {tuple(q.shape)}: it must start with (T, B).")
    promise(bool(v.isfinite().all()), "v is not finite.")
    promise(not v.requires_grad, "v carries a gradient: decorate forward with torch.no_grad().")
    again = memory(u, first, valid, start)[0]
    unmoved = equal(state, memory.state_dict()) and torch.equal(chance, torch.get_rng_state())
    same = unmoved and equal(kept, start) and torch.equal(v, again)
    promise(same, "Asking changed the memory: move it in `commit`.")
    promise(torch.equal(given, u), "forward wrote into u.")


def _check_episodes(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> None:
    """A memory is the same step by step, keeps environments apart, and forgets old episodes."""
    v = recall(memory, u, first, valid)
    carry = memory.start(B)
    single = []
    for t in range(T):
        step = slice(t, t + 1)
        one, _, _, carry = memory(u[step], first[step], valid[step], carry)
        single.append(one)
    promise(
        close(torch.cat(single)[valid], v[valid]),
        "T steps one by one are recalled otherwise than as one chunk.",
    )
    changed = recall(memory, spoil(u, ~valid), first, valid)
    promise(close(changed[valid], v[valid]), FAKE)
    if memory.shared:
        return
    of_first_env = torch.arange(B, device="cpu").expand(T, B) == 0
    changed = recall(memory, spoil(u, of_first_env), first, valid)
    promise(
        close(changed[:, 1:], v[:, 1:]),
        "What one environment sees changes the reward of another: keep them apart, or set "
        "shared = True.",
    )
    past, after = before_reset(first)
    changed = recall(memory, spoil(u, past), first, valid)
    promise(close(changed[after & valid], v[after & valid]), RESET)


def _check_training(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> None:
    _, _, log, _ = memory(u, first, valid, memory.start(B))
    rows = valid.flatten().nonzero().squeeze(1)[::2]
    asked = u.flatten(0, 1)[rows].requires_grad_()
    losses = memory.losses(asked, rows, log)
    check_type("What losses returns", losses, dict)
    promise(bool(losses) or not trained(memory), NO_LOSS)
    if not losses:
        return
    check_losses(losses)
    check_reach(memory, losses)
    check_weight(
        losses, memory.losses(asked, rows, log, torch.full((len(rows),), 2.0, device="cpu"))
    )
    leaked = asked.grad is not None and bool(asked.grad.any())
    promise(
        not leaked or memory.reaches_surprise,
        "A loss reaches the generator through u: detach u, or say reaches_surprise = True.",
    )
