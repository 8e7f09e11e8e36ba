"""What M and W must do whatever their weights: order, wiping, silence at zero, whose memory."""

import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig, Chunk, MemoryConfig, RNDConfig, UserError
from surprise_memory.memory import MEMORIES, SurpriseMemory
from surprise_memory.memory.episodic import READS, EpisodicMemory, attend
from surprise_memory.nn.nets import mean_error

B, n, d = 2, 5, 3


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def flags(T, *steps, B=B):
    """(T, B) bool, True at the given (t, b)."""
    x = torch.zeros(T, B, dtype=torch.bool)
    for step in steps:
        x[step] = True
    return x


def episodic(N=3, read="cosine", seed=0):
    torch.manual_seed(seed)
    memory = EpisodicMemory(n, N, d, read)
    torch.nn.init.normal_(memory.V)
    return memory


def surprise_memory(name="sm", seed=0, **options):
    torch.manual_seed(seed)
    config = BonusConfig(memory=MemoryConfig(**dict(slots=4, width=d, w_hidden=6) | options))
    memory = MEMORIES[name].make(n, config)
    for p in memory.parameters():
        torch.nn.init.normal_(p, std=0.5)  # V and the biases are born zero
    return memory


def content(log, t, b):
    M, used = log.windows(torch.tensor([t * B + b]))
    return M[0][used[0]]


# --- the queue ------------------------------------------------------------------------------------


def test_first_in_first_out_and_wraps_at_n():
    memory, u = episodic(N=3), torch.randn(6, B, n)
    _, log, _ = memory(u, flags(6), ~flags(6), memory.start(B))
    k = (u @ memory.Q).detach()
    for t in range(6):
        assert torch.equal(
            content(log, t, 1), k[max(0, t - 3) : t, 1]
        )  # oldest first, never more than N, never itself


def test_an_end_wipes_the_memory_of_that_environment_only():
    memory, u = episodic(N=8), torch.randn(6, B, n)
    _, log, carry = memory(u, flags(6, (4, 0)), ~flags(6), memory.start(B))
    assert [len(content(log, t, 0)) for t in range(6)] == [0, 1, 2, 3, 0, 1]
    assert [len(content(log, t, 1)) for t in range(6)] == [0, 1, 2, 3, 4, 5]
    assert carry.age.tolist() == [2, 6]


def test_a_lasting_memory_keeps_its_slots_over_an_end():
    memory, u = episodic(N=3), torch.randn(6, B, n)
    memory.lasting = True
    first, valid = flags(6, (0, 0), (0, 1), (4, 0)), ~flags(6, (3, 0))
    _, log, carry = memory(u, first, valid, memory.start(B))
    k = (u @ memory.Q).detach()
    for b in range(B):
        for t in range(6):
            before = [i for i in range(t) if valid[i, b]]  # row 3 of environment 0 never happened
            assert torch.equal(content(log, t, b), k[before[-3:], b])
    assert carry.age.tolist() == [5, 6]
    assert surprise_memory(lasting=True).m.lasting
    assert not surprise_memory().m.lasting


@pytest.mark.parametrize("every", [1, 3])
def test_zeros_push_nothing_out(every):
    """What a stage withholds is a zero: M holds after it what it held before."""
    memory, u = episodic(N=3), torch.randn(30, B, n)
    memory.write_every = every
    u[6:26, 0] = 0
    _, log, carry = memory(u, flags(30), ~flags(30), memory.start(B))
    for t in range(7, 27):
        assert torch.equal(content(log, t, 0), content(log, 6, 0))
    assert len(content(log, 6, 0)) == min(3, 6 // every)
    shown = torch.cat([u[:6], u[26:]])
    _, _, same = memory(shown, flags(10), ~flags(10), memory.start(B))
    assert torch.equal(carry.log[:, 0], same.log[:, 0])
    assert carry.age.tolist() == [10, 30]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("gap", [False, True], ids=["same-step-reset", "next-step-reset"])
def test_nothing_leaks_across_an_end_nor_between_environments(read, gap):
    """Environment 0 ends with step 2; with a gap, row 3 never happened. What was before is gone."""
    memory, u = episodic(N=8, read=read), torch.randn(7, B, n)
    opens = 4 if gap else 3
    first, valid = flags(7, (opens, 0)), ~(flags(7, (3, 0)) if gap else flags(7))
    a, _, carry = memory(u, first, valid, memory.start(B))
    other = u.clone()
    other[:opens, 0] = 1e6 * torch.randn(opens, n)
    b, _, end = memory(other, first, valid, memory.start(B))
    assert torch.equal(a[opens:, 0], b[opens:, 0])
    assert torch.equal(a[:, 1], b[:, 1])
    assert not torch.equal(a[1:3, 0], b[1:3, 0])
    later = torch.randn(3, B, n)
    assert torch.equal(
        memory(later, flags(3), ~flags(3), carry)[0], memory(later, flags(3), ~flags(3), end)[0]
    )


@pytest.mark.parametrize("read", READS)
def test_a_step_is_read_before_it_is_written(read):
    memory, u = episodic(read=read), torch.randn(3, B, n)
    u_e, *_ = memory(u, flags(3), ~flags(3), memory.start(B))
    assert not u_e[0].any()
    assert u_e[1].all()


def test_memory_outlives_a_rollout_and_the_carry_is_not_changed_in_place():
    memory, u = episodic(), torch.randn(4, B, n)
    start = memory.start(B)
    _, _, carry = memory(u, flags(4), ~flags(4), start)
    log, age = carry.log.clone(), carry.age.clone()
    u_e, _, _ = memory(u, flags(4), ~flags(4), carry)
    assert u_e[0].all()
    assert torch.equal(carry.log, log)
    assert torch.equal(carry.age, age)
    assert not start.log.any()
    assert not start.age.any()


# --- the read -------------------------------------------------------------------------------------


def test_reads_on_a_worked_example():
    """k = (3, 4); slots (1, 0) and (0, 2), cosines 0.6 and 0.8; a third slot is not in use."""
    k, M = torch.tensor([[3.0, 4.0]]), torch.tensor([[[9.0, 9.0], [1.0, 0.0], [0.0, 2.0]]])
    used = torch.tensor([[False, True, True]])
    torch.testing.assert_close(attend(k, M, used, "cosine"), torch.tensor([[0.6, 1.6]]))
    torch.testing.assert_close(attend(k, M, used, "cosine-mean"), torch.tensor([[0.3, 0.8]]))
    a, b = np.exp(3.0) / (np.exp(3.0) + np.exp(8.0)), np.exp(8.0) / (np.exp(3.0) + np.exp(8.0))
    torch.testing.assert_close(
        attend(k, M, used, "softmax"), torch.tensor([[a, 2 * b]], dtype=torch.float32)
    )


def test_printed_cosine_ignores_the_length_of_the_query_and_grows_with_the_slots():
    k, M = torch.randn(4, d), torch.randn(4, 1, d)
    once = attend(k, M, torch.ones(4, 1, dtype=torch.bool), "cosine")
    torch.testing.assert_close(attend(7 * k, M, torch.ones(4, 1, dtype=torch.bool), "cosine"), once)
    many, used = M.expand(4, 6, d), torch.ones(4, 6, dtype=torch.bool)
    torch.testing.assert_close(attend(k, many, used, "cosine"), 6 * once)
    torch.testing.assert_close(attend(k, many, used, "cosine-mean"), once)


@pytest.mark.parametrize("read", READS)
def test_slots_not_in_use_are_not_read(read):
    k, M, used = (
        torch.randn(4, d),
        torch.randn(4, 5, d),
        torch.tensor([False, False, True, True, True]).expand(4, 5),
    )
    junk = torch.where(used[..., None], M, 1e6 * torch.randn(4, 5, d))
    assert torch.equal(attend(k, M, used, read), attend(k, junk, used, read))
    torch.testing.assert_close(attend(k, M, used, read), attend(k, M[:, 2:], used[:, 2:], read))


@pytest.mark.parametrize("read", READS)
def test_an_empty_memory_and_zero_slots_read_zero(read):
    k, M = torch.randn(3, d), torch.randn(3, 4, d)
    assert not attend(k, M, torch.zeros(3, 4, dtype=torch.bool), read).any()
    assert not attend(k, torch.zeros(3, 4, d), torch.ones(3, 4, dtype=torch.bool), read).any()


@pytest.mark.parametrize("read", READS)
def test_a_slot_of_zeros_is_as_good_as_none(read):
    k, M = torch.randn(3, d), torch.randn(3, 4, d)
    M[:, 1:3] = 0
    used = torch.ones(3, 4, dtype=torch.bool)
    torch.testing.assert_close(
        attend(k, M, used, read), attend(k, M[:, [0, 3]], used[:, [0, 3]], read)
    )


@pytest.mark.parametrize("read", ["cosine", "cosine-mean"])
def test_a_zero_query_reads_zero(read):
    assert not attend(
        torch.zeros(3, d), torch.randn(3, 4, d), torch.ones(3, 4, dtype=torch.bool), read
    ).any()


@pytest.mark.parametrize("read", [read for read in READS if not read.startswith("cosine")])
def test_a_zero_query_reads_the_mean_of_the_slots_in_use_under_a_softmax(read):
    M, used = torch.randn(3, 4, d), torch.tensor([False, True, True, True]).expand(3, 4)
    torch.testing.assert_close(attend(torch.zeros(3, d), M, used, read), M[:, 1:].mean(1))


# --- losses at the corners ------------------------------------------------------------------------


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("loss", ["norm", "squared"])
@pytest.mark.parametrize("size", [0.0, 1e-12, 1.0, 1e3])
def test_empty_memories_zero_queries_and_zero_slots_give_finite_losses_and_gradients(
    read, loss, size
):
    memory = surprise_memory(read=read, loss=loss)
    u = torch.randn(5, B, n)
    u[:, 0], u[2:] = (
        0.0,
        size * u[2:],
    )  # environment 0 stores zeros only; both ask an empty memory first
    _, _, log, _ = memory(u, flags(5, (3, 1)), ~flags(5), memory.start(B))
    asked = torch.stack([torch.zeros(n), *u[:, 1], size * torch.randn(n)]).requires_grad_()
    losses = memory.losses(asked, torch.tensor([2, 1, 3, 5, 7, 9, 4]), log)
    assert losses.keys() == {"m", "w"}
    sum(losses.values()).backward()
    assert all(torch.isfinite(x) for x in losses.values())
    assert all(torch.isfinite(p.grad).all() for p in memory.parameters())


@pytest.mark.parametrize("read", READS)
def test_an_empty_memory_gives_q_and_v_no_gradient(read):
    memory, u = surprise_memory("m", read=read), torch.randn(1, B, n)
    _, _, log, _ = memory(u, flags(1), ~flags(1), memory.start(B))
    memory.losses(u[0], torch.arange(B), log)["m"].backward()
    assert not memory.m.Q.grad.any()
    assert not memory.m.V.grad.any()


def test_loss_is_the_mean_of_one_norm_per_sample():
    error = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]], requires_grad=True)
    assert mean_error(error, "norm").item() == pytest.approx(5.0)
    assert mean_error(error, "squared").item() == pytest.approx(125 / 3)
    mean_error(error, "norm").backward()
    torch.testing.assert_close(
        error.grad, torch.tensor([[0.2, 4 / 15], [0.0, 0.0], [0.2, 4 / 15]])
    )  # zero, not nan, at zero


@pytest.mark.parametrize("read", ["cosine", "cosine-mean"])
@pytest.mark.parametrize("name", ["none", "sm", "m", "w"])
def test_zero_surprise_has_zero_novelty_without_biases(name, read):
    """Softmax reads are left out: there a zero query reads the mean of the slots, not zero."""
    u = torch.randn(4, B, n)
    u[2, 0] = u[0, 1] = 0.0
    for bias in (False, True):
        memory = surprise_memory(name, read=read, w_bias=bias)
        v, *_ = memory(u, flags(4), ~flags(4), memory.start(B))
        silent = not v[2, 0].any() and not v[0, 1].any()
        assert silent is (not bias or name in ("none", "m"))
        assert v[1].norm(dim=-1).all()


# --- learning -------------------------------------------------------------------------------------


def test_one_update_moves_v_and_w_the_second_moves_q_too():
    config = BonusConfig(
        RNDConfig(n, 8), MemoryConfig(4, d, w_hidden=6), epochs=1, minibatches=1, proportion=1.0
    )
    bonus = Bonus("rnd+sm", (4,), B, config)
    x, no = torch.randn(6, B, 4, generator=torch.Generator().manual_seed(0)), flags(6)
    chunk = Chunk(x, no.long(), no.float(), x, no, no, no, ~no, {})
    born = {name: p.clone() for name, p in bonus.model.memory.named_parameters()}
    bonus.train_on(chunk, bonus.start())
    moved = {
        name for name, p in bonus.model.memory.named_parameters() if not torch.equal(p, born[name])
    }
    assert moved == born.keys() - {"m.Q"}
    bonus.train_on(chunk, bonus.start())
    assert not torch.equal(bonus.model.memory.m.Q, born["m.Q"])


@pytest.mark.parametrize("name", ["w", "sm"])
@pytest.mark.parametrize("seed", range(3))
def test_w_finds_a_surprise_it_has_met_often_less_new_than_one_of_the_same_size(name, seed):
    """The generator plays no part: surprises are given, four over and over, and all have norm 1."""
    memory = surprise_memory(name, seed, w_hidden=3)
    known, new = torch.nn.functional.normalize(torch.randn(2, 4, n), dim=-1)
    adam = torch.optim.Adam(memory.parameters(), 0.02)
    u = known[:, None].expand(4, B, n)
    for _ in range(300):
        _, _, log, _ = memory(u, flags(4, (0, 0), (0, 1)), ~flags(4), memory.start(B))
        adam.zero_grad()
        sum(memory.losses(u.flatten(0, 1), torch.arange(4 * B), log).values()).backward()
        adam.step()
    old, unseen = (
        memory(x[:, None].expand(4, B, n), flags(4), ~flags(4), memory.start(B))[0]
        for x in (known, new)
    )
    assert old.norm(dim=-1).mean() < 0.7 * unseen.norm(dim=-1).mean()


def test_m_learns_to_recall_a_surprise_that_repeats():
    """One surprise per episode, four times: from the second step on L_M makes u^e equal u."""
    memory = surprise_memory("m", read="cosine-mean", width=n)
    torch.nn.init.orthogonal_(memory.m.Q)
    torch.nn.init.zeros_(memory.m.V)
    adam = torch.optim.Adam(memory.parameters(), 0.02)
    errors = []
    for _ in range(150):
        u = torch.randn(1, 16, n).expand(4, 16, n)
        _, q, log, _ = memory(u, flags(4, B=16), ~flags(4, B=16), memory.start(16))
        errors.append(((q[1:, :, :n] - u[1:]).norm(dim=-1) / u[1:].norm(dim=-1)).mean().item())
        adam.zero_grad()
        memory.losses(u.flatten(0, 1), torch.arange(64), log)["m"].backward()
        adam.step()
    assert errors[0] == pytest.approx(1.0)
    assert errors[-1] < 0.1


# --- wrong names and ranges -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (dict(slots=0), "slots"),
        (dict(width=0), "width"),
        (dict(read="cosin"), "cosine"),
        (dict(w_hidden=0), "w_hidden"),
        (dict(loss="mse"), "loss"),
        (dict(m_coef=-1.0), "m_coef"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_impossible_options_are_refused_by_name(options, word):
    with pytest.raises(UserError, match=word):
        SurpriseMemory(n, MemoryConfig(**dict(slots=4, width=d) | options))


def test_an_unknown_memory_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'rnd\\+sm'"):
        Bonus("rnd+smm", (4,), B)


def test_slots_wider_than_the_surprise_keep_all_of_it():
    keys = SurpriseMemory(n, MemoryConfig(slots=4, width=n + 3)).m.Q
    assert torch.allclose(keys @ keys.T, torch.eye(n), atol=1e-6)


# --- what is logged -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "m", "w", "sm"])
def test_logged_energies_are_those_of_the_steps_that_happened(name):
    T = 6
    memory = surprise_memory(name)
    happened = ~flags(T, (1, 0), (4, 1))
    u = torch.randn(T, B, n)
    v, q, _, _ = memory(u, flags(T), happened, memory.start(B))
    v[~happened] = torch.nan
    q[~happened] = torch.nan
    report = memory.metrics(u, v, q, happened)

    rows = [(t, b) for t in range(T) for b in range(B) if (t, b) not in ((1, 0), (4, 1))]
    left = sum(float((v[row].double() ** 2).sum()) for row in rows)
    whole = sum(float((q[row].double() ** 2).sum()) for row in rows)
    assert report["energy_left"] == pytest.approx(left / whole, rel=1e-5)
    assert ("recall_ratio" in report) == (name in ("m", "sm"))
    if "recall_ratio" in report:
        recalled = sum(float(q[row][:n].norm()) for row in rows)
        norm = sum(float(u[row].norm()) for row in rows)
        assert report["recall_ratio"] == pytest.approx(recalled / norm, rel=1e-5)
