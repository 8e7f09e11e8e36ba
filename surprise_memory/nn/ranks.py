"""One run over many processes: what its ranks tell each other, by torch.distributed.

Inside `together` every rank must come to the same calls in the same order. Outside of it, and with
one process, each function returns what it was given: nothing is sent, and no number changes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from surprise_memory.errors import UserError
from surprise_memory.types import moved

_TOGETHER: ContextVar[bool] = ContextVar("together", default=False)


class Lost(UserError):
    """Another rank does not answer."""


@contextmanager
def together(on: bool = True) -> Iterator[None]:
    """Here the ranks work as one, if `on`; otherwise each by itself."""
    token = _TOGETHER.set(on)
    try:
        yield
    finally:
        _TOGETHER.reset(token)


def started() -> bool:
    """Whether there is a group of processes at all."""
    return dist.is_available() and dist.is_initialized()


def speaks(device: torch.device) -> bool:
    """Whether the processes can send each other what is on a device."""
    return f"{device.type}:" in dist.get_backend_config()  # such as cpu:gloo,cuda:nccl


def world() -> int:
    """How many ranks work as one here."""
    return dist.get_world_size() if _TOGETHER.get() else 1


def rank() -> int:
    """The number of this one."""
    return dist.get_rank() if _TOGETHER.get() else 0


def first() -> bool:
    """Whether this is the rank that writes and speaks."""
    return rank() == 0


# --- values of any kind ---


def everyones(value: Any) -> list[Any]:
    """What each rank has, in their order."""
    if world() == 1:
        return [value]
    found: list[Any] = [None] * world()
    _call(dist.all_gather_object, found, moved(value, "cpu"))
    return found


def from_first(value: Any) -> Any:
    """What rank 0 has; tensors are on the host."""
    if world() == 1:
        return value
    box = [moved(value, "cpu") if first() else None]
    _call(dist.broadcast_object_list, box, 0)
    return box[0]


def anyones(flag: bool) -> bool:
    """Whether it is so on any rank."""
    return any(everyones(flag))


def mean_report(report: dict[str, float], rows: int | Tensor) -> dict[str, float]:
    """The mean of each number over the ranks that have it, each counting its rows."""
    if world() == 1:
        return report
    total: dict[str, float] = {}
    weight: dict[str, int] = {}
    for theirs, number in everyones((report, int(rows))):
        if not number:  # its means are NaN
            continue
        for name, value in theirs.items():
            total[name] = total.get(name, 0.0) + number * value
            weight[name] = weight.get(name, 0) + number
    return {name: total[name] / weight[name] for name in total}


# --- tensors, which stay on their device ---


def total(x: Tensor) -> Tensor:
    """The sum over all ranks."""
    if world() == 1:
        return x
    found = x.clone()
    _call(dist.all_reduce, found)
    return found


def gather(x: Tensor, dim: int = 0) -> Tensor:
    """All ranks' x side by side along one axis, in which they may differ in length."""
    if world() == 1:
        return x
    lengths = everyones(x.shape[dim])
    rows = x.movedim(dim, 0)
    padded = rows.new_zeros(max(lengths), *rows.shape[1:])
    padded[: len(rows)] = rows
    if x.dtype == torch.bool:  # which not every backend sends
        padded = padded.byte()
    found = [torch.empty_like(padded) for _ in lengths]
    _call(dist.all_gather, found, padded)
    parts = [part[:length] for part, length in zip(found, lengths, strict=True)]
    return torch.cat(parts).to(x.dtype).movedim(0, dim)


class Moments(NamedTuple):
    """How many rows there were, and each feature's mean and population variance."""

    size: int
    mean: Tensor
    var: Tensor


def moments(batch: Tensor) -> Moments:
    """Those of all ranks' rows (K, *shape): the same as of one batch that holds them all."""
    size, mean, var = _own_moments(batch)
    if world() == 1:
        return Moments(size, mean, var)
    rows, mean, var = _merged(torch.stack([torch.full_like(mean, size), mean, var]))
    return Moments(int(rows.flatten()[0]), mean, var)


def moments_of_each(batches: list[Tensor]) -> list[Moments]:
    """`moments` of several batches (K,) at once: the ranks tell each other in one call."""
    own = [_own_moments(batch) for batch in batches]
    if world() == 1:
        return own
    columns = [torch.stack([mean.new_tensor(size), mean, var]) for size, mean, var in own]
    rows, mean, var = _merged(torch.stack(columns, 1))
    return [Moments(*one) for one in zip(rows.long().tolist(), mean, var, strict=True)]


def _own_moments(batch: Tensor) -> Moments:
    """Those of this rank's rows; zeros where it has none."""
    size = batch.shape[0]
    mean = var = batch.new_zeros(batch.shape[1:])
    if size:
        mean = batch.mean(0)
        var = batch.var(0, correction=0)
    return Moments(size, mean, var)


def _merged(own: Tensor) -> Tensor:
    """From one rank's sizes, means and variances (3, ...) to those of all ranks' rows."""
    found = [torch.empty_like(own) for _ in range(world())]
    _call(dist.all_gather, found, own)
    sizes, means, variances = torch.stack(found, 1)
    rows = sizes.sum(0)
    mean = (sizes * means).sum(0) / rows
    # Within the ranks and between them: a mean of variances alone would lack the second.
    spread = sizes * (variances + (means - mean) ** 2)
    return torch.stack([rows, mean, spread.sum(0) / rows])


def average_gradients(parameters: Iterable[Tensor], rows: int) -> None:
    """Let each gradient be that of the mean loss over all ranks' rows; this rank's has so many."""
    if world() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = torch.cat([g.flatten() for g in gradients] + [gradients[0].new_ones(1)])
    # A rank without rows has NaN for a mean.
    flat = flat * rows if rows else torch.zeros_like(flat)
    _call(dist.all_reduce, flat)
    flat = flat[:-1] / flat[-1]
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


# --- streams and errors ---


def own_stream(rng: torch.Generator) -> None:
    """Give a stream that all ranks share other numbers on each: rank 0 keeps it as it is.

    Those of the others follow from it and their rank, so that a resumed run is always the same.
    """
    if not first():
        seeds = torch.randint(2**62, (rank(),), generator=rng.clone_state(), device="cpu")
        rng.manual_seed(int(seeds[-1]))


def _call(collective: Callable[..., Any], *args: Any) -> None:
    """Talk to the other ranks, or say that one of them is gone."""
    try:
        collective(*args)
    except RuntimeError as error:  # all of torch.distributed's errors are
        # Such as "[pair.cc:537] Read error [127.0.0.1]:6865: Connection reset by peer. This is ..."
        line = str(error).strip().partition("\n")[0]
        reason = re.sub(r"^\[[^]]*\] ", "", line).partition(". ")[0]
        raise Lost(
            "Another process of this run has ended or does not answer, and its own message says "
            f"why ({reason})."
        ) from error
