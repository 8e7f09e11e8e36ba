"""The contract of a surprise generator.

| member                              | shapes          | what it is                            |
|-------------------------------------|-----------------|---------------------------------------|
| n                                   |                 | width of the surprise                 |
| uses                                |                 | columns of the chunk it looks at      |
| prepare(seen) -> inputs             | (K, ...) each   | what stays the same while it learns   |
| forward(inputs) -> u                | (K, n)          | surprise by today's weights (eq. 1)   |
| losses(inputs, loss, rng, weight)   | (K, n), scalars | (u, losses by name): what trains it   |
| start(B) -> carry                   |                 | episodic state before the first step  |
| unroll(inputs, first, valid, carry) | (T*B, ...)      | adds what depends on the steps before |

The last two matter only to generators with an episodic state, such as LWM. `sequence_losses` and
`pair_loss` matter only to generators that learn from replayed sequences in their own way. What
happens to the reward after |v| is a stage's business. `check_surprise` tests a class of yours.
"""

from typing import Any

import torch
from torch import Tensor, nn

from surprise_memory.nn.nets import mean_error
from surprise_memory.types import Chunk

Inputs = dict[str, Tensor]


class Surprise(nn.Module):
    """Base of the generators: subclass it, set `n`, write `prepare` and `forward`.

    >>> import torch
    >>> from surprise_memory import Surprise
    >>> class Change(Surprise):
    ...     '''How badly do I predict what changes?'''
    ...     uses = ("obs", "next_obs")
    ...     def __init__(self, shape):
    ...         super().__init__()
    ...         self.n = shape[0]
    ...         self.net = torch.nn.Linear(self.n, self.n)
    ...     def forward(self, inputs):
    ...         return self.net(inputs["obs"]) - (inputs["next_obs"] - inputs["obs"])
    >>> tuple(Change((3,))({"obs": torch.zeros(5, 3), "next_obs": torch.ones(5, 3)}).shape)
    (5, 3)
    """

    n: int
    uses: tuple[str, ...] = ("next_obs",)
    """Of obs, action, next_obs: what `prepare` gets.

    Observations are normalised, actions are float vectors (K, A).
    """
    power: int | None = None
    """Power of the norm that is paid, if the method fixes it; None is `BonusConfig.power`."""
    obs_norm: str | None = None
    """Normalisation of observations, if the method fixes it; None is `BonusConfig.obs_norm`."""
    lr: float | None = None
    """Learning rate, also of its memory, if the method fixes it; None is `BonusConfig`'s."""
    pairs: int = 0
    """Pairs of neighbouring steps that `pair_loss` wants with every replayed batch."""

    def prepare(self, seen: Inputs) -> Inputs:
        """From the columns it uses to what `forward` and `losses` need; (K, ...) each.

        Nothing in it has a gradient.
        """
        return seen

    def forward(self, inputs: Inputs) -> Tensor:
        """The surprise u (K, n)."""
        raise NotImplementedError

    def losses(
        self, inputs: Inputs, loss: str, rng: torch.Generator, weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(u with its gradient, losses by name) on K steps, each counting `weight` (K,).

        `loss` is 'norm' or 'squared'; `rng` is for generators whose losses are random.
        """
        u = self(inputs)
        return u, {"surprise": mean_error(u, loss, weight)}

    def start(self, num_envs: int) -> Any:
        """The carry before the first step: None, or a dataclass of tensors."""
        return None

    def unroll(
        self, inputs: Inputs, first: Tensor, valid: Tensor, carry: Any
    ) -> tuple[Inputs, Any]:
        """Add columns to the flattened inputs (T*B, ...) of T steps; returns them and the carry.

        Changes nothing.
        """
        return inputs, carry

    def sequence_losses(
        self,
        inputs: Inputs,
        chunk: Chunk,
        rows: Tensor,
        loss: str,
        rng: torch.Generator,
        weight: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `losses` on the steps `rows` (K,) of whole sequences, whose inputs are (T*B, ...).

        By default each step counts by itself. A generator with a state trains through time instead.
        """
        chosen = {name: column[rows] for name, column in inputs.items()}
        return self.losses(chosen, loss, rng, weight)

    def pair_loss(self, a: Tensor, b: Tensor, rng: torch.Generator) -> Tensor:
        """What trains it on observations (K, *obs) of neighbouring steps."""
        raise NotImplementedError
