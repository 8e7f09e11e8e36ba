"""The plug that everybody sees: ask (pure), train on rollouts, train on replay, step by step."""

from surprise_memory.bonus.methods import BonusConfig
from surprise_memory.bonus.model import Bonus, Carry, Trace, last_frame

__all__ = ["Bonus", "BonusConfig", "Carry", "Trace", "last_frame"]
