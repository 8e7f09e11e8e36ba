"""How wrong was I? A surprise generator turns what it sees into residual vectors u."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium import Space

from surprise_memory.nn.actions import Actions
from surprise_memory.registry import register
from surprise_memory.surprise.ae import AE, AEConfig
from surprise_memory.surprise.base import Surprise
from surprise_memory.surprise.disagreement import Disagreement, DisagreementConfig
from surprise_memory.surprise.icm import ICM, ICMConfig
from surprise_memory.surprise.lwm import LWM, LWMConfig
from surprise_memory.surprise.nothing import Nothing
from surprise_memory.surprise.rnd import RND, RNDConfig

Make = Callable[[tuple[int, ...], Space[Any] | None, Any], Surprise]


class Entry(NamedTuple):
    """A generator in the table: `make(obs_shape, action_space, bonus_config)` builds it."""

    make: Make
    about: str
    takes_memory: bool = True
    agent: str = "ppo"  # the agent it was made for
    stages: tuple[str, ...] = ()  # that belong to it, before those that a method adds


SURPRISES = {
    "rnd": Entry(
        lambda shape, actions, c: RND(shape, c.rnd),
        "random network distillation: predict a frozen random network's features of the state",
    ),
    "icm": Entry(
        lambda shape, actions, c: ICM(shape, Actions(actions), c.icm),
        "intrinsic curiosity: predict what the action leads to, in features that tell the action",
    ),
    "ngu": Entry(
        lambda shape, actions, c: RND(shape, c.rnd),
        "never give up: far from everything in this episode, times RND's error over the whole life",
        stages=("episodic",),
    ),
    "ae": Entry(lambda shape, actions, c: AE(shape, c.ae), "autoencoder: reconstruct the state"),
    "disagreement": Entry(
        lambda shape, actions, c: Disagreement(shape, Actions(actions), c.disagreement),
        "disagreement: variance of an ensemble of forward models",
        takes_memory=False,
    ),
    "lwm": Entry(
        lambda shape, actions, c: LWM(shape, Actions(actions), c.lwm),
        "latent world model: predict the next latent state from all before; with the recurrent DQN",
        agent="dqn",
    ),
}
NOTHING = Entry(lambda shape, actions, c: Nothing(), "no bonus")  # of the method `none`


def register_surprise(
    name: str, make: Make, about: str, takes_memory: bool = True, options: type | None = None
) -> None:
    """Add a generator of yours: `name`, `name+sm`, ... then work wherever a method is named.

    `make(obs_shape, action_space, bonus_config)` builds it. `options` is a frozen dataclass with
    defaults; the generator finds it as `bonus_config.NAME`, users set it as `--bonus.NAME.*`.

    >>> from surprise_memory import Bonus, register_surprise
    >>> wide = RNDConfig(n=256)
    >>> register_surprise("wide", lambda shape, actions, c: RND(shape, wide), "a wider RND")
    >>> Bonus("wide+sm", (3,), num_envs=2).model.surprise.n
    256
    >>> del SURPRISES["wide"]  # only so that this example leaves nothing behind
    """
    register(SURPRISES, name, Entry(make, about, takes_memory), "generator", options)


__all__ = [
    "AE",
    "ICM",
    "LWM",
    "NOTHING",
    "RND",
    "SURPRISES",
    "AEConfig",
    "Disagreement",
    "DisagreementConfig",
    "ICMConfig",
    "LWMConfig",
    "RNDConfig",
    "Surprise",
    "register_surprise",
]
