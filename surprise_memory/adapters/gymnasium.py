"""The bonus for Gymnasium's vector environments, whichever way they reset, in one line.

    envs = BonusVectorEnv(gymnasium.make_vec("MountainCar-v0", 16), beta=0.1)

The loop around it stays as it is: rewards have the bonus in them, `infos["intrinsic_reward"]` is
the bonus alone, and it trains itself every `update_every` steps. Put RecordEpisodeStatistics
inside, where it sees the task's reward alone, and NormalizeReward or NumpyToTorch around it.
"""

from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.bonus.adding import check_adding, check_every
from surprise_memory.bonus.files import load_bonus, save_bonus
from surprise_memory.bonus.methods import DEFAULT_METHOD
from surprise_memory.errors import UserError
from surprise_memory.observations import stack, to_arrays

Array = np.ndarray[Any, Any]


class BonusVectorEnv(VectorWrapper):
    """Rewards are ext * r + beta * r_int.

    infos["intrinsic_reward"] is r_int and infos["extrinsic_reward"] is r, both (B,). `metrics` is
    what the last update of the bonus returned. With `training` set to False rewards are the task's
    alone, r_int is zero and the bonus sees nothing: for evaluations.

    | autoreset | what the bonus sees at the end of an episode                                    |
    |-----------|---------------------------------------------------------------------------------|
    | NEXT_STEP | the last observation; the step after it, which only resets, pays nothing        |
    | SAME_STEP | the last observation, from infos["final_obs"]                                   |
    | DISABLED  | the last observation; you reset with options={"reset_mask": ...} as before      |
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        method: str = DEFAULT_METHOD,
        beta: float = 0.1,
        ext: float = 1.0,
        update_every: int = 128,
        config: BonusConfig | None = None,
        seed: int = 0,
        device: str = "cpu",
        key: str | None = None,
    ) -> None:
        """`update_every` counts vector steps; nothing is paid at first.

        The bonus computes on `device`.
        `key` is the entry of Dict observations that the bonus looks at; None is all of them.
        """
        self.mode = autoreset_mode(envs)
        super().__init__(envs)
        check_adding(beta, ext)
        check_every("update_every", update_every)
        self.beta = beta
        self.ext = ext
        self.update_every = update_every
        self.training = True
        self.since = 0  # vector steps since the last update
        shape, self.prepare = to_arrays(envs.single_observation_space, key, wide=True)
        space = envs.single_action_space
        self.bonus = Bonus(method, shape, envs.num_envs, config, seed, space, device)
        self.metrics: dict[str, float] = {}
        self.obs: Array | None = None
        self.ended: Array = np.zeros(envs.num_envs, dtype=bool)  # with the step before

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all episodes, or those of options["reset_mask"]; the bonus forgets these."""
        mask = None
        if options is not None and "reset_mask" in options:
            mask = np.array(options["reset_mask"])  # the environments below take it out
        obs, infos = self.env.reset(seed=seed, options=options)
        self.obs = np.array(self.prepare(obs))
        self.bonus.reset(mask)
        if mask is None:
            self.ended[:] = False
        else:
            self.ended = self.ended & ~mask
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step, and add the bonus to the reward. The bonus is updated when it is due."""
        if self.obs is None:
            raise UserError("The environment was stepped before it was reset: call reset() first.")
        if self.mode == AutoresetMode.DISABLED and self.ended.any():
            raise UserError(
                f"Environment {np.flatnonzero(self.ended)[0]} has ended and was not reset: with "
                "autoreset DISABLED call reset(options={'reset_mask': terminated | truncated})."
            )
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        refuse_tensors(reward)
        before = self.obs
        self.obs = np.array(self.prepare(obs))
        valid = np.ones(self.num_envs, dtype=bool)
        if self.mode == AutoresetMode.NEXT_STEP:
            valid = ~self.ended  # after an end, this step only reset
        done = (terminated | truncated) & valid
        if self.training:
            try:
                r_int = self._pay(before, actions, self._successors(done, infos), done, valid)
            except UserError:
                self.bonus.reset()  # the environments went on without it
                self.ended = done
                raise
            paid = self.ext * reward + self.beta * r_int
        else:
            self.bonus.reset()  # what follows are other episodes than those it has seen
            r_int = np.zeros(self.num_envs, np.float32)
            paid = reward
        self.ended = done
        infos = infos | {"intrinsic_reward": r_int, "extrinsic_reward": reward}
        return obs, paid, terminated, truncated, infos

    def _pay(self, obs: Array, actions: Any, next_obs: Array, done: Array, valid: Array) -> Array:
        """The bonus (B,) of one step."""
        r_int: Array = self.bonus.step(obs, actions, next_obs, done, valid).cpu().numpy()
        self.since += 1
        if self.since >= self.update_every:
            self.metrics = self.bonus.update()
            self.since = 0
        return r_int

    def _successors(self, done: Array, infos: dict[str, Any]) -> Array:
        """The true successors (B, ...): in SAME_STEP, `obs` is already the next episode's."""
        assert self.obs is not None
        if self.mode != AutoresetMode.SAME_STEP or not done.any():
            return self.obs
        told = infos.get("_final_obs", np.zeros(self.num_envs, dtype=bool))
        missing = np.flatnonzero(done & ~told)
        if "final_obs" not in infos or len(missing):
            raise UserError(
                f"Environment {[*missing, 0][0]} ended an episode without infos['final_obs'], "
                "though its autoreset is SAME_STEP: make it with NEXT_STEP."
            )
        finals = self.prepare(stack([infos["final_obs"][b] for b in np.flatnonzero(done)]))
        if finals.shape[1:] != self.obs.shape[1:]:
            raise UserError(
                f"infos['final_obs'] has shape {finals.shape[1:]}, obs {self.obs.shape[1:]}: a "
                "wrapper below changes only one of them. Put it around BonusVectorEnv."
            )
        next_obs = self.obs.copy()
        next_obs[done] = finals
        return next_obs

    def save(self, path: Any) -> None:
        """Everything that the bonus has learnt and remembers, in one file with a checksum."""
        save_bonus(self.bonus, self.since, path)

    def load(self, path: Any, same_episodes: bool = False) -> None:
        """The other half of save. A file that is refused changes nothing.

        The environments are not in the file, so their episodes are new ones to the bonus. If you
        kept them running, pass `same_episodes`.
        """
        self.since = load_bonus(self.bonus, path, same_episodes)


def autoreset_mode(envs: Any) -> AutoresetMode:
    """How ended environments are reset, or why a bonus cannot know."""
    if isinstance(envs, Env) or not isinstance(envs, VectorEnv):
        raise UserError(
            f"BonusVectorEnv wraps Gymnasium's vector environments, this is {type(envs).__name__}: "
            "make one with gymnasium.make_vec."
        )
    inner: Any = envs
    while inner is not None:
        if isinstance(inner, BonusVectorEnv):
            raise UserError("There is a BonusVectorEnv inside already: wrap the environments once.")
        inner = getattr(inner, "env", None)
    metadata = envs.metadata or {}
    if "autoreset_mode" not in metadata:
        raise UserError(
            f"{type(envs).__name__} does not say how it resets: set metadata['autoreset_mode'] to "
            "NEXT_STEP, SAME_STEP or DISABLED of gymnasium.vector.AutoresetMode."
        )
    return AutoresetMode(metadata["autoreset_mode"])


def refuse_tensors(reward: Any) -> None:
    """Refuse what is no array: a wrapper below has turned it into another library's."""
    if not isinstance(reward, np.ndarray):
        kind = f"{type(reward).__module__}.{type(reward).__name__}"
        raise UserError(
            f"The environments return rewards as {kind}: put the wrapper that converts them around "
            "BonusVectorEnv, not inside."
        )
