"""The contract of a stage: what may happen to the reward between |v| and its scale.

| member                                | shapes           | what it is                           |
|---------------------------------------|------------------|--------------------------------------|
| uses                                  |                  | columns of the chunk it looks at     |
| prepare(seen) -> inputs               | (K, ...) each    | what stays the same while it learns  |
| remembers(inputs)                     | (K, ...) to (K,) | what the memory may see              |
| start(B) -> carry                     |                  | episodic state before the first step |
| forward(reward, inputs, steps, carry) | (T, B) to (T, B) | (reward, record, carry)              |
| losses(inputs, record, weight, rng)   | (K, ...) each    | what trains it, by name              |
| update(record, valid, warmup)         | (T, B, ...) each | where its statistics move            |

A method names its stages after the memory: `rnd+sm+expect`. `check_stage` tests a class of yours.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Steps:
    """What a stage may know of T x B steps besides the reward."""

    first: Tensor  # (T, B) bool
    valid: Tensor  # (T, B) bool
    remembered: Tensor  # (T, B) bool, those of them that no stage withholds from the memory
    u: Tensor  # (T, B, n) the surprise
    v: Tensor  # (T, B, m) what the memory leaves of it
    e: Tensor  # (T, B) |v|^power, the reward before the first stage
    e_if_remembered: Tensor | None = None  # (T, B) the same if M held this very surprise


class Stage(nn.Module):
    """Base of the stages: subclass it and write `forward`; the rest has defaults.

    >>> import torch
    >>> from surprise_memory import Stage, check_stage
    >>> class Root(Stage):
    ...     '''Pay the square root.'''
    ...     def forward(self, reward, inputs, steps, carry):
    ...         return reward.sqrt(), {}, carry
    >>> check_stage(lambda obs_shape, action_space, config: Root())
    """

    uses: tuple[str, ...] = ()
    """Of obs, action, next_obs: what `prepare` gets.

    Observations are normalised, actions are float vectors (K, A).
    """
    lr: float | None = None
    """Learning rate of its networks; None is `BonusConfig.lr`."""
    asks_memory: bool = False
    """Whether it needs `steps.e_if_remembered`, which only some memories know."""
    filters: bool = False
    """Whether it only takes pay away. The reward's scale is then measured before it."""
    logged: tuple[str, ...] = ()
    """Columns of the record, (T, B) each, whose means are logged as intrinsic/NAME."""

    def prepare(self, seen: Columns) -> Columns:
        """From the columns it uses to what `forward` and `losses` need; (K, ...) each.

        Nothing in it has a gradient.
        """
        return seen

    def remembers(self, inputs: Columns) -> Tensor | None:
        """Which steps (K,) bool the memory may keep and learn from; None is all of them."""
        return None

    def start(self, num_envs: int) -> Any:
        """The carry before the first step: None, or a dataclass of tensors."""
        return None

    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: Any
    ) -> tuple[Tensor, Columns, Any]:
        """From the reward (T, B) to (reward (T, B), record, carry). Changes nothing.

        Each column of the record is (T, B, ...).
        """
        raise NotImplementedError

    def losses(
        self, inputs: Columns, record: Columns, weight: Tensor | None, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """Losses by name on K steps that happened, each counting `weight` (K,)."""
        return {}

    def update(self, record: Columns, valid: Tensor, warmup: bool) -> None:
        """Take the record of a rollout into the running statistics."""


class Stages(nn.ModuleDict):
    """Stages by name, also by names that torch's modules have a method of, such as `half`."""

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Without torch's refusal of such names: a stage is never asked for as an attribute."""
        assert module is not None
        self._modules[name] = module
