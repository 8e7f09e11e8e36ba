"""NGU and the count-based memory against their formulas in plain loops, one step at a time.

Points and surprises are whole numbers where possible, so that float32 is exact. The mistakes of
public ports are put into the loops by hand (`bug`), and the comparison has to see each of them.
"""

import io
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import chunk_of as successors
from gymnasium import spaces
from test_generators import perceptron, relu
from test_reference import grads, shake, weights_of

from surprise_memory import (
    Bonus,
    BonusConfig,
    Chunk,
    CountsConfig,
    MemoryConfig,
    NGUConfig,
    RNDConfig,
)
from surprise_memory.memory import Counts
from surprise_memory.nn.moments import RunningMoments
from surprise_memory.stages.episodic import episodic_knn, episodic_reward, lifelong_factor, nearest

T, B, p, k, CAPACITY, OBS, n = 23, 3, 2, 4, 6, 7, 5
CUTS = {"one-chunk": [23], "two": [13, 10], "uneven": [5, 1, 11, 6], "step-by-step": [1] * 23}
NGU = NGUConfig(k, CAPACITY, p, 8, eps=0.1, xi=0.2, c=0.05)


def episodes(rng, T=T):
    """Random (first, valid), (T, B): half of the ends are followed by a row that never happened."""
    first, valid = np.zeros((T, B), bool), np.ones((T, B), bool)
    first[0] = True
    for b in range(B):
        t = 0
        while (t := t + int(rng.choice([1, 3, 9]))) < T - 1:
            if rng.random() < 0.5:
                valid[t, b], t = False, t + 1
            first[t, b] = True
    return torch.as_tensor(first), torch.as_tensor(valid)


def pieces(cuts, *columns):
    return zip(*(column.split(cuts) for column in columns), strict=True)


# --- NGU in loops ---------------------------------------------------------------------------------


def neighbours(points, first, valid, bug=None, capacity=CAPACITY):
    """(T, B, k) squared distances to the nearest earlier points of the episode, in rising order."""
    found = np.full((*points.shape[:2], k), np.inf)
    been = [[] for _ in range(points.shape[1])]
    for t, b in np.ndindex(*points.shape[:2]):
        if first[t, b] and bug == "clears all environments":
            been = [[] for _ in been]
        elif first[t, b] and bug != "never clears":
            been[b] = []
        if not valid[t, b] and bug != "inserts what never happened":
            continue
        if bug == "inserts first":
            been[b].append(points[t, b])
        room = (
            been[b]
            if bug == "no capacity"
            else been[b][:capacity]
            if bug == "keeps the oldest"
            else been[b][-capacity:]
        )
        power = 1 if bug == "not squared" else 2
        d = sorted(float(sum((points[t, b] - q) ** 2)) ** (power / 2) for q in room)[:k]
        found[t, b, : len(d)] = d
        if bug != "inserts first":
            been[b].append(points[t, b])
    return found


def episodic(d, mean, c):
    """r_epi of one step from its k squared distances."""
    if not np.isfinite(d).all():
        return 0.0
    similar = 0.0
    for x in d:
        similar += c.eps / (max(x / mean - c.xi, 0.0) + c.eps)
    s = np.sqrt(similar) + c.c
    return 0.0 if s > c.s_max else 1 / s


def lifelong(e, mean, std, clip):
    return min(max(1 + (e - mean) / std, 1.0), clip)


def unvisited(B=B, p=p):
    """The carry of environments that have been nowhere."""
    config = BonusConfig(rnd=RNDConfig(n, 8), ngu=replace(NGU, embedding=p))
    return stage(Bonus("ngu", (OBS,), B, config, 0, spaces.Discrete(4))).start(B)


def stage(bonus):
    """NGU's part that is not RND."""
    return bonus.model.stages["episodic"]


def layers(weights, name, x):
    """A network of the episodic stage, for one input."""
    return perceptron(weights, name, x, relu, part="stages.episodic")


def walked(points, first, valid, cuts=(T,), capacity=CAPACITY):
    """The package's distances, in rising order, chunk after chunk."""
    carry, found = unvisited(), []
    for x, f, ok in pieces(list(cuts), points, first, valid):
        d, carry = episodic_knn(x, f, ok, carry, k, capacity)
        found.append(d.sort(-1).values)
    return torch.cat(found)


def journey(seed, lowest=-4, highest=5):
    """(points (T, B, p), first, valid); what never happened holds nan."""
    rng = np.random.default_rng(seed)
    first, valid = episodes(rng)
    points = torch.as_tensor(rng.integers(lowest, highest, size=(T, B, p)), dtype=torch.float32)
    points[~valid] = torch.nan
    return points, first, valid


def same(got, want, valid):
    return np.array_equal(got.numpy()[valid], want[valid])


# --- NGU: the episodic part -----------------------------------------------------------------------


def test_the_kernel_by_hand_with_squared_distances():
    """From 2 to 0 and 5 it is 4 and 9; with a mean of 2, K = 0.5 / 1.5 and 0.5 / 4: 11 / 24."""
    config, no = NGUConfig(2, 9, 1, 8, eps=0.5, xi=1.0, c=1.0), torch.zeros(3, 1, dtype=torch.bool)
    points = torch.tensor([0.0, 5.0, 2.0])[:, None, None]
    distance, _ = episodic_knn(points, no, ~no, unvisited(1, 1), 2, 9)
    assert sorted(distance[2, 0].tolist()) == [4, 9]
    reward = episodic_reward(distance, torch.tensor(2.0), config)
    assert reward[:2].tolist() == [[0], [0]]
    assert reward[2, 0].item() == pytest.approx(1 / (np.sqrt(11 / 24) + 1), rel=1e-6)


def test_distances_within_xi_count_as_none():
    distance, config = torch.tensor([[0.0, 1.9]]), NGUConfig(2, 9, xi=1.0)
    assert episodic_reward(distance, torch.tensor(2.0), config).item() == pytest.approx(
        1 / (np.sqrt(2) + config.c), rel=1e-6
    )


@pytest.mark.parametrize(("s_max", "paid"), [(2.2, False), (2.3, True)])
def test_too_similar_pays_nothing(s_max, paid):
    """Four repeats: sqrt(4) + 0.25 = 2.25."""
    config = NGUConfig(k, 9, c=0.25, s_max=s_max)
    assert episodic_reward(torch.zeros(1, k), torch.tensor(1.0), config).item() == (
        pytest.approx(1 / 2.25) if paid else 0
    )


def test_kernel_and_reward_are_the_formulas():
    rng = np.random.default_rng(0)
    d = rng.exponential(size=(11, B, k))
    d[3, 1, -1] = d[4, 2] = np.inf
    for config in (NGU, NGUConfig(k), replace(NGU, s_max=1.0)):
        got = episodic_reward(torch.as_tensor(d), torch.tensor(0.7, dtype=torch.float64), config)
        want = [[episodic(x, 0.7, config) for x in row] for row in d]
        np.testing.assert_allclose(got, want, rtol=1e-9)
    assert not got.all() and got.any()


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("capacity", [k, CAPACITY, 11, 100])
def test_neighbours_are_those_of_a_loop_however_a_rollout_is_cut(cuts, capacity):
    for seed in range(6):
        points, first, valid = journey(seed)
        want = neighbours(points.numpy(), first, valid, capacity=capacity)
        assert same(walked(points, first, valid, cuts, capacity), want, valid)


BUGS = [
    "inserts first",
    "never clears",
    "clears all environments",
    "not squared",
    "no capacity",
    "keeps the oldest",
    "inserts what never happened",
]


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_episodic_memory_would_be_seen(bug):
    points, first, valid = journey(1)
    points[~valid] = 1.0  # nan would be seen too easily
    got = walked(points, first, valid)
    first = (
        first & valid
    )  # a mutant that looks at rows which never happened has to meet the reset after them
    assert same(got, neighbours(points.numpy(), first, valid), valid)
    if bug == "inserts what never happened":
        first[1:] = (first[1:] & valid[:-1]) | ~valid[1:]
    assert not same(got, neighbours(points.numpy(), first, valid, bug), valid)


def test_a_repeat_is_near_its_first_visit_and_never_near_itself():
    """The second 3 finds the first at distance zero; the first finds only the origin."""
    points, no = (
        torch.tensor([[0.0], [3.0], [3.0], [1.0]])[:, None],
        torch.zeros(4, 1, dtype=torch.bool),
    )
    distance, _ = episodic_knn(points, no, ~no, unvisited(1, 1), 1, 9)
    assert distance[:, 0, 0].tolist() == [torch.inf, 9, 0, 1]


def test_equal_points_are_exactly_at_distance_zero():
    """|a|^2 + |b|^2 - 2ab of real numbers would leave a rest."""
    keys = 100 + torch.randn(2, 13, 3, generator=torch.Generator().manual_seed(0))
    assert not nearest(keys[:, 4:9].clone(), keys, torch.zeros(2, 5, 13, dtype=torch.bool), 1).any()


@pytest.mark.parametrize("offset", [0, 100, 1000])
def test_neighbours_far_from_the_origin_are_still_the_nearest(offset):
    """Coordinates and differences are exact in float32 here; products in |a|^2 - 2ab are not."""
    rng = np.random.default_rng(0)
    keys = torch.as_tensor(offset + rng.integers(0, 5, size=(2, 13, 3)) / 4, dtype=torch.float32)
    query, hidden = keys[:, 4:9].clone(), torch.as_tensor(rng.random((2, 5, 13)) < 0.3)
    got = nearest(query, keys, hidden, k).sort(-1).values
    for b, t in np.ndindex(2, 5):
        d = [
            float(((query[b, t] - keys[b, j]) ** 2).sum()) for j in range(13) if not hidden[b, t, j]
        ]
        assert got[b, t].tolist() == sorted(d)[:k]


# --- NGU: the life-long part and the product ------------------------------------------------------


def moments(mean, var):
    found = RunningMoments()
    found.mean.fill_(mean)
    found.var.fill_(var)
    found.count.fill_(100.0)
    return found


def test_alpha_by_hand_and_clipped_to_one_and_l():
    """Mean 2, std 0.5: one std above is 2, three are 4, nine are 10 and so 5; below it is 1."""
    alpha = lifelong_factor(torch.tensor([2.0, 2.5, 3.5, 6.5, 1.0]), moments(2.0, 0.25), 5.0)
    np.testing.assert_allclose(alpha, [1, 2, 4, 5, 1], rtol=1e-6)


def explorer(method="ngu", seed=0, **config):
    """A bonus that sees observations as they are and never learns, and a chunk."""
    small = dict(obs_norm="scale", obs_scale=1.0, lr=1e-30, memory_lr=1e-30, scale_momentum=None)
    options = BonusConfig(
        **(small | {"rnd": RNDConfig(n, 8), "ngu": NGU, "memory": MemoryConfig(4, 3)} | config)
    )
    bonus = Bonus(method, (OBS,), B, options, seed, spaces.Discrete(4))
    rng = np.random.default_rng(seed)
    shake(bonus, rng)
    return bonus, outing(rng), rng


def outing(rng, T=T):
    """A chunk with nan in the rows that never happened."""
    first, valid = episodes(rng, T)
    obs, next_obs = torch.as_tensor(rng.normal(size=(2, T, B, OBS)), dtype=torch.float32)
    obs[~valid], next_obs[~valid] = torch.nan, torch.nan
    no, action = (
        torch.zeros(T, B, dtype=torch.bool),
        torch.as_tensor(rng.integers(0, 4, size=(T, B))),
    )
    return Chunk(obs, action, no.float(), next_obs, no, no, first, valid, {})


def rnd_error(weights, chunk, power=1):
    """|P(s') - f(s')|^power, (T, B)."""
    e = np.zeros(chunk.shape)
    for t, b in np.ndindex(*chunk.shape):
        s = chunk.next_obs[t, b].double().numpy()
        guess = perceptron(weights, "predictor", s, np.tanh)
        u = guess - perceptron(weights, "target", s, np.tanh)
        e[t, b] = np.linalg.norm(u) ** power
    return e


def ngu(weights, chunk, e, d_mean, e_mean, e_std, bug=None):
    """(reward, r_epi, alpha, squared distances) of a whole chunk that opens with resets."""
    states = chunk.next_obs.flatten(0, 1).double().numpy()
    f = np.array([layers(weights, "embed", s) for s in states])
    d = neighbours(f.reshape(*chunk.shape, -1), chunk.first, chunk.valid, bug)
    r_epi = np.array([[episodic(x, d_mean, NGU) for x in row] for row in d])
    alpha = np.array([[lifelong(x, e_mean, e_std, NGU.clip) for x in row] for row in e])
    return np.where(chunk.valid, r_epi * alpha, 0.0), r_epi, alpha, d


def knows(bonus, d_mean, e_mean, e_std):
    """Give a bonus these statistics."""
    for found, mean, var in (
        (stage(bonus).distance, d_mean, 1.0),
        (stage(bonus).error, e_mean, e_std**2),
    ):
        found.mean.fill_(mean)
        found.var.fill_(var)
        found.count.fill_(100.0)


@pytest.mark.parametrize("power", [1, 2])
def test_ngu_pays_the_product(power):
    bonus, chunk, _ = explorer(power=power)
    weights = weights_of(bonus)
    e = rnd_error(weights, chunk, power)
    known = 1.5, np.nanmedian(e), np.nanstd(e) / 3
    knows(bonus, *known)
    raw, _, _ = bonus(chunk, bonus.start())
    want, r_epi, alpha, _ = ngu(weights, chunk, e, *known)
    np.testing.assert_allclose(raw, want, rtol=1e-4, atol=1e-6)
    assert {1.0, NGU.clip} < set(alpha[chunk.valid])
    assert (want > 0).any() and (r_epi[chunk.valid] == 0).any()
    assert not raw[~chunk.valid].any()


def test_a_wrong_episodic_memory_would_be_seen_in_the_reward():
    bonus, chunk, _ = explorer()
    e, known = rnd_error(weights_of(bonus), chunk), (1.5, 2.0, 0.5)
    knows(bonus, *known)
    raw, _, _ = bonus(chunk, bonus.start())
    agree = {
        bug: np.allclose(raw, ngu(weights_of(bonus), chunk, e, *known, bug)[0], 1e-4, 1e-6)
        for bug in (None, *BUGS[:-1])
    }
    assert agree.pop(None)
    assert not any(agree.values())


def test_ngu_with_a_memory_pays_for_novelty_in_alpha_and_keeps_r_epi():
    (plain, chunk, _), (bonus, _, _) = explorer(), explorer("ngu+sm")
    bonus.model.surprise.load_state_dict(plain.model.surprise.state_dict())
    stage(bonus).load_state_dict(stage(plain).state_dict())
    novelty = np.linalg.norm(bonus(chunk, bonus.start())[1].v.numpy(), axis=-1)
    known = 1.5, np.median(novelty[chunk.valid]), 0.7
    knows(plain, *known)
    knows(bonus, *known)
    raw, trace, _ = bonus(chunk, bonus.start())
    weights = weights_of(bonus)
    want, r_epi, alpha, _ = ngu(weights, chunk, novelty, *known)
    np.testing.assert_allclose(raw, want, rtol=1e-4, atol=1e-6)
    assert len(np.unique(alpha[chunk.valid])) > 5 and r_epi[chunk.valid].any()
    assert not np.allclose(
        raw, ngu(weights, chunk, rnd_error(weights, chunk), *known)[0], rtol=1e-3
    )
    _, without, _ = plain(chunk, plain.start())
    records = [x.stages["episodic"].record["episodic"] for x in (trace, without)]
    assert torch.equal(records[0][chunk.valid], records[1][chunk.valid])


@pytest.mark.parametrize("method", ["ngu", "ngu+sm"])
def test_embedding_learns_from_the_inverse_loss_alone_and_rnd_from_its_own(method):
    bonus, chunk, _ = explorer(method)
    _, trace, _ = bonus(chunk, bonus.start())
    losses = bonus.losses(trace, chunk.valid_rows())
    reached = {}
    for name, loss in losses.items():
        moved = {key for key, g in grads(bonus, loss).items() if g is not None and g.any()}
        reached[name] = set()
        for key in moved:
            depth = 3 if key.startswith("stages.") else 2
            reached[name].add(".".join(key.split(".")[:depth]))
    assert reached.pop("surprise") == {"surprise.predictor"}
    assert reached.pop("inverse") == {"stages.episodic.embed", "stages.episodic.inverse_model"}
    memory = {"m": {"memory.m"}, "w": {"memory.m", "memory.w"}}
    assert reached == (memory if method == "ngu+sm" else {})


def test_ngu_inverse_loss_is_the_cross_entropy_of_the_action():
    bonus, chunk, _ = explorer()
    _, trace, _ = bonus(chunk, bonus.start())
    rows, weights, total = chunk.valid_rows()[::3], weights_of(bonus), 0.0
    for i in rows:
        s, after = (x.flatten(0, 1)[i].double().numpy() for x in (chunk.obs, chunk.next_obs))
        both = np.concatenate([layers(weights, "embed", s), layers(weights, "embed", after)])
        guess = layers(weights, "inverse_model", both)
        total += np.log(sum(np.exp(guess))) - guess[chunk.action.flatten()[i]]
    assert bonus.losses(trace, rows)["inverse"].item() == pytest.approx(total / len(rows), rel=1e-5)


# --- NGU: what moves when -------------------------------------------------------------------------


def statistics(bonus):
    parts = stage(bonus).distance, stage(bonus).error
    return [float(x) for part in parts for x in (part.mean, part.var, part.count)]


def test_asking_and_losses_leave_ngu_s_statistics_alone():
    bonus, chunk, _ = explorer()
    before = statistics(bonus)
    _, trace, carry = bonus(chunk, bonus.start())
    bonus.losses(trace, chunk.valid_rows())
    bonus(chunk, carry)
    assert statistics(bonus) == before


def test_an_absorbed_rollout_is_paid_with_the_statistics_of_those_before():
    """The very first has none before it and starts from its own."""
    bonus, chunk, rng = explorer()
    carry, distances, errors, known = bonus.start(), [], [], None
    for rollout in (chunk, outing(rng), outing(rng)):
        weights, e = weights_of(bonus), rnd_error(weights_of(bonus), rollout)
        d = ngu(weights, rollout, e, 1.0, 0.0, 1.0)[3][rollout.valid]
        distances.append(d[np.isfinite(d)])
        errors.append(e[rollout.valid])
        after = (
            np.concatenate(distances).mean(),
            np.concatenate(errors).mean(),
            np.concatenate(errors).std(),
        )
        reward, _, carry = bonus.train_on(rollout, carry)
        found = (
            stage(bonus).distance.mean,
            stage(bonus).error.mean,
            stage(bonus).error.var.sqrt(),
        )
        np.testing.assert_allclose([float(x) for x in found], after, rtol=1e-5)
        want = ngu(weights, rollout, e, *(known or after))[0]
        np.testing.assert_allclose(reward * bonus.scaler.std, want, rtol=1e-4, atol=1e-5)
        known = after


def test_a_warm_up_measures_distances_and_not_errors():
    bonus, chunk, _ = explorer()
    before = statistics(bonus)
    bonus.train_on(chunk, bonus.start(), warmup=True)
    after = statistics(bonus)
    assert after[:3] != before[:3]
    assert after[3:] == before[3:]
    _, trace, _ = bonus(chunk, bonus.start())
    record = trace.stages["episodic"].record
    assert record["episodic"].any()
    assert (record["alpha"][chunk.valid] == 1).all()  # as long as no error is known


def test_nothing_is_paid_before_a_distance_is_known():
    bonus, chunk, _ = explorer()
    assert not bonus(chunk, bonus.start())[0].any()


def test_rows_that_never_happened_leave_ngu_finite():
    bonus, chunk, rng = explorer()
    assert not chunk.valid.all()
    carry = bonus.start()
    for rollout in (chunk, outing(rng)):
        reward, _, carry = bonus.train_on(rollout, carry)
        assert reward.isfinite().all()
    assert np.isfinite(statistics(bonus)).all()


def test_the_episodic_memory_of_ngu_survives_the_rollout():
    """Two chunks of one episode pay what the whole does."""
    bonus, _, rng = explorer()
    knows(bonus, 1.5, 2.0, 0.5)
    chunk = outing(rng)
    whole, _, _ = bonus(chunk, bonus.start())
    for cuts in CUTS.values():
        carry, parts = bonus.start(), []
        for rows in torch.arange(T).split(cuts):
            part = Chunk(
                **{name: column[rows] for name, column in chunk.columns().items()}, extras={}
            )
            raw, _, carry = bonus(part, carry)
            parts.append(raw)
        torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-6)


# --- counts in loops ------------------------------------------------------------------------------


def tally(u, first, valid, G, tables, bug=None):
    """(T, B) rewards; `tables` is {0: {code: visits}}, one for all environments."""
    paid = np.zeros(u.shape[:2])
    order = list(np.ndindex(*u.shape[:2]))
    for t, b in (
        sorted(order, key=lambda i: i[::-1]) if bug == "environment by environment" else order
    ):
        table = tables.setdefault(b if bug == "a table for each environment" else 0, {})
        if first[t, b] and bug == "clears at a reset":
            table.clear()
        if not valid[t, b] and bug != "counts what never happened":
            continue
        code = tuple(u[t, b]) if bug == "no hash" else tuple(sum(u[t, b] * g) > 0 for g in G.T)
        table[code] = table.get(code, 0) + 1
        paid[t, b] = 1 / np.sqrt(max(table[code] - (bug == "counts after paying"), 1))
    return paid


def surprises(seed, T=T):
    """(u (T, B, n), first, valid): six vectors come again and again, some of them twice as long."""
    rng = np.random.default_rng(seed)
    first, valid = episodes(rng, T)
    pool = rng.integers(-5, 6, size=(6, n))
    u = pool[rng.integers(0, 6, size=(T, B))] * rng.integers(1, 3, size=(T, B, 1))
    return torch.as_tensor(u, dtype=torch.float32), first, valid


def counter(bits=9, seed=0):
    torch.manual_seed(seed)
    return Counts(n, CountsConfig(bits))


def test_first_second_and_third_visit_in_time_then_by_environment():
    memory, u = counter(), torch.tensor([1.0, -2, 0.5, 3, -1])
    no = torch.zeros(2, 2, dtype=torch.bool)
    v, _, _, _ = memory(u.expand(2, 2, n), no, ~no, memory.start(2))
    assert v.shape == (2, 2, 1)
    assert v[0, 0].item() == 1
    np.testing.assert_allclose(v.flatten(), 1 / np.sqrt([1, 2, 3, 4]), rtol=1e-6)


def test_the_code_is_the_sign_alone():
    """A surprise twice as long is the same to the table, one in the other direction is not."""
    memory, u = counter(), torch.tensor([1.0, -2, 0.5, 3, -1])
    no = torch.zeros(3, 1, dtype=torch.bool)
    v, _, _, _ = memory(torch.stack([u, 2 * u, -u])[:, None], no, ~no, memory.start(1))
    np.testing.assert_allclose(v.flatten(), 1 / np.sqrt([1, 2, 1]), rtol=1e-6)


def test_g_is_standard_normal_fixed_and_not_trained():
    G = counter(bits=512).G
    assert G.numel() == n * 512 and not G.requires_grad
    assert abs(G.mean()) < 0.1 and abs(G.std() - 1) < 0.1


def counted(memory, u, first, valid, cuts, absorb=False):
    """Rewards chunk by chunk; with `absorb` each goes into the table after it was asked about."""
    carry, paid = memory.start(B), []
    for x, f, ok in pieces(cuts, u, first, valid):
        v, _, log, carry = memory(x, f, ok, carry)
        carry = memory.commit(log, ok, carry) if absorb else carry
        paid.append(v.squeeze(-1))
    return torch.cat(paid)


@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("bits", [2, 9, 70])
def test_counts_are_those_of_a_loop_however_a_rollout_is_cut(bits, cuts, absorb):
    for seed in range(3):
        memory, tables = counter(bits, seed), {}
        for rollout in range(2 if absorb else 1):
            u, first, valid = surprises(seed + rollout)
            want = tally(u.numpy(), first, valid, memory.G.numpy(), tables)
            got = counted(memory, u, first, valid, cuts, absorb)
            np.testing.assert_allclose(got[valid], want[valid], rtol=1e-6)


@pytest.mark.parametrize(
    "bug",
    [
        "counts after paying",
        "environment by environment",
        "a table for each environment",
        "clears at a reset",
        "counts what never happened",
        "no hash",
    ],
)
def test_a_wrong_count_would_be_seen(bug):
    u, first, valid = surprises(0)
    memory = counter()
    got = counted(memory, u, first, valid, [T])[valid]
    assert np.allclose(got, tally(u.numpy(), first, valid, memory.G.numpy(), {})[valid])
    assert not np.allclose(got, tally(u.numpy(), first, valid, memory.G.numpy(), {}, bug)[valid])


def test_asking_does_not_count():
    memory, (u, first, valid) = counter(), surprises(0)
    once, again = (counted(memory, u, first, valid, [T]) for _ in range(2))
    assert torch.equal(once, again)


# --- counts as a bonus ----------------------------------------------------------------------------


def shopper(seed=0, **options):
    """An 'rnd+counts' that never learns, and a chunk of seven states that come again and again."""
    bonus, _, rng = explorer("rnd+counts", seed, **({"counts": CountsConfig(bits=9)} | options))
    first, valid = episodes(rng)
    states = torch.as_tensor(rng.normal(size=(7, OBS)), dtype=torch.float32)[
        rng.integers(0, 7, size=(T, B))
    ]
    states[~valid] = torch.nan
    return bonus, successors(states, first, valid)


def test_absorb_counts_each_row_once():
    bonus, chunk = shopper()
    carry, tables = bonus.start(), {}
    for _ in range(3):
        raw, trace, _ = bonus(chunk, carry)
        want = tally(
            trace.u.numpy(), chunk.first, chunk.valid, bonus.model.memory.G.numpy(), tables
        )
        np.testing.assert_allclose(raw, want, rtol=1e-6)
        reward, _, carry = bonus.train_on(chunk, carry)
        np.testing.assert_allclose(reward, 0.5 * want / float(bonus.scaler.std), rtol=1e-5)
    assert sum(tables[0].values()) == 3 * chunk.valid.sum()
    assert bonus.model.memory.get_extra_state()["visits"].sum() == 3 * chunk.valid.sum()


def test_replayed_steps_are_paid_by_the_table_and_not_counted_again():
    bonus, chunk = shopper()
    bonus.train_on(chunk, bonus.start())
    memory = bonus.model.memory
    raw, trace, _ = bonus(chunk, bonus.model.start_sequences(B, T))
    visits = memory.get_extra_state()["visits"].sum()
    codes = [tuple(row) for row in (trace.u.flatten(0, 1) @ memory.G > 0).tolist()]
    happened = chunk.valid.flatten().tolist()
    table = Counter(code for code, real in zip(codes, happened, strict=True) if real)
    want = torch.tensor([table[code] for code in codes]) ** -0.5
    np.testing.assert_allclose(raw.flatten(), want.where(chunk.valid.flatten(), 0.0), rtol=1e-6)
    assert visits == chunk.valid.sum()
    stranger = replace(chunk, next_obs=chunk.next_obs + 100)  # codes that the table lacks
    assert bonus(stranger, bonus.model.start_sequences(B, T))[0].max() == 1


def test_steps_and_an_update_count_each_row_once():
    bonus, chunk = shopper()
    for _ in range(2):
        for t in range(T):
            ended = (
                (chunk.first | ~chunk.valid)[t + 1]
                if t + 1 < T
                else torch.ones(B, dtype=torch.bool)
            )
            bonus.step(
                chunk.obs[t],
                chunk.action[t],
                chunk.next_obs[t],
                ended & chunk.valid[t],
                chunk.valid[t],
            )
        bonus.update()
    assert bonus.model.memory.get_extra_state()["visits"].sum() == 2 * chunk.valid.sum()


def test_beta_comes_after_the_scale():
    one, two = (shopper(counts=CountsConfig(9, beta)) for beta in (0.5, 1.0))
    (bonus, chunk), (other, _) = one, two
    assert torch.equal(bonus(chunk, bonus.start())[0], other(chunk, other.start())[0])
    single, double = (x.train_on(chunk, x.start())[0] for x in (bonus, other))
    assert single.any()
    assert torch.equal(2 * single, double)
    raw = bonus(chunk, bonus.start())[0]
    assert torch.equal(2 * bonus.reward(raw), other.reward(raw))


def test_the_table_survives_a_checkpoint():
    bonus, chunk = shopper()
    bonus.train_on(chunk, bonus.start())
    file = io.BytesIO()
    torch.save(bonus.state_dict(), file)
    file.seek(0)
    other, _ = shopper(seed=1)
    assert not torch.equal(other(chunk, other.start())[0], bonus(chunk, bonus.start())[0])
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(chunk, other.start())[0], bonus(chunk, bonus.start())[0])
    for x in (bonus, other):
        x.train_on(chunk, x.start())
    assert torch.equal(other(chunk, other.start())[0], bonus(chunk, bonus.start())[0])


def test_counts_pay_the_root_whatever_the_power():
    config = BonusConfig(counts=CountsConfig(bits=16), power=2)
    bonus = Bonus("rnd+counts", (4,), 1, config)
    state = torch.randn(4).expand(4, 1, 4)
    raw, _, _ = bonus(successors(state), bonus.start())
    assert raw[:, 0].tolist() == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])
