"""The bonus for Stable-Baselines3: a wrapper for any vector environment, in two lines.

    env = SurpriseVecEnv(make_vec_env("MountainCar-v0", n_envs=16), beta=10.0)
    model = PPO("MlpPolicy", env, n_steps=128).learn(400_000)

The bonus is added to the reward, so one value function learns both. That is a compromise: its
errors are a share of the task's returns, so `beta` must grow with them, and the bonus's return ends
with the episode, though novelty does not. For two value functions, use this package's own PPO.
How to choose beta: docs/adapters.md.

The bonus trains itself every `every` steps. Stable-Baselines3 never tells a wrapper which model
steps it: `env.log_to(model)` sends what the bonus tells to the model's logger. `model.save` does
not save wrappers: call `env.save(path)` beside it, and `env.load(path)` to continue.
"""

from typing import Any

import numpy as np

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.bonus.adding import check_adding, check_every
from surprise_memory.bonus.files import load_bonus, save_bonus
from surprise_memory.bonus.methods import DEFAULT_METHOD
from surprise_memory.errors import UserError, how_to_install
from surprise_memory.observations import stack, to_arrays

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize
except ImportError as error:
    raise ImportError(f"Stable-Baselines3 is not installed: {how_to_install('sb3')}.") from error

Array = np.ndarray[Any, Any]


class SurpriseVecEnv(VecEnvWrapper):
    """Rewards are ext * r + beta * r_int, and each step's info holds both as r_ext and r_int.

    `metrics` is what the last update of the bonus returned. With `training` set to False, rewards
    are the task's alone and the bonus sees nothing: for evaluations. A VecNormalize around it has a
    `training` of its own: set both, `env.training` and `env.venv.training`.
    """

    def __init__(
        self,
        venv: VecEnv,
        method: str = DEFAULT_METHOD,
        beta: float = 0.1,
        ext: float = 1.0,
        every: int = 128,
        config: BonusConfig | None = None,
        seed: int = 0,
        device: str = "cpu",
        key: str | None = None,
    ) -> None:
        """`every` is the number of vector steps between updates; nothing is paid at first.

        `key` is the entry of Dict observations that the bonus looks at; None is all of them.

        Put Monitor or VecMonitor inside, where they see the task's reward alone, and VecNormalize
        around it.
        """
        if not isinstance(venv, VecEnv):
            raise UserError(
                f"SurpriseVecEnv wraps Stable-Baselines3's vector environments, this is "
                f"{type(venv).__name__}: make one with make_vec_env."
            )
        super().__init__(venv)
        check_adding(beta, ext)
        check_every("every", every)
        refuse_inside(venv)
        self.beta = beta
        self.ext = ext
        self.every = every
        self.training = True
        self.since = 0  # vector steps since the last update
        shape, self.prepare = to_arrays(venv.observation_space, key, wide=True)
        self.bonus = Bonus(method, shape, venv.num_envs, config, seed, venv.action_space, device)
        self.metrics: dict[str, float] = {}
        self.model: Any = None  # whose logger hears of them
        self.obs: Any = None
        self.actions: Any = None

    def reset(self) -> Any:
        """Start all episodes; what the bonus remembers of the running ones is forgotten."""
        obs = self.venv.reset()
        self.obs = np.array(self.prepare(obs))
        self.bonus.reset()
        return obs

    def step_async(self, actions: Array) -> None:
        """Keep the actions and pass them on."""
        self.actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Step, and add the bonus to the reward. The bonus is updated when it is due."""
        if self.obs is None:
            raise UserError("The environment was stepped before it was reset: call reset() first.")
        obs, reward, done, infos = self.venv.step_wait()
        before = self.obs
        self.obs = np.array(self.prepare(obs))
        if not self.training:
            self.bonus.reset()  # what follows are other episodes than those it has seen
            return obs, reward, done, infos
        try:
            next_obs = self._successors(done, infos)
            r_int = self.bonus.step(before, self.actions, next_obs, done).cpu().numpy()
        except UserError:
            self.bonus.reset()  # the environments went on without it
            raise
        self.since += 1
        if self.since >= self.every:
            self.metrics = self.bonus.update()
            self.since = 0
            self._log()
        for info, task, bonus in zip(infos, reward, r_int, strict=True):
            info["r_ext"] = float(task)
            info["r_int"] = float(bonus)
        return obs, self.ext * reward + self.beta * r_int, done, infos

    def _successors(self, done: Array, infos: list[dict[str, Any]]) -> Array:
        """The true successors (B, ...): where an episode ended, `obs` is already the next one's."""
        next_obs: Array = self.obs.copy()
        if not done.any():
            return next_obs
        ended = np.flatnonzero(done)
        missing = [b for b in ended if "terminal_observation" not in infos[b]]
        if missing:
            raise UserError(
                f"Environment {missing[0]} ended an episode without info['terminal_observation']: "
                "Stable-Baselines3's own vector environments have it."
            )
        finals = stack([infos[b]["terminal_observation"] for b in ended])
        next_obs[ended] = self.prepare(finals)
        return next_obs

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the environments, but for one that would lose the bonus."""
        if method_name == "compute_reward" and self.training and self.beta:
            raise UserError(
                "HerReplayBuffer computes rewards anew, without the bonus: use another replay "
                "buffer, or beta=0."
            )
        found: list[Any] = self.venv.env_method(
            method_name, *method_args, indices=indices, **method_kwargs
        )
        return found

    def log_to(self, model: Any) -> None:
        """Record `metrics` with the logger of a model; it writes them with its own, as often."""
        if not isinstance(model, BaseAlgorithm):
            raise UserError(
                f"log_to takes a model of Stable-Baselines3, this is {type(model).__name__}: "
                "env.log_to(model), then model.learn(...)."
            )
        self.model = model

    def _log(self) -> None:
        """A model has no logger before it learns."""
        logger = getattr(self.model, "_logger", None)
        if logger is not None:
            for name, value in self.metrics.items():
                logger.record(name, value)

    def save(self, path: Any) -> None:
        """Everything that the bonus has learnt and remembers, in one file with a checksum."""
        save_bonus(self.bonus, self.since, path)

    def load(self, path: Any, same_episodes: bool = False) -> None:
        """The other half of save. A file that is refused changes nothing.

        The environments are not in the file, so their episodes are new ones to the bonus. If you
        kept them running, pass `same_episodes`.
        """
        self.since = load_bonus(self.bonus, path, same_episodes)


def refuse_inside(venv: Any) -> None:
    """Refuse a second bonus, and a VecNormalize: off-policy algorithms store what it saw."""
    while venv is not None:
        if isinstance(venv, VecNormalize):
            raise UserError(
                "VecNormalize inside the bonus hides it from the replay: "
                "write VecNormalize(SurpriseVecEnv(...))."
            )
        if isinstance(venv, SurpriseVecEnv):
            raise UserError("There is a SurpriseVecEnv inside already: wrap the environments once.")
        venv = getattr(venv, "venv", None)
