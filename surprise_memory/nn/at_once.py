"""Two jobs at once in one process: where a run has two threads, both cores work.

Networks as small as ours gain little when torch shares one matrix product among threads, and lose
much on a busy machine. Two jobs that need nothing from each other gain nearly all of a second core,
because torch's operations let other Python threads run. Each computes what it would compute alone,
so no number depends on it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")

# Whether a second thread is free. A new thread has a context of its own, where it is not.
_FREE: ContextVar[bool] = ContextVar("free", default=False)


@contextmanager
def using_threads(number: int, two_jobs: bool) -> Iterator[None]:
    """Let torch use so many threads inside; two jobs have half of them each."""
    before = torch.get_num_threads()
    free = two_jobs and number > 1
    token = _FREE.set(free)
    torch.set_num_threads(number // 2 if free else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _FREE.reset(token)


def at_once(aside: Callable[[], A], here: Callable[[], B]) -> tuple[A, B]:
    """What both return. `aside` runs in another thread if one is free, or else comes first."""
    if not _FREE.get():
        return aside(), here()
    token = _FREE.set(False)
    other = worker().submit(as_there, torch.get_num_threads(), torch.is_grad_enabled(), aside)
    try:
        answer = here()
    finally:
        wait([other])  # also after an error: nothing may change behind the caller's back
        _FREE.reset(token)
    return other.result(), answer


def each(job: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """A job for each item, for half of the items in another thread, if one is free."""
    half = len(items) // 2
    first, second = at_once(
        lambda: [job(item) for item in items[:half]], lambda: [job(item) for item in items[half:]]
    )
    return first + second


def as_there(threads: int, gradient: bool, job: Callable[[], A]) -> A:
    """A job with another thread's settings, which torch keeps for each thread alone."""
    torch.set_num_threads(threads)
    with torch.set_grad_enabled(gradient):
        return job()


@cache
def worker() -> ThreadPoolExecutor:
    """The other thread. One for all calls, because each would have a team of torch's threads."""
    return ThreadPoolExecutor(1, "aside")
