"""A limit on how long a call may take in this process, by the alarm signal."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from surprise_memory.errors import UserError


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Fail with a sentence if the block takes longer; 0 is no limit.

    The signal arrives between two instructions of Python: a library that never returns to it cannot
    be stopped. Outside the main thread there are no signals, and no limit.
    """
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise UserError(
            f"{what} has not answered for {seconds:g} seconds: fix it there, "
            "or raise --step-seconds."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
