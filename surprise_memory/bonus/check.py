"""Does a generator or a memory of yours keep the contract? `check_surprise` and `check_memory` say which promise it breaks.

    from surprise_memory.bonus.check import check_surprise
    check_surprise(lambda shape, action_space, config: MySurprise(shape))

They raise `Broken` with the promise and the likely cause, and return nothing when all is well.
"""

import copy
import dataclasses
import io
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.linalg import vector_norm

from surprise_memory.bonus.methods import BonusConfig
from surprise_memory.errors import UserError
from surprise_memory.memory import Memory
from surprise_memory.surprise import Actions, Surprise

T, B = 40, 3  # long enough for several episodes of each environment
MakeSurprise = Callable[[tuple[int, ...], Space[Any] | None, Any], Surprise]


class Broken(UserError):
    """A promise of the contract that was not kept."""


def promise(kept: bool, sentence: str) -> None:
    """Say what is broken."""
    if not kept:
        raise Broken(sentence)


# --- generators -------------------------------------------------------------------------------------------------------


def check_surprise(
    make: MakeSurprise,
    obs_shape: tuple[int, ...] = (5,),
    action_space: Space[Any] | None = None,
    config: BonusConfig | None = None,
) -> None:
    """`make(obs_shape, action_space, config)` builds it, as in `register_surprise`."""
    space, c = action_space or spaces.Discrete(3), config or BonusConfig()
    surprise, other = (seeded(seed, lambda: make(obs_shape, space, c)) for seed in (0, 1))
    promise(
        isinstance(surprise, Surprise), f"{type(surprise).__name__} is not a Surprise: subclass it."
    )
    known = {"obs", "action", "next_obs"}
    promise(
        set(surprise.uses) <= known,
        f"uses = {surprise.uses}: a generator can look at {', '.join(sorted(known))}.",
    )
    seen = a_look(surprise.uses, obs_shape, space)
    _check_asking(surprise, seen)
    _check_training(surprise, seen)
    _check_episodes(surprise, seen)
    before = surprise(surprise.prepare(seen))
    other.load_state_dict(through_a_file(surprise.state_dict()))
    same = torch.equal(other(other.prepare(seen)), before)
    promise(
        same,
        "After state_dict -> load_state_dict u is another: register every network, also frozen ones, and buffers.",
    )


def a_look(sees: tuple[str, ...], shape: tuple[int, ...], space: Space[Any]) -> dict[str, Tensor]:
    """Random columns of T * B steps, as a bonus would hand them over."""
    rng = torch.Generator().manual_seed(0)
    space.seed(0)
    action = torch.stack([torch.as_tensor(space.sample()) for _ in range(T * B)])
    columns = {name: torch.randn(T * B, *shape, generator=rng) for name in ("obs", "next_obs")}
    return {
        name: Actions(space).encode(action) if name == "action" else columns[name] for name in sees
    }


def _check_asking(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    state, given = (
        copy.deepcopy(surprise.state_dict()),
        {name: x.clone() for name, x in seen.items()},
    )
    chance = torch.get_rng_state()
    inputs = surprise.prepare(seen)
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
    promise(
        u.shape == (T * B, surprise.n),
        f"u has shape {tuple(u.shape)}, (K, n) is {(T * B, surprise.n)}.",
    )
    promise(bool(u.isfinite().all()), "u is not finite.")
    again = surprise(surprise.prepare(seen))
    unmoved = equal(state, surprise.state_dict()) and torch.equal(chance, torch.get_rng_state())
    promise(
        unmoved and torch.equal(u, again),
        "Asking for u changed something: move statistics in `absorb`, draw from `rng`.",
    )
    promise(equal(given, seen), "prepare or forward wrote into the columns that it was given.")
    rows = torch.arange(T * B).flip(0)[::2]
    alone = surprise(surprise.prepare({name: x[rows] for name, x in seen.items()}))
    promise(
        close(alone, u[rows]),
        "u of a step depends on the other steps of its batch: no means over the batch, no batch norm.",
    )


def _check_training(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    inputs, rng = surprise.prepare(seen), torch.Generator().manual_seed(0)
    trained = {name: p for name, p in surprise.named_parameters() if p.requires_grad}
    promise(
        bool(trained),
        "It has no parameter to train: a generator must learn, or its surprise never fades.",
    )
    for kind in ("norm", "squared"):
        u, losses = surprise.losses(inputs, kind, rng)
        promise(close(u, surprise(inputs)), "losses() returns another u than forward().")
        _check_losses(losses)
    surprise.zero_grad()
    sum_of(losses).backward()
    idle = [name for name, p in trained.items() if p.grad is None]
    promise(
        not idle,
        f"No loss reaches {', '.join(idle)}: train it, or freeze it with requires_grad_(False).",
    )


def _check_episodes(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    first, valid = episodes()
    e = vector_norm(surprise(surprise.prepare(seen)).detach(), dim=-1).unflatten(0, (T, B))

    def pay(
        columns: dict[str, Tensor], e: Tensor, rows: slice, carry: Any
    ) -> tuple[Tensor, Any, Any]:
        flat = {name: x.unflatten(0, (T, B))[rows].flatten(0, 1) for name, x in columns.items()}
        return surprise.pay(e[rows], surprise.prepare(flat), first[rows], valid[rows], carry)

    for _ in range(2):  # the first time its statistics may know nothing yet
        _, extras, _ = pay(seen, e, slice(None), surprise.start(B))
        surprise.absorb(e, extras, valid, False)
    state, opening = copy.deepcopy(surprise.state_dict()), surprise.start(B)
    kept = copy.deepcopy(opening)
    whole, _, _ = pay(seen, e, slice(None), opening)
    promise(whole.shape == (T, B), f"pay() gave shape {tuple(whole.shape)} for (T, B) = {(T, B)}.")
    untouched = equal(state, surprise.state_dict()) and equal(kept, opening)
    promise(
        untouched,
        "pay() changed its state or the carry it was given: return a new carry, move statistics in `absorb`.",
    )
    carry, steps = surprise.start(B), []
    for t in range(T):
        reward, _, carry = pay(seen, e, slice(t, t + 1), carry)
        steps.append(reward)
    promise(
        close(torch.cat(steps)[valid], whole[valid]),
        "T steps one by one are paid otherwise than as one chunk.",
    )
    changed = {
        name: spoil(x.unflatten(0, (T, B)), ~valid).flatten(0, 1) for name, x in seen.items()
    }
    promise(close(pay(changed, e, slice(None), surprise.start(B))[0][valid], whole[valid]), FAKE)
    past, after = before_reset(first)
    changed = {name: spoil(x.unflatten(0, (T, B)), past).flatten(0, 1) for name, x in seen.items()}
    promise(
        close(
            pay(changed, spoil(e, past), slice(None), surprise.start(B))[0][after & valid],
            whole[after & valid],
        ),
        RESET,
    )


# --- memories ---------------------------------------------------------------------------------------------------------


def check_memory(
    make: Callable[[int, Any], Memory], n: int = 6, config: BonusConfig | None = None
) -> None:
    """`make(n, config)` builds it for surprises of width n, as in `register_memory`."""
    c = config or BonusConfig()
    memory, other = (seeded(seed, lambda: make(n, c)) for seed in (0, 1))
    promise(isinstance(memory, Memory), f"{type(memory).__name__} is not a Memory: subclass it.")
    u, (first, valid) = torch.randn(T, B, n, generator=torch.Generator().manual_seed(0)), episodes()
    u = torch.where(valid[..., None], u, 0.0)  # as a bonus hands it over
    _check_recall(memory, u, first, valid)
    _check_memory_training(memory, u, first, valid)
    _, _, log, carry = memory(u, first, valid, memory.start(B))
    memory.absorb(log, valid, carry)
    v = memory(u, first, valid, memory.start(B))[0]
    other.load_state_dict(through_a_file(memory.state_dict()))
    same = torch.equal(other(u, first, valid, other.start(B))[0], v)
    promise(
        same,
        "After state_dict -> load_state_dict v is another: register networks and buffers, or use get_extra_state.",
    )


def _check_recall(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> None:
    state, given, opening, chance = (
        copy.deepcopy(memory.state_dict()),
        u.clone(),
        memory.start(B),
        torch.get_rng_state(),
    )
    kept = copy.deepcopy(opening)
    v, q, _, _ = memory(u, first, valid, opening)
    promise(
        v.shape[:2] == (T, B) and v.dim() == 3,
        f"v has shape {tuple(v.shape)}: it must be (T, B, width).",
    )
    promise(q.shape[:2] == (T, B), f"q has shape {tuple(q.shape)}: it must start with (T, B).")
    promise(bool(v.isfinite().all()), "v is not finite.")
    promise(not v.requires_grad, "v carries a gradient: decorate forward with torch.no_grad().")
    again = memory(u, first, valid, opening)[0]
    unmoved = equal(state, memory.state_dict()) and torch.equal(chance, torch.get_rng_state())
    promise(
        unmoved and equal(kept, opening) and torch.equal(v, again),
        "Asking changed the memory: move it in `absorb`.",
    )
    promise(torch.equal(given, u), "forward wrote into u.")
    carry, steps = memory.start(B), []
    for t in range(T):
        one, _, _, carry = memory(u[t : t + 1], first[t : t + 1], valid[t : t + 1], carry)
        steps.append(one)
    promise(
        close(torch.cat(steps)[valid], v[valid]),
        "T steps one by one are recalled otherwise than as one chunk.",
    )
    promise(
        close(memory(spoil(u, ~valid), first, valid, memory.start(B))[0][valid], v[valid]), FAKE
    )
    if memory.shared:
        return
    one = spoil(u, torch.arange(B).expand(T, B) == 0)
    apart = close(memory(one, first, valid, memory.start(B))[0][:, 1:], v[:, 1:])
    promise(
        apart,
        "What one environment sees changes the reward of another: keep them apart, or set shared = True.",
    )
    past, after = before_reset(first)
    promise(
        close(
            memory(spoil(u, past), first, valid, memory.start(B))[0][after & valid],
            v[after & valid],
        ),
        RESET,
    )


def _check_memory_training(memory: Memory, u: Tensor, first: Tensor, valid: Tensor) -> None:
    _, _, log, _ = memory(u, first, valid, memory.start(B))
    rows = valid.flatten().nonzero().squeeze(1)[::2]
    asked = u.flatten(0, 1)[rows].requires_grad_()
    losses = memory.losses(asked, rows, log)
    trained = {name: p for name, p in memory.named_parameters() if p.requires_grad}
    promise(bool(losses) or not trained, "It has parameters and no loss: what should train them?")
    if not losses:
        return
    _check_losses(losses)
    memory.zero_grad()
    sum_of(losses).backward()
    idle = [name for name, p in trained.items() if p.grad is None]
    promise(
        not idle,
        f"No loss reaches {', '.join(idle)}: train it, or freeze it with requires_grad_(False).",
    )
    leaked = asked.grad is not None and bool(asked.grad.any())
    promise(
        not leaked or memory.reaches_surprise,
        "A loss reaches the generator through u: detach u, or say reaches_surprise = True.",
    )


# --- shared -----------------------------------------------------------------------------------------------------------

FAKE = (
    "Rows with valid = False never happened, yet what stands in them changes the reward of others."
)
RESET = "What happened before an episode began changes what it is paid: honour `first`."


def episodes() -> tuple[Tensor, Tensor]:
    """(first, valid), (T, B) each: ends at different times, one environment with a row that never happened after each."""
    first = torch.zeros(T, B, dtype=torch.bool)
    valid = ~first
    first[0], first[17, 0], first[21, 2], first[36, 2] = True, True, True, True
    valid[12, 1], first[12, 1], first[13, 1] = False, True, True
    return first, valid


def before_reset(first: Tensor) -> tuple[Tensor, Tensor]:
    """(steps before the last reset of each environment, the others)."""
    last = torch.where(first, torch.arange(T)[:, None], 0).max(0).values
    past = torch.arange(T)[:, None] < last
    return past, ~past


def spoil(x: Tensor, where: Tensor) -> Tensor:
    """Other numbers at some steps (T, B)."""
    mask = where.reshape(*where.shape, *[1] * (x.dim() - 2))
    return torch.where(mask, x.flip(0) * 3 + 1, x)


def _check_losses(losses: dict[str, Tensor]) -> None:
    for name, loss in losses.items():
        promise(
            loss.dim() == 0 and bool(loss.isfinite()),
            f"The loss '{name}' is {loss}: it must be one finite number.",
        )


def sum_of(losses: dict[str, Tensor]) -> Tensor:
    """Their sum, as a bonus trains it."""
    return torch.stack(list(losses.values())).sum()


def seeded(seed: int, make: Callable[[], Any]) -> Any:
    """Build with a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def through_a_file(state: dict[str, Any]) -> Any:
    """What a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def close(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding."""
    return torch.allclose(a.detach(), b.detach(), rtol=1e-3, atol=1e-4)


def equal(a: Any, b: Any) -> bool:
    """Nests of dataclasses, dicts and tensors, bit for bit."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if dataclasses.is_dataclass(a):
        return equal(vars(a), vars(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    return bool(a == b)
