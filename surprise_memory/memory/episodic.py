"""The episodic memory M: a first-in-first-out queue of this episode's surprises, read by attention (paper, section 2.3).

M(j) holds the key u_{t-j} Q. Nothing is ever copied per step: keys go into an append-only log, and the memory of step t is
the window of the last N rows of that log, cut where the episode began. Row N + t of a log `(N + T, B, d)` is step t's key,
so M at (t, b) is `log[t : t + N, b]`, newest last, of which the last `filled[t, b]` rows belong to this episode.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import UserError, require
from surprise_memory.types import episode_ages

READS = ("cosine", "cosine-mean", "softmax", "ntm")
BLOCK = 128  # steps read at once: so many windows fit a processor's cache
BETA = 20.0  # sharpness of the ntm read: a cosine of 0.9 weighs e^2 times one of 0.8


@dataclass(frozen=True)
class Keys:
    """What M remembers between calls: the last N keys of each environment and how many steps its episode has."""

    log: Tensor  # (N, B, d)
    age: Tensor  # (B,) int64, steps since the episode began


@dataclass(frozen=True)
class KeyLog:
    """All memories of a rollout at once, as one log."""

    log: Tensor  # (N + T, B, d)
    filled: Tensor  # (T, B) int64, slots in use, at most N

    def windows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The memories of some steps. rows (K,) index the flattened (T*B). Returns (M (K, N, d), used (K, N) bool)."""
        T, B = self.filled.shape
        log = self.log.transpose(
            0, 1
        ).contiguous()  # (B, N + T, d), as `forward` laid it out: no copy
        length, d = log.shape[1:]
        N = length - T
        windows = log.as_strided(
            (B * length - N + 1, N * d), (d, 1)
        )  # one starts at every row; they overlap, nothing is copied
        M = windows.index_select(0, rows % B * length + rows // B).unflatten(1, (N, d))
        return M, torch.arange(N, device=rows.device) >= N - self.filled.flatten()[rows][:, None]


def attend(k: Tensor, M: Tensor, used: Tensor, read: str) -> Tensor:
    """The read w M, one query per memory: k (K, d), M (K, N, d), used (K, N) bool; returns (K, d).

    cosine       w(j) = k M(j)^T / (|k| |M(j)|), summed over the slots in use, exactly as printed
    cosine-mean  the same divided by the number of slots in use
    softmax      w = softmax(k M^T) over the slots in use, as in the authors' code
    ntm          w = softmax(BETA cos) over the slots in use, the addressing of the neural Turing machine that the paper cites
    An empty memory reads zero; a zero query or slot has cosine zero, so a softmax reads the mean of the slots for a zero query.
    """
    if read != "softmax":
        k = k / torch.linalg.vector_norm(k, dim=1, keepdim=True).clamp(min=1e-8)
        scale = used / torch.linalg.vector_norm(M, dim=2).clamp(min=1e-8)
    if read in ("cosine", "cosine-mean"):
        # Linear in k, so (k M^T scale) M = k S with S = M^T scale M, (d, d), which needs no gradient.
        count = used.sum(1, keepdim=True).clamp(min=1) if read == "cosine-mean" else 1
        S = (M * (scale / count)[:, :, None]).transpose(1, 2) @ M
        return torch.bmm(k[:, None], S).squeeze(1)
    score = torch.bmm(M, k[:, :, None]).squeeze(2)
    score = score * (BETA * scale) if read == "ntm" else score
    w = (
        score.masked_fill(~used, -torch.inf).softmax(1).nan_to_num(0.0)
    )  # a row without slots is nan
    return torch.bmm(w[:, None], M).squeeze(1)


class EpisodicMemory(nn.Module):
    """Q and V of the paper, the queue, and the read-out u^e = w M V.

    V starts at zero and Q with orthonormal columns: with the usual initialisation the printed sum over slots makes u^e some
    30 times larger than u, and the reward then measures how full the memory is.
    """

    def __init__(
        self,
        n: int,
        slots: int,
        width: int,
        read: str,
        project_back: bool = True,
        train_q: bool = True,
    ) -> None:
        """`project_back=False` leaves the read-out in key space (no V), as the authors' code does."""
        super().__init__()
        require(slots >= 1, "memory slots N", slots, "at least 1")
        require(width >= 1, "memory slot width d", width, "at least 1")
        if read not in READS:
            raise UserError(f"read = '{read}' is unknown: choose one of {', '.join(READS)}.")
        self.slots, self.width, self.read = slots, width, read
        self.Q = nn.Parameter(nn.init.orthogonal_(torch.empty(n, width)), requires_grad=train_q)
        self.V = nn.Parameter(torch.zeros(width, n)) if project_back else None
        self.out = n if project_back else width

    def start(self, num_envs: int) -> Keys:
        """Empty memories."""
        return Keys(
            self.Q.new_zeros(self.slots, num_envs, self.width),
            torch.zeros(num_envs, dtype=torch.int64),
        )

    def recall(self, k: Tensor, M: Tensor, used: Tensor) -> Tensor:
        """u^e = w M V: (K, d) queries to (K, n) read-outs."""
        found = attend(k, M, used, self.read)
        return found if self.V is None else found @ self.V

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Keys
    ) -> tuple[Tensor, KeyLog, Keys]:
        """Live through a chunk: read, then append, step by step. u (T, B, n) gives u^e (T, B, n)."""
        T, B = u.shape[:2]
        k = u @ self.Q
        log = torch.cat([carry.log.transpose(0, 1), k.transpose(0, 1)], 1).transpose(
            0, 1
        )  # (N + T, B, d), env by env in memory
        age, next_age = episode_ages(first, valid, carry.age)
        keys = KeyLog(log, age.clamp(max=self.slots))
        steps = zip(k.flatten(0, 1).split(BLOCK), torch.arange(T * B).split(BLOCK), strict=True)
        u_e = torch.cat(
            [self.recall(query, *keys.windows(rows)) for query, rows in steps]
        ).unflatten(0, (T, B))
        return u_e, keys, Keys(log[T:], next_age)
