"""Exploration bonuses that pay for the novelty of a surprise, not for its size.

Start with `Bonus`. Public names are imported on first use, so `import surprise_memory` is fast and
the parts that need no torch (errors, files, statistics, reports) work on a machine without it.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in the table below, for type checkers and editors
    from surprise_memory.bonus import Bonus, BonusConfig
    from surprise_memory.bonus.check import check_memory, check_stage, check_surprise
    from surprise_memory.errors import UserError
    from surprise_memory.memory import CountsConfig, Memory, MemoryConfig, register_memory
    from surprise_memory.stages import (
        ExpectConfig,
        GateConfig,
        NGUConfig,
        RecogniseConfig,
        Stage,
        TrustConfig,
        register_stage,
    )
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

MODULE_OF = {
    "AEConfig": "surprise_memory.surprise",
    "Bonus": "surprise_memory.bonus",
    "BonusConfig": "surprise_memory.bonus",
    "Chunk": "surprise_memory.types",
    "CountsConfig": "surprise_memory.memory",
    "DisagreementConfig": "surprise_memory.surprise",
    "ExpectConfig": "surprise_memory.stages",
    "GateConfig": "surprise_memory.stages",
    "ICMConfig": "surprise_memory.surprise",
    "LWMConfig": "surprise_memory.surprise",
    "Memory": "surprise_memory.memory",
    "MemoryConfig": "surprise_memory.memory",
    "NGUConfig": "surprise_memory.stages",
    "RNDConfig": "surprise_memory.surprise",
    "RecogniseConfig": "surprise_memory.stages",
    "Stage": "surprise_memory.stages",
    "Surprise": "surprise_memory.surprise",
    "TrustConfig": "surprise_memory.stages",
    "UserError": "surprise_memory.errors",
    "check_memory": "surprise_memory.bonus.check",
    "check_stage": "surprise_memory.bonus.check",
    "check_surprise": "surprise_memory.bonus.check",
    "register_memory": "surprise_memory.memory",
    "register_stage": "surprise_memory.stages",
    "register_surprise": "surprise_memory.surprise",
}

__all__ = [
    "AEConfig",
    "Bonus",
    "BonusConfig",
    "Chunk",
    "CountsConfig",
    "DisagreementConfig",
    "ExpectConfig",
    "GateConfig",
    "ICMConfig",
    "LWMConfig",
    "Memory",
    "MemoryConfig",
    "NGUConfig",
    "RNDConfig",
    "RecogniseConfig",
    "Stage",
    "Surprise",
    "TrustConfig",
    "UserError",
    "check_memory",
    "check_stage",
    "check_surprise",
    "register_memory",
    "register_stage",
    "register_surprise",
]

try:
    __version__ = version("surprise-memory")
except PackageNotFoundError:  # imported from a source tree that is not installed
    __version__ = "unknown"


def __getattr__(name: str) -> Any:
    """Import a public name on its first use (PEP 562)."""
    if name not in MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(MODULE_OF[name]), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
