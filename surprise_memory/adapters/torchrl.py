"""The bonus for TorchRL: a module of the learner, over the (B, T) batches of a collector.

    surprise = SurpriseModule(env, beta=0.1)
    for batch in collector:
        surprise(batch)  # before the advantages are computed

It pays the batch, learns from it once, and writes ("next", "intrinsic_reward"). It belongs into the
learner: copies of it inside a collector's workers would never learn. It has an optimiser of its
own, so leave its parameters out of yours.
"""

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.bonus.adding import check_adding
from surprise_memory.bonus.files import load_bonus, save_bonus
from surprise_memory.bonus.methods import DEFAULT_METHOD
from surprise_memory.errors import UserError, check_option, how_to_install

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.data import (
        Bounded,
        Categorical,
        MultiCategorical,
        MultiOneHot,
        OneHot,
        Unbounded,
    )
except ImportError as error:
    raise ImportError(f"TorchRL is not installed: {how_to_install('torchrl')}.") from error

INTRINSIC = ("next", "intrinsic_reward")
EXTRINSIC = ("next", "extrinsic_reward")


class SurpriseModule(TensorDictModuleBase):  # type: ignore[misc]  # it has no types
    """Writes the bonus of each step and, with `add`, ext * r + beta * r_int as ("next", "reward").

    The task's reward is kept as ("next", "extrinsic_reward"). With `add=False` the reward stays as
    it is: two GAE modules can then learn one value each. `metrics` is what the last update of the
    bonus returned.
    """

    def __init__(
        self,
        env: Any,
        method: str = DEFAULT_METHOD,
        beta: float = 0.1,
        ext: float = 1.0,
        add: bool = True,
        config: BonusConfig | None = None,
        seed: int = 0,
        device: str = "cpu",
        key: Any = "observation",
    ) -> None:
        """`env` tells the shapes only: one like those that the collector steps.

        The bonus computes on `device`. `key` is the observation that it looks at.
        """
        super().__init__()
        check_adding(beta, ext)
        check_option("add", add, (bool,))
        self.beta = beta
        self.ext = ext
        self.add = add
        self.key = key
        self.in_keys = [key, "action", ("next", key), ("next", "done"), ("next", "reward")]
        self.out_keys = [INTRINSIC, EXTRINSIC, ("next", "reward")]
        axes = len(env.batch_size)
        num_envs = env.batch_size.numel() if axes else 1
        shape = tuple(observation_spec(env, key).shape[axes:])
        self.spec = env.full_action_spec_unbatched.get("action", None)
        space = action_space(self.spec)
        self.bonus = Bonus(method, shape, num_envs, config, seed, space, device)
        self.last: Tensor | None = None  # the newest successors (B, ...)
        self.metrics: dict[str, float] = {}

    def forward(self, batch: TensorDictBase) -> TensorDictBase:
        """Pay a batch (B, T), or (T,) of one environment, and learn from it."""
        if INTRINSIC in batch.keys(include_nested=True):
            raise UserError("This batch was paid already: call the module once for each batch.")
        obs, next_obs, done = self._read(batch)
        rewards = self._pay(obs, self._actions(batch), next_obs, done)
        self.last = next_obs[:, -1].clone()
        self.metrics = self.bonus.update()
        task = batch["next", "reward"]
        r_int = rewards.reshape(task.shape).to(task.device, task.dtype)
        batch[INTRINSIC] = r_int
        batch[EXTRINSIC] = task.clone()
        if self.add:
            batch["next", "reward"] = self.ext * task + self.beta * r_int
        return batch

    def _pay(self, obs: Tensor, action: Tensor, next_obs: Tensor, done: Tensor) -> Tensor:
        """The bonus (B, T), step by step; a batch that is refused leaves no trace."""
        before = self.bonus.steps.state_dict()
        try:
            self._find_starts(obs[:, 0])
            paid = []
            for t in range(done.shape[1]):
                row = (obs[:, t], action[:, t], next_obs[:, t], done[:, t])
                paid.append(self.bonus.step(*row))
        except UserError:
            self.bonus.steps.load_state_dict(before, self.bonus.start())
            raise
        return torch.stack(paid, dim=1)

    def _read(self, batch: TensorDictBase) -> tuple[Tensor, Tensor, Tensor]:
        """Observations, their true successors (B, T, ...), and where episodes end (B, T)."""
        shape = tuple(batch.batch_size)
        B = self.bonus.num_envs
        single = B == 1 and len(shape) == 1
        if not single and (len(shape) != 2 or shape[0] != B):
            raise UserError(
                f"The batch is {shape}: it must be ({B}, T), as a collector yields it. Flatten it, "
                "split it into trajectories or sample from it after the bonus."
            )
        size = (1, *shape) if single else shape
        obs = batch[self.key].reshape(*size, *self.bonus.model.obs_shape)
        next_obs = batch["next", self.key].reshape(obs.shape)
        done = batch["next", "done"].reshape(size)
        check_order(obs, next_obs, done)
        return obs, next_obs, done

    def _actions(self, batch: TensorDictBase) -> Tensor:
        """Actions (B, T) or (B, T, A) as the bonus counts them: one-hot ones are numbered."""
        action: Tensor = batch["action"]
        if isinstance(self.spec, MultiOneHot):
            parts = action.long().split(list(self.spec.nvec), -1)
            action = torch.stack([part.argmax(-1) for part in parts], -1)
        elif isinstance(self.spec, OneHot):
            action = action.long().argmax(-1)
        if len(batch.batch_size) == 1:
            action = action[None]
        return action

    def _find_starts(self, obs: Tensor) -> None:
        """Open new episodes where a batch does not go on from the one before (B, ...)."""
        if self.last is None:
            self.bonus.reset()
        else:
            self.bonus.reset((obs != self.last.to(obs.device)).flatten(1).any(1))

    def save(self, path: Any) -> None:
        """The bonus in one file with a checksum, as the other adapters write it."""
        save_bonus(self.bonus, 0, path)

    def load(self, path: Any) -> None:
        """The other half of save; all episodes are new. A file that is refused changes nothing."""
        load_bonus(self.bonus, path, same_episodes=True)
        self.last = None  # opens new ones with the next batch

    def get_extra_state(self) -> dict[str, Any]:
        """What `state_dict()` needs beside the bonus, to go on in the middle of an episode."""
        return {"last": self.last}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The other half of get_extra_state."""
        self.last = state["last"]


def observation_spec(env: Any, key: Any) -> Any:
    """The spec of what the bonus looks at."""
    known = list(env.observation_spec.keys(True, True))
    if key not in known:
        raise UserError(f"key = {key!r} is no observation of the environment: it has {known}.")
    return env.observation_spec[key]


def action_space(spec: Any) -> Space[Any] | None:
    """TorchRL's spec of one environment's action as Gymnasium's space; None: it has no such."""
    if isinstance(spec, MultiOneHot | MultiCategorical) and len(spec.shape) == 1:
        return spaces.MultiDiscrete([int(n) for n in spec.nvec])
    if isinstance(spec, Unbounded) and spec.domain == "continuous" and len(spec.shape) == 1:
        return spaces.Box(-np.inf, np.inf, tuple(spec.shape), np.float32)
    if isinstance(spec, OneHot) and not isinstance(spec, MultiOneHot):
        return spaces.Discrete(int(spec.space.n))
    if isinstance(spec, Categorical) and not spec.shape:
        return spaces.Discrete(int(spec.space.n))
    if isinstance(spec, Bounded) and spec.domain == "continuous":
        low = spec.space.low.cpu().numpy().astype(np.float32)
        high = spec.space.high.cpu().numpy().astype(np.float32)
        return spaces.Box(low, high)
    return None


def check_order(obs: Tensor, next_obs: Tensor, done: Tensor) -> None:
    """Refuse batches in which a step does not follow the one before it: shuffled, or time first."""
    broken = (obs[:, 1:] != next_obs[:, :-1]).flatten(2).any(2) & ~done[:, :-1]
    if broken.any():
        b, t = broken.nonzero()[0].tolist()
        raise UserError(
            f"Step {t + 1} of environment {b} does not follow step {t}: pass the batch (B, T) as "
            "the collector yields it, time second and not shuffled."
        )
