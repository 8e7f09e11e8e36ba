"""Two jobs at once in one process, each with half of torch's threads.

Networks as small as ours gain little from a second thread inside a matrix product. Two jobs that
need nothing from each other gain nearly all of a second core, because torch's operations let other
Python threads run. Each computes what it would compute alone, to the bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

from surprise_memory.nn import ranks

A = TypeVar("A")
B = TypeVar("B")


def at_once(aside: Callable[[], A], here: Callable[[], B]) -> tuple[A, B]:
    """What both return. `aside` runs in another thread, if torch may use two.

    Otherwise it comes first. So it does with many processes: their collectives have one order.
    """
    threads = torch.get_num_threads()
    if threads == 1 or ranks.world() > 1:
        return aside(), here()
    half = threads // 2
    other = worker().submit(with_threads, half, aside)
    try:
        answer = with_threads(half, here)
    finally:
        torch.set_num_threads(threads)
        wait([other])  # also after an error: nothing may change behind the caller's back
    return other.result(), answer


def with_threads(number: int, job: Callable[[], A]) -> A:
    """A job with so many of torch's threads, which torch counts for each Python thread alone."""
    torch.set_num_threads(number)
    return job()


@cache
def worker() -> ThreadPoolExecutor:
    """The other thread. One for all calls, because each would have a team of torch's threads."""
    return ThreadPoolExecutor(1, "aside")
