"""How new is that mistake? A memory turns surprises u into the vectors v whose norm is the reward.

| name   | v                          | losses   | in the paper |
|--------|----------------------------|----------|--------------|
| sm     | W(q) - q,  q = [u^e, u]    | L_M, L_W | SM           |
| m      | [u^e, u]                   | L_M      | SM (no W)    |
| w      | W(u) - u                   | L_W      | SM (no M)    |
| none   | u                          |          | the SG alone |
| counts | 1 / sqrt(visits of hash u) |          | SM (count)   |
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from surprise_memory.memory.base import Memory, NoMemory
from surprise_memory.memory.counts import Counts, CountsConfig
from surprise_memory.memory.surprise_memory import MemoryConfig, SurpriseMemory
from surprise_memory.registry import register

Make = Callable[[int, Any], Memory]


class Entry(NamedTuple):
    """A memory in the table: `make(n, bonus_config)` builds it for surprises of width n."""

    make: Make
    about: str


MEMORIES = {
    "none": Entry(lambda n, c: NoMemory(), "the size of the surprise: the generator alone"),
    "sm": Entry(
        lambda n, c: SurpriseMemory(n, c.memory),
        "surprise novelty: episodic memory M and autoencoder W",
    ),
    "m": Entry(
        lambda n, c: SurpriseMemory(n, c.memory, has_w=False),
        "the episodic memory M alone (the paper's SM without W)",
    ),
    "w": Entry(
        lambda n, c: SurpriseMemory(n, c.memory, has_m=False),
        "the autoencoder W alone (the paper's SM without M)",
    ),
    "counts": Entry(
        lambda n, c: Counts(n, c.counts),
        "how rare the surprise's hash is (the paper's SM (count))",
    ),
}


def register_memory(name: str, make: Make, about: str, options: type | None = None) -> None:
    """Add a memory of yours: `rnd+name`, `icm+name`, ... then work wherever a method is named.

    `make(n, bonus_config)` builds it for surprises of width n. `options` is a frozen dataclass with
    defaults; the memory finds it as `bonus_config.NAME`, users set it as `--bonus.NAME.*`.

    >>> from surprise_memory import Bonus, register_memory
    >>> short = MemoryConfig(slots=8)
    >>> register_memory("short", lambda n, c: SurpriseMemory(n, short), "sm that soon forgets")
    >>> Bonus("rnd+short", (3,), num_envs=2).model.memory.m.slots
    8
    >>> del MEMORIES["short"]  # only so that this example leaves nothing behind
    """
    register(MEMORIES, name, Entry(make, about), "memory", options)


__all__ = [
    "MEMORIES",
    "Counts",
    "CountsConfig",
    "Memory",
    "MemoryConfig",
    "NoMemory",
    "SurpriseMemory",
    "register_memory",
]
