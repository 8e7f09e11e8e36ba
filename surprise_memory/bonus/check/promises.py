"""What the checks of all parts share: sentences, made-up experience, comparisons."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from surprise_memory.bonus.config import BonusConfig, complete
from surprise_memory.errors import UserError
from surprise_memory.nn.actions import Actions

T = 40  # long enough for several episodes of each environment
B = 3
COLUMNS = ("action", "next_obs", "obs")  # that a part can look at

ONE_BY_ONE = "T steps one by one are paid otherwise than as one chunk."
FAKE = (
    "Rows with valid = False never happened, yet what stands in them changes the reward of others."
)
FAKE_COUNTED = (
    "Rows with valid = False never happened, yet what stands in them reaches the statistics."
)
RESET = "What happened before an episode began changes what it is paid: honour `first`."
NO_LOSS = "It has parameters and no loss: what should train them?"


class Broken(UserError):
    """A promise of the contract that was not kept."""


def promise(kept: bool, sentence: str) -> None:
    """Say what is broken."""
    if not kept:
        raise Broken(sentence)


def unpack(call: str, answer: Any, names: str) -> Any:
    """An answer that must be a tuple of so many things."""
    wanted = names.split(", ")
    fits = isinstance(answer, tuple) and len(answer) == len(wanted)
    promise(fits, f"{call} returned {of_type(answer)}: it must return ({names}).")
    return answer


def check_type(call: str, value: Any, kind: type) -> None:
    """An answer that must be a tensor, or a dict."""
    fits = isinstance(value, kind)
    promise(fits, f"{call} is {of_type(value)}: it must be a {kind.__name__}.")


def of_type(value: Any) -> str:
    """'a Tensor', 'a tuple of 2'."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def check_uses(uses: tuple[str, ...], part: str) -> None:
    """A part can only look at columns that a bonus hands over."""
    known = ", ".join(COLUMNS)
    promise(set(uses) <= set(COLUMNS), f"uses = {uses}: a {part} can look at {known}.")


def check_losses(losses: dict[str, Tensor]) -> None:
    """Each loss is one finite number."""
    for name, loss in losses.items():
        fine = loss.dim() == 0 and bool(loss.isfinite())
        promise(fine, f"The loss '{name}' is {loss}: it must be one finite number.")


def check_reach(part: nn.Module, losses: dict[str, Tensor]) -> None:
    """The losses train every parameter that is not frozen."""
    part.zero_grad()
    torch.stack(list(losses.values())).sum().backward()
    idle = [name for name, p in trained(part).items() if p.grad is None]
    missed = ", ".join(idle)
    promise(
        not idle, f"No loss reaches {missed}: train it, or freeze it with requires_grad_(False)."
    )


def check_weight(once: dict[str, Tensor], twice: dict[str, Tensor]) -> None:
    """Losses of steps that count twice are twice as large."""
    doubled = all(close(twice[name], 2 * loss) for name, loss in once.items())
    promise(doubled, "Its losses ignore `weight`: each step must count its importance weight.")


def trained(part: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters that are not frozen."""
    return {name: p for name, p in part.named_parameters() if p.requires_grad}


# --- experience ---


def random_columns(
    uses: tuple[str, ...], shape: tuple[int, ...], space: Space[Any]
) -> dict[str, Tensor]:
    """Random columns of T * B steps, as a bonus would hand them over."""
    rng = fixed_rng()
    space.seed(0)
    actions = torch.stack([torch.as_tensor(space.sample(), device="cpu") for _ in range(T * B)])
    columns = {
        "obs": torch.randn(T * B, *shape, generator=rng, device="cpu"),
        "next_obs": torch.randn(T * B, *shape, generator=rng, device="cpu"),
    }
    if "action" in uses:
        columns["action"] = Actions(space).encode(actions)
    return {name: columns[name] for name in uses}


def episodes() -> tuple[Tensor, Tensor]:
    """(first, valid), (T, B) each: episodes end at different times.

    One environment has a row that never happened after an end.
    """
    first = torch.zeros(T, B, dtype=torch.bool, device="cpu")
    first[0] = True
    first[17, 0] = True
    first[12:14, 1] = True
    first[21, 2] = True
    first[36, 2] = True
    valid = torch.ones(T, B, dtype=torch.bool, device="cpu")
    valid[12, 1] = False
    return first, valid


def before_reset(first: Tensor) -> tuple[Tensor, Tensor]:
    """(steps before the last reset of each environment, the others)."""
    last = torch.where(first, torch.arange(T, device="cpu")[:, None], 0).max(0).values
    past = torch.arange(T, device="cpu")[:, None] < last
    return past, ~past


def spoil(x: Tensor, where: Tensor) -> Tensor:
    """Other numbers at some steps (T, B)."""
    while where.dim() < x.dim():
        where = where.unsqueeze(-1)
    return torch.where(where, x.flip(0) * 3 + 1, x)


def spoil_columns(columns: dict[str, Tensor], where: Tensor) -> dict[str, Tensor]:
    """Other numbers at some steps (T, B) of flattened columns (T*B, ...)."""
    spoilt = {}
    for name, x in columns.items():
        spoilt[name] = spoil(x.unflatten(0, (T, B)), where).flatten(0, 1)
    return spoilt


def take_steps(columns: dict[str, Tensor], steps: slice) -> dict[str, Tensor]:
    """Some of the T steps of flattened columns (T*B, ...)."""
    return {name: x.unflatten(0, (T, B))[steps].flatten(0, 1) for name, x in columns.items()}


# --- building and comparing ---


def build_two(
    make: Callable[[BonusConfig], Any], kind: type, config: BonusConfig | None
) -> tuple[Any, Any]:
    """Two of a part with different random weights, or a sentence about why there are none."""
    c = complete(config or BonusConfig())
    name = kind.__name__
    try:
        part = seeded(0, lambda: make(c))
        other = seeded(1, lambda: make(c))
    except AttributeError as error:
        if not isinstance(error.obj, BonusConfig):
            raise
        raise Broken(
            f"`make` reads config.{error.name}, which does not exist yet: call "
            f"register_{name.lower()}('{error.name}', ..., options=...) before the check."
        ) from error
    promise(isinstance(part, kind), f"{type(part).__name__} is not a {name}: subclass it.")
    return part, other


def open_game(
    make: Callable[..., Any],
    kind: type,
    what: str,
    obs_shape: tuple[int, ...],
    action_space: Space[Any] | None,
    config: BonusConfig | None,
) -> tuple[Any, Any, dict[str, Tensor]]:
    """Two of a part that looks at columns, and random columns to look at."""
    space = action_space or spaces.Discrete(3)
    part, other = build_two(lambda c: make(obs_shape, space, c), kind, config)
    check_uses(part.uses, what)
    return part, other, random_columns(part.uses, obs_shape, space)


def fixed_rng() -> torch.Generator:
    """A random stream that always begins the same."""
    return torch.Generator().manual_seed(0)


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
    """Nests of dataclasses, dicts, lists and tensors, bit for bit."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if dataclasses.is_dataclass(a):
        return equal(vars(a), vars(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
