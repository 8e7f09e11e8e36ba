"""The memory a step trains on is, bit for bit, the memory it acted with: windows against a queue.

Keys are whole numbers here (whole-number u and Q), so that every matrix product is exact and a
difference of one bit can only be a different memory, never a different order of summation.
"""

from collections import deque

import numpy as np
import pytest
import torch

from surprise_memory import BonusConfig, MemoryConfig
from surprise_memory.memory import MEMORIES
from surprise_memory.memory.episodic import READS, EpisodicMemory, KeyLog

T, B, n, d = 24, 3, 4, 2
CUTS = {"one-chunk": [24], "two": [13, 11], "uneven": [5, 1, 11, 7], "step-by-step": [1] * 24}


def experience(seed, B=B):
    """Random (u, done, first, valid): after half of the ends comes a row that never happened.

    A quarter of the surprises are zeros, in all environments but the first.
    """
    rng = np.random.default_rng(seed)
    done, first, valid = (np.zeros((T, B), bool) for _ in range(3))
    for b in range(B):
        fresh, p_end = bool(rng.integers(2)), rng.choice([0.02, 0.15, 0.5])
        for t in range(T):
            fake = t > 0 and done[t - 1, b] and rng.random() < 0.5
            valid[t, b], first[t, b] = (
                not fake,
                fresh or (t > 0 and (done[t - 1, b] or not valid[t - 1, b])),
            )
            done[t, b], fresh = not fake and rng.random() < p_end, False
            if fake:
                first[t, b] = rng.random() < 0.5  # says nothing: the row never happened
    u = rng.integers(-9, 10, size=(T, B, n))
    u[:, 1:][rng.random((T, B - 1)) < 0.25] = 0
    return (
        torch.as_tensor(u, dtype=torch.float32),
        done,
        torch.as_tensor(first),
        torch.as_tensor(valid),
    )


def whole_number_memory(N, read="cosine"):
    memory = EpisodicMemory(n, N, d, read)
    with torch.no_grad():
        memory.Q.copy_(torch.tensor([[1, -2], [3, 0], [0, 1], [-1, 2]]))
        memory.V.copy_(torch.tensor([[1, 0, -2, 1], [0, 3, 1, -1]]))
    return memory


def lived(u, Q, done, valid, N):
    """{(t, b): M}: the queue of Algorithm 2, step by step: read, append, wipe if done.

    Zeros are not appended.
    """
    u, keys = u.numpy(), (u @ Q).detach().numpy()
    queues, seen = [deque(maxlen=N) for _ in range(keys.shape[1])], {}
    for t in range(keys.shape[0]):
        for b, queue in enumerate(queues):
            if valid[t, b]:
                seen[t, b] = [key.tolist() for key in queue]
                if u[t, b].any():
                    queue.append(keys[t, b])
            if done[t, b]:
                queue.clear()
    return seen


def through(memory, u, first, valid, cuts):
    """Chunk by chunk. Returns (u^e (T, B, n), the key log of each chunk, the last carry)."""
    carry, recalled, logs, at = memory.start(u.shape[1]), [], [], 0
    for size in cuts:
        u_e, log, carry = memory(
            u[at : at + size], first[at : at + size], valid[at : at + size], carry
        )
        recalled.append(u_e)
        logs.append(log)
        at += size
    return torch.cat(recalled), logs, carry


def gathered(logs, B=B, rows=lambda t, b, size, B: t * B + b):
    """{(t, b): M}: what `windows` gives for every step, asked for in random order."""
    seen, at = {}, 0
    for log in logs:
        size = log.filled.shape[0]
        steps = [(t, b) for t in range(size) for b in range(B)]
        np.random.default_rng(0).shuffle(steps)
        M, used = log.windows(torch.tensor([rows(t, b, size, B) for t, b in steps]))
        assert torch.equal(used, used.sort(1).values), "the slots in use are the newest, at the end"
        for (t, b), window, mask in zip(steps, M, used, strict=True):
            seen[at + t, b] = window[mask].tolist()
        at += size
    return seen


def agree(queue, windows):
    """Whether every step that happened has the same memory in both, number for number."""
    return all(windows[step] == M for step, M in queue.items())


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(
    "N", [1, 5, 11, 24, 40]
)  # N < T, N = T and N > T, for whole rollouts and for chunks
def test_training_windows_are_the_queue_that_acted(N, cuts):
    for seed in range(12):
        u, done, first, valid = experience(seed)
        memory = whole_number_memory(N)
        queue = lived(u, memory.Q, done, valid.numpy(), N)
        _, logs, _ = through(memory, u, first, valid, cuts)
        assert agree(queue, gathered(logs)), seed


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("N", [1, 5, 40])
@pytest.mark.parametrize("B", [3, 11])  # 24 x 11 steps are more than are read at once
def test_t_calls_of_one_step_are_one_call_of_t_steps(N, read, B):
    """The memories bit for bit; what is read from them to rounding: products may sum otherwise."""
    for seed in range(3):
        u, _, first, valid = experience(seed, B)
        memory = whole_number_memory(N, read)
        whole, (log,), end = through(memory, u, first, valid, CUTS["one-chunk"])
        assert whole.abs().max() > 1
        for name in ("step-by-step", "uneven"):
            steps, logs, last = through(memory, u, first, valid, CUTS[name])
            assert gathered(logs, B) == gathered([log], B)
            assert torch.equal(last.log, end.log)
            assert torch.equal(last.age, end.age)
            torch.testing.assert_close(steps, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sm", "m", "w", "none"])
def test_novelty_does_not_depend_on_where_a_rollout_is_cut(name):
    """Real numbers, so equal to rounding: W's products may sum in another order for another T."""
    for seed in range(3):
        torch.manual_seed(seed)
        _, _, first, valid = experience(seed)
        config = BonusConfig(memory=MemoryConfig(slots=5, width=d, w_hidden=7))
        memory, u = MEMORIES[name].make(n, config), torch.randn(T, B, n)
        if "m" in name:
            torch.nn.init.normal_(memory.m.V)
        whole, *_ = memory(u, first, valid, memory.start(B))
        for cuts in CUTS.values():
            carry, parts = memory.start(B), []
            for rows in torch.arange(T).split(cuts):
                v, _, _, carry = memory(u[rows], first[rows], valid[rows], carry)
                parts.append(v)
            torch.testing.assert_close(torch.cat(parts)[valid], whole[valid], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read", READS)
def test_training_recalls_what_acting_recalled(read):
    """With unmoved weights, any minibatch of rows reads the u^e of back then."""
    u, _, first, valid = experience(3)
    memory = whole_number_memory(5, read)
    _, _, carry = through(memory, u, first, valid, [24])
    u_e, log, _ = memory(u[:13], first[:13], valid[:13], carry)
    rows = torch.randperm(13 * B, generator=torch.Generator().manual_seed(0))[:17]
    k = u[:13].flatten(0, 1)[rows] @ memory.Q
    torch.testing.assert_close(
        memory.recall(k, *log.windows(rows)), u_e.flatten(0, 1)[rows], rtol=1e-6, atol=1e-6
    )


# --- the comparison has teeth: each bug below is put in by hand, and seen -------------------------


def late(log):
    """The memory of the step before."""
    return KeyLog(log.log.roll(1, 0), log.filled, log.written)


def early(log):
    """The memory after the write: a step finds its own key."""
    return KeyLog(
        torch.cat([log.log[1:], log.log[:1]]),
        (log.filled + 1).clamp(max=log.log.shape[0] - log.filled.shape[0]),
        log.written,
    )


def mixed(log):
    """Another environment's keys."""
    return KeyLog(log.log.roll(1, 1), log.filled, log.written)


def unwrapped(log):
    """One slot short when full."""
    slots = log.log.shape[0] - log.filled.shape[0]
    return KeyLog(log.log, log.filled.clamp(max=slots - 1), log.written)


def backwards(log):
    """Newest first."""
    return KeyLog(log.log.flip(0), log.filled.flip(0), log.written)


def withheld(log):
    """A slot for every step, also for zeros."""
    steps = torch.arange(len(log.written))[:, None].expand_as(log.written)
    return KeyLog(log.log, log.filled, steps)


@pytest.mark.parametrize("bug", [late, early, mixed, unwrapped, backwards, withheld])
@pytest.mark.parametrize("cuts", [CUTS["one-chunk"], CUTS["uneven"]], ids=["one-chunk", "uneven"])
def test_a_wrong_log_would_be_seen(bug, cuts):
    u, done, first, valid = experience(1)
    memory = whole_number_memory(5)
    queue = lived(u, memory.Q, done, valid.numpy(), 5)
    _, logs, _ = through(memory, u, first, valid, cuts)
    assert agree(queue, gathered(logs))
    assert not agree(queue, gathered([bug(log) for log in logs]))


def test_swapped_axes_would_be_seen():
    u, done, first, valid = experience(1)
    memory = whole_number_memory(5)
    queue = lived(u, memory.Q, done, valid.numpy(), 5)
    _, logs, _ = through(memory, u, first, valid, [24])
    assert not agree(queue, gathered(logs, rows=lambda t, b, size, B: b * size + t))


def test_an_ignored_reset_and_a_lost_carry_would_be_seen():
    u, done, first, valid = experience(1)
    memory = whole_number_memory(5)
    queue = lived(u, memory.Q, done, valid.numpy(), 5)
    deaf = torch.zeros_like(first)
    opens = next((t, b) for t in range(1, T) for b in range(B) if first[t, b] and valid[t - 1, b])
    once = first.clone()
    once[opens] = False
    for wrong in (deaf, once):
        assert not agree(queue, gathered(through(memory, u, wrong, valid, [24])[1]))
    halves = zip(*(x.split(13) for x in (u, first, valid)), strict=True)
    assert not agree(queue, gathered([through(memory, *half, [13])[1][0] for half in halves]))


def test_the_random_experience_holds_every_case():
    """Ends with and without such a row, at a chunk's last row and its first, and long episodes."""
    kinds = set()
    for seed in range(12):
        _, done, first, valid = experience(seed)
        first, valid = first.numpy(), valid.numpy()
        for t, b in np.argwhere(done[:-1]):
            kinds.add(
                (
                    "fake" if not valid[t + 1, b] else "plain",
                    "boundary" if t + 1 in (5, 6, 13, 17) else "inside",
                )
            )
        run = np.array(
            [np.diff(np.flatnonzero(np.r_[True, first[1:, b], True])).max() for b in range(B)]
        )
        kinds |= {("long",)} if run.max() > 20 else set()
        assert (valid | ~done).all()  # what never happened cannot end
    assert kinds == {
        ("fake", "boundary"),
        ("fake", "inside"),
        ("plain", "boundary"),
        ("plain", "inside"),
        ("long",),
    }
