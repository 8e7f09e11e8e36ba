"""surprise-memory: explore by the novelty of surprises instead of their size. Start with `Bonus`."""

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.bonus.check import check_memory, check_stage, check_surprise
from surprise_memory.errors import UserError
from surprise_memory.memory import CountsConfig, Memory, MemoryConfig, register_memory
from surprise_memory.stages import ExpectConfig, NGUConfig, Stage, register_stage
from surprise_memory.surprise import (
    AEConfig,
    DisagreementConfig,
    ICMConfig,
    LWMConfig,
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
    "ExpectConfig",
    "ICMConfig",
    "LWMConfig",
    "Memory",
    "MemoryConfig",
    "NGUConfig",
    "RNDConfig",
    "Stage",
    "Surprise",
    "UserError",
    "check_memory",
    "check_stage",
    "check_surprise",
    "register_memory",
    "register_stage",
    "register_surprise",
]
