"""What methods there are and how they are spelt: generator[+memory][+stage ...]."""

from typing import NamedTuple

from surprise_memory.errors import UserError, unknown
from surprise_memory.memory import MEMORIES
from surprise_memory.stages import STAGES
from surprise_memory.surprise import SURPRISES

PAPERS_METHOD = "rnd+sm"
DEFAULT_METHOD = "rnd+sm+trust+recognise"  # the same, but noise cannot buy it


class Method(NamedTuple):
    """The parts of a bonus, by name."""

    surprise: str
    memory: str  # 'none' for the generator alone
    stages: tuple[str, ...]  # in the order in which they change the reward


def split_method(method: str) -> Method:
    """'rnd+sm+expect' -> ('rnd', 'sm', ('expect',)). Names are not checked."""
    surprise, *rest = method.split("+")
    memory = "none"
    if rest and rest[0] not in STAGES:
        memory, *rest = rest
    return Method(surprise, memory, tuple(rest))


def backbone(method: str) -> str:
    """The agent that a method was made for: ppo, or dqn."""
    surprise = split_method(method).surprise
    if surprise in SURPRISES:
        return SURPRISES[surprise].agent
    return "ppo"


def methods() -> dict[str, str]:
    """Every generator alone and with every memory, with a line about each.

    Stages can be added to all of them.
    """
    table = {"none": "no bonus: plain PPO, or plain recurrent DQN with --agent dqn"}
    for surprise, entry in SURPRISES.items():
        table[surprise] = entry.about
        if not entry.takes_memory:
            continue
        for name, memory in MEMORIES.items():
            if name != "none":
                table[f"{surprise}+{name}"] = memory.about
    return table


def check_method(method: str) -> None:
    """Refuse a method that does not exist."""
    for name in MEMORIES:
        if name in STAGES:
            raise UserError(f"'{name}' names a memory and a stage: register yours by another name.")
    surprise, memory, stages = split_method(method)
    base = surprise if memory == "none" else f"{surprise}+{memory}"
    cure = " `surprise-memory methods` lists them all."
    if base not in methods():
        raise UserError(unknown(method, list(methods()), "method") + cure)
    if stages and surprise == "none":
        raise UserError(
            f"'{method}' has no bonus that a stage could change: name a generator first."
        )
    own: tuple[str, ...] = ()
    if surprise in SURPRISES:
        own = SURPRISES[surprise].stages
    for i, stage in enumerate(stages):
        if stage not in STAGES:
            raise UserError(unknown(stage, list(STAGES), "stage") + cure)
        if stage in own or stage in stages[:i]:
            raise UserError(f"'{method}' has the stage '{stage}' twice: name it once.")
