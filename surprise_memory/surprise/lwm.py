"""The latent world model (Ermolov and Sebe, 2020): how badly do I predict the next latent state?

| symbol | meaning                                                                           |
|--------|-----------------------------------------------------------------------------------|
| z      | latent state, n = 32 numbers, trained so that neighbours in time are near (W-MSE) |
| h      | state of the world model, a GRU over (z, a); zero where an episode begins         |
| u      | predicted z' minus z'                                                             |

W-MSE compares whitened embeddings: without whitening all of them would become the same point. The
world model takes the embeddings as they are. It was made for the recurrent DQN, which replays whole
sequences and so trains through time. In an on-policy loop it learns from single steps, with the h
that it had while acting.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.linalg import cholesky, solve_triangular

from surprise_memory.errors import require, require_width
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import (
    encoder,
    gru_step,
    is_image,
    mean_error,
    mlp,
    orthogonal,
    run_gru,
)
from surprise_memory.surprise.base import Inputs, Surprise
from surprise_memory.types import Chunk

SHIFT = 4  # pixels that a frame is rolled by at most
JITTER = 1e-4  # of the mean variance, added to the covariance: makes its Cholesky factor exist


@dataclass(frozen=True)
class LWMConfig:
    """Latent world model."""

    n: int = 32
    """Width of z and of the surprise."""
    inputs: int = 128
    """Width of the GRU's input."""
    hidden: int = 128
    """Width of the GRU and of the layers; 256 in the paper."""
    lr: float = 5e-4
    """Learning rate, also of its memory."""
    pairs: int = 256
    """Pairs of neighbouring steps in each update of the encoder."""


@dataclass(frozen=True)
class Belief:
    """What the world model knows of the running episodes."""

    h: Tensor  # (B, hidden)


class LWM(Surprise):
    """u = G(z, a, h) - z'.

    The encoder learns from pairs, the world model from sequences. Neither loss reaches the other.
    """

    uses = ("obs", "action", "next_obs")

    def __init__(self, shape: tuple[int, ...], actions: Actions, config: LWMConfig) -> None:
        super().__init__()
        c = config
        for name in ("n", "inputs", "hidden", "pairs"):
            require_width(f"lwm.{name}", getattr(c, name))
        require(c.lr > 0, "lwm.lr", c.lr, "above 0")
        self.n = c.n
        self.lr = c.lr
        self.pairs = c.pairs
        if is_image(shape):
            self.obs_norm = "bytes"
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
        after = Belief(torch.where(valid[-1][:, None], h[-1], 0.0))
        return inputs | {"h": before.flatten(0, 1)}, after

    def embed(self, inputs: Inputs, shape: tuple[int, ...]) -> Inputs:
        """The latents z and z' of (T*B, ...) observations.

        Most successors are the next row's observation, so they are encoded only once.
        """
        obs = inputs["obs"].unflatten(0, shape)
        next_obs = inputs["next_obs"].unflatten(0, shape)
        # From the next row's observation.
        differs = torch.ones(shape, dtype=torch.bool, device=obs.device)
        differs[:-1] = (next_obs[:-1] != obs[1:]).flatten(2).any(2)
        with torch.no_grad():
            z = self.encoder(inputs["obs"])
            next_z = torch.cat([z.unflatten(0, shape)[1:], z.new_zeros(1, shape[1], self.n)])
            next_z[differs] = self.encoder(next_obs[differs])
        return {"z": z, "next_z": next_z.flatten(0, 1)}

    def _states(self, inputs: Inputs, first: Tensor, h: Tensor) -> Tensor:
        """The state h after each step, (T, B, hidden)."""
        x = self.enter(torch.cat([inputs["z"], inputs["action"]], 1)).unflatten(0, first.shape)
        return run_gru(self.cell, x, first, h)

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n) of single steps; without `unroll` each is an episode's first."""
        if "z" not in inputs:
            inputs = inputs | self.embed(inputs, (1, len(inputs["obs"])))
        h = inputs.get("h")
        if h is None:
            h = self.start(len(inputs["z"])).h
        x = self.enter(torch.cat([inputs["z"], inputs["action"]], 1))
        h = gru_step(self.cell, x, h)
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

        Its state begins at zero.
        """
        h = self._states(inputs, chunk.first, self.start(chunk.shape[1]).h)
        u = self.predict(h).flatten(0, 1) - inputs["next_z"]
        return u[rows], {"surprise": mean_error(u[rows], loss, weight)}

    def pair_loss(self, a: Tensor, b: Tensor, rng: torch.Generator) -> Tensor:
        """W-MSE of neighbours (K, *obs). Images are shifted a little at random."""
        if a.dim() == 4:
            a = roll(a, rng)
            b = roll(b, rng)
        z = whiten(self.encoder(torch.cat([a, b])))
        return (z[: len(a)] - z[len(a) :]).square().mean()


def whiten(x: Tensor) -> Tensor:
    """(K, n) to mean 0 and covariance 1, by the inverse Cholesky factor of the covariance."""
    x = x - x.mean(0)
    covariance = x.T @ x / max(1, len(x) - 1)
    jitter = JITTER * covariance.diagonal().mean() + 1e-8
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    factor = cholesky(covariance + jitter * identity)
    white: Tensor = solve_triangular(factor, x.T, upper=False).T
    return white


def roll(frames: Tensor, rng: torch.Generator) -> Tensor:
    """Shift each of (K, C, H, W) frames around its edges by up to SHIFT pixels both ways."""
    K, C, height, width = frames.shape
    device = frames.device
    shift = torch.randint(-SHIFT, SHIFT + 1, (2, K, 1), generator=rng, device="cpu").to(device)
    rows = (torch.arange(height, device=device) + shift[0]) % height  # (K, H)
    columns = (torch.arange(width, device=device) + shift[1]) % width  # (K, W)
    k = torch.arange(K, device=device)[:, None, None, None]
    c = torch.arange(C, device=device)[None, :, None, None]
    return frames[k, c, rows[:, None, :, None], columns[:, None, None, :]]
