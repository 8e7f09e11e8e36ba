"""The network of PPO: a trunk, a distribution over actions, and a value each for task and bonus."""

import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from surprise_memory.errors import UserError
from surprise_memory.nn.nets import conv, is_image, mlp, orthogonal

WIDEST_ACTION = 20.0  # of a Box, from bound to bound; draws of N(0, 1) see less than a third of it


class Policy(nn.Module):
    """One trunk, the action distribution, and two values: (logits or mean, v_ext, v_int)."""

    def __init__(self, obs_shape: tuple[int, ...], action_space: Space[Any], hidden: int) -> None:
        super().__init__()
        if is_image(obs_shape):
            net, width = conv(obs_shape, nn.LeakyReLU)
            layers = mlp([width, hidden, hidden], nn.ReLU)
            self.trunk: nn.Module = nn.Sequential(net, layers, nn.ReLU())
        else:
            layers = mlp([*obs_shape, hidden, hidden, hidden], nn.Tanh)
            self.trunk = nn.Sequential(layers, nn.Tanh())
        self.log_std = None
        if isinstance(action_space, spaces.Discrete):
            outputs = int(action_space.n)
        elif isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
            outputs = action_space.shape[0]
            self.log_std = nn.Parameter(torch.zeros(outputs, device="cpu"))
            warn_of_bounds(action_space)
        else:
            raise UserError(
                "PPO acts in Discrete and one-dimensional Box spaces, this environment has "
                f"{action_space}."
            )
        self.actor = orthogonal(nn.Linear(hidden, outputs), 0.01)
        self.critics = orthogonal(nn.Linear(hidden, 2), 0.01)

    @property
    def continuous(self) -> bool:
        """Whether actions are vectors of a Box, not one of a few."""
        return self.log_std is not None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(K, *obs) to the distribution's parameters (K, A) and the values (K,), (K,)."""
        x = self.trunk(obs)
        values = self.critics(x)
        return self.actor(x), values[:, 0], values[:, 1]

    def log_probs(self, logits: Tensor, mix: Tensor | None) -> Tensor:
        """Log-probabilities (K, A) of discrete actions, of which a share `mix` (K,) is uniform."""
        if mix is None:
            return logits.log_softmax(1)
        uniform = mix[:, None] / logits.shape[1]
        return ((1 - mix[:, None]) * logits.softmax(1) + uniform).log()

    def sample(
        self, head: Tensor, rng: torch.Generator, greedy: bool = False, mix: Tensor | None = None
    ) -> Tensor:
        """Actions (K,) or (K, A); of discrete ones, a share `mix` (K,) is uniform."""
        noise = torch.empty(head.shape, device="cpu")  # drawn on the host, as all random numbers
        if self.log_std is None:
            if greedy:
                return head.argmax(1)
            # Gumbel's trick: one draw per logit, no normalisation.
            gumbel = noise.exponential_(generator=rng).log().to(head.device)
            if mix is not None:
                head = self.log_probs(head, mix)
            return (head - gumbel).argmax(1)
        if greedy:
            return head
        return head + self.log_std.exp() * noise.normal_(generator=rng).to(head.device)

    def log_prob(
        self, head: Tensor, action: Tensor, mix: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(log pi(a), entropy), both (K,)."""
        if self.log_std is None:
            log_p = self.log_probs(head, mix)
            return log_p.gather(1, action[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(1)
        normal = torch.distributions.Normal(head, self.log_std.exp().expand_as(head))
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)


def warn_of_bounds(space: spaces.Box) -> None:
    """Name an action that a policy that begins as N(0, 1) hardly explores: it is not rescaled."""
    low, high = space.low.astype(float), space.high.astype(float)
    width = high - low
    odd = (low >= 1) | (high <= -1) | ((width > WIDEST_ACTION) & np.isfinite(width))
    if odd.any():
        i = int(odd.argmax())
        warnings.warn(
            f"Action {i} goes from {low[i]:g} to {high[i]:g}, and PPO begins to draw it from "
            "N(0, 1): wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1).",
            stacklevel=2,
        )
