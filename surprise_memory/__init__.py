"""surprise-memory: exploration that is not fooled by noise. Start with `Bonus`."""

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.memory import CountsConfig, Memory, MemoryConfig, register_memory
from surprise_memory.surprise import (
    AEConfig,
    DisagreementConfig,
    ICMConfig,
    NGUConfig,
    RNDConfig,
    Surprise,
    register_surprise,
)
from surprise_memory.types import Chunk, UserError

__all__ = [
    "AEConfig",
    "Bonus",
    "BonusConfig",
    "Chunk",
    "CountsConfig",
    "DisagreementConfig",
    "ICMConfig",
    "Memory",
    "MemoryConfig",
    "NGUConfig",
    "RNDConfig",
    "Surprise",
    "UserError",
    "register_memory",
    "register_surprise",
]
