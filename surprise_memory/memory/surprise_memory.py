"""SM: the episodic memory M and the autoencoder W, or either (paper, section 2.3).

u^e is M's read-out, L_M = E|u^e - u| (equation 3), L_W = E|W(q) - q| (equation 5). u is detached at
the door, so neither loss reaches the generator; u^e stays attached as the input of W; the targets
are detached.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

from surprise_memory.errors import one_of, require
from surprise_memory.memory.autoencoder import Autoencoder
from surprise_memory.memory.base import Memory
from surprise_memory.memory.episodic import EpisodicMemory, KeyLog, Keys
from surprise_memory.nn.nets import LOSSES, mean_error


@dataclass(frozen=True)
class MemoryConfig:
    """M and W."""

    slots: int = 128
    """N, surprises that M holds."""
    width: int = 32
    """d, numbers per slot; the paper has 16."""
    read: str = "ntm"
    """How M is read: ntm (sharpened cosine), cosine (as printed), cosine-mean, softmax (the authors' code)."""
    w_hidden: int | None = None
    """Hidden units of W: None is the surprise's width n, fewer leave W little to recall; the paper has 32."""
    w_bias: bool = True
    """Biases in W; without them zero surprise has exactly zero novelty if M is read by a cosine (a softmax reads its mean)."""
    m_coef: float = 1.0
    """Weight of L_M."""
    loss: str = "squared"
    """L_M and L_W are this of the error vector: norm (as printed) or squared."""
    train_q: bool = True
    """Whether Q learns; the authors' code leaves it random."""
    project_back: bool = True
    """Whether the read-out returns to surprise space by V; without it it stays in key space (the authors' code)."""
    attach_read: bool = True
    """Whether L_W may train Q and V through u^e."""
    m_trains_surprise: bool = False
    """Whether L_M reaches the generator through the query (the authors' code); L_W is then kept from Q and V."""


class SurpriseMemory(Memory):
    """M and W, or either, or neither, over surprises of width n."""

    def __init__(
        self, n: int, config: MemoryConfig, has_m: bool = True, has_w: bool = True
    ) -> None:
        super().__init__()
        one_of(config.loss, LOSSES, "memory.loss")
        require(config.m_coef >= 0, "memory.m_coef", config.m_coef, "at least 0")
        c = self.config = config
        self.m = (
            EpisodicMemory(n, c.slots, c.width, c.read, c.project_back, c.train_q)
            if has_m
            else None
        )
        hidden = n if c.w_hidden is None else c.w_hidden
        self.w = Autoencoder(n + (self.m.out if self.m else 0), hidden, c.w_bias) if has_w else None
        self.reaches_surprise = has_m and c.m_trains_surprise

    def start(self, num_envs: int) -> Keys | None:
        """The carry before the first step."""
        return self.m.start(num_envs) if self.m else None

    def fresh(self, num_envs: int, steps: int) -> Keys | None:
        """Sequences of so many steps never fill more slots."""
        carry = self.start(num_envs)
        return Keys(carry.log[-steps:], carry.age) if carry else None

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Keys | None
    ) -> tuple[Tensor, Tensor, KeyLog | None, Keys | None]:
        """From u (T, B, n) to (v, q, key log, carry): the novelty vector, the query it is the residual of, the memories read."""
        q, log = u, None
        if self.m:
            assert carry is not None
            u_e, log, carry = self.m(u, first, valid, carry)
            q = torch.cat([u_e, u], -1)
        return (self.w(q).sub_(q) if self.w else q), q, log, carry

    @torch.no_grad()
    def if_remembered(self, u: Tensor) -> Tensor | None:
        """W(q) - q with q = [u Q V, u]: a sharp read of a memory that holds the key u Q returns that key."""
        if self.m is None or self.m.V is None or self.w is None:
            return None
        q = torch.cat([u @ self.m.Q @ self.m.V, u], -1)
        v: Tensor = self.w(q) - q
        return v

    def losses(
        self, u: Tensor, rows: Tensor, log: KeyLog | None, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """L_M and L_W for the surprises u (K, n) of the flattened steps `rows` (K,), each with the memory it saw."""
        c, losses, q = self.config, {}, u.detach()
        target = q
        if self.m:
            assert log is not None
            k = (u if c.m_trains_surprise else target) @ self.m.Q
            u_e = self.m.recall(k, *log.windows(rows))
            losses["m"] = c.m_coef * mean_error(
                u_e - (target if self.m.V is not None else k.detach()), c.loss, weight
            )
            attached = c.attach_read and not c.m_trains_surprise  # L_W never reaches the generator
            q = torch.cat([u_e if attached else u_e.detach(), target], -1)
        if self.w:
            losses["w"] = mean_error(self.w(q) - q.detach(), c.loss, weight)
        return losses

    def metrics(self, u: Tensor, v: Tensor, q: Tensor) -> dict[str, float]:
        """Share of q's energy that is paid, and the size of u^e against u's; the latter only with an M."""
        report = {"energy_left": float(v.square().sum() / q.square().sum().clamp(min=1e-12))}
        if self.m:
            recalled, norm = vector_norm(q[:, : -u.shape[1]], dim=1), vector_norm(u, dim=1)
            report["recall_ratio"] = float(recalled.mean() / norm.mean().clamp(min=1e-12))
        return report
