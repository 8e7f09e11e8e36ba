"""The bonus for Stable-Baselines3: a wrapper for any vector environment, in two lines.

    env = SurpriseVecEnv(make_vec_env("MountainCar-v0", n_envs=16))
    model = PPO("MlpPolicy", env).learn(200_000)

The bonus is added to the reward, so one value function learns both; for two, use this package's own
PPO. The bonus trains itself every `every` steps. `model.save` does not save wrappers: call
`env.save(path)` beside it, and `env.load(path)` to continue.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.errors import UserError, require
from surprise_memory.files import write_atomically

try:
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize
except ImportError as error:
    raise ImportError(
        "Stable-Baselines3 is not installed: pip install 'surprise-memory[sb3]'."
    ) from error

Array = np.ndarray[Any, Any]


class SurpriseVecEnv(VecEnvWrapper):
    """Rewards are ext * r + beta * r_int, and each step's info holds both as r_ext and r_int.

    `metrics` is what the last update of the bonus returned.
    """

    def __init__(
        self,
        venv: VecEnv,
        method: str = "rnd+sm",
        beta: float = 0.1,
        ext: float = 1.0,
        every: int = 128,
        config: BonusConfig | None = None,
        seed: int = 0,
    ) -> None:
        """`every` is the number of vector steps between updates; nothing is paid at first.

        Put Monitor or VecMonitor inside, where they see the task's reward alone, and VecNormalize
        around it.
        """
        super().__init__(venv)
        require(every >= 1, "every", every, "at least 1")
        refuse_normalised(venv)
        space = venv.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) not in (1, 3):
            raise UserError(
                f"The bonus takes vectors and images, this environment shows {space}: flatten it."
            )
        self.beta = beta
        self.ext = ext
        self.every = every
        self.since = 0  # vector steps since the last update
        self.channels_last = is_image_space(space) and not is_image_space_channels_first(space)
        shape = self._channels_first(np.zeros((1, *space.shape), np.uint8)).shape[1:]
        self.bonus = Bonus(method, shape, venv.num_envs, config, seed, venv.action_space)
        self.metrics: dict[str, float] = {}
        self.obs: Any = None
        self.actions: Any = None

    def reset(self) -> Any:
        """Start all episodes; what the bonus remembers of the running ones is forgotten."""
        obs = self.venv.reset()
        self.obs = np.array(obs)
        self.bonus.reset()
        return obs

    def step_async(self, actions: Array) -> None:
        """Keep the actions and pass them on."""
        self.actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Step, and add the bonus to the reward. The bonus is updated when it is due."""
        obs, reward, done, infos = self.venv.step_wait()
        next_obs = np.array(obs)
        for b in np.flatnonzero(done):
            next_obs[b] = infos[b]["terminal_observation"]  # obs[b] is already the next episode's
        before = self._channels_first(self.obs)
        after = self._channels_first(next_obs)
        r_int = self.bonus.step(before, self.actions, after, done).numpy()
        self.obs = np.array(obs)
        self.since += 1
        if self.since == self.every:
            self.metrics = self.bonus.update()
            self.since = 0
        for info, task, bonus in zip(infos, reward, r_int, strict=True):
            info["r_ext"] = float(task)
            info["r_int"] = float(bonus)
        return obs, self.ext * reward + self.beta * r_int, done, infos

    def save(self, path: str | Path) -> None:
        """Everything that the bonus has learnt and remembers, in one file."""
        write_atomically(Path(path), lambda file: torch.save(self.bonus.state_dict(), file))

    def load(self, path: str | Path) -> None:
        """The other half of save."""
        self.bonus.load_state_dict(torch.load(path, weights_only=True))

    def _channels_first(self, obs: Array) -> Array:
        """Images (B, H, W, C) as the bonus takes them, (B, C, H, W); anything else as it is."""
        if self.channels_last:
            return np.moveaxis(obs, -1, 1)
        return obs


def refuse_normalised(venv: Any) -> None:
    """Refuse a VecNormalize inside: off-policy algorithms store the reward that it saw."""
    while venv is not None:
        if isinstance(venv, VecNormalize):
            raise UserError(
                "VecNormalize inside the bonus hides it from the replay: "
                "write VecNormalize(SurpriseVecEnv(...))."
            )
        venv = getattr(venv, "venv", None)
