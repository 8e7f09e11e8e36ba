"""Does a part of yours keep its contract? These checks say which promise it breaks.

    from surprise_memory import check_surprise
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

from surprise_memory.bonus.config import BonusConfig, complete
from surprise_memory.errors import UserError
from surprise_memory.memory import Memory
from surprise_memory.nn.actions import Actions
from surprise_memory.stages import Stage, Steps
from surprise_memory.surprise import Surprise

T, B = 40, 3  # long enough for several episodes of each environment
MakeStage = Callable[[tuple[int, ...], Space[Any] | None, Any], Stage]
MakeSurprise = Callable[[tuple[int, ...], Space[Any] | None, Any], Surprise]


class Broken(UserError):
    """A promise of the contract that was not kept."""


def promise(kept: bool, sentence: str) -> None:
    """Say what is broken."""
    if not kept:
        raise Broken(sentence)


# --- generators ---


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
    space, c = action_space or spaces.Discrete(3), complete(config or BonusConfig())
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
        "After state_dict -> load_state_dict u is another: register every network, also frozen "
        "ones, and buffers.",
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
        "Asking for u changed something: draw from `rng`, keep no state.",
    )
    promise(equal(given, seen), "prepare or forward wrote into the columns that it was given.")
    rows = torch.arange(T * B).flip(0)[::2]
    alone = surprise(surprise.prepare({name: x[rows] for name, x in seen.items()}))
    promise(
        close(alone, u[rows]),
        "u of a step depends on the other steps of its batch: use no means over the batch and no "
        "batch norm.",
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
    if type(surprise).sequence_losses is Surprise.sequence_losses:  # others get weights there
        twice = torch.full((T * B,), 2.0)
        once = surprise.losses(inputs, kind, fixed_rng())[1]
        _check_weight(once, surprise.losses(inputs, kind, fixed_rng(), twice)[1])
    surprise.zero_grad()
    sum_of(losses).backward()
    idle = [name for name, p in trained.items() if p.grad is None]
    promise(
        not idle,
        f"No loss reaches {', '.join(idle)}: train it, or freeze it with requires_grad_(False).",
    )


def _check_episodes(surprise: Surprise, seen: dict[str, Tensor]) -> None:
    """A generator with an episodic state is the same step by step, and forgets old episodes."""
    first, valid = episodes()

    def ask(columns: dict[str, Tensor], rows: slice, carry: Any) -> tuple[Tensor, Any]:
        flat = {name: x.unflatten(0, (T, B))[rows].flatten(0, 1) for name, x in columns.items()}
        inputs = surprise.prepare(flat)
        inputs, carry = surprise.unroll(inputs, first[rows], valid[rows], carry)
        return surprise(inputs).detach().unflatten(0, first[rows].shape), carry

    start = surprise.start(B)
    kept = copy.deepcopy(start)
    whole, _ = ask(seen, slice(None), start)
    promise(equal(kept, start), "unroll() changed the carry it was given: return a new one.")
    carry, steps = surprise.start(B), []
    for t in range(T):
        u, carry = ask(seen, slice(t, t + 1), carry)
        steps.append(u)
    promise(close(torch.cat(steps)[valid], whole[valid]), ONE_BY_ONE)
    changed, _ = ask(spoil_columns(seen, ~valid), slice(None), surprise.start(B))
    promise(close(changed[valid], whole[valid]), FAKE)
    past, after = before_reset(first)
    changed, _ = ask(spoil_columns(seen, past), slice(None), surprise.start(B))
    promise(close(changed[after & valid], whole[after & valid]), RESET)


# --- stages ---


def check_stage(
    make: MakeStage,
    obs_shape: tuple[int, ...] = (5,),
    action_space: Space[Any] | None = None,
    config: BonusConfig | None = None,
) -> None:
    """`make(obs_shape, action_space, config)` builds it, as in `register_stage`.

    >>> from surprise_memory import check_stage
    >>> from surprise_memory.stages import STAGES
    >>> check_stage(STAGES["expect"].make)
    """
    space, c = action_space or spaces.Discrete(3), complete(config or BonusConfig())
    stage, other = (seeded(seed, lambda: make(obs_shape, space, c)) for seed in (0, 1))
    promise(isinstance(stage, Stage), f"{type(stage).__name__} is not a Stage: subclass it.")
    known = {"obs", "action", "next_obs"}
    allowed = ", ".join(sorted(known))
    promise(set(stage.uses) <= known, f"uses = {stage.uses}: a stage can look at {allowed}.")
    seen = a_look(stage.uses, obs_shape, space)
    game = StageGame(stage, seen)
    for _ in range(2):  # the first time its statistics may know nothing yet
        _, record, _ = game.ask()
        stage.update(record, game.valid, False)
    _check_stage_asking(stage, game)
    _check_stage_statistics(stage, game)
    _check_stage_training(stage, game)
    reward, _, _ = game.ask()
    other.load_state_dict(through_a_file(stage.state_dict()))
    again, _, _ = StageGame(other, seen).ask()
    promise(torch.equal(again, reward), RELOADED.format("the reward"))


class StageGame:
    """A rollout of several episodes to ask a stage about, whole or in parts."""

    def __init__(self, stage: Stage, seen: dict[str, Tensor]) -> None:
        self.stage, self.seen = stage, seen
        self.first, self.valid = episodes()
        rng = torch.Generator().manual_seed(1)
        self.u = torch.randn(T, B, 4, generator=rng)
        self.e = vector_norm(self.u, dim=-1)

    def ask(
        self,
        rows: slice = slice(None),
        carry: Any = None,
        seen: dict[str, Tensor] | None = None,
        e: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """The stage's answer about some steps."""
        columns = self.seen if seen is None else seen
        e = (self.e if e is None else e)[rows].clone()
        given = e.clone()
        flat = {name: x.unflatten(0, (T, B))[rows].flatten(0, 1) for name, x in columns.items()}
        u = self.u[rows]
        steps = Steps(self.first[rows], self.valid[rows], u, u, e, 0.9 * e)
        carry = self.stage.start(B) if carry is None else carry
        answer: tuple[Tensor, dict[str, Tensor], Any] = self.stage(
            e, self.stage.prepare(flat), steps, carry
        )
        promise(torch.equal(given, e), "forward wrote into the reward that it was given.")
        return answer


def _check_stage_asking(stage: Stage, game: StageGame) -> None:
    state, chance, carry = copy.deepcopy(stage.state_dict()), torch.get_rng_state(), stage.start(B)
    kept = copy.deepcopy(carry)
    valid = game.valid
    whole, record, _ = game.ask(carry=carry)
    promise(whole.shape == (T, B), f"The reward has shape {tuple(whole.shape)}, not {(T, B)}.")
    promise(bool(whole[valid].isfinite().all()), "The reward is not finite.")
    promise(not whole.requires_grad or whole.grad_fn is not None, "The reward is a parameter.")
    for name, column in record.items():
        shape = tuple(column.shape)
        promise(
            shape[:2] == (T, B), f"record['{name}'] has shape {shape}: it must start with (T, B)."
        )
    missing = [name for name in stage.logged if name not in record]
    promise(not missing, f"logged = {stage.logged}, but the record has no {', '.join(missing)}.")
    again, _, _ = game.ask(carry=carry)
    unmoved = equal(state, stage.state_dict()) and torch.equal(chance, torch.get_rng_state())
    same = unmoved and equal(kept, carry) and torch.equal(whole, again)
    promise(same, "Asking changed the stage or its carry: move statistics in `update`.")
    carry, steps = stage.start(B), []
    for t in range(T):
        reward, _, carry = game.ask(slice(t, t + 1), carry)
        steps.append(reward)
    promise(close(torch.cat(steps)[valid], whole[valid]), ONE_BY_ONE)
    changed, _, _ = game.ask(seen=spoil_columns(game.seen, ~valid), e=spoil(game.e, ~valid))
    promise(close(changed[valid], whole[valid]), FAKE)
    past, after = before_reset(game.first)
    changed, _, _ = game.ask(seen=spoil_columns(game.seen, past), e=spoil(game.e, past))
    promise(close(changed[after & valid], whole[after & valid]), RESET)


def _check_stage_statistics(stage: Stage, game: StageGame) -> None:
    """Rows that never happened leave no mark on what `update` moves."""
    _, record, _ = game.ask()
    junk = {}
    for name, column in record.items():
        junk[name] = spoil(column, ~game.valid) if column.is_floating_point() else column
    calm, wild = copy.deepcopy(stage), copy.deepcopy(stage)
    calm.update(record, game.valid, False)
    wild.update(junk, game.valid, False)
    promise(equal(calm.state_dict(), wild.state_dict()), FAKE_COUNTED)


def _check_stage_training(stage: Stage, game: StageGame) -> None:
    _, record, _ = game.ask()
    rows = game.valid.flatten().nonzero().squeeze(1)[::2]
    inputs = {name: column[rows] for name, column in stage.prepare(game.seen).items()}
    flat = {name: column.flatten(0, 1)[rows] for name, column in record.items()}
    losses = stage.losses(inputs, flat, None, fixed_rng())
    trained = {name: p for name, p in stage.named_parameters() if p.requires_grad}
    promise(bool(losses) or not trained, "It has parameters and no loss: what should train them?")
    if not losses:
        return
    _check_losses(losses)
    stage.zero_grad()
    sum_of(losses).backward()
    idle = [name for name, p in trained.items() if p.grad is None]
    promise(not idle, UNREACHED.format(", ".join(idle)))
    twice = stage.losses(inputs, flat, torch.full((len(rows),), 2.0), fixed_rng())
    _check_weight(losses, twice)


# --- memories ---


def check_memory(
    make: Callable[[int, Any], Memory], n: int = 6, config: BonusConfig | None = None
) -> None:
    """`make(n, config)` builds it for surprises of width n, as in `register_memory`.

    >>> from surprise_memory import check_memory
    >>> from surprise_memory.memory import MEMORIES
    >>> check_memory(MEMORIES["sm"].make)
    """
    c = complete(config or BonusConfig())
    memory, other = (seeded(seed, lambda: make(n, c)) for seed in (0, 1))
    promise(isinstance(memory, Memory), f"{type(memory).__name__} is not a Memory: subclass it.")
    u, (first, valid) = torch.randn(T, B, n, generator=torch.Generator().manual_seed(0)), episodes()
    u = torch.where(valid[..., None], u, 0.0)  # as a bonus hands it over
    _check_recall(memory, u, first, valid)
    _check_memory_training(memory, u, first, valid)
    _, _, log, carry = memory(u, first, valid, memory.start(B))
    memory.commit(log, valid, carry)
    v = memory(u, first, valid, memory.start(B))[0]
    other.load_state_dict(through_a_file(memory.state_dict()))
    same = torch.equal(other(u, first, valid, other.start(B))[0], v)
    promise(
        same,
        "After state_dict -> load_state_dict v is another: register networks and buffers, or use "
        "get_extra_state.",
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
        "Asking changed the memory: move it in `commit`.",
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
        "What one environment sees changes the reward of another: keep them apart, or set "
        "shared = True.",
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
    _check_weight(losses, memory.losses(asked, rows, log, torch.full((len(rows),), 2.0)))
    leaked = asked.grad is not None and bool(asked.grad.any())
    promise(
        not leaked or memory.reaches_surprise,
        "A loss reaches the generator through u: detach u, or say reaches_surprise = True.",
    )


# --- shared ---

ONE_BY_ONE = "T steps one by one are paid otherwise than as one chunk."
UNREACHED = "No loss reaches {}: train it, or freeze it with requires_grad_(False)."
RELOADED = "After state_dict -> load_state_dict {} is another: register networks and buffers."
FAKE = (
    "Rows with valid = False never happened, yet what stands in them changes the reward of others."
)
FAKE_COUNTED = (
    "Rows with valid = False never happened, yet what stands in them reaches the statistics."
)
RESET = "What happened before an episode began changes what it is paid: honour `first`."


def episodes() -> tuple[Tensor, Tensor]:
    """(first, valid), (T, B) each: episodes end at different times.

    One environment has a row that never happened after an end.
    """
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


def spoil_columns(columns: dict[str, Tensor], where: Tensor) -> dict[str, Tensor]:
    """Other numbers at some steps (T, B) of flattened columns (T*B, ...)."""
    return {name: spoil(x.unflatten(0, (T, B)), where).flatten(0, 1) for name, x in columns.items()}


def _check_losses(losses: dict[str, Tensor]) -> None:
    for name, loss in losses.items():
        promise(
            loss.dim() == 0 and bool(loss.isfinite()),
            f"The loss '{name}' is {loss}: it must be one finite number.",
        )


def _check_weight(once: dict[str, Tensor], twice: dict[str, Tensor]) -> None:
    """Losses of steps that count twice are twice as large."""
    doubled = all(close(twice[name], 2 * loss) for name, loss in once.items())
    promise(doubled, "Its losses ignore `weight`: each step must count its importance weight.")


def fixed_rng() -> torch.Generator:
    """A random stream that always begins the same."""
    return torch.Generator().manual_seed(0)


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
