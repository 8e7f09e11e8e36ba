"""surprise-memory: exploration that is not fooled by noise. Start with `Bonus`."""

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.memory import MemoryConfig
from surprise_memory.surprise import RNDConfig
from surprise_memory.types import Chunk, UserError

__all__ = ["Bonus", "BonusConfig", "Chunk", "MemoryConfig", "RNDConfig", "UserError"]
