"""Atari through EnvPool's C++, as in the paper: 4 stacked grey 84 x 84 frames, sticky actions, no life-loss ends.

EnvPool and not ALE's own vector environment: MiniGrid needs EnvPool anyway, so Atari costs no further package (its games
come with it), and its frames were checked to be those of ALE under Gymnasium's wrappers: docs/environments.md.
"""

import numpy as np

from surprise_memory.envs.base import Array, AutoresetAdapter, Step, envpool

PAPER = ("Freeway", "Frostbite", "Venture", "Gravitar", "Solaris", "MontezumaRevenge")
CAP = 4500  # agent steps, 18,000 frames
ROOM = 3  # where Montezuma's RAM holds the number of the room


def ids() -> list[str]:
    """Every game, by its name; none where EnvPool is not installed."""
    try:
        from envpool.registration import registry
    except ImportError:
        return []
    return sorted(
        name.removesuffix("-v5")
        for name, spec in registry.specs.items()
        if spec[0] == "envpool.atari"
    )


class Atari:
    """B games of one kind. A frame is the maximum of the last two of four skipped ones; each repeats an action with p = 0.25."""

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
        self.num_envs, self.seed, self.game = num_envs, seed, env_id
        self.env = envpool().make(
            f"{env_id}-v5",
            env_type="gymnasium",
            num_envs=num_envs,
            seed=seed,
            num_threads=threads,
            max_episode_steps=CAP,
            repeat_action_probability=sticky,
            noop_max=1,
            use_fire_reset=False,
        )
        self.action_space = self.env.action_space
        self.obs_shape: tuple[int, ...] = self.env.observation_space.shape
        self.transitions = AutoresetAdapter(self.env, np.asarray)
        self.last: Array = np.zeros((num_envs, *self.obs_shape), np.uint8)

    def reset(self) -> Array:
        """Start all episodes; EnvPool took its seed when it was made."""
        self.last = self.transitions.reset(None)
        return self.last

    def step(self, action: Array) -> Step:
        """Act in all games."""
        step = self.transitions.step(action.astype(np.int32))
        self.last = step.obs
        if self.game != "MontezumaRevenge":
            return step
        return step._replace(info={"room": self.transitions.info["ram"][:, ROOM].astype(np.int64)})

    def render(self) -> Array:
        """The first game's newest frame (84, 84, 3)."""
        return np.repeat(self.last[0, -1][:, :, None], 3, 2)

    def close(self) -> None:
        """EnvPool's threads end with the process."""
