"""Exploration by disagreement (Pathak et al., 2019): how much do several forward models differ?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require, require_width
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import encoder, freeze
from surprise_memory.surprise.base import Inputs, Surprise


@dataclass(frozen=True)
class DisagreementConfig:
    """Disagreement of an ensemble."""

    ensemble: int = 5
    """Forward models (K)."""
    features: int = 64
    """Width of the frozen random features that they predict."""
    hidden: int = 256
    """Width of the hidden layers."""
    keep: float = 0.8
    """Share of the samples that each model learns from, which keeps the models different."""


class Disagreement(Surprise):
    """The reward is the variance over K models, averaged over features.

    Noise pays nothing once all models predict its mean. u holds the models' deviations from their
    mean, K * features numbers over sqrt(K * features), so that |u|^2 is that variance. The power is
    therefore always 2. u is not a residual, so it is not for a memory.
    """

    uses = ("obs", "action", "next_obs")
    power = 2

    def __init__(
        self, shape: tuple[int, ...], actions: Actions, config: DisagreementConfig
    ) -> None:
        super().__init__()
        K = config.ensemble
        m = config.features
        h = config.hidden
        enough = "at least 2 (one model has nobody to disagree with) and at most 1,000"
        require(2 <= K <= 1_000, "disagreement.ensemble", K, enough)
        require_width("disagreement.features", m)
        require_width("disagreement.hidden", h)
        require(0 < config.keep <= 1, "disagreement.keep", config.keep, "above 0 and at most 1")
        self.n = K * m
        self.config = config
        self.phi = freeze(encoder(shape, [h], m, nn.ReLU))
        self.models = nn.Sequential(
            EnsembleLinear(K, m + actions.width, h),
            nn.LeakyReLU(),
            EnsembleLinear(K, h, h),
            nn.LeakyReLU(),
            EnsembleLinear(K, h, m),
        )

    @torch.no_grad()
    def prepare(self, seen: Inputs) -> Inputs:
        """The models' inputs (rows, m + A), and the features to predict (rows, m)."""
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
        guess = self.predict(inputs)
        keep = self.config.keep
        errors = (guess - inputs["target"]).square().mean(2)  # (K, rows)
        kept = torch.rand(errors.shape, generator=rng, device="cpu") < keep
        errors = errors * kept.to(errors.device) / keep
        if weight is not None:
            errors = errors * weight
        return deviations(guess), {"surprise": errors.mean(1).sum()}


def deviations(guess: Tensor) -> Tensor:
    """(K, rows, m) predictions to (rows, K m), whose squared norm is mean_m var_K.

    var_K is the population variance.
    """
    K, rows, m = guess.shape
    deviation = guess - guess.mean(0)
    scaled: Tensor = deviation.transpose(0, 1).reshape(rows, K * m) / (K * m) ** 0.5
    return scaled


class EnsembleLinear(nn.Module):
    """K linear layers side by side, initialised independently: (K, rows, i) to (K, rows, o)."""

    def __init__(self, K: int, i: int, o: int) -> None:
        super().__init__()
        weights = [nn.init.orthogonal_(torch.empty(i, o, device="cpu"), 2**0.5) for _ in range(K)]
        self.weight = nn.Parameter(torch.stack(weights))
        self.bias = nn.Parameter(torch.zeros(K, 1, o, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """One batched product."""
        return torch.baddbmm(self.bias, x, self.weight)
