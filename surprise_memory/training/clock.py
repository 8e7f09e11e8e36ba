"""The time of a run: its speed, and when to save."""

import time


class Clock:
    """Steps a second since the start, and when to save."""

    def __init__(self, steps: int) -> None:
        self.began = self.saved = time.monotonic()
        self.steps = steps

    def speed(self, steps: int) -> int:
        """Steps a second of this process."""
        return round((steps - self.steps) / (time.monotonic() - self.began))

    def save_due(self, minutes: float) -> bool:
        """Whether so many minutes have passed since the last time it said yes."""
        now = time.monotonic()
        if now - self.saved < minutes * 60:
            return False
        self.saved = now
        return True
