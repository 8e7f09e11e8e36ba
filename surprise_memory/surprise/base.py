"""The contract of a surprise generator, and what several generators share: actions as numbers, the inverse model.

| member                                   | shapes           | what it is                                 |
|------------------------------------------|------------------|--------------------------------------------|
| n                                        |                  | width of the surprise                      |
| sees                                     |                  | columns of the chunk it looks at           |
| prepare(seen) -> inputs                  | (K, ...) each    | all that stays the same while it learns    |
| forward(inputs) -> u                     | (K, n)           | surprise with today's weights, equation 1  |
| losses(inputs, loss, rng) -> u, losses | (K, n), scalars  | what trains it, by name                    |
| start(B) -> carry                        |                  | episodic state before the first step       |
| unroll(inputs, first, valid, carry)      | (T*B, ...)       | adds what depends on the steps before      |
| pay(e, inputs, first, valid, carry)      | (T, B) to (T, B) | last word on the reward e = |v|^power      |
| absorb(e, extras, valid, warmup)          |                  | the one place where its statistics move    |

The last four matter only to generators with an episodic part of their own, such as NGU and LWM; `sequence_losses` and
`pair_loss` only to those that learn from replayed sequences in a way of their own, such as LWM. `check_surprise` tests a class of
yours against all of this.
"""

from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.errors import UserError
from surprise_memory.nn.nets import Activation, conv, is_image, mean_error, mlp, orthogonal
from surprise_memory.types import Chunk

Inputs = dict[str, Tensor]


class Surprise(nn.Module):
    """Base of the generators: subclass it, set `n`, write `prepare` and `forward`; the rest has defaults."""

    n: int
    uses: tuple[str, ...] = ("next_obs",)
    """Of obs, action, next_obs: what `prepare` gets. Observations come normalised, actions as float vectors (K, A)."""
    power: int | None = None
    """Power of the norm that is paid, where the method itself fixes it; None leaves it to `BonusConfig.power`."""

    obs_norm: str | None = None
    """How observations are normalised, where the method itself fixes it; None leaves it to `BonusConfig.obs_norm`."""
    lr: float | None = None
    """Adam's rate, its memory's too, where the method itself fixes it; None leaves it to `BonusConfig`."""
    pairs: int = 0
    """Neighbours in time that `pair_loss` wants with every replayed batch."""

    def prepare(self, seen: Inputs) -> Inputs:
        """From the columns it sees, (K, ...) each, to whatever `forward` and `losses` need, without gradients."""
        return seen

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n)."""
        raise NotImplementedError

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(u with its gradient, losses by name). `loss` is 'norm' or 'squared'; `rng` is for those that need chance."""
        u = self(inputs)
        return u, {"surprise": mean_error(u, loss)}

    def start(self, num_envs: int) -> Any:
        """The carry before the first step: None, or a dataclass of tensors."""
        return None

    def unroll(
        self, inputs: Inputs, first: Tensor, valid: Tensor, carry: Any
    ) -> tuple[Inputs, Any]:
        """From the flattened inputs (T*B, ...) of T steps to the same and more, and the carry. Changes nothing."""
        return inputs, carry

    def sequence_losses(
        self, inputs: Inputs, chunk: Chunk, loss: str, rng: torch.Generator, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `losses`, for replayed sequences: inputs (T*B, ...) of all their steps, weights (T*B,), 0 where not valid.

        By default the steps that happened count alike, each by itself; u of the others is zero.
        """
        rows = chunk.valid_rows()
        u, losses = self.losses({name: column[rows] for name, column in inputs.items()}, loss, rng)
        return u.new_zeros(len(weight), self.n).index_copy(0, rows, u), losses

    def pair_loss(self, a: Tensor, b: Tensor, rng: torch.Generator) -> Tensor:
        """What trains it on observations (K, *obs) of neighbouring steps."""
        raise NotImplementedError

    def pay(
        self, e: Tensor, inputs: Inputs, first: Tensor, valid: Tensor, carry: Any
    ) -> tuple[Tensor, Inputs, Any]:
        """From e (T, B) to (reward (T, B), extras for `absorb`, carry). Changes nothing. Notes of shape (T, B) are logged."""
        return e, {}, carry

    def absorb(self, e: Tensor, extras: Inputs, valid: Tensor, warmup: bool) -> None:
        """Take a paid rollout into the running statistics."""


class Actions:
    """An action space as numbers: `width` of them, Discrete one-hot, Box scaled by its bounds to about one."""

    def __init__(self, space: Space[Any] | None) -> None:
        if space is None:
            raise UserError(
                "This generator models actions: pass action_space, such as envs.single_action_space, to Bonus."
            )
        self.discrete = isinstance(space, spaces.Discrete)
        if isinstance(space, spaces.Discrete):
            self.width, self.first = int(space.n), int(space.start)
        elif isinstance(space, spaces.Box) and len(space.shape) == 1:
            self.width = int(space.shape[0])
            width = space.high.astype(np.float64) - space.low
            bounded = (width > 0) & (width < 1e30)
            half, low = np.where(bounded, width / 2, 1.0), np.where(bounded, space.low, -1.0)
            self.half, self.middle = (
                torch.as_tensor(x, dtype=torch.float32) for x in (half, low + half)
            )
            self.low, self.high = (
                torch.as_tensor(x, dtype=torch.float32) for x in (space.low, space.high)
            )
        else:
            raise UserError(
                f"This generator models Discrete and one-dimensional Box actions, this environment has {space}."
            )

    def encode(self, action: Tensor) -> Tensor:
        """(K,) or (K, A) actions to (K, A) floats."""
        if self.discrete:
            return F.one_hot(action.long() - self.first, self.width).float()
        return (action.float().clamp(self.low, self.high) - self.middle) / self.half

    def inverse_loss(self, guess: Tensor, action: Tensor) -> Tensor:
        """How badly (K, A) outputs tell the encoded action (K, A): cross-entropy if Discrete, squared error if Box."""
        if self.discrete:
            return F.cross_entropy(guess, action)
        return (guess - action).square().sum(1).mean()


def encoder(shape: tuple[int, ...], hidden: list[int], n: int, activation: Activation) -> nn.Module:
    """phi: vectors through `hidden` layers, images through the Nature convolutions, to n linear outputs."""
    if is_image(shape):
        net, width = conv(shape, nn.LeakyReLU)
        return nn.Sequential(net, orthogonal(nn.Linear(width, n)))
    return mlp([*shape, *hidden, n], activation)
