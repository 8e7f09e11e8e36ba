"""The contract of a memory.

| member                             | shapes                   | what it is                    |
|------------------------------------|--------------------------|-------------------------------|
| forward(u, first, valid, carry)    | (T, B, n) to (T, B, ...) | (v, q, log, carry)            |
| losses(u, rows, log, weight)       | (K, n), (K,) to scalars  | what trains it, on some steps |
| start(B) -> carry                  |                          | content before the first step |
| commit(log, valid, carry) -> carry |                          | where lasting content changes |

q is what the memory is asked, v what it cannot reconstruct of q, |v| the bonus. `log` is what
`forward` hands to `losses` and `commit`. `rows` are flattened steps.

`check_memory` tests a class of yours against all of this.
"""

from typing import Any

from torch import Tensor, nn
from torch.linalg import vector_norm


class Memory(nn.Module):
    """Base of the memories: subclass it and write `forward`; the rest has defaults.

    >>> import torch
    >>> from surprise_memory import Memory
    >>> class Capped(Memory):
    ...     '''No coordinate of a surprise counts for more than 1.'''
    ...     def forward(self, u, first, valid, carry):
    ...         return u.clamp(-1, 1), u, None, carry
    >>> no = torch.zeros(4, 3, dtype=torch.bool)
    >>> v, q, log, carry = Capped()(torch.full((4, 3, 5), 2.0), no, ~no, None)
    >>> tuple(v.shape), float(v.max())
    ((4, 3, 5), 1.0)
    """

    beta: float = 1.0
    """Factor of the reward after it has been scaled; before, the scale would cancel it."""
    power: int | None = None
    """Power of |v| that is paid, if the memory fixes it; None leaves it to generator and config."""
    shared: bool = False
    """Whether environments remember for each other."""
    reaches_surprise: bool = False
    """Whether a loss may train the generator; by default u is detached at the door."""

    def start(self, num_envs: int) -> Any:
        """The carry before the first step: None, or a dataclass of tensors."""
        return None

    def fresh(self, num_envs: int, steps: int) -> Any:
        """As `start`, for sequences of so many steps and no more: it may be smaller."""
        return self.start(num_envs)

    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Any
    ) -> tuple[Tensor, Tensor, Any, Any]:
        """From u (T, B, n), first and valid (T, B), to (v, q, log, carry). Changes nothing."""
        raise NotImplementedError

    def if_remembered(self, u: Tensor) -> Tensor | None:
        """The v (T, B, ...) of u (T, B, n) if M held each already; None if it cannot tell."""
        return None

    def losses(
        self, u: Tensor, rows: Tensor, log: Any, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Losses by name for the surprises u (K, n) of flattened steps `rows` (K,).

        Each step counts `weight` (K,).
        """
        return {}

    def commit(self, log: Any, valid: Tensor, carry: Any) -> Any:
        """Take a paid rollout into what lasts; returns the carry that goes with it."""
        return carry

    def metrics(self, u: Tensor, v: Tensor, q: Tensor, valid: Tensor) -> dict[str, float]:
        """What to log, from vectors (T, B, ...) of which those of `valid` (T, B) happened."""
        return {}


class NoMemory(Memory):
    """The generator alone: v is u."""

    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: None
    ) -> tuple[Tensor, Tensor, None, None]:
        """(v, q, log, carry) with v = q = u."""
        return u, u, None, None

    def metrics(self, u: Tensor, v: Tensor, q: Tensor, valid: Tensor) -> dict[str, float]:
        """Nothing is recalled, so all of the energy is left."""
        return {"energy_left": energy_left(v, q, valid)}


def energy_left(v: Tensor, q: Tensor, valid: Tensor) -> float:
    """The share of q's energy that is paid: the sum of |v|^2 over that of |q|^2."""
    # Norms first: to select or square whole vectors copies them, a tenth of the bonus's time.
    left = vector_norm(v, dim=-1)[valid].square().sum()
    whole = vector_norm(q, dim=-1)[valid].square().sum()
    return float(left / whole.clamp(min=1e-12))
