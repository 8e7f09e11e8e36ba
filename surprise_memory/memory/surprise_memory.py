"""SM: the episodic memory M and the autoencoder W, or either (paper, section 2.3).

u^e is M's read-out, L_M = E|u^e - u| (equation 3), L_W = E|W(q) - q| (equation 5). u is detached at
the door, so neither loss reaches the generator, unless `m_trains_surprise` lets L_M through, as in
Algorithm 1. u^e stays attached as the input of W; the targets are detached.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

from surprise_memory.errors import one_of, require
from surprise_memory.memory.autoencoder import Autoencoder
from surprise_memory.memory.base import Memory, energy_left
from surprise_memory.memory.episodic import EpisodicMemory, KeyLog, Keys
from surprise_memory.nn.nets import LOSSES, mean_error


@dataclass(frozen=True)
class MemoryConfig:
    """M and W."""

    slots: int = 128
    """Surprises that M holds (N)."""
    width: int = 32
    """Numbers per slot (d); 16 in the paper."""
    lasting: bool = False
    """Whether M keeps its slots when an episode ends; it is emptied in the paper."""
    read: str = "ntm"
    """Read of M: ntm (sharp cosine), cosine (as printed), cosine-mean, softmax (authors' code)."""
    w_hidden: int | None = None
    """Hidden units of W: None is the surprise's width n, fewer recall less; 32 in the paper."""
    w_bias: bool = True
    """Whether W has biases; without them, zero surprise has zero novelty under a cosine read."""
    m_coef: float = 1.0
    """Weight of L_M."""
    loss: str = "squared"
    """What L_M and L_W take of the error vector: norm (as printed) or squared."""
    train_q: bool = True
    """Whether Q learns; it stays random in the authors' code."""
    project_back: bool = True
    """Whether V maps the read-out back to surprise space; not in the authors' code."""
    attach_read: bool = True
    """Whether L_W may train Q and V through u^e."""
    m_trains_surprise: bool = False
    """Whether L_M trains the generator through the query, as in Algorithm 1; L_W never does."""
    write_every: int = 1
    """Steps between two surprises that M keeps: k lets N slots span N k steps (appendix B)."""


class SurpriseMemory(Memory):
    """M and W, or either, over surprises of width n."""

    def __init__(
        self, n: int, config: MemoryConfig, has_m: bool = True, has_w: bool = True
    ) -> None:
        super().__init__()
        one_of(config.loss, LOSSES, "memory.loss")
        require(config.m_coef >= 0, "memory.m_coef", config.m_coef, "at least 0")
        c = self.config = config
        self.m = None
        self.w = None
        query = n  # width of q
        if has_m:
            self.m = EpisodicMemory(
                n,
                c.slots,
                c.width,
                c.read,
                c.project_back,
                c.train_q,
                c.lasting,
                c.write_every,
            )
            query = n + self.m.out
        if has_w:
            hidden = n if c.w_hidden is None else c.w_hidden
            self.w = Autoencoder(query, hidden, c.w_bias)
        self.reaches_surprise = has_m and c.m_trains_surprise

    def start(self, num_envs: int) -> Keys | None:
        """The carry before the first step."""
        if self.m is None:
            return None
        return self.m.start(num_envs)

    def fresh(self, num_envs: int, steps: int) -> Keys | None:
        """Sequences of so many steps never fill more slots."""
        carry = self.start(num_envs)
        if carry is None:
            return None
        return Keys(carry.log[-steps:], carry.age)

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Keys | None
    ) -> tuple[Tensor, Tensor, KeyLog | None, Keys | None]:
        """From u (T, B, n) to (v, q, key log, carry): v = W(q) - q, and v = q without a W."""
        q = u
        log = None
        if self.m:
            assert carry is not None
            u_e, log, carry = self.m(u, first, valid, carry)
            q = torch.cat([u_e, u], -1)
        v = q
        if self.w:
            v = self.w(q).sub_(q)
        return v, q, log, carry

    @torch.no_grad()
    def if_remembered(self, u: Tensor) -> Tensor | None:
        """W(q) - q with q = [u Q V, u]: if M holds the key u Q, a sharp read returns it."""
        if self.m is None or self.m.V is None or self.w is None:
            return None
        q = torch.cat([u @ self.m.Q @ self.m.V, u], -1)
        v: Tensor = self.w(q) - q
        return v

    def losses(
        self, u: Tensor, rows: Tensor, log: KeyLog | None, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """L_M and L_W for the surprises u (K, n) of flattened steps `rows` (K,).

        Each step is read with the memory that it saw, and counts `weight` (K,).
        """
        c = self.config
        losses = {}
        given = u.detach()
        q = given
        if self.m:
            assert log is not None
            asked = u if c.m_trains_surprise else given
            k = asked @ self.m.Q
            M, used = log.windows(rows)
            u_e = self.m.recall(k, M, used)
            target = given if self.m.V is not None else k.detach()
            losses["m"] = c.m_coef * mean_error(u_e - target, c.loss, weight)
            if not c.attach_read:
                u_e = u_e.detach()
            elif c.m_trains_surprise and self.w:
                # L_W trains Q and V, and never the generator: the same read of a fixed surprise.
                u_e = self.m.recall(given @ self.m.Q, M, used)
            q = torch.cat([u_e, given], -1)
        if self.w:
            losses["w"] = mean_error(self.w(q) - q.detach(), c.loss, weight)
        return losses

    def metrics(self, u: Tensor, v: Tensor, q: Tensor, valid: Tensor) -> dict[str, float]:
        """The share of q's energy that is paid, and with an M the size of u^e relative to u's."""
        report = {"energy_left": energy_left(v, q, valid)}
        if self.m:
            recalled = vector_norm(q[..., : self.m.out], dim=-1)[valid]
            norm = vector_norm(u, dim=-1)[valid]
            report["recall_ratio"] = float(recalled.mean() / norm.mean().clamp(min=1e-12))
        return report
