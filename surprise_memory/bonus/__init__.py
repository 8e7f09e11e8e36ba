"""The plug that everybody sees: ask (pure), train on rollouts, train on replay, step by step."""

from surprise_memory.bonus.config import BonusConfig
from surprise_memory.bonus.model import BonusModel
from surprise_memory.bonus.online import Bonus
from surprise_memory.bonus.replay import ReplayTrainer
from surprise_memory.bonus.rollout import RolloutTrainer
from surprise_memory.bonus.trace import Carry, Trace

__all__ = [
    "Bonus",
    "BonusConfig",
    "BonusModel",
    "Carry",
    "ReplayTrainer",
    "RolloutTrainer",
    "Trace",
]
