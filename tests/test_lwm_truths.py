"""The latent world model, its whitening and its training on replay, against plain loops."""

import copy
from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from surprise_memory import Bonus, BonusConfig, Chunk, LWMConfig, MemoryConfig
from surprise_memory.bonus import ReplayTrainer
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.nets import gru_step
from surprise_memory.nn.reward_scale import Standardiser
from surprise_memory.surprise import LWM
from surprise_memory.surprise.lwm import roll, whiten

T, K, n, d, N, OBS, A, INPUTS, HIDDEN, WIDE = (
    11,
    3,
    5,
    2,
    4,
    6,
    7,
    8,
    9,
    10,
)  # all different: no two axes can be swapped unseen
# One letter per step and sequence: s a step, e an episode's last one, x a row that never happened.
PLAN = (
    "ssexsssssss",
    "sssssssssse",
    "exssessssss",
)  # the memory wraps at N; `first` in the middle, with and without an x before it
BEGINS = (False, True, False)  # drawn in the middle of an episode, or at its first step
CUTS = {"one by one": [1] * T, "uneven": [4, 1, 6]}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)  # what networks begin with does not depend on the tests before


# --- the world model, in loops --------------------------------------------------------------------


def relu(x):
    return np.maximum(x, 0.0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def two_layers(w, name, x):
    return (
        w[f"{name}.2.weight"] @ relu(w[f"{name}.0.weight"] @ x + w[f"{name}.0.bias"])
        + w[f"{name}.2.bias"]
    )


def gru(w, x, h):
    """r = s(x W_r + h U_r), z = s(x W_z + h U_z), c = tanh(x W_c + r (h U_c)).

    h' = (1 - z) c + z h.
    """
    x, y = w["cell.weight_ih"] @ x + w["cell.bias_ih"], w["cell.weight_hh"] @ h + w["cell.bias_hh"]
    k = len(h)
    r, z = sigmoid(x[:k] + y[:k]), sigmoid(x[k : 2 * k] + y[k : 2 * k])
    return (1 - z) * np.tanh(x[2 * k :] + r * y[2 * k :]) + z * h


def surprises(w, chunk, still=None):
    """{(t, k): u} of the steps that happened; `still` are the encoder's weights, if given."""
    still = still or w
    obs, next_obs, action = (
        getattr(chunk, name).double().numpy() for name in ("obs", "next_obs", "action")
    )
    found = {}
    for k in range(chunk.shape[1]):
        h = np.zeros(HIDDEN)
        for t in range(chunk.shape[0]):
            if not chunk.valid[t, k]:
                continue
            if chunk.first[t, k]:
                h = np.zeros(HIDDEN)
            z, after = (
                two_layers(still, "encoder", obs[t, k]),
                two_layers(still, "encoder", next_obs[t, k]),
            )
            known = np.array([float(a == action[t, k]) for a in range(A)])
            h = gru(w, w["enter.weight"] @ np.concatenate([z, known]) + w["enter.bias"], h)
            found[t, k] = two_layers(w, "predict", h) - after
    return found


def numbers(module, prefix=""):
    return {
        name.removeprefix(prefix): x.detach().double().numpy().copy()
        for name, x in module.named_parameters()
    }


def experience(seed=0):
    """Sequences (T, K) of PLAN; a successor is what is acted on next, but at an end it is not."""
    rng, letters = np.random.default_rng(seed), np.array([list(row) for row in PLAN]).T
    first = np.vstack([np.array(BEGINS)[None], letters[:-1] != "s"])
    obs, last = rng.normal(size=(T + 1, K, OBS)), rng.normal(size=(T, K, OBS))
    next_obs = np.where((letters == "e")[..., None], last, obs[1:])
    no = np.zeros((T, K), bool)
    columns = [
        obs[:-1],
        rng.integers(A, size=(T, K)),
        rng.normal(size=(T, K)),
        next_obs,
        letters == "e",
        no,
        first,
    ]
    return Chunk(*(torch.as_tensor(x) for x in columns), torch.as_tensor(letters != "x"), {})


def shake(module, seed=0):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in module.parameters():
            p += 0.3 * torch.as_tensor(rng.normal(size=p.shape)).to(p.dtype)
    return module


def lwm():
    return shake(LWM((OBS,), Actions(spaces.Discrete(A)), LWMConfig(n, INPUTS, HIDDEN)).double())


def inputs_of(chunk):
    action = nn.functional.one_hot(chunk.action, A).double().flatten(0, 1)
    return {
        "obs": chunk.obs.flatten(0, 1),
        "next_obs": chunk.next_obs.flatten(0, 1),
        "action": action,
    }


def bonus_of(method="lwm+sm", kind=ReplayTrainer, seed=0, num_envs=K, **options):
    """In float64, seeing states as they are; everything is shaken, because V is born zero."""
    memory = MemoryConfig(**{"slots": N, "width": d, "w_hidden": WIDE} | options.pop("memory", {}))
    config = BonusConfig(memory=memory, lwm=LWMConfig(n, INPUTS, HIDDEN), **options)
    bonus = kind(method, (OBS,), num_envs, config, seed, spaces.Discrete(A)).double()
    bonus.model.obs_norm = nn.Identity()
    bonus.model.obs_norm.update = lambda obs: None
    return shake(bonus, seed)


def cut(chunk, rows):
    return Chunk(**{name: x[rows] for name, x in chunk.columns().items()}, extras={})


def by_steps(u, valid):
    return {(t, k): u[t, k].detach().numpy() for t, k in valid.nonzero().tolist()}


def agree(found, expected, rtol=1e-8):
    assert found.keys() == expected.keys()
    for step, value in expected.items():
        np.testing.assert_allclose(
            found[step], value, rtol=rtol, atol=rtol / 100, err_msg=str(step)
        )


# --- whitening and rolling ------------------------------------------------------------------------


def correlated(size=13, seed=0):
    """(size, n) with a mean and correlations, all of its directions of about the same size."""
    rng = np.random.default_rng(seed)
    return torch.as_tensor(
        rng.normal(size=(size, n)) @ (np.eye(n) + 0.4 * rng.normal(size=(n, n)))
        + rng.normal(size=n) * 9
    )


def own_whiten(x):
    x = x - x.mean(0)
    return (np.linalg.inv(np.linalg.cholesky(np.cov(x.T, ddof=1))) @ x.T).T


def test_whitened_is_mean_zero_and_covariance_one():
    white = whiten(correlated(200)).numpy()
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(white.T), np.eye(n), atol=5e-3)  # but for the jitter


def test_whitening_is_by_the_inverse_cholesky_factor():
    x = correlated()
    np.testing.assert_allclose(whiten(x), own_whiten(x.numpy()), rtol=1e-2, atol=2e-3)
    # Its factor is lower triangular, so the first direction is only centred and scaled.
    one = (x[:, 0] - x[:, 0].mean()) / x[:, 0].std()
    torch.testing.assert_close(whiten(x)[:, 0], one, rtol=1e-3, atol=1e-3)


def test_whitening_does_not_know_the_scale():
    x = correlated()
    torch.testing.assert_close(whiten(100 * x + 7), whiten(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("case", ["one", "constant", "rank one", "fewer than n", "twice the same"])
def test_whitening_survives_what_has_no_inverse(case, scale):
    x = correlated().float()
    x = {
        "one": x[:1],
        "constant": x[:1].repeat(13, 1),
        "rank one": x[:, :1] * torch.arange(1.0, n + 1),
        "fewer than n": x[: n - 2],
        "twice the same": x[:, [0, 1, 1, 2, 2]],
    }[case]
    x = (scale * x).requires_grad_()
    white = whiten(x)
    (white.square().sum() + white[0].sum()).backward()
    assert white.isfinite().all()
    assert x.grad.isfinite().all()


def test_the_loss_of_pairs_is_the_distance_of_jointly_whitened_neighbours():
    model, rng = lwm(), np.random.default_rng(1)
    a, b = (torch.as_tensor(rng.normal(size=(20, OBS)) + shift) for shift in (0.0, 0.5))
    w = numbers(model)
    z = np.stack([two_layers(w, "encoder", x) for x in torch.cat([a, b]).numpy()])
    white = own_whiten(z)
    expected = sum((white[i, j] - white[20 + i, j]) ** 2 for i in range(20) for j in range(n)) / (
        20 * n
    )
    loss = model.pair_loss(a, b, torch.Generator().manual_seed(0))
    assert loss.item() == pytest.approx(expected, rel=2e-2)
    assert model.pair_loss(a, a, torch.Generator().manual_seed(0)).item() == 0.0


def test_pairs_reach_the_encoder_alone():
    model = lwm()
    a, b = torch.randn(20, OBS).double(), torch.randn(20, OBS).double()
    model.pair_loss(a, b, torch.Generator().manual_seed(0)).backward()
    assert {
        name.split(".")[0]
        for name, p in model.named_parameters()
        if p.grad is not None and p.grad.any()
    } == {"encoder"}


def test_each_frame_is_rolled_by_a_shift_of_its_own():
    number, channels, height, width = 500, 2, 12, 15
    frames = torch.arange(number * channels * height * width).reshape(
        number, channels, height, width
    )
    rolled, shifts = roll(frames, torch.Generator().manual_seed(0)), []
    for one, other in zip(frames.numpy(), rolled.numpy(), strict=True):
        (at,) = np.argwhere(other[0] == one[0, 0, 0])  # where the corner went
        down, right = (
            (x + size // 2) % size - size // 2 for x, size in zip(at, (height, width), strict=True)
        )
        assert (other == np.roll(one, (down, right), (1, 2))).all()
        shifts.append((int(down), int(right)))
    assert {down for down, _ in shifts} == {right for _, right in shifts} == set(range(-4, 5))
    assert len(set(shifts)) == 81  # every combination, so one axis does not tell the other
    again = roll(frames, torch.Generator().manual_seed(0))
    assert torch.equal(again, rolled)


def test_neighbours_are_rolled_apart_and_vectors_are_not():
    images = LWM((1, 8, 8), Actions(spaces.Discrete(A)), LWMConfig(n, INPUTS, HIDDEN))
    a = torch.rand(20, 1, 8, 8)
    assert images.pair_loss(a, a, torch.Generator().manual_seed(0)) > 1e-3
    assert (
        lwm().pair_loss(*[torch.rand(20, OBS).double()] * 2, torch.Generator().manual_seed(0)) == 0
    )


def test_the_encoder_of_images_has_the_sizes_of_the_paper():
    """Convolutions 32/8/4, 64/4/2, 64/3/1 and one linear layer to 32, on bytes / 128 - 1."""
    bonus = ReplayTrainer("lwm", (1, 84, 84), 1, action_space=spaces.Discrete(A))
    layers = [m for m in bonus.model.surprise.encoder.modules() if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, m.kernel_size[0], m.stride[0]) for m in layers] == [
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    ]
    assert [
        m.out_features for m in bonus.model.surprise.encoder.modules() if isinstance(m, nn.Linear)
    ] == [32]
    assert bonus.model.obs_norm(torch.tensor([0, 64, 255], dtype=torch.uint8)).tolist() == [
        -1.0,
        -0.5,
        0.9921875,
    ]


# --- the world model ------------------------------------------------------------------------------


def test_surprise_is_the_foreseen_latent_minus_the_latent():
    model, chunk = lwm(), experience()
    inputs, _ = model.unroll(inputs_of(chunk), chunk.first, chunk.valid, model.start(K))
    u = model(inputs).unflatten(0, (T, K))
    agree(by_steps(u, chunk.valid), surprises(numbers(model), chunk))


def test_what_was_not_unrolled_opens_an_episode():
    model, chunk = lwm().float(), experience()
    chunk = replace(chunk, first=torch.ones_like(chunk.first))
    u = model({name: x.float() for name, x in inputs_of(chunk).items()}).unflatten(0, (T, K))
    agree(by_steps(u.double(), chunk.valid), surprises(numbers(model), chunk), rtol=1e-4)


def test_the_state_matters_and_ends_with_its_episode():
    """A change of the first action is felt until the episode's end, and no further."""
    model, chunk = lwm(), experience()
    action = chunk.action.clone()
    action[0] = (action[0] + 1) % A
    one, other = (surprises_of(model, c) for c in (chunk, replace(chunk, action=action)))
    felt = (one != other).any(-1)
    episode = torch.tensor([3, T, 1])  # steps until the first end of each sequence
    assert torch.equal(felt & chunk.valid, (torch.arange(T)[:, None] < episode) & chunk.valid)


def surprises_of(model, chunk, cuts=(T,)):
    carry, parts = model.start(chunk.shape[1]), []
    for rows in torch.arange(T).split(list(cuts)):
        part = cut(chunk, rows)
        inputs, carry = model.unroll(inputs_of(part), part.first, part.valid, carry)
        parts.append(model(inputs).detach().unflatten(0, part.shape))
    return torch.cat(parts)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_it_does_not_matter_where_a_sequence_is_cut(cuts):
    model, chunk = lwm(), experience()
    whole, parts = surprises_of(model, chunk), surprises_of(model, chunk, cuts)
    torch.testing.assert_close(parts[chunk.valid], whole[chunk.valid], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("kind", [Bonus, ReplayTrainer])
@pytest.mark.parametrize("method", ["lwm", "lwm+sm", "lwm+m"])
def test_nor_does_it_to_a_bonus(kind, method, cuts):
    bonus, chunk = bonus_of(method, kind), experience()
    whole, _, _ = bonus(chunk, bonus.start())
    carry, parts = bonus.start(), []
    for rows in torch.arange(T).split(cuts):
        raw, _, carry = bonus(cut(chunk, rows), carry)
        parts.append(raw)
    assert whole[chunk.valid].min() > 1e-3
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-9, atol=1e-11)


def size(u, loss):
    return np.sqrt(u @ u) if loss == "norm" else u @ u


def sequence_loss(model, chunk, weight, loss="squared"):
    with torch.no_grad():  # as a bonus asks
        inputs, _ = model.unroll(
            inputs_of(chunk), chunk.first, chunk.valid, model.start(chunk.shape[1])
        )
    rng, rows = torch.Generator().manual_seed(0), chunk.valid_rows()
    return model.sequence_losses(inputs, chunk, rows, loss, rng, weight.flatten()[rows])


@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_weights_multiply_the_loss_of_each_step(loss):
    """Each of the steps that happened counts its weight, and the loss is the mean over them."""
    model, chunk = lwm(), experience()
    sizes = {step: size(u, loss) for step, u in surprises(numbers(model), chunk).items()}
    weight = torch.rand(T, K, generator=torch.Generator().manual_seed(0)).double()
    u, weighted = sequence_loss(model, chunk, weight, loss)
    steps = [(t, k) for t, k in chunk.valid.nonzero().tolist()]
    found = dict(zip(steps, u.detach().numpy(), strict=True))
    agree(found, surprises(numbers(model), chunk))
    _, plain = sequence_loss(model, chunk, torch.ones(T, K).double(), loss)
    expected = sum(weight[step].item() * x for step, x in sizes.items()) / sum(sizes.values())
    assert weighted.keys() == {"surprise"}
    assert (weighted["surprise"] / plain["surprise"]).item() == pytest.approx(expected, rel=1e-9)
    mean = sum(sizes.values()) / len(sizes)
    assert plain["surprise"].item() == pytest.approx(mean, rel=1e-9)
    _, twice = sequence_loss(model, chunk, 2 * weight, loss)
    assert twice["surprise"].item() == pytest.approx(2 * weighted["surprise"].item())


@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_the_gradient_goes_through_time(loss):
    """It is the slope of the loops above along random directions; the encoder stands still."""
    model, chunk = lwm(), experience()
    weight = torch.rand(T, K, generator=torch.Generator().manual_seed(0)).double()
    _, losses = sequence_loss(model, chunk, weight, loss)
    losses["surprise"].backward()
    w, rng = numbers(model), np.random.default_rng(0)
    plain = sum(weight[step].item() * size(u, loss) for step, u in surprises(w, chunk).items())
    scale = losses["surprise"].item() / plain

    def at(name, way):
        moved = w | {name: w[name] + way}
        return scale * sum(
            weight[step].item() * size(u, loss) for step, u in surprises(moved, chunk, w).items()
        )

    for name, p in model.named_parameters():
        if name.startswith("encoder"):
            assert p.grad is None, name
            continue
        way = rng.normal(size=p.shape)
        slope = (at(name, 1e-5 * way) - at(name, -1e-5 * way)) / 2e-5
        assert (p.grad.numpy() * way).sum() == pytest.approx(slope, rel=1e-5, abs=1e-8), name
        assert abs(slope) > 1e-6


def test_an_early_action_is_to_blame_for_a_late_error():
    """Only the step t = 9 counts: the gradient comes from all steps of its episode up to it."""
    model, chunk = lwm(), experience()
    inputs, _ = model.unroll(inputs_of(chunk), chunk.first, chunk.valid, model.start(K))
    weight, action = torch.zeros(T, K).double(), inputs["action"].clone().requires_grad_()
    weight[9] = 1.0
    rng, rows = torch.Generator().manual_seed(0), chunk.valid_rows()
    _, losses = model.sequence_losses(
        inputs | {"action": action}, chunk, rows, "squared", rng, weight.flatten()[rows]
    )
    losses["surprise"].backward()
    blamed = action.grad.unflatten(0, (T, K)).any(-1)
    begins = torch.tensor([4, 0, 5])  # of the episode that is running at t = 9
    steps = torch.arange(T)[:, None]
    assert torch.equal(blamed, (steps >= begins) & (steps <= 9))


def test_single_steps_teach_each_part_by_its_own_loss():
    """On-policy: the world model's loss leaves the encoder alone, the pairs' loss all the rest."""
    bonus, chunk = bonus_of("lwm", Bonus), experience()
    _, trace, _ = bonus(chunk, bonus.start())
    losses = bonus.losses(trace, chunk.valid_rows())
    assert losses.keys() == {"surprise", "pairs"}
    parts = {"surprise": {"enter", "cell", "predict"}, "pairs": {"encoder"}}
    for name, loss in losses.items():
        bonus.zero_grad()
        loss.backward(retain_graph=True)
        reached = {
            key.split(".")[1]
            for key, p in bonus.model.named_parameters()
            if p.grad is not None and p.grad.any()
        }
        assert reached == parts[name]


# --- learning from replayed sequences -------------------------------------------------------------


def read(k, M, how):
    cosine = np.array([k @ m / np.sqrt((k @ k) * (m @ m)) for m in M])
    if not M:
        return np.zeros(d)
    share = {"cosine": cosine, "ntm": np.exp(20 * cosine) / np.exp(20 * cosine).sum()}[how]
    return sum(w * m for w, m in zip(share, M, strict=True))


def novelty(bonus, chunk, how):
    """{(t, k): reward}: sequence by sequence with a queue of N keys, empty at every `first`."""
    w, queue, found = numbers(bonus.model), deque(maxlen=N), {}
    u_of = surprises(numbers(bonus.model.surprise), chunk)
    for k in range(chunk.shape[1]):
        queue.clear()
        for t in range(T):
            if not chunk.valid[t, k]:
                continue
            if chunk.first[t, k]:
                queue.clear()
            u = u_of[t, k]
            key = u @ w["memory.m.Q"]
            q = np.concatenate([read(key, list(queue), how) @ w["memory.m.V"], u])
            inner = np.tanh(w["memory.w.encode.weight"] @ q + w["memory.w.encode.bias"])
            left = w["memory.w.decode.weight"] @ inner + w["memory.w.decode.bias"] - q
            found[t, k] = np.sqrt(left @ left)
            queue.append(key)
    return found


def standardised(rewards, clip=10.0):
    m, s = np.mean(list(rewards.values())), np.std(list(rewards.values()))
    return {step: np.clip((r - m) / s, -clip, clip) for step, r in rewards.items()}


@pytest.mark.parametrize("how", ["cosine", "ntm"])
def test_the_memory_of_a_replayed_sequence_is_a_queue_that_starts_empty(how):
    for seed in range(3):
        bonus, chunk = bonus_of(memory={"read": how}, seed=seed), experience(seed)
        expected = novelty(bonus, chunk, how)
        raw, _, _ = bonus(chunk, bonus.start())
        agree(by_steps(raw, chunk.valid), expected)
        assert not raw[~chunk.valid].any()
        # Acting leaves its mark on the memories of the environments, not on replayed ones.
        paid, _ = bonus.train_on(chunk, torch.ones(K).double())
        agree(
            by_steps(paid, chunk.valid), standardised(expected), rtol=1e-4
        )  # it is paid in float32
        assert not paid[~chunk.valid].any()


def test_the_comparison_of_memories_has_teeth():
    """Another length, a queue that is not wiped, or one that begins full would be seen."""
    bonus, chunk = bonus_of(memory={"read": "cosine"}), experience()
    right, _, carry = bonus(chunk, bonus.start())
    began_full, _, _ = bonus(chunk, carry)
    deaf, _, _ = bonus(replace(chunk, first=torch.zeros_like(chunk.first)), bonus.start())
    bonus.model.memory.m.slots = N - 1
    short, _, _ = bonus(chunk, bonus.start())
    for wrong in (began_full, deaf, short):
        assert (wrong - right)[chunk.valid].abs().max() > 1e-3


def test_more_slots_than_steps_are_no_other_memory():
    chunk = experience()
    paid = [
        bonus_of(memory={"slots": slots}).train_on(chunk, torch.ones(K).double())[0]
        for slots in (T, 3 * T)
    ]
    torch.testing.assert_close(*paid, rtol=1e-5, atol=1e-6)


def state(bonus, part=""):
    return {name: x.clone() for name, x in bonus.model.named_parameters() if name.startswith(part)}


def moved(before, bonus, part=""):
    return {name for name, x in state(bonus, part).items() if not torch.equal(x, before[name])}


def test_sequences_leave_the_encoder_alone_and_pairs_all_the_rest():
    """Also when Adam has a momentum to go on with."""
    bonus, chunk = bonus_of(), experience()
    a, b = (
        torch.randn(20, OBS, generator=torch.Generator().manual_seed(i)).double() for i in range(2)
    )
    encoder = {name for name in state(bonus) if name.startswith("surprise.encoder")}
    for _ in range(2):
        before = state(bonus)
        bonus.train_on(chunk, torch.ones(K).double())
        assert moved(before, bonus) == before.keys() - encoder
        before = state(bonus)
        bonus.update_encoder(a, b)
        assert moved(before, bonus) == encoder


def gradient(bonus, chunk, weight):
    bonus.train_on(chunk, weight)
    return {
        name: p.grad.clone() for name, p in bonus.model.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("method", ["lwm", "lwm+sm"])
@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_only_what_has_a_weight_teaches(method, loss):
    """All weights zero but one: up to its scale, the gradient is that of this sequence alone."""
    chunk = experience()
    for k in range(K):
        weight = torch.zeros(K).double()
        weight[k] = 0.5
        among = gradient(bonus_of(method, loss=loss, memory={"loss": loss}), chunk, weight)
        alone = cut_sequence(chunk, k)
        single = gradient(
            bonus_of(method, loss=loss, memory={"loss": loss}), alone, torch.ones(1).double()
        )
        assert among.keys() == single.keys()
        scale = among["surprise.enter.bias"].sum() / single["surprise.enter.bias"].sum()
        assert scale > 0
        for name, g in among.items():
            torch.testing.assert_close(g, scale * single[name], rtol=1e-6, atol=1e-10)


def cut_sequence(chunk, k):
    return Chunk(**{name: x[:, k : k + 1] for name, x in chunk.columns().items()}, extras={})


def test_every_loss_is_weighted_alike():
    """L_SG, L_M and L_W of weights w are linear in w, with one factor for all."""
    bonus, chunk = bonus_of(), experience()
    reports = []
    for weight in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.2, 1.0, 0.7]):
        twin = copy.deepcopy(bonus)
        reports.append(twin.train_on(chunk, torch.tensor(weight).double())[1])
    for name in ("losses/surprise", "losses/m", "losses/w"):
        one, two, three, mixed = (report[name] for report in reports)
        assert min(one, two, three) > 1e-3
        assert mixed == pytest.approx(0.2 * one + two + 0.7 * three, rel=1e-6)
    # and each is the sum of its own steps that happened
    sizes = {step: u @ u for step, u in surprises(numbers(bonus.model.surprise), chunk).items()}
    totals = [sum(x for (_, k), x in sizes.items() if k == column) for column in range(K)]
    assert not chunk.valid.all()
    assert [r["losses/surprise"] / totals[k] for k, r in enumerate(reports[:3])] == pytest.approx(
        [reports[0]["losses/surprise"] / totals[0]] * 3
    )


@pytest.mark.parametrize("junk", [7.0, 1e200, torch.nan])  # the square of 1e200 is infinite
@pytest.mark.parametrize("method", ["lwm", "lwm+sm"])
def test_rows_that_never_happened_reach_nothing(method, junk):
    """Whatever they hold: not the rewards of the others, not the weights, not the statistics."""
    chunk, outcomes = experience(), []
    hole = ~chunk.valid[..., None]
    for filling in (0.0, junk):
        bonus = bonus_of(method)
        filled = replace(
            chunk,
            obs=torch.where(hole, filling, chunk.obs),
            next_obs=torch.where(hole, filling, chunk.next_obs),
        )
        reward, metrics = bonus.train_on(filled, torch.tensor([1.0, 0.5, 0.3]).double())
        outcomes.append((reward, metrics, state(bonus), bonus.scaler.mean, bonus.scaler.spread))
    calm, wild = outcomes
    torch.testing.assert_close(wild[0], calm[0], rtol=1e-5, atol=1e-6)
    assert wild[1] == pytest.approx(calm[1], rel=1e-6)
    for name, x in calm[2].items():
        torch.testing.assert_close(wild[2][name], x, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(wild[3:], calm[3:])


# --- the standardiser -----------------------------------------------------------------------------


def test_the_standardiser_by_hand():
    scaler = Standardiser()
    assert scaler(torch.tensor([5.0, -5.0])).tolist() == [0.0, 0.0]  # nothing is known
    scaler.update(torch.tensor([]))
    assert scaler(torch.tensor([5.0])).tolist() == [0.0]
    scaler.update(torch.tensor([1.0, 3.0]))  # m = 2, s = 1
    assert scaler(torch.tensor([2.0, 5.0, 0.5])).tolist() == [0.0, 3.0, -1.5]
    scaler.update(
        torch.tensor([6.0, 18.0, 12.0, 12.0])
    )  # its mean is 12, its std sqrt(72 / 4) = 4.242641
    m, s = (2 + 12) / 2, (1 + 18**0.5) / 2  # plain averages until there are a thousand batches
    assert (scaler.mean.item(), scaler.std.item()) == pytest.approx((m, s), rel=1e-9)
    assert scaler(torch.tensor([m, m + 2 * s])).tolist() == pytest.approx([0.0, 2.0], abs=1e-5)
    assert scaler(torch.tensor([1e6, -1e6, m + 9.9 * s, m - 10.1 * s])).tolist() == pytest.approx(
        [10, -10, 9.9, -10], rel=1e-5
    )
    before = scaler.mean.item(), scaler.std.item()
    scaler.update(torch.tensor([]))
    assert (scaler.mean.item(), scaler.std.item()) == before
    for batches, rate in ((998, 1 / 999), (999, 0.001), (5000, 0.001)):
        scaler.mean.fill_(2.0)
        scaler.spread.fill_(1.0)
        scaler.batches.fill_(batches)
        scaler.update(torch.tensor([6.0, 18.0, 12.0, 12.0]))
        expected = 2 + rate * (12 - 2), 1 + rate * (18**0.5 - 1)
        assert (scaler.mean.item(), scaler.std.item()) == pytest.approx(expected, rel=1e-9)


def test_the_standardiser_is_saved():
    scaler, twin = Standardiser(), Standardiser()
    scaler.update(torch.tensor([1.0, 3.0]))
    twin.load_state_dict(scaler.state_dict())
    for one in (scaler, twin):
        one.update(torch.tensor([7.0, 9.0]))
    assert twin(torch.tensor([4.0])).item() == scaler(torch.tensor([4.0])).item() != 0.0


def test_constant_rewards_are_worth_nothing():
    scaler = Standardiser()
    scaler.update(torch.full((5,), 3.0))
    assert scaler(torch.tensor([3.0])).tolist() == [0.0]
    assert scaler(torch.tensor([4.0, 2.0])).tolist() == [10.0, -10.0]


def test_a_warm_up_teaches_the_networks_and_not_the_scale():
    bonus, chunk = bonus_of(), experience()
    before = state(bonus)
    reward, _ = bonus.train_on(chunk, torch.ones(K).double(), warmup=True)
    assert not reward.any()
    assert bonus.scaler.batches == 0
    assert moved(before, bonus)
    bonus.train_on(chunk, torch.ones(K).double())
    known = bonus.scaler.mean.item(), bonus.scaler.std.item()
    assert known[1] > 1e-3
    bonus.train_on(chunk, torch.ones(K).double(), warmup=True)
    assert (bonus.scaler.mean.item(), bonus.scaler.std.item()) == known


def test_the_scale_learns_from_the_rewards_of_steps_that_happened_before_the_update():
    """Each counts once, whatever its weight; the second batch counts as much as the first."""
    bonus, chunk, seen = bonus_of(), experience(), []
    for _ in range(2):
        raw, _, _ = bonus(chunk, bonus.start())
        seen.append(raw[chunk.valid].double().numpy())
        bonus.train_on(chunk, torch.tensor([1.0, 0.1, 0.0]).double())
    (m, s), (m2, s2) = ((x.mean(), x.std()) for x in seen)
    assert abs(m - m2) > 1e-6
    assert bonus.scaler.mean.item() == pytest.approx((m + m2) / 2, rel=1e-9)
    assert bonus.scaler.std.item() == pytest.approx((s + s2) / 2, rel=1e-9)


def test_asking_moves_nothing():
    bonus, chunk = bonus_of(), experience()
    bonus.train_on(chunk, torch.ones(K).double())
    before = copy.deepcopy(bonus.state_dict())
    raw, _, _ = bonus(chunk, bonus.start())
    assert torch.equal(raw, bonus(chunk, bonus.start())[0])
    bonus.reward(raw)
    after = bonus.state_dict()
    assert all(
        torch.equal(x, after[name]) for name, x in before.items() if isinstance(x, torch.Tensor)
    )


def test_a_step_after_one_that_never_happened_knows_nothing_of_it_while_acting():
    """A whole rollout at once, as on-policy: a NaN in between must not reach the episode behind."""
    bonus, chunk = bonus_of("lwm", kind=Bonus), experience()
    hole = ~chunk.valid[..., None]
    wild = replace(
        chunk,
        obs=torch.where(hole, torch.nan, chunk.obs),
        next_obs=torch.where(hole, torch.nan, chunk.next_obs),
    )
    calm, _, _ = bonus(chunk, bonus.start())
    found, _, _ = bonus(wild, bonus.start())
    assert hole.any() and found.isfinite().all()
    torch.testing.assert_close(found, calm, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sizes", [(4, 16, 16), (33, 20, 130)])
def test_one_step_is_that_of_torchs_cell_and_so_is_its_gradient(sizes):
    rows, inputs, hidden = sizes
    cell = nn.GRUCell(inputs, hidden)
    x, h = torch.randn(rows, inputs), torch.randn(rows, hidden)
    grads = []
    for step in (cell, partial(gru_step, cell)):
        cell.zero_grad()
        after = step(x, h)
        after.square().sum().backward()
        grads.append([after, *(p.grad.clone() for p in cell.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
