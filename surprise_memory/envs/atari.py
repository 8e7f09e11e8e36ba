"""Atari through EnvPool's C++, as in the paper: 4 stacked grey 84 x 84 frames, sticky actions.

A lost life does not end an episode. EnvPool and not ALE's own vector environment: MiniGrid needs
EnvPool anyway and its games come with it, so Atari costs no further package. Its frames were
checked against ALE with Gymnasium's wrappers: docs/environments.md.
"""

import numpy as np

from surprise_memory.envs.autoreset import AutoresetAdapter
from surprise_memory.envs.base import (
    Array,
    Family,
    Step,
    VecEnv,
    envpool,
    envpool_seed,
    missing_envpool,
)

PAPER = ("Freeway", "Frostbite", "Venture", "Gravitar", "Solaris", "MontezumaRevenge")
CAP = 4500  # agent steps, 18,000 frames
ROOM = 3  # the byte of Montezuma's RAM that holds the room's number


def ids() -> list[str]:
    """Every game, by its name; none where EnvPool is not installed."""
    try:
        from envpool.registration import registry
    except ImportError:
        return []
    found = []
    for name, spec in registry.specs.items():
        if spec[0] == "envpool.atari":
            found.append(name.removesuffix("-v5"))
    return sorted(found)


def owns(env_id: str) -> bool:
    """Games have no prefix: they are known by their list."""
    return env_id in ids()


def missing(env_id: str) -> str | None:
    """EnvPool or a ROM, where one of the paper's games is not listed."""
    if env_id not in PAPER or owns(env_id):
        return None
    no_rom = (
        f"EnvPool has no ROM of {env_id}: "
        "pip install --force-reinstall 'surprise-memory[atari]' brings it."
    )
    return missing_envpool() or no_rom


class Atari(VecEnv):
    """B copies of one game.

    A frame is the maximum of the last two of four skipped ones. Each of the four repeats the
    previous action with probability `sticky`.
    """

    noop = 0
    frame_channels = 1

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        threads: int = 1,
        render: bool = False,
        sticky: float = 0.25,
    ) -> None:
        self.num_envs = num_envs
        self.game = env_id
        self.env = envpool().make(
            f"{env_id}-v5",
            env_type="gymnasium",
            num_envs=num_envs,
            seed=envpool_seed(seed, num_envs),
            num_threads=threads,
            max_episode_steps=CAP,
            repeat_action_probability=sticky,
            noop_max=1,
            use_fire_reset=False,
        )
        self.action_space = self.env.action_space
        self.obs_shape = self.env.observation_space.shape
        self.adapter = AutoresetAdapter(self.env, np.asarray)
        self.last: Array = np.zeros((num_envs, *self.obs_shape), np.uint8)

    def reset(self) -> Array:
        """Start all episodes; EnvPool took its seed when it was made."""
        self.last = self.adapter.reset(None)
        return self.last

    def step(self, action: Array) -> Step:
        """Act in all games; Montezuma's Revenge also reports the room."""
        step = self.adapter.step(action.astype(np.int32))
        self.last = step.obs
        if self.game != "MontezumaRevenge":
            return step
        room = self.adapter.info["ram"][:, ROOM].astype(np.int64)
        return step._replace(info={"room": room})

    def render(self) -> Array:
        """The newest frame of the first game (84, 84, 3)."""
        return np.repeat(self.last[0, -1][:, :, None], 3, 2)


FAMILY = Family(about="Atari 2600 games", ids=ids, owns=owns, make=Atari, missing=missing)
