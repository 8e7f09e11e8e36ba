"""How wrong was I? A surprise generator turns what it sees into residual vectors u; their size trains it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium import Space

from surprise_memory.errors import register
from surprise_memory.surprise.ae import AE, AEConfig
from surprise_memory.surprise.base import Actions, Surprise
from surprise_memory.surprise.disagreement import Disagreement, DisagreementConfig
from surprise_memory.surprise.expectation import Expectation
from surprise_memory.surprise.icm import ICM, ICMConfig
from surprise_memory.surprise.lwm import LWM, LWMConfig
from surprise_memory.surprise.ngu import NGU, NGUConfig
from surprise_memory.surprise.rnd import RND, RNDConfig

Make = Callable[[tuple[int, ...], Space[Any] | None, Any], Surprise]


class Entry(NamedTuple):
    """A generator in the table: `make(obs_shape, action_space, bonus_config)` builds it."""

    make: Make
    about: str
    takes_memory: bool = True
    agent: str = "ppo"  # the backbone it was made for


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
        lambda shape, actions, c: NGU(
            RND(shape, c.rnd), shape, Actions(actions), c.ngu, c.scale_momentum
        ),
        "never give up: far from everything in this episode, times RND's error over the whole life",
    ),
    "ae": Entry(lambda shape, actions, c: AE(shape, c.ae), "autoencoder: reconstruct the state"),
    "disagreement": Entry(
        lambda shape, actions, c: Disagreement(shape, Actions(actions), c.disagreement),
        "disagreement: variance of an ensemble of forward models",
        takes_memory=False,
    ),
    "lwm": Entry(
        lambda shape, actions, c: LWM(shape, Actions(actions), c.lwm),
        "latent world model: foresee the next latent state from all before it; with the recurrent DQN",
        agent="dqn",
    ),
}


def register_surprise(name: str, make: Make, about: str, takes_memory: bool = True) -> None:
    """Put a generator of yours beside ours: `name`, `name+sm`, ... then work wherever a method is named."""
    register(SURPRISES, name, Entry(make, about, takes_memory), "generator")


__all__ = [
    "AE",
    "ICM",
    "LWM",
    "NGU",
    "RND",
    "SURPRISES",
    "AEConfig",
    "Actions",
    "Disagreement",
    "DisagreementConfig",
    "Expectation",
    "ICMConfig",
    "LWMConfig",
    "NGUConfig",
    "RNDConfig",
    "Surprise",
    "register_surprise",
]
