"""surprise-memory: explore by the novelty of surprises instead of their size. Start with `Bonus`."""

from surprise_memory.bonus import Bonus
from surprise_memory.bonus.methods import BonusConfig
from surprise_memory.errors import UserError
from surprise_memory.memory import CountsConfig, Memory, MemoryConfig, register_memory
from surprise_memory.surprise import (
    AEConfig,
    DisagreementConfig,
    ICMConfig,
    LWMConfig,
    NGUConfig,
    RNDConfig,
    Surprise,
    register_surprise,
)
from surprise_memory.types import Chunk

__all__ = [
    "AEConfig",
    "Bonus",
    "BonusConfig",
    "Chunk",
    "CountsConfig",
    "DisagreementConfig",
    "ICMConfig",
    "LWMConfig",
    "Memory",
    "MemoryConfig",
    "NGUConfig",
    "RNDConfig",
    "Surprise",
    "UserError",
    "register_memory",
    "register_surprise",
]
