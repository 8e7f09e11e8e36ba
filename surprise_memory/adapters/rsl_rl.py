"""The bonus for rsl_rl, and through it for Isaac Lab and mjlab, by configuration alone.

    algorithm = {"class_name": "surprise_memory.adapters.rsl_rl:SurprisePPO", ...}

`algorithm["surprise"]` may hold options of the bonus (`SurpriseOptions`), and
`obs_groups["surprise"]` the observation groups that it looks at: those of the actor, if nothing
else is said. The logger's rewards remain the task's; what the bonus tells is logged with the
losses. Checkpoints of the runner hold all of the bonus.
"""

import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from surprise_memory.bonus import Bonus, BonusConfig
from surprise_memory.bonus.config import config_type, with_options
from surprise_memory.bonus.methods import DEFAULT_METHOD
from surprise_memory.errors import UserError, check_options, choose, how_to_install

try:
    from rsl_rl.algorithms import PPO
except ImportError as error:
    raise ImportError(f"rsl_rl is not installed: {how_to_install('rsl-rl')}.") from error


@dataclass(frozen=True)
class SurpriseOptions:
    """What algorithm["surprise"] may hold."""

    method: str = DEFAULT_METHOD
    beta: float = 0.1
    """Weight of the bonus."""
    ext: float = 1.0
    """Weight of the task's reward."""
    seed: int = 0


class SurprisePPO(PPO):  # type: ignore[misc]  # rsl_rl has no types
    """rsl_rl's PPO, whose rewards are ext * r + beta * r_int; `intrinsic_rewards` is the bonus.

    Where an episode ends, the bonus is that of the true successor, extras["final_obs"]. Without it
    (Isaac Lab has it with `compute_final_obs=True`) the last step of an episode pays nothing.
    """

    def __init__(
        self,
        actor: Any,
        critic: Any,
        storage: Any,
        surprise: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`surprise` also takes `config`, a dictionary of bonus options, and `groups`."""
        if options.get("rnd_cfg"):
            raise UserError("rnd_cfg would pay a second bonus: remove it, or use rsl_rl's own PPO.")
        super().__init__(actor, critic, storage, **options)
        given = dict(surprise or {})
        config = with_options(config_type()(), given.pop("config", {}))
        groups = given.pop("groups", None) or actor_groups(actor)
        chosen = read_options(given)
        self.beta = chosen.beta
        self.ext = chosen.ext
        self.groups = list(groups)
        shape = shape_of(storage.observations, self.groups)
        self.bonus = self._make_bonus(chosen, shape, config)
        self.intrinsic_rewards = torch.zeros(storage.num_envs, device=self.device)
        self.warned = False

    def _make_bonus(
        self, chosen: SurpriseOptions, shape: tuple[int, ...], config: BonusConfig
    ) -> Bonus:
        width = self.storage.actions.shape[2:]
        actions = Box(-np.inf, np.inf, tuple(width), np.float32)
        B = self.storage.num_envs
        return Bonus(chosen.method, shape, B, config, chosen.seed, actions, self.device)

    @staticmethod
    def construct_algorithm(obs: Any, env: Any, cfg: dict[str, Any], device: str) -> Any:
        """As PPO's, with the observation set `surprise`."""
        groups = cfg["obs_groups"].get("surprise")
        if groups is not None:
            named = dict(cfg["algorithm"].get("surprise") or {})
            algorithm = cfg["algorithm"] | {"surprise": named | {"groups": list(groups)}}
            cfg = cfg | {"algorithm": algorithm}
        return PPO.construct_algorithm(obs, env, cfg, device)

    def process_env_step(
        self, obs: Any, rewards: Tensor, dones: Tensor, extras: dict[str, Any]
    ) -> None:
        """Record one step, with the bonus in its reward."""
        r_int = self._pay(obs, dones.view(-1), extras)
        self.intrinsic_rewards = self.beta * r_int.to(rewards.device, rewards.dtype)
        super().process_env_step(obs, self.ext * rewards + self.intrinsic_rewards, dones, extras)

    def _pay(self, obs: Any, dones: Tensor, extras: dict[str, Any]) -> Tensor:
        """The bonus (B,) of one step: `obs` is the next episode's where one has ended."""
        done = dones > 0
        before = self.see(self.transition.observations)
        next_obs = self.see(obs)
        valid = torch.ones_like(done)
        if "final_obs" in extras:
            # Read only where an episode ended: elsewhere it may be of an earlier step.
            last = self.see(extras["final_obs"]).to(next_obs.device)  # extras stay with the env
            ended = done.view(-1, *[1] * (last.dim() - 1))
            next_obs = torch.where(ended, last, next_obs)
        else:
            valid = ~done
            self._warn(done)
        return self.bonus.step(before, self.transition.actions, next_obs, done, valid)

    def _warn(self, done: Tensor) -> None:
        """Once, at the first end of an episode."""
        if not self.warned and bool(done.any()):
            self.warned = True
            warnings.warn(
                "The environment ends episodes without extras['final_obs'], so their last steps "
                "pay no bonus. Isaac Lab has it with compute_final_obs=True.",
                stacklevel=4,
            )

    def see(self, obs: Any) -> Tensor:
        """What the bonus looks at (B, ...)."""
        parts = []
        for group in self.groups:
            if not hasattr(obs, "keys") or group not in obs.keys():  # noqa: SIM118 (TensorDict)
                found = list(obs.keys()) if hasattr(obs, "keys") else type(obs).__name__
                raise UserError(f"extras['final_obs'] has no group '{group}': it has {found}.")
            parts.append(obs[group])
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def update(self) -> dict[str, float]:
        """Train the policy and the bonus; returns what both have to tell."""
        losses: dict[str, float] = super().update()
        return losses | self.bonus.update()

    def save(self) -> dict[str, Any]:
        """As PPO's, with all of the bonus."""
        saved: dict[str, Any] = super().save()
        saved["surprise_method"] = self.bonus.method
        saved["surprise_state_dict"] = self.bonus.state_dict()
        return saved

    def load(
        self, loaded_dict: dict[str, Any], load_cfg: dict[str, Any] | None, strict: bool
    ) -> bool:
        """As PPO's; the bonus too, unless load_cfg leaves out "surprise". Refuses before it loads.

        A checkpoint has no environments, so all episodes are new.
        """
        if load_cfg is None or load_cfg.get("surprise"):
            self._load_bonus(loaded_dict)
        return bool(super().load(loaded_dict, load_cfg, strict))

    def _load_bonus(self, loaded: dict[str, Any]) -> None:
        cure = "load with a load_cfg that leaves out 'surprise'"
        if "surprise_state_dict" not in loaded:
            raise UserError(f"The checkpoint holds no bonus: to start with a new one, {cure}.")
        method = loaded["surprise_method"]
        if method != self.bonus.method:
            raise UserError(
                f"The checkpoint holds the bonus '{method}', this is '{self.bonus.method}': {cure}."
            )
        state = loaded["surprise_state_dict"]
        returns = state["scaler.filtered"]  # of each environment; the scale takes their spread
        if len(returns) != self.bonus.num_envs:
            state = self.bonus.with_own_environments(state)
            state["scaler.filtered"] = returns.mean().expand(self.bonus.num_envs).clone()
        self.bonus.load_state_dict(state)
        self.bonus.reset()

    def broadcast_parameters(self) -> None:
        """As PPO's, with all of the bonus, which is one on all ranks from here on."""
        super().broadcast_parameters()
        self.bonus.synchronise()


def read_options(given: dict[str, Any]) -> SurpriseOptions:
    """Options by name; refuses what is misspelt or out of range."""
    known = {f.name: f for f in fields(SurpriseOptions)} | {"config": None, "groups": None}
    for name in given:
        choose(known, name, "option of algorithm['surprise']")
    chosen = SurpriseOptions(**given)
    check_options(chosen, "surprise.")
    return chosen


def actor_groups(actor: Any) -> list[str]:
    """The observation groups that the actor sees, images included."""
    return [*actor.obs_groups, *getattr(actor, "obs_groups_2d", [])]


def shape_of(observations: Any, groups: list[str]) -> tuple[int, ...]:
    """The shape of what the bonus sees: vectors side by side, or one image."""
    shapes = {}
    for group in groups:
        shapes[group] = tuple(observations[group].shape[2:])  # of (T, B, ...)
    if all(len(shape) == 1 for shape in shapes.values()):
        return (sum(shape[0] for shape in shapes.values()),)
    if len(shapes) == 1:
        return shapes[groups[0]]
    raise UserError(
        f"The bonus sees vectors side by side or one image, not {shapes}: choose with "
        "obs_groups = {'surprise': [...]}."
    )
