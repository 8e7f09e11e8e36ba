"""The episodic memory M: a queue of this episode's surprises, read by attention (section 2.3).

M(j) holds the key u_{t-j} Q. Nothing is copied per step. Keys go into an append-only log, and the
memory of step t is the window of the last N rows of that log, cut where the episode began. Row
N + t of a log `(N + T, B, d)` is step t's key, so M at (t, b) is `log[t : t + N, b]`, newest last.
Its last `filled[t, b]` rows belong to this episode.

With `write_every` = e only every e-th key of an episode is written (appendix B), so N slots span
N e steps. The log then holds written keys alone, and `written[t, b]` is where the window begins.
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
    age: Tensor  # (B,) int64, steps since the episode began


@dataclass(frozen=True)
class KeyLog:
    """All memories of a rollout at once, as one log."""

    log: Tensor  # (N + T, B, d)
    filled: Tensor  # (T, B) int64, slots in use, at most N
    # (T, B) int64, keys of this rollout that were written before each step; None: one a step.
    written: Tensor | None = None

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
        t = rows // B
        b = rows % B
        start = t if self.written is None else self.written.flatten()[rows]
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
        if self.lasting:
            first = torch.zeros_like(first)
            valid = torch.ones_like(valid)  # a row that never happened leaves a slot with zeros
        age, next_age = episode_ages(first, valid, carry.age)
        if self.write_every == 1:
            log = torch.cat([carry.log.transpose(0, 1), k.transpose(0, 1)], 1)  # env by env
            log = log.transpose(0, 1)  # (N + T, B, d)
            keys = KeyLog(log, filled=age.clamp(max=self.slots))
            kept = log[T:]
        else:
            keys, kept = self._write_some(k, carry.log, age, valid)
        queries = k.flatten(0, 1)

        def recalled(rows: Tensor) -> Tensor:
            M, used = keys.windows(rows)
            return self.recall(queries.index_select(0, rows), M, used)

        blocks = torch.arange(T * B, device=u.device).split(BLOCK)
        u_e = torch.cat(each(recalled, blocks)).unflatten(0, (T, B))
        return u_e, keys, Keys(kept, next_age)

    def _write_some(
        self, k: Tensor, old: Tensor, age: Tensor, valid: Tensor
    ) -> tuple[KeyLog, Tensor]:
        """Write the keys of an episode's steps 0, e, 2e, ... alone, e = `write_every`.

        k (T, B, d), old (N, B, d), age and valid (T, B). Returns the log, whose rows behind the
        last written one are empty, and each environment's last N keys.
        """
        e = self.write_every
        T, B, d = k.shape
        N = len(old)
        writes = valid & (age % e == 0)
        total = writes.cumsum(0)
        written = total - writes.long()
        log = torch.cat([old.transpose(0, 1), k.new_zeros(B, T, d)], 1)  # env by env
        t, b = writes.nonzero(as_tuple=True)
        log[b, N + written[t, b]] = k[t, b]
        last = total[-1][:, None] + torch.arange(N, device=k.device)  # (B, N) rows
        kept = log[torch.arange(B, device=k.device)[:, None], last].transpose(0, 1)
        filled = ((age + e - 1) // e).clamp(max=self.slots)
        return KeyLog(log.transpose(0, 1), filled, written), kept
