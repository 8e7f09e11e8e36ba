"""The latent world model (Ermolov and Sebe, 2020): how badly do I foresee the next latent state, given all that came before?

| symbol | meaning                                                                                   |
|--------|-------------------------------------------------------------------------------------------|
| z      | latent state, n = 32 numbers, trained so that neighbours in time are near (W-MSE)         |
| h      | state of the world model, a GRU over (z, a); zero where an episode begins                 |
| u      | predicted z' minus z'                                                                     |

W-MSE compares whitened embeddings: without whitening the nearest neighbours would be all the same point. The world model
takes the embeddings as they are. Made for the recurrent DQN, which replays whole sequences and so trains through time;
in an on-policy loop it learns from single steps with the h of back then.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.linalg import cholesky, solve_triangular

from surprise_memory.errors import require
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import encoder, is_image, mean_error, mlp, orthogonal, run_gru
from surprise_memory.surprise.base import Inputs, Surprise
from surprise_memory.types import Chunk

SHIFT = 4  # pixels that a frame is rolled by at most
JITTER = (
    1e-4  # of the mean variance, added to the covariance: its Cholesky factor then always exists
)


@dataclass(frozen=True)
class LWMConfig:
    """Latent world model."""

    n: int = 32
    """Width of z, and so of the surprise."""
    inputs: int = 128
    """Width of what enters the GRU."""
    hidden: int = 128
    """Width of the GRU and of the layers; the paper has 256."""
    lr: float = 5e-4
    """Adam's rate, for its memory, too."""
    pairs: int = 256
    """Pairs of neighbours for each update of the encoder."""


@dataclass(frozen=True)
class Belief:
    """What the world model knows of the running episodes."""

    h: Tensor  # (B, hidden)


class LWM(Surprise):
    """u = G(z, a, h) - z'. The encoder learns from pairs, the world model from sequences; neither reaches into the other."""

    uses = ("obs", "action", "next_obs")

    def __init__(self, shape: tuple[int, ...], actions: Actions, config: LWMConfig) -> None:
        super().__init__()
        for name in ("n", "inputs", "hidden", "pairs"):
            require(getattr(config, name) >= 1, f"lwm.{name}", getattr(config, name), "at least 1")
        require(config.lr > 0, "lwm.lr", config.lr, "above 0")
        c, self.n, self.lr, self.pairs = config, config.n, config.lr, config.pairs
        self.obs_norm = "bytes" if is_image(shape) else None
        self.encoder = encoder(shape, [c.hidden], c.n, nn.ReLU)
        self.enter = orthogonal(nn.Linear(c.n + actions.width, c.inputs), 1.0)
        self.cell = nn.GRUCell(c.inputs, c.hidden)
        self.predict = mlp([c.hidden, c.hidden, c.n], nn.ReLU)

    def start(self, num_envs: int) -> Belief:
        """Nothing is known."""
        return Belief(self.cell.weight_hh.new_zeros(num_envs, self.cell.hidden_size))

    def unroll(
        self, inputs: Inputs, first: Tensor, valid: Tensor, carry: Belief
    ) -> tuple[Inputs, Belief]:
        """Add z, z' and the h before each step, (T*B, ...) each; hand the last h on."""
        inputs = inputs | self.embed(inputs, first.shape)
        h = self._states(inputs, first, carry.h)
        before = torch.cat([carry.h[None], h[:-1]]).masked_fill(first[..., None], 0.0)
        return inputs | {"h": before.flatten(0, 1)}, Belief(
            torch.where(valid[-1][:, None], h[-1], 0.0)
        )

    def embed(self, inputs: Inputs, shape: tuple[int, ...]) -> Inputs:
        """The latents z and z' of (T*B, ...) observations; most successors are what is acted on next, and are encoded once."""
        with torch.no_grad():
            z = self.encoder(inputs["obs"])
            obs, after = (inputs[name].unflatten(0, shape) for name in ("obs", "next_obs"))
            own = torch.ones(shape, dtype=torch.bool)
            own[:-1] = (after[:-1] != obs[1:]).flatten(2).any(2)
            next_z = torch.cat([z.unflatten(0, shape)[1:], z.new_zeros(1, shape[1], self.n)])
            next_z[own] = self.encoder(after[own])
        return {"z": z, "next_z": next_z.flatten(0, 1)}

    def _states(self, inputs: Inputs, first: Tensor, h: Tensor) -> Tensor:
        """The state h after each step, (T, B, hidden)."""
        x = self.enter(torch.cat([inputs["z"], inputs["action"]], 1)).unflatten(0, first.shape)
        return run_gru(self.cell, x, first, h)

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n) of single steps; where nothing was unrolled, each is an episode's first."""
        if "z" not in inputs:
            inputs = inputs | self.embed(inputs, (1, len(inputs["obs"])))
        h = inputs["h"] if "h" in inputs else self.start(len(inputs["z"])).h
        h = self.cell(self.enter(torch.cat([inputs["z"], inputs["action"]], 1)), h)
        u: Tensor = self.predict(h) - inputs["next_z"]
        return u

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The world model's error on single steps, and the encoder's on each step's two ends."""
        u = self(inputs)
        return u, {
            "surprise": mean_error(u, loss, weight),
            "pairs": self.pair_loss(inputs["obs"], inputs["next_obs"], rng),
        }

    def sequence_losses(
        self,
        inputs: Inputs,
        chunk: Chunk,
        rows: Tensor,
        loss: str,
        rng: torch.Generator,
        weight: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The world model's error over whole sequences, with its gradient through time.

        It begins knowing nothing.
        """
        h = self._states(inputs, chunk.first, self.start(chunk.shape[1]).h)
        u = self.predict(h).flatten(0, 1) - inputs["next_z"]
        return u[rows], {"surprise": mean_error(u[rows], loss, weight)}

    def pair_loss(self, a: Tensor, b: Tensor, rng: torch.Generator) -> Tensor:
        """W-MSE of neighbours (K, *obs); frames are rolled a little, so that a place is not its pixels."""
        if a.dim() == 4:
            a, b = roll(a, rng), roll(b, rng)
        z = whiten(self.encoder(torch.cat([a, b])))
        return (z[: len(a)] - z[len(a) :]).square().mean()


def whiten(x: Tensor) -> Tensor:
    """(K, n) to mean 0 and covariance 1, by the inverse of the covariance's Cholesky factor."""
    x = x - x.mean(0)
    covariance = x.T @ x / max(1, len(x) - 1)
    spread = JITTER * covariance.diagonal().mean() + 1e-8
    factor = cholesky(covariance + spread * torch.eye(x.shape[1], dtype=x.dtype, device=x.device))
    white: Tensor = solve_triangular(factor, x.T, upper=False).T
    return white


def roll(frames: Tensor, rng: torch.Generator) -> Tensor:
    """Shift each of (K, C, H, W) frames around its edges by up to SHIFT pixels both ways."""
    K, _, height, width = frames.shape
    by = torch.randint(-SHIFT, SHIFT + 1, (2, K, 1), generator=rng)
    rows, columns = (torch.arange(height) + by[0]) % height, (torch.arange(width) + by[1]) % width
    k, c = torch.arange(K)[:, None, None, None], torch.arange(frames.shape[1])[None, :, None, None]
    return frames[k, c, rows[:, None, :, None], columns[:, None, None, :]]
