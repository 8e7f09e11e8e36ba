"""Ctrl-C, SIGTERM and SIGHUP: a run saves before it stops."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], object]


class Handlers:
    """While it is entered, `handler` gets the signals. Under nohup, SIGHUP stays ignored."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            try:
                self.before[number] = signal.signal(number, self.handler)
            except ValueError:  # not the main thread: the caller handles signals
                return

    def __exit__(self, *_error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def interrupt(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: with a sentence, not silently."""
    raise KeyboardInterrupt


class Stop:
    """A signal asks the run to finish its rollout and save; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self.sentence: str | None = None
        self.handlers = Handlers(self._ask)

    def __enter__(self) -> "Stop":
        self.handlers.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.handlers.__exit__(*error)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.sentence is not None:
            raise KeyboardInterrupt(self.sentence)
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def at_once(self, sentence: str) -> None:
        """From here on nothing is left to save: a signal, also an earlier one, ends the run."""
        self.sentence = sentence
        if self.asked:
            raise KeyboardInterrupt(sentence)
