"""Algorithm 1 of the paper written a second time, in NumPy and plain loops, in float64.

`.detach()` is written here as "the same formula with `still`, a copy of the weights that nobody
differentiates". Gradients are then central differences, tensor by tensor and along random
directions, of a function without any torch in it.
"""

import numpy as np
import pytest
import torch

from surprise_memory import Bonus, BonusConfig, Chunk, MemoryConfig, RNDConfig
from surprise_memory.memory.episodic import READS

T, B, n, d, N, HIDDEN, OBS = (
    11,
    2,
    5,
    3,
    4,
    6,
    7,
)  # all different, so that no two axes can be swapped unseen
# One letter per step and environment: s a step, e an episode's last one, x one that never happened.
BEFORE, ROLLOUT = (
    ("exs", "sss"),
    ("ssexsssssss", "sssssesssss"),
)  # the memory wraps at N, and carries over in environment 1


# --- the paper, in loops --------------------------------------------------------------------------


class Paper:
    """Surprise, M and W for one state at a time. `now` and `still` are dicts of weights."""

    def __init__(
        self,
        memory,
        read=MemoryConfig.read,
        loss="norm",
        attach_read=True,
        m_trains_surprise=False,
        write_every=1,
        **_,
    ):
        self.every, self.ages = write_every, [0] * B
        self.has_m, self.has_w = memory in ("m", "sm"), memory in ("w", "sm")
        self.read_as, self.loss, self.m_trains = read, loss, m_trains_surprise
        self.attach = attach_read

    def perceptron(self, weights, name, x):
        layers = [weights[f"surprise.{name}.{i}.weight"] for i in (0, 2, 4)]
        shifts = [weights[f"surprise.{name}.{i}.bias"] for i in (0, 2, 4)]
        for i, (A, b) in enumerate(zip(layers, shifts, strict=True)):
            x = A @ x + b
            if i < 2:
                x = np.tanh(x)
        return x

    def surprise(self, weights, state):
        return self.perceptron(weights, "predictor", state) - self.perceptron(
            weights, "target", state
        )

    def read(self, k, M):
        dot = [k @ m for m in M]
        cosine = [k @ m / (np.sqrt(k @ k) * np.sqrt(m @ m)) for m in M]
        weights = {
            "cosine": cosine,
            "cosine-mean": [c / len(M) for c in cosine],
            "softmax": [np.exp(x) / sum(np.exp(dot)) for x in dot],
            "ntm": [np.exp(20 * c) / sum(np.exp(20 * np.array(cosine))) for c in cosine],
        }
        found = np.zeros(d)
        for w, m in zip(weights[self.read_as], M, strict=True):
            found = found + w * m
        return found

    def recall(self, weights, u, M):
        found = self.read(u @ weights["memory.m.Q"], M)
        return found @ weights["memory.m.V"] if "memory.m.V" in weights else found

    def autoencoder(self, weights, q):
        h = weights["memory.w.encode.weight"] @ q + weights.get("memory.w.encode.bias", 0.0)
        return weights["memory.w.decode.weight"] @ np.tanh(h) + weights.get(
            "memory.w.decode.bias", 0.0
        )

    def step(self, weights, state, M):
        """(u, q, v) of one step that finds the keys M, oldest first."""
        u = self.surprise(weights, state)
        q = np.concatenate([self.recall(weights, u, M), u]) if self.has_m else u
        return u, q, (self.autoencoder(weights, q) - q if self.has_w else q)

    def size(self, error):
        return np.sqrt(error @ error) if self.loss == "norm" else error @ error

    def losses(self, now, still, samples):
        """L_SG, L_M, L_W averaged over samples (state, M)."""
        total = (
            {"surprise": 0.0}
            | ({"m": 0.0} if self.has_m else {})
            | ({"w": 0.0} if self.has_w else {})
        )
        for state, M in samples:
            u, fixed = self.surprise(now, state), self.surprise(still, state)
            total["surprise"] += self.size(u) / len(samples)
            q, target = fixed, fixed
            if self.has_m:
                u_e = self.recall(now, u if self.m_trains else fixed, M)
                aim = fixed if "memory.m.V" in now else fixed @ still["memory.m.Q"]
                total["m"] += self.size(u_e - aim) / len(samples)
                target = np.concatenate([self.recall(still, fixed, M), fixed])
                q = np.concatenate([self.recall(now, fixed, M), fixed]) if self.attach else target
            if self.has_w:
                total["w"] += self.size(self.autoencoder(now, q) - target) / len(samples)
        return total


def env_step(paper, weights, states, plan, memories):
    """Algorithm 2, lines 3 to 11, step by step. Returns {(t, b): (u, q, v, M that was read)}."""
    seen = {}
    for b, letters in enumerate(plan):
        for t, letter in enumerate(letters):
            if letter == "x":
                continue
            M = list(memories[b])
            u, q, v = paper.step(weights, states[t, b], M)
            seen[t, b] = u, q, v, M
            if paper.has_m and paper.ages[b] % paper.every == 0:
                memories[b] = [*M, u @ weights["memory.m.Q"]][-N:]
            paper.ages[b] += 1
            if letter == "e":
                memories[b] = []
                paper.ages[b] = 0
    return seen


# --- the package, in float64 ----------------------------------------------------------------------


def chunk_of(states, plan, opening):
    """A chunk whose `next_obs` are `states` (T, B, OBS); `opening` (B,): who starts an episode."""
    letters = np.array([list(row) for row in plan]).T  # (T, B)
    first = np.vstack([np.array(opening)[None], letters[:-1] != "s"])
    yes, no = torch.as_tensor(letters == "e"), torch.zeros(letters.shape, dtype=torch.bool)
    x = torch.as_tensor(states)
    return Chunk(
        x,
        no.long(),
        no.double(),
        x,
        yes,
        no,
        torch.as_tensor(first),
        torch.as_tensor(letters != "x"),
        {},
    )


def world(memory, power=1, loss="norm", seed=0, **options):
    """A float64 bonus that sees states unwhitened, two rollouts, the paper's account of one."""
    rng = np.random.default_rng(seed)
    memory_config = MemoryConfig(slots=N, width=d, w_hidden=HIDDEN, loss=loss, **options)
    config = BonusConfig(RNDConfig(n, 8), memory_config, power=power, loss=loss)
    bonus = Bonus("rnd" if memory == "none" else f"rnd+{memory}", (OBS,), B, config, seed=seed)
    bonus.model.obs_norm = torch.nn.Identity()
    bonus.double()
    shake(bonus, rng)  # V is born zero and biases too: neither would matter
    states = rng.normal(size=(len(BEFORE[0]) + T, B, OBS))
    cut = len(BEFORE[0])
    before, now = (
        chunk_of(states[:cut], BEFORE, [True] * B),
        chunk_of(states[cut:], ROLLOUT, [False] * B),
    )
    _, _, carry = bonus(before, bonus.start())
    raw, trace, _ = bonus(now, carry)
    paper, memories = Paper(memory, loss=loss, **options), [[] for _ in range(B)]
    env_step(paper, weights_of(bonus), states[:cut], BEFORE, memories)
    seen = env_step(paper, weights_of(bonus), states[cut:], ROLLOUT, memories)
    return bonus, paper, states[cut:], raw, trace, seen, rng


def shake(bonus, rng):
    with torch.no_grad():
        for p in bonus.parameters():
            p += 0.3 * torch.as_tensor(rng.normal(size=p.shape)) * p.requires_grad


def weights_of(bonus):
    return {name: p.detach().numpy().copy() for name, p in bonus.model.named_parameters()}


def grads(bonus, loss):
    """{name: gradient or None} of every parameter that learns."""
    named = {name: p for name, p in bonus.model.named_parameters() if p.requires_grad}
    if not loss.requires_grad:
        return dict.fromkeys(named)
    return dict(
        zip(
            named,
            torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True),
            strict=True,
        )
    )


def reached(bonus, loss):
    """Which parts a loss moves: a subset of {'P', 'Q', 'V', 'W'}."""
    part = {"surprise.predictor": "P", "memory.m.Q": "Q", "memory.m.V": "V", "memory.w": "W"}
    return {
        letter
        for name, g in grads(bonus, loss).items()
        for start, letter in part.items()
        if name.startswith(start) and g is not None and bool(g.abs().max() > 0)
    }


def losses_after_moving(memory, **options):
    """Losses of some rows with weights that have moved since, as in the second minibatch."""
    bonus, paper, states, _, trace, seen, rng = world(memory, **options)
    shake(bonus, rng)
    steps = [key for key in sorted(seen) if key[0] % 2 == 0 or key[0] > 8]
    rows = torch.tensor([t * B + b for t, b in steps])
    samples = [(states[key], seen[key][3]) for key in steps]
    return bonus, paper, bonus.losses(trace, rows), samples, rng


SETTINGS = [
    dict(memory=memory, read=read, w_bias=bias)
    for memory in ("sm", "m", "w", "none")
    for read in (READS if "m" in memory else READS[:1])
    for bias in ((True, False) if memory in ("sm", "w") else (True,))
]
SETTINGS += [
    dict(memory="sm", read="ntm", w_bias=True, write_every=2),
    dict(memory="m", read="cosine", w_bias=True, write_every=3),
]
SWITCHES = [
    dict(attach_read=False),
    dict(train_q=False),
    dict(project_back=False),
    dict(project_back=False, train_q=False, attach_read=False, read="softmax"),
    dict(m_trains_surprise=True),
    dict(m_trains_surprise=True, attach_read=False),
    dict(m_trains_surprise=True, project_back=False, attach_read=False),
]


def label(options):
    return "-".join(f"{k}={v}" if isinstance(v, bool) else str(v) for k, v in options.items())


# --- forward --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", SETTINGS, ids=label)
@pytest.mark.parametrize("power", [1, 2])
def test_surprise_query_novelty_and_reward_are_algorithm_1(options, power):
    _, _, _, raw, trace, seen, _ = world(power=power, **options)
    assert len(seen) == T * B - 1
    for (t, b), (u, q, v, _) in seen.items():
        np.testing.assert_allclose(trace.u[t, b], u, rtol=1e-9)
        np.testing.assert_allclose(trace.q[t, b], q, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(trace.v[t, b], v, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(raw[t, b], np.linalg.norm(v) ** power, rtol=1e-9)


def test_the_rollout_above_reads_empty_partial_full_and_wrapped_memories():
    _, _, _, _, trace, seen, _ = world("sm")
    sizes = {len(M) for *_, M in seen.values()}
    assert sizes == {0, 1, 2, 3, 4}
    assert max(np.abs(q[:n]).max() for _, q, _, _ in seen.values()) > 0.1  # the read-out matters
    assert trace.log.filled[5, 1] == N  # five steps of this rollout and three of the one before


@pytest.mark.parametrize(("every", "slots"), [(2, 4), (3, 3), (20, 1)])
def test_with_uniform_writing_n_slots_span_more_steps(every, slots):
    """Of eight steps in a row, every second or third is kept, and always the first."""
    _, _, _, _, trace, seen, _ = world("sm", write_every=every)
    t, b = 5, 1  # the last of eight steps: three of them in the rollout before
    M, used = trace.log.windows(torch.tensor([t * B + b]))
    assert used.sum() == slots == len(seen[t, b][3])
    np.testing.assert_allclose(M[0][used[0]], seen[t, b][3], rtol=1e-12)


def test_read_out_stays_in_key_space_without_v():
    bonus, _, _, _, trace, seen, _ = world("sm", project_back=False)
    assert bonus.model.memory.m.V is None
    assert trace.q.shape == (T, B, d + n)
    for (t, b), (_, q, v, _) in seen.items():
        np.testing.assert_allclose(trace.q[t, b], q, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(trace.v[t, b], v, rtol=1e-7, atol=1e-12)


# --- losses and gradients -------------------------------------------------------------------------


def assert_losses_and_gradients(memory, **options):
    bonus, paper, losses, samples, rng = losses_after_moving(memory, **options)
    now = weights_of(bonus)
    want = paper.losses(now, now, samples)
    assert losses.keys() == want.keys()
    for name, loss in losses.items():
        np.testing.assert_allclose(loss.item(), want[name], rtol=1e-9)
    got = {name: grads(bonus, loss) for name, loss in losses.items()}
    eps = 1e-5
    for parameter in got["surprise"]:
        for _ in range(2):
            way = rng.normal(size=now[parameter].shape)
            up = paper.losses(now | {parameter: now[parameter] + eps * way}, now, samples)
            down = paper.losses(now | {parameter: now[parameter] - eps * way}, now, samples)
            for name in losses:
                g = got[name][parameter]
                slope = 0.0 if g is None else float((g.numpy() * way).sum())
                expected = (up[name] - down[name]) / (2 * eps)
                np.testing.assert_allclose(
                    slope, expected, rtol=1e-5, atol=1e-7, err_msg=f"d {name} / d {parameter}"
                )


@pytest.mark.parametrize("options", SETTINGS, ids=label)
@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_losses_and_gradients_are_those_of_algorithm_1(options, loss):
    assert_losses_and_gradients(loss=loss, **options)


@pytest.mark.parametrize("options", SWITCHES, ids=label)
@pytest.mark.parametrize("memory", ["sm", "m"])
def test_every_switch_changes_the_gradients_as_its_docstring_says(memory, options):
    assert_losses_and_gradients(memory, **options)


def test_m_coef_weighs_l_m_alone():
    one, two = (losses_after_moving("sm", m_coef=c)[2] for c in (1.0, 0.25))
    assert two["m"].item() == pytest.approx(0.25 * one["m"].item(), rel=1e-12)
    assert (two["surprise"], two["w"]) == (one["surprise"], one["w"])


# --- who is moved by what -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "options", "expected"),
    [
        ("sm", {}, {"surprise": {"P"}, "m": {"Q", "V"}, "w": {"Q", "V", "W"}}),
        ("sm", {"attach_read": False}, {"surprise": {"P"}, "m": {"Q", "V"}, "w": {"W"}}),
        ("sm", {"train_q": False}, {"surprise": {"P"}, "m": {"V"}, "w": {"V", "W"}}),
        ("sm", {"project_back": False}, {"surprise": {"P"}, "m": {"Q"}, "w": {"Q", "W"}}),
        (
            "sm",
            {"m_trains_surprise": True},
            {"surprise": {"P"}, "m": {"P", "Q", "V"}, "w": {"Q", "V", "W"}},
        ),
        (
            "sm",
            {"m_trains_surprise": True, "attach_read": False},
            {"surprise": {"P"}, "m": {"P", "Q", "V"}, "w": {"W"}},
        ),
        ("m", {}, {"surprise": {"P"}, "m": {"Q", "V"}}),
        ("m", {"m_trains_surprise": True}, {"surprise": {"P"}, "m": {"P", "Q", "V"}}),
        ("w", {}, {"surprise": {"P"}, "w": {"W"}}),
        ("none", {}, {"surprise": {"P"}}),
    ],
    ids=lambda x: label(x) if isinstance(x, dict) and "surprise" not in x else None,
)
def test_each_loss_reaches_exactly_its_parameters(memory, options, expected):
    bonus, _, losses, _, _ = losses_after_moving(memory, **options)
    assert {name: reached(bonus, loss) for name, loss in losses.items()} == expected


@pytest.mark.parametrize("memory", ["sm", "w"])
@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("m_trains_surprise", [True, False])
def test_l_w_never_reaches_the_generator(memory, attach, m_trains_surprise):
    """The paper blocks it "to avoid trivial reconstructions"; `m_trains_surprise` is about L_M."""
    bonus, _, losses, _, _ = losses_after_moving(
        memory, attach_read=attach, m_trains_surprise=m_trains_surprise
    )
    assert "P" not in reached(bonus, losses["w"])


@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_with_v_zero_l_m_moves_v_first_and_q_from_then_on(loss):
    bonus, _, _, _, trace, seen, _ = world("m", loss=loss)
    rows = torch.tensor([t * B + b for t, b in seen])
    V = bonus.model.memory.m.V
    torch.nn.init.zeros_(V)
    assert reached(bonus, bonus.losses(trace, rows)["m"]) == {"V"}
    V.data -= 1e-3 * torch.autograd.grad(bonus.losses(trace, rows)["m"], V)[0]
    assert reached(bonus, bonus.losses(trace, rows)["m"]) == {"Q", "V"}


def test_v_is_born_zero_and_q_with_orthonormal_columns():
    bonus = Bonus("rnd+m", (OBS,), B, BonusConfig(RNDConfig(n, 8), MemoryConfig(N, d)))
    m = bonus.model.memory.m
    assert not m.V.any()
    np.testing.assert_allclose((m.Q.T @ m.Q).detach(), np.eye(d), atol=1e-6)


def test_the_target_network_never_has_a_gradient_and_never_moves():
    bonus = Bonus("rnd+sm", (OBS,), B, BonusConfig(RNDConfig(n, 8), MemoryConfig(N, d), lr=0.1))
    target = bonus.model.surprise.target
    before = [p.clone() for p in target.parameters()]
    predictor = [p.clone() for p in bonus.model.surprise.predictor.parameters()]
    states = np.random.default_rng(0).normal(size=(T, B, OBS)).astype(np.float32)
    bonus.train_on(chunk_of(states, ROLLOUT, [True] * B), bonus.start())
    assert all(p.grad is None and not p.requires_grad for p in target.parameters())
    assert all(torch.equal(p, q) for p, q in zip(target.parameters(), before, strict=True))
    assert not any(
        torch.equal(p, q)
        for p, q in zip(bonus.model.surprise.predictor.parameters(), predictor, strict=True)
    )


@pytest.mark.parametrize("train_q", [True, False])
def test_q_learns_in_absorb_only_if_train_q(train_q):
    config = BonusConfig(RNDConfig(n, 8), MemoryConfig(N, d, train_q=train_q), memory_lr=0.1)
    bonus = Bonus("rnd+sm", (OBS,), B, config)
    Q, V = bonus.model.memory.m.Q.clone(), bonus.model.memory.m.V.clone()
    states = np.random.default_rng(0).normal(size=(T, B, OBS)).astype(np.float32)
    bonus.train_on(chunk_of(states, ROLLOUT, [True] * B), bonus.start())
    assert torch.equal(bonus.model.memory.m.Q, Q) is not train_q
    assert not torch.equal(bonus.model.memory.m.V, V)
