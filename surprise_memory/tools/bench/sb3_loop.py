"""PPO of Stable-Baselines3 on our environments and with our widths, to be timed beside ours."""

from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import how_to_install
from surprise_memory.nn.nets import mlp
from surprise_memory.tools.bench.timing import Clock, Seconds
from surprise_memory.training.config import RunConfig

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
except ImportError as error:
    raise ImportError(f"Stable-Baselines3 is not installed: {how_to_install('sb3')}.") from error


class SB3Loop:
    """Its PPO with one trunk for policy and value, as ours has."""

    def __init__(self, run: RunConfig, clock: Clock) -> None:
        self.clock = clock
        self.env = make_vec(run.env, run.envs, run.seed, run.threads)
        c = run.ppo
        self.model = PPO(
            "MlpPolicy",
            Wrapped(self.env),
            learning_rate=c.lr,
            n_steps=run.rollout,
            batch_size=run.rollout * run.envs // c.minibatches,
            n_epochs=c.epochs,
            gamma=c.gamma_ext,
            gae_lambda=c.lam,
            clip_range=c.clip,
            normalize_advantage=c.normalise_advantage,
            ent_coef=c.entropy,
            vf_coef=c.value_coef,
            max_grad_norm=c.max_grad_norm or float("inf"),
            seed=run.seed,
            device="cpu",
            policy_kwargs={
                "features_extractor_class": Trunk,
                "features_extractor_kwargs": {"hidden": c.hidden},
                "net_arch": [],
            },
        )
        _, self.callback = self.model._setup_learn(10**9)

    def lap(self) -> Seconds:
        """Seconds of one rollout and of learning from it."""
        began = self.clock()
        model: Any = self.model
        model.collect_rollouts(model.env, self.callback, model.rollout_buffer, model.n_steps)
        model.train()
        return {"whole": self.clock() - began}


class Trunk(BaseFeaturesExtractor):
    """Three layers with tanh, shared by the two heads."""

    def __init__(self, observation_space: spaces.Box, hidden: int) -> None:
        super().__init__(observation_space, hidden)
        layers = mlp([*observation_space.shape, hidden, hidden, hidden], nn.Tanh)
        self.net = nn.Sequential(layers, nn.Tanh())

    def forward(self, obs: Tensor) -> Tensor:
        """(K, *obs) to (K, hidden)."""
        features: Tensor = self.net(obs)
        return features


class Wrapped(vec_env.VecEnv):
    """Our environments as one of its vector environments."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        space = spaces.Box(-np.inf, np.inf, env.obs_shape, np.float32)
        super().__init__(env.num_envs, space, env.action_space)

    def reset(self) -> Any:
        """(B, *obs)."""
        return self.env.reset()

    def step_async(self, actions: Any) -> None:
        """Keep the actions."""
        self.actions = actions

    def step_wait(self) -> Any:
        """Take them; infos hold what Stable-Baselines3 asks for where an episode ended."""
        step = self.env.step(self.actions)
        done = step.terminated | step.truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for b in done.nonzero()[0]:
            infos[b]["terminal_observation"] = step.next_obs[b]
            infos[b]["TimeLimit.truncated"] = bool(step.truncated[b] & ~step.terminated[b])
        return step.obs, step.reward, done, infos

    def close(self) -> None:
        """Release threads and processes."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Nothing, also for `render_mode`, the one that is asked for."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not used."""
        raise NotImplementedError

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **words: Any
    ) -> list[Any]:
        """Not used."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """It is not."""
        return [False] * self.num_envs
