"""The intrinsic curiosity module (Pathak et al., 2017): how badly do I predict what I cause?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require, require_width
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import encoder, mean_error, mlp
from surprise_memory.surprise.base import Inputs, Surprise


@dataclass(frozen=True)
class ICMConfig:
    """Intrinsic curiosity module."""

    n: int = 64
    """Width of the features phi and of the surprise; 512 in the paper."""
    hidden: int = 256
    """Width of the hidden layers; 512 in the paper."""
    inverse_coef: float = 1.0
    """Weight of the inverse model's loss."""
    detach_features: bool = False
    """Whether the features learn from the inverse model alone, not from the forward loss."""


class ICM(Surprise):
    """u = F(phi(s), a) - phi(s').

    phi keeps what the inverse model needs to predict the action; it can ignore the rest. The target
    phi(s') is detached: otherwise it would become constant, which is easy to predict.
    """

    uses = ("obs", "action", "next_obs")

    def __init__(self, shape: tuple[int, ...], actions: Actions, config: ICMConfig) -> None:
        super().__init__()
        n = config.n
        h = config.hidden
        coef = config.inverse_coef
        require_width("icm.n", n)
        require_width("icm.hidden", h)
        require(coef > 0, "icm.inverse_coef", coef, "above 0: phi would collapse")
        self.n = n
        self.actions = actions
        self.config = config
        self.phi = encoder(shape, [h], n, nn.ReLU)
        self.forward_model = mlp([n + actions.width, h, h, h, n], nn.ReLU)
        self.inverse_model = mlp([2 * n, h, actions.width], nn.ReLU)

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n)."""
        return self._errors(inputs)[0]

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The forward model's error, and the inverse model's."""
        u, phi, next_phi = self._errors(inputs)
        guess = self.inverse_model(torch.cat([phi, next_phi], 1))
        inverse = self.actions.inverse_loss(guess, inputs["action"], weight)
        return u, {
            "surprise": mean_error(u, loss, weight),
            "inverse": self.config.inverse_coef * inverse,
        }

    def _errors(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """(u, phi(s), phi(s')), (K, n) each."""
        phi = self.phi(inputs["obs"])
        next_phi = self.phi(inputs["next_obs"])
        known = phi
        if self.config.detach_features:
            known = phi.detach()
        guess = self.forward_model(torch.cat([known, inputs["action"]], 1))
        u: Tensor = guess - next_phi.detach()
        return u, phi, next_phi
