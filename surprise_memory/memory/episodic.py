"""The episodic memory M: a queue of this episode's surprises, read by attention (section 2.3).

M(j) holds the key u_{t-j} Q. Nothing is copied per step. Keys go into an append-only log, and the
memory of step t is the window of the last N rows of that log, cut where the episode began. If w
keys were written before step t, M at (t, b) is `log[w : w + N, b]` of a log `(N + T, B, d)`, newest
last. Its last `filled[t, b]` rows belong to this episode.

Most steps write one key. A surprise of zero leaves nothing to remember and takes no slot: steps
that a stage withholds come as zeros, and they cannot push out what the episode has seen. With
`write_every` = e, every e-th surprise of an episode is written (appendix B): N slots span N e.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import UserError, require_between, require_width
from surprise_memory.nn.at_once import each
from surprise_memory.types import episode_ages

READS = ("cosine", "cosine-mean", "softmax", "ntm")
BLOCK = 128  # steps read at once: so many windows fit a processor's cache
BETA = 20.0  # sharpness of the ntm read: a cosine of 0.9 weighs e^2 times one of 0.8


@dataclass(frozen=True)
class Keys:
    """What M remembers between calls: each environment's last N keys and its episode's age."""

    log: Tensor  # (N, B, d)
    age: Tensor  # (B,) int64, surprises since the episode began


@dataclass(frozen=True)
class KeyLog:
    """All memories of a rollout at once, as one log."""

    log: Tensor  # (N + T, B, d)
    filled: Tensor  # (T, B) int64, slots in use, at most N
    written: Tensor  # (T, B) int64, keys of this rollout that were written before each step

    def windows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The memories of some steps `rows` (K,), which index the flattened (T*B).

        Returns M (K, N, d), and which slots are in use (K, N) bool.
        """
        T, B = self.filled.shape
        log = self.log.transpose(0, 1).contiguous()  # (B, N + T, d): no copy, `forward` made it so
        length, d = log.shape[1:]
        N = length - T
        # One window starts at every row. They overlap, and nothing is copied.
        windows = log.as_strided((B * length - N + 1, N * d), (d, 1))
        b = rows % B
        start = self.written.flatten()[rows]
        M = windows.index_select(0, b * length + start).unflatten(1, (N, d))
        filled = self.filled.flatten()[rows][:, None]
        used = torch.arange(N, device=rows.device) >= N - filled
        return M, used


def attend(k: Tensor, M: Tensor, used: Tensor, read: str) -> Tensor:
    """The read w M, one query per memory: k (K, d), M (K, N, d), used (K, N) bool; returns (K, d).

    The weights w are those of `read_weights`. An empty memory reads zero.
    """
    if read in ("cosine", "cosine-mean"):
        norm = torch.linalg.vector_norm(M, dim=2)
        k, scale = cosine_factors(k, norm, used & (norm > 0), read)
        # Linear in k: (k M^T scale) M = k S with S = M^T scale M, (d, d), which needs no gradient.
        S = (M * scale[:, :, None]).transpose(1, 2) @ M
        return torch.bmm(k[:, None], S).squeeze(1)
    w = read_weights(k, M, used, read)
    return torch.bmm(w[:, None], M).squeeze(1)


def read_weights(k: Tensor, M: Tensor, used: Tensor, read: str) -> Tensor:
    """How strongly each slot is read: w (K, N) for queries k (K, d), M (K, N, d), used (K, N) bool.

    cosine       w(j) = k M(j)^T / (|k| |M(j)|), exactly as printed
    cosine-mean  the same divided by the number of slots in use
    softmax      w = softmax(k M^T), as in the authors' code
    ntm          w = softmax(BETA cos), as a neural Turing machine, which the paper cites

    A slot that is not in use weighs zero, and so does one of zeros: nothing was remembered there.
    A zero query has cosine zero with every slot, so it reads their mean by a softmax.
    """
    norm = torch.linalg.vector_norm(M, dim=2)
    used = used & (norm > 0)
    if read != "softmax":
        k, scale = cosine_factors(k, norm, used, read)
    # (1, d) times (d, N), not (N, d) times (d, 1): a sixth of the time, its gradient a twelfth.
    score = torch.bmm(k[:, None], M.transpose(1, 2)).squeeze(1)
    if read in ("cosine", "cosine-mean"):
        return score * scale
    if read == "ntm":
        score = score * (BETA * scale)
    w = score.masked_fill(~used, -torch.inf).softmax(1)
    return w.nan_to_num(0.0)  # a memory without slots in use


def cosine_factors(k: Tensor, norm: Tensor, used: Tensor, read: str) -> tuple[Tensor, Tensor]:
    """From the slots' |M(j)| (K, N) to k / |k| (K, d) and 1 / |M(j)|, 0 for slots not in use."""
    k = k / torch.linalg.vector_norm(k, dim=1, keepdim=True).clamp(min=1e-8)
    scale = used / norm.clamp(min=1e-8)
    if read == "cosine-mean":
        scale = scale / used.sum(1, keepdim=True).clamp(min=1)
    return k, scale


class EpisodicMemory(nn.Module):
    """Q and V of the paper, the queue, and the read-out u^e = w M V.

    V starts at zero and Q with orthonormal columns. With the usual initialisation the printed sum
    over slots makes u^e some 30 times larger than u. The reward then measures how full M is.
    """

    def __init__(
        self,
        n: int,
        slots: int,
        width: int,
        read: str,
        project_back: bool = True,
        train_q: bool = True,
        lasting: bool = False,
        write_every: int = 1,
    ) -> None:
        """`project_back=False` leaves the read-out in key space (no V), as in the authors' code.

        `lasting` keeps the slots when an episode ends. They then hold an environment's last N
        steps, whatever episode they were in.
        """
        super().__init__()
        require_between("memory.write_every", write_every, 1, 1_000_000)
        self.write_every = write_every
        require_between("memory.slots", slots, 1, 1_000_000)
        require_width("memory.width", width)
        if read not in READS:
            raise UserError(f"read = '{read}' is unknown: choose one of {', '.join(READS)}.")
        self.slots = slots
        self.width = width
        self.read = read
        self.lasting = lasting
        Q = nn.init.orthogonal_(torch.empty(n, width, device="cpu"))
        self.Q = nn.Parameter(Q, requires_grad=train_q)
        self.V = None
        self.out = width  # of the read-out
        if project_back:
            self.V = nn.Parameter(torch.zeros(width, n, device="cpu"))
            self.out = n

    def start(self, num_envs: int) -> Keys:
        """Empty memories."""
        log = self.Q.new_zeros(self.slots, num_envs, self.width)
        return Keys(log, age=log.new_zeros(num_envs, dtype=torch.int64))

    def recall(self, k: Tensor, M: Tensor, used: Tensor) -> Tensor:
        """u^e = w M V: (K, d) queries to (K, n) read-outs."""
        found = attend(k, M, used, self.read)
        if self.V is None:
            return found
        return found @ self.V

    @torch.no_grad()
    def forward(
        self, u: Tensor, first: Tensor, valid: Tensor, carry: Keys
    ) -> tuple[Tensor, KeyLog, Keys]:
        """Go through a chunk: read, then append, step by step. u (T, B, n) gives u^e (T, B, n)."""
        T, B = u.shape[:2]
        k = u @ self.Q
        surprised = valid & (u != 0).any(-1)
        if self.lasting:
            first = torch.zeros_like(first)
            valid = torch.ones_like(valid)
        age, next_age = episode_ages(first, valid, carry.age, counted=surprised)
        keys, kept = self._write(k, carry.log, age, surprised)
        queries = k.flatten(0, 1)

        def recalled(rows: Tensor) -> Tensor:
            M, used = keys.windows(rows)
            return self.recall(queries.index_select(0, rows), M, used)

        blocks = torch.arange(T * B, device=u.device).split(BLOCK)
        u_e = torch.cat(each(recalled, blocks)).unflatten(0, (T, B))
        return u_e, keys, Keys(kept, next_age)

    def _write(
        self, k: Tensor, old: Tensor, age: Tensor, surprised: Tensor
    ) -> tuple[KeyLog, Tensor]:
        """Write the keys of an episode's surprises 0, e, 2e, ... alone, e = `write_every`.

        k (T, B, d), old (N, B, d), age and surprised (T, B). Returns the log, whose rows behind the
        last written one are never read, and each environment's last N keys.
        """
        e = self.write_every
        N, B, d = old.shape
        writes = surprised & (age % e == 0)
        total = writes.cumsum(0)
        written_first = writes.logical_not().byte().argsort(dim=0, stable=True)
        new = k.gather(0, written_first[..., None].expand_as(k))
        log = torch.cat([old.transpose(0, 1), new.transpose(0, 1)], 1)  # env by env
        last = total[-1][:, None] + torch.arange(N, device=k.device)  # (B, N) rows
        kept = log.gather(1, last[..., None].expand(B, N, d)).transpose(0, 1)
        filled = ((age + e - 1) // e).clamp(max=self.slots)
        return KeyLog(log.transpose(0, 1), filled, total - writes.long()), kept
