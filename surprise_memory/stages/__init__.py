"""What may happen to the reward after |v|: each stage maps a reward (T, B) to a reward (T, B)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium import Space

from surprise_memory.nn.actions import Actions
from surprise_memory.registry import register
from surprise_memory.stages.base import Stage, Stages, Steps
from surprise_memory.stages.episodic import Episodic, NGUConfig
from surprise_memory.stages.expect import Expect, ExpectConfig
from surprise_memory.stages.gain import Gain, Gate, GateConfig
from surprise_memory.stages.recognise import Recognise, RecogniseConfig
from surprise_memory.stages.trust import Trust, TrustConfig

Make = Callable[[tuple[int, ...], Space[Any] | None, Any], Stage]


class Entry(NamedTuple):
    """A stage in the table: `make(obs_shape, action_space, bonus_config)` builds it."""

    make: Make
    about: str


STAGES = {
    "episodic": Entry(
        lambda shape, actions, c: Episodic(shape, Actions(actions), c.ngu, c.scale_momentum),
        "NGU's factor: new in this episode, times how large the bonus is over the whole life",
    ),
    "expect": Entry(
        lambda shape, actions, c: Expect(shape, Actions(actions), c.expect),
        "pay only the excess over the bonus to be expected from state and action",
    ),
    "trust": Entry(
        lambda shape, actions, c: Trust(shape, Actions(actions), c.trust),
        "pay as expect does until remembering has been seen to help, then all; needs the memory sm",
    ),
    "recognise": Entry(
        lambda shape, actions, c: Recognise(shape, c.recognise),
        "pay only for what resembles something seen before: noise resembles nothing",
    ),
    "gate": Entry(
        lambda shape, actions, c: Gate(shape, c.gate),
        "pay only for kinds of sights that remembering would help with; needs the memory sm",
    ),
    "gain": Entry(
        lambda shape, actions, c: Gain(),
        "pay what remembering would save, instead of the novelty; needs the memory sm",
    ),
}


def register_stage(name: str, make: Make, about: str, options: type | None = None) -> None:
    """Add a stage of yours: `rnd+sm+name` then works wherever a method is named.

    `make(obs_shape, action_space, bonus_config)` builds it. `options` is a frozen dataclass with
    defaults; the stage finds it as `bonus_config.NAME`, users set it as `--bonus.NAME.*`.

    >>> from surprise_memory import Bonus, register_stage
    >>> class Root(Stage):
    ...     '''Pay the square root.'''
    ...     def forward(self, reward, inputs, steps, carry):
    ...         return reward.sqrt(), {}, carry
    >>> register_stage("root", lambda shape, actions, c: Root(), "pay the square root")
    >>> list(Bonus("rnd+sm+root", (3,), num_envs=2).model.stages)
    ['root']
    >>> del STAGES["root"]  # only so that this example leaves nothing behind
    """
    register(STAGES, name, Entry(make, about), "stage", options)


__all__ = [
    "STAGES",
    "Episodic",
    "Expect",
    "ExpectConfig",
    "Gain",
    "Gate",
    "GateConfig",
    "NGUConfig",
    "Recognise",
    "RecogniseConfig",
    "Stage",
    "Stages",
    "Steps",
    "Trust",
    "TrustConfig",
    "register_stage",
]
