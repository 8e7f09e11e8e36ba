"""Exploration by disagreement (Pathak et al., 2019): how much do several forward models differ about what comes next?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import encoder, freeze
from surprise_memory.surprise.base import Inputs, Surprise


@dataclass(frozen=True)
class DisagreementConfig:
    """Disagreement of an ensemble."""

    ensemble: int = 5
    """K, forward models."""
    features: int = 64
    """Width of the frozen random features that they predict."""
    hidden: int = 256
    """Width of the hidden layers."""
    keep: float = 0.8
    """Share of the samples that each model learns from; the models stay different because their samples do."""


class Disagreement(Surprise):
    """Reward: the variance over K models, averaged over features. Noise costs nothing once all models predict its mean.

    u holds the models' deviations from their mean, (K features) numbers over sqrt(K features), so that |u|^2 is that variance;
    it is a variance whatever the bonus's `power`, and, being no residual, it is not for a memory.
    """

    uses = ("obs", "action", "next_obs")
    power = 2

    def __init__(
        self, shape: tuple[int, ...], actions: Actions, config: DisagreementConfig
    ) -> None:
        super().__init__()
        K, m = config.ensemble, config.features
        require(
            K >= 2, "disagreement.ensemble", K, "at least 2: one model has nobody to disagree with"
        )
        require(
            m >= 1 and config.hidden >= 1,
            "disagreement.features, hidden",
            (m, config.hidden),
            "at least 1",
        )
        require(0 < config.keep <= 1, "disagreement.keep", config.keep, "above 0 and at most 1")
        self.n, self.config = K * m, config
        self.phi = freeze(encoder(shape, [config.hidden], m, nn.ReLU))
        self.models = nn.Sequential(
            EnsembleLinear(K, m + actions.width, config.hidden),
            nn.LeakyReLU(),
            EnsembleLinear(K, config.hidden, config.hidden),
            nn.LeakyReLU(),
            EnsembleLinear(K, config.hidden, m),
        )

    @torch.no_grad()
    def prepare(self, seen: Inputs) -> Inputs:
        """What the models get (rows, m + A), and the features that they should predict (rows, m)."""
        known = torch.cat([self.phi(seen["obs"]), seen["action"]], 1)
        return {"known": known, "target": self.phi(seen["next_obs"])}

    def predict(self, inputs: Inputs) -> Tensor:
        """(K, rows, m)."""
        guess: Tensor = self.models(inputs["known"].expand(self.config.ensemble, -1, -1))
        return guess

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (rows, K m)."""
        return deviations(self.predict(inputs))

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Each model's mean squared error on its own share of the rows, summed over the models."""
        guess, keep = self.predict(inputs), self.config.keep
        errors = (guess - inputs["target"]).square().mean(2)  # (K, rows)
        kept = torch.rand(errors.shape, generator=rng) < keep
        errors = errors * kept / keep
        if weight is not None:
            errors = errors * weight
        return deviations(guess), {"surprise": errors.mean(1).sum()}


def deviations(guess: Tensor) -> Tensor:
    """(K, rows, m) predictions to (rows, K m) whose squared norm is mean_m var_K, the population variance."""
    K, rows, m = guess.shape
    spread: Tensor = (guess - guess.mean(0)).transpose(0, 1).reshape(rows, K * m) / (K * m) ** 0.5
    return spread


class EnsembleLinear(nn.Module):
    """K linear layers side by side, each with its own start: (K, rows, i) to (K, rows, o)."""

    def __init__(self, K: int, i: int, o: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.stack([nn.init.orthogonal_(torch.empty(i, o), 2**0.5) for _ in range(K)])
        )
        self.bias = nn.Parameter(torch.zeros(K, 1, o))

    def forward(self, x: Tensor) -> Tensor:
        """One batched product."""
        return torch.baddbmm(self.bias, x, self.weight)
