"""ICM, AE, Disagreement and the action encoding against their papers' formulas, in float64.

NumPy and plain loops. As in test_reference, `still` is a copy of the weights that nobody
differentiates: a detached thing is computed with it. The mistakes of public ports are put into the
formulas by hand (`bug`), and the comparison has to see each of them.
"""

import itertools

import numpy as np
import pytest
import torch
from fakes import chunk_of as successors
from gymnasium import spaces
from test_reference import grads, shake, weights_of

from surprise_memory import (
    AEConfig,
    Bonus,
    BonusConfig,
    Chunk,
    DisagreementConfig,
    ICMConfig,
    UserError,
)
from surprise_memory.nn.actions import Actions
from surprise_memory.surprise import SURPRISES
from surprise_memory.surprise.disagreement import deviations

T, B, n, HIDDEN, OBS, K = (
    9,
    2,
    5,
    8,
    7,
    3,
)  # and 4 discrete actions or 6 continuous ones: all different
SPACES = {
    "discrete": spaces.Discrete(4, start=-1),
    "box": spaces.Box(
        np.array([-2, 0, -np.inf, -4, -1, 0], np.float32),
        np.array([2, 8, np.inf, 4, 1, 4], np.float32),
    ),
}


# --- networks and actions, in loops ---------------------------------------------------------------


def perceptron(weights, name, x, bend, pick=lambda A: A, part="surprise"):
    """Linear layers with `bend` between them, for one input; `pick` chooses one of an ensemble."""
    at = sorted(
        int(key.split(".")[-2])
        for key in weights
        if key.startswith(f"{part}.{name}.") and key.endswith("weight")
    )
    for i in at:
        A = pick(weights[f"{part}.{name}.{i}.weight"])
        b = pick(weights[f"{part}.{name}.{i}.bias"])
        x = A @ x + b
        x = bend(x) if i != at[-1] else x
    return x


def relu(x):
    return np.maximum(x, 0.0)


def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


def as_numbers(space, action):
    """One-hot, or every bounded coordinate mapped from [low, high] to [-1, 1]."""
    if isinstance(space, spaces.Discrete):
        return np.array([float(action == space.start + i) for i in range(space.n)])
    middle, half = np.zeros(len(action)), np.ones(len(action))
    for i, (low, high) in enumerate(zip(space.low, space.high, strict=True)):
        if np.isfinite(low) and np.isfinite(high):
            middle[i], half[i] = (low + high) / 2, (high - low) / 2
    return (action - middle) / half


# --- experience and bonuses -----------------------------------------------------------------------


def travel(space, rng):
    """A float64 chunk whose columns have nothing in common; environment 1 is reset after step 3."""
    obs, next_obs = rng.normal(size=(2, T, B, OBS))
    obs[1:, 0], obs[1:, 1] = (
        next_obs[:-1, 0],
        np.where(np.arange(1, T)[:, None] == 4, obs[1:, 1], next_obs[:-1, 1]),
    )
    if isinstance(space, spaces.Discrete):
        action = rng.integers(space.start, space.start + space.n, size=(T, B))
    else:
        low, high = (
            np.where(np.isfinite(x), x, side) for x, side in ((space.low, -0.5), (space.high, 0.5))
        )
        action = (
            low + (high - low) * rng.integers(0, 17, size=(T, B, len(low))) / 16
        )  # exact in float32
    done = torch.zeros(T, B, dtype=torch.bool)
    done[3, 1] = True
    first = torch.cat([torch.ones(1, B, dtype=torch.bool), done[:-1]])
    x = [torch.as_tensor(c) for c in (obs, action, next_obs)]
    return Chunk(x[0], x[1], torch.zeros(T, B), x[2], done, done & False, first, done | True, {})


def made(method, space=SPACES["discrete"], seed=0, shape=(OBS,), **config):
    """A float64 bonus that sees observations as they are, with weights that are nowhere zero."""
    bonus = Bonus(method, shape, B, BonusConfig(**config), seed, space)
    bonus.model.obs_norm = torch.nn.Identity()
    bonus.double()
    shake(bonus, np.random.default_rng(seed))
    return bonus


def transitions(chunk, space):
    """[(s, a, s')] of the flattened steps."""
    columns = (getattr(chunk, name).flatten(0, 1).numpy() for name in ("obs", "action", "next_obs"))
    return [(s, as_numbers(space, a), after) for s, a, after in zip(*columns, strict=True)]


def close(a, b):
    return bool(np.allclose(a, b, rtol=1e-7, atol=1e-9))


def slopes(loss, now, rng, bug=None, eps=1e-6):
    """{(name, parameter, turn): (direction, central difference of the loss along it)}."""
    found = {}
    for parameter, turn in itertools.product(now, range(2)):
        way = rng.normal(size=now[parameter].shape)
        up, down = (
            now | {parameter: now[parameter] + eps * way},
            now | {parameter: now[parameter] - eps * way},
        )
        high, low = (loss(w, w if bug == "target not detached" else now) for w in (up, down))
        found |= {
            (name, parameter, turn): (way, (high[name] - low[name]) / (2 * eps)) for name in high
        }
    return found


def steepness(gradients, way):
    return 0.0 if gradients is None else float((gradients.numpy() * way).sum())


# --- ICM ------------------------------------------------------------------------------------------


class Curious:
    """ICM for one transition at a time."""

    def __init__(self, discrete=True, loss="squared", detach_features=False, inverse_coef=1.0):
        self.discrete, self.loss, self.detach, self.coef = (
            discrete,
            loss,
            detach_features,
            inverse_coef,
        )

    def surprise(self, now, still, s, a, after):
        known = perceptron(still if self.detach else now, "phi", s, relu)
        return perceptron(now, "forward_model", np.concatenate([known, a]), relu) - perceptron(
            still, "phi", after, relu
        )

    def inverse(self, now, s, a, after):
        both = np.concatenate(
            [perceptron(now, "phi", s, relu), perceptron(now, "phi", after, relu)]
        )
        guess = perceptron(now, "inverse_model", both, relu)
        if self.discrete:
            return np.log(sum(np.exp(guess))) - guess[int(np.argmax(a))]
        return sum((guess - a) ** 2)

    def losses(self, now, still, rows):
        total = {"surprise": 0.0, "inverse": 0.0}
        for row in rows:
            u = self.surprise(now, still, *row)
            total["surprise"] += (np.sqrt(u @ u) if self.loss == "norm" else u @ u) / len(rows)
            total["inverse"] += self.coef * self.inverse(now, *row) / len(rows)
        return total


def curiosity(kind="discrete", loss="squared", seed=0, **options):
    """(bonus, chunk, the transitions, ICM in loops)."""
    space, rng = SPACES[kind], np.random.default_rng(seed)
    bonus = made("icm", space, icm=ICMConfig(n, HIDDEN, **options), loss=loss)
    chunk = travel(space, rng)
    return bonus, chunk, transitions(chunk, space), Curious(kind == "discrete", loss, **options)


@pytest.mark.parametrize("kind", SPACES)
def test_icm_surprise_is_the_predicted_minus_the_seen_feature(kind):
    bonus, chunk, rows, paper = curiosity(kind)
    raw, trace, _ = bonus(chunk, bonus.start())
    now = weights_of(bonus)
    want = np.array([paper.surprise(now, now, *row) for row in rows]).reshape(T, B, n)
    np.testing.assert_allclose(trace.u, want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(raw, np.linalg.norm(want, axis=-1), rtol=1e-9)


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("loss", ["norm", "squared"])
@pytest.mark.parametrize("kind", SPACES)
def test_icm_losses_and_gradients_are_the_formulas(kind, loss, detach):
    bonus, chunk, rows, paper = curiosity(kind, loss, detach_features=detach, inverse_coef=0.5)
    _, trace, _ = bonus(chunk, bonus.start())
    some = [1, 4, 6, 11, 15]
    losses, now = bonus.losses(trace, torch.tensor(some)), weights_of(bonus)
    want = paper.losses(now, now, [rows[i] for i in some])
    assert losses.keys() == want.keys()
    for name in losses:
        np.testing.assert_allclose(losses[name].item(), want[name], rtol=1e-9)
    got = {name: grads(bonus, loss) for name, loss in losses.items()}
    rng = np.random.default_rng(1)
    for (name, p, _), (way, slope) in slopes(
        lambda a, b: paper.losses(a, b, [rows[i] for i in some]), now, rng
    ).items():
        np.testing.assert_allclose(
            steepness(got[name][p], way), slope, rtol=1e-5, atol=1e-6, err_msg=f"d {name} / d {p}"
        )


def test_an_icm_target_that_learns_would_be_seen():
    bonus, chunk, rows, paper = curiosity()
    _, trace, _ = bonus(chunk, bonus.start())
    got, now = grads(bonus, bonus.losses(trace, torch.arange(T * B))["surprise"]), weights_of(bonus)

    def agree(bug):
        found = slopes(lambda a, b: paper.losses(a, b, rows), now, np.random.default_rng(1), bug)
        slope = {key: x for key, x in found.items() if key[0] == "surprise"}
        return all(
            np.isclose(steepness(got[p], way), x, 1e-5, 1e-6)
            for (_, p, _), (way, x) in slope.items()
        )

    assert agree(None)
    assert not agree("target not detached")


@pytest.mark.parametrize("detach", [False, True])
def test_icm_forward_loss_reaches_the_features_unless_they_are_detached(detach):
    bonus, chunk, _, _ = curiosity(detach_features=detach)
    _, trace, _ = bonus(chunk, bonus.start())
    losses = bonus.losses(trace, torch.arange(T * B))
    moved = {}
    for name, loss in losses.items():
        moved[name] = {
            p.split(".")[1] for p, g in grads(bonus, loss).items() if g is not None and g.any()
        }
    assert moved["surprise"] == {"forward_model"} | (set() if detach else {"phi"})
    assert moved["inverse"] == {"phi", "inverse_model"}


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("shape", [(OBS,), (1, 12, 10)], ids=["vector", "image"])
def test_every_weight_of_icm_learns(shape, detach):
    """A public port held its residual blocks in a plain list: they were never trained."""
    config = BonusConfig(
        icm=ICMConfig(n, HIDDEN, detach_features=detach),
        lr=0.01,
        epochs=1,
        minibatches=1,
        proportion=1.0,
    )
    bonus = Bonus("icm", shape, B, config, 0, spaces.Discrete(4))
    before = {name: p.detach().clone() for name, p in bonus.model.named_parameters()}
    states = torch.randn(T, B, *shape, generator=torch.Generator().manual_seed(0))
    bonus.train_on(successors(states), bonus.start())
    assert all(p.grad is not None and p.grad.any() for p in bonus.parameters())
    assert not [name for name, p in bonus.model.named_parameters() if torch.equal(p, before[name])]


@pytest.mark.parametrize("method", ["icm", "ae", "disagreement", "ngu"])
def test_a_state_dict_holds_every_weight(method):
    """What is not registered would neither be saved nor trained."""
    bonus, other = (
        Bonus(method, (OBS,), B, BonusConfig(), seed, spaces.Discrete(4)) for seed in (0, 1)
    )
    chunk = successors(torch.randn(T, B, OBS, generator=torch.Generator().manual_seed(0)))
    bonus.train_on(chunk, bonus.start())
    other.load_state_dict(bonus.state_dict())
    got, want = (x(chunk, x.start())[1] for x in (other, bonus))
    assert torch.equal(got.u, want.u)
    assert all(torch.equal(got.inputs[name], want.inputs[name]) for name in want.inputs)
    for name, stage in want.stages.items():
        for column, values in (stage.inputs | stage.record).items():
            loaded = got.stages[name].inputs | got.stages[name].record
            assert torch.equal(loaded[column], values)


def test_one_icm_bonus_for_a_whole_batch_would_be_seen():
    """RLeXplore pays the mean over a batch to each of its steps."""
    bonus, chunk, rows, paper = curiosity()
    raw, _, _ = bonus(chunk, bonus.start())
    now = weights_of(bonus)
    want = np.array([np.linalg.norm(paper.surprise(now, now, *row)) for row in rows]).reshape(T, B)
    assert close(raw, want)
    assert len(np.unique(raw.numpy().round(9))) == T * B
    for axis in (None, 0, 1):
        assert not close(raw, np.broadcast_to(want.mean(axis, keepdims=True), (T, B)))


@pytest.mark.parametrize("method", ["icm", "disagreement"])
@pytest.mark.parametrize("column", ["obs", "action", "next_obs"])
def test_a_transition_is_paid_for_itself_alone(method, column):
    bonus, chunk = (
        made(method, icm=ICMConfig(n, HIDDEN), disagreement=DisagreementConfig(K, n, HIDDEN)),
        curiosity()[1],
    )
    raw, _, _ = bonus(chunk, bonus.start())
    moved = getattr(chunk, column).clone()
    moved[4, 1] = 1 - moved[4, 1]
    other, _, _ = bonus(Chunk(**(chunk.columns() | {column: moved}), extras={}), bonus.start())
    changed = np.argwhere((raw != other).numpy()).tolist()
    assert changed == ([] if (method, column) == ("disagreement", "next_obs") else [[4, 1]])


def test_icm_given_the_frame_after_a_reset_would_be_seen():
    bonus, chunk, rows, paper = curiosity()
    raw, now = bonus(chunk, bonus.start())[0].flatten(), weights_of(bonus)
    frames = chunk.obs.flatten(0, 1).numpy()

    def paid(shifted):
        """All steps but the last; the next row's obs is the successor, except after an end."""
        seen = [
            (s, a, frames[i + B] if shifted else after) for i, (s, a, after) in enumerate(rows[:-B])
        ]
        return np.array([np.linalg.norm(paper.surprise(now, now, *row)) for row in seen])

    assert close(raw[:-B], paid(False))
    assert np.flatnonzero(~np.isclose(raw[:-B], paid(True))).tolist() == [3 * B + 1]


def test_inverse_coef_weighs_the_inverse_loss_alone():
    one, two = (curiosity(inverse_coef=c) for c in (1.0, 0.25))
    (bonus, chunk), rows = one[:2], torch.arange(T * B)
    a, b = (x.losses(x(chunk, x.start())[1], rows) for x in (bonus, two[0]))
    assert b["inverse"].item() == pytest.approx(0.25 * a["inverse"].item(), rel=1e-12)
    assert b["surprise"] == a["surprise"]


# --- AE -------------------------------------------------------------------------------------------


def test_ae_surprise_is_the_reconstruction_minus_the_successor():
    bonus, rng = made("ae", ae=AEConfig(n, HIDDEN)), np.random.default_rng(0)
    chunk = travel(SPACES["discrete"], rng)
    _, trace, _ = bonus(chunk, bonus.start())
    assert bonus.model.surprise.n == OBS
    for t, b in np.ndindex(T, B):
        x = chunk.next_obs[t, b].numpy()
        np.testing.assert_allclose(
            trace.u[t, b], perceptron(weights_of(bonus), "autoencoder", x, np.tanh) - x, rtol=1e-9
        )


@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_ae_loss_is_the_size_of_its_surprise(loss):
    bonus = made("ae", ae=AEConfig(n, HIDDEN), loss=loss)
    _, trace, _ = bonus(travel(SPACES["discrete"], np.random.default_rng(0)), bonus.start())
    rows = [0, 3, 10]
    size = [np.linalg.norm(trace.u.flatten(0, 1)[i]) ** (1 if loss == "norm" else 2) for i in rows]
    losses = bonus.losses(trace, torch.tensor(rows))
    assert list(losses) == ["surprise"]
    assert losses["surprise"].item() == pytest.approx(np.mean(size), rel=1e-12)


def test_ae_reconstructs_the_whitened_and_clipped_observation():
    bonus = Bonus("ae", (OBS,), B, BonusConfig(ae=AEConfig(n, HIDDEN)))
    past, now = np.random.default_rng(0).normal(3.0, 4.0, size=(2, T, B, OBS)).astype(np.float32)
    now[2, 1, 4] = 500.0
    bonus.train_on(successors(torch.as_tensor(past)), bonus.start())
    _, trace, _ = bonus(successors(torch.as_tensor(now)), bonus.start())
    flat = past.reshape(-1, OBS).astype(np.float64)
    x = np.clip((now - flat.mean(0)) / flat.std(0), -5, 5)
    assert x[2, 1, 4] == 5
    weights = {name: w.astype(np.float64) for name, w in weights_of(bonus).items()}
    want = [perceptron(weights, "autoencoder", row, np.tanh) - row for row in x.reshape(-1, OBS)]
    np.testing.assert_allclose(trace.u.flatten(0, 1), want, rtol=1e-4, atol=2e-5)


def test_ae_of_images_reconstructs_a_frozen_embedding():
    bonus = Bonus("ae", (1, 12, 10), B, BonusConfig(ae=AEConfig(n, HIDDEN), lr=0.1))
    images = torch.randint(
        0, 256, (T, B, 1, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    _, trace, _ = bonus(successors(images), bonus.start())
    x = bonus.model.surprise.embed(bonus.model.obs_norm(images.flatten(0, 1).float())).detach()
    want = [perceptron(weights_of(bonus), "autoencoder", row, np.tanh) - row for row in x.numpy()]
    assert trace.u.shape == (T, B, n)
    np.testing.assert_allclose(trace.u.flatten(0, 1), want, rtol=1e-4, atol=1e-5)
    before = [p.clone() for p in bonus.model.surprise.embed.parameters()]
    bonus.train_on(successors(images), bonus.start())
    assert all(
        p.grad is None and not p.requires_grad for p in bonus.model.surprise.embed.parameters()
    )
    assert all(
        torch.equal(p, q)
        for p, q in zip(bonus.model.surprise.embed.parameters(), before, strict=True)
    )
    assert all(
        p.grad is not None and p.grad.any() for p in bonus.model.surprise.autoencoder.parameters()
    )


# --- Disagreement ---------------------------------------------------------------------------------


def opinions(weights, s, a):
    """(K, m) predictions of one transition."""
    x = np.concatenate([perceptron(weights, "phi", s, relu), a])
    return np.array(
        [perceptron(weights, "models", x, leaky, lambda A, k=k: A[k].T.squeeze()) for k in range(K)]
    )


def spread(guess, bug=None):
    """Mean over features of the variance over models."""
    total = 0.0
    for feature in guess.T:
        middle = sum(feature) / len(feature)
        total += sum((x - middle) ** 2 for x in feature) / (
            len(feature) - (bug == "sample variance")
        )
    return (
        np.sqrt(total / guess.shape[1]) if bug == "standard deviation" else total / guess.shape[1]
    )


def ensemble(keep=1.0, power=1, kind="discrete", **config):
    """(bonus, chunk, transitions)."""
    space = SPACES[kind]
    bonus = made(
        "disagreement",
        space,
        disagreement=DisagreementConfig(K, n, HIDDEN, keep),
        power=power,
        **config,
    )
    chunk = travel(space, np.random.default_rng(0))
    return bonus, chunk, transitions(chunk, space)


def test_disagreement_by_hand():
    """Of 1, 2, 6 the variance is 14/3, of 0, 0, 3 it is 2; the mean over both features is 10/3."""
    guess = torch.tensor(
        [[[1.0, 0.0]], [[2.0, 0.0]], [[6.0, 3.0]]], dtype=torch.float64
    )  # (K, rows, m)
    u = deviations(guess)
    assert u.shape == (1, 6)
    assert u.square().sum().item() == pytest.approx(10 / 3, rel=1e-12)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kind", SPACES)
def test_disagreement_pays_the_variance_whatever_the_power(kind, power):
    bonus, chunk, rows = ensemble(power=power, kind=kind)
    raw, _, _ = bonus(chunk, bonus.start())
    want = [spread(opinions(weights_of(bonus), s, a)) for s, a, _ in rows]
    np.testing.assert_allclose(raw.flatten(), want, rtol=1e-9)


@pytest.mark.parametrize("bug", ["sample variance", "standard deviation"])
def test_another_measure_of_disagreement_would_be_seen(bug):
    bonus, chunk, rows = ensemble()
    raw = bonus(chunk, bonus.start())[0].flatten()
    assert close(raw, [spread(opinions(weights_of(bonus), s, a)) for s, a, _ in rows])
    assert not close(raw, [spread(opinions(weights_of(bonus), s, a), bug) for s, a, _ in rows])


def mistakes(weights, s, a, after):
    """(K,) mean squared errors of one transition."""
    return ((opinions(weights, s, a) - perceptron(weights, "phi", after, relu)) ** 2).mean(1)


def test_disagreement_loss_is_the_sum_over_models_of_their_mean_squared_errors():
    bonus, chunk, rows = ensemble(keep=1.0)
    _, trace, _ = bonus(chunk, bonus.start())
    some = [0, 5, 7, 16]
    losses = bonus.losses(trace, torch.tensor(some))
    assert list(losses) == ["surprise"]
    want = np.mean([mistakes(weights_of(bonus), *rows[i]) for i in some], axis=0).sum()
    assert losses["surprise"].item() == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("loss", ["norm", "squared"])
def test_each_model_learns_from_its_own_share_of_the_rows(loss):
    """With two rows and three models a loss is the sum of some of six known numbers."""
    keep, some = 0.5, [5, 16]
    bonus, chunk, rows = ensemble(keep, loss=loss)
    _, trace, _ = bonus(chunk, bonus.start())
    parts = np.concatenate([mistakes(weights_of(bonus), *rows[i]) for i in some]) / len(some) / keep
    masks = np.array(list(itertools.product([0, 1], repeat=len(parts))))
    drawn = []
    for _ in range(200):
        error = np.abs(masks @ parts - bonus.losses(trace, torch.tensor(some))["surprise"].item())
        assert error.min() < 1e-9 * parts.sum()
        drawn.append(masks[error.argmin()])
    np.testing.assert_allclose(np.mean(drawn, axis=0), keep, atol=0.15)
    np.testing.assert_allclose(np.corrcoef(np.array(drawn).T), np.eye(len(parts)), atol=0.3)


def test_models_start_differently_in_every_layer():
    bonus = Bonus("disagreement", (OBS,), B, BonusConfig(), 0, spaces.Discrete(4))
    models = bonus.model.surprise.models
    layers = [p for name, p in models.named_parameters() if name.endswith("weight")]
    assert len(layers) >= 2
    for layer in layers:
        for i, j in itertools.combinations(range(len(layer)), 2):
            assert (layer[i] - layer[j]).abs().mean() > 0.1 * layer[i].abs().mean()


def test_disagreement_features_are_frozen_and_every_model_learns():
    bonus = Bonus(
        "disagreement",
        (OBS,),
        B,
        BonusConfig(disagreement=DisagreementConfig(K, n, HIDDEN)),
        0,
        spaces.Discrete(4),
    )
    before = {name: p.detach().clone() for name, p in bonus.model.named_parameters()}
    bonus.train_on(
        successors(torch.randn(T, B, OBS, generator=torch.Generator().manual_seed(0))),
        bonus.start(),
    )
    for name, p in bonus.model.surprise.phi.named_parameters():
        assert (
            p.grad is None
            and not p.requires_grad
            and torch.equal(p, before[f"surprise.phi.{name}"])
        )
    for name, p in bonus.model.surprise.models.named_parameters():
        assert all(
            not torch.equal(mine, old)
            for mine, old in zip(p, before[f"surprise.models.{name}"], strict=True)
        )


@pytest.mark.parametrize("models", [2, 3, 5])
def test_models_that_agree_pay_nothing(models):
    """To rounding: the mean of equal numbers need not be that number."""
    config = BonusConfig(disagreement=DisagreementConfig(models, n, HIDDEN))
    bonus = Bonus("disagreement", (OBS,), B, config, 0, spaces.Discrete(4))
    chunk = successors(torch.randn(T, B, OBS, generator=torch.Generator().manual_seed(0)))
    assert (bonus(chunk, bonus.start())[0] > 1e-3).all()
    with torch.no_grad():
        for p in bonus.model.surprise.models.parameters():
            p.copy_(p[:1].clone().expand_as(p))
    assert bonus(chunk, bonus.start())[0].max() < 1e-12


# --- actions as numbers ---------------------------------------------------------------------------


def test_discrete_actions_are_one_hot_from_their_start():
    actions = Actions(spaces.Discrete(3, start=-1))
    assert actions.encode(torch.tensor([1, -1, 0])).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_box_actions_are_scaled_by_their_bounds():
    actions = Actions(spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)))
    assert actions.encode(torch.tensor([[-2.0, 10.0], [0.0, 5.0], [1.0, 0.0]])).tolist() == [
        [-1, 1],
        [0, 0],
        [0.5, -1],
    ]


def test_unbounded_box_actions_pass():
    actions = Actions(spaces.Box(-np.inf, np.inf, (2,)))
    assert actions.encode(torch.tensor([[-3.0, 0.5], [7.0, 0.0]])).tolist() == [[-3, 0.5], [7, 0]]


def test_half_bounded_box_actions_pass():
    actions = Actions(
        spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 1], np.float32))
    )
    assert actions.encode(torch.tensor([[3.0, -4.0]])).tolist() == [[3, -4]]


def test_inverse_losses_by_hand():
    """log(1 + 1 + 2) - log 2 = log 2, and log 4 - log 1; squares of 1 and 2, then of 0 and 1."""
    guess = torch.log(torch.tensor([[1.0, 1.0, 2.0], [1.0, 2.0, 1.0]]))
    told = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert Actions(spaces.Discrete(3)).inverse_loss(guess, told).item() == pytest.approx(
        (np.log(2) + np.log(4)) / 2
    )
    guess, told = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.zeros(2, 2)
    assert Actions(spaces.Box(-1, 1, (2,))).inverse_loss(guess, told).item() == 3


def test_multidiscrete_actions_are_one_hot_on_each_axis():
    actions = Actions(spaces.MultiDiscrete([2, 3], start=[0, 5]))
    assert (actions.width, actions.shape) == (5, (2,))
    assert actions.encode(torch.tensor([[1, 5], [0, 7]])).tolist() == [
        [0, 1, 1, 0, 0],
        [1, 0, 0, 0, 1],
    ]


def test_inverse_loss_of_multidiscrete_actions_is_the_sum_over_axes_by_hand():
    """log(1 + 3) - log 3 and log(1 + 1 + 2) - log 2; the second of two rows weighs nothing."""
    actions = Actions(spaces.MultiDiscrete([2, 3]))
    guess = torch.log(torch.tensor([[1.0, 3.0, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]]))
    told = actions.encode(torch.tensor([[1, 2], [0, 0]]))
    found = actions.inverse_loss(guess, told, torch.tensor([1.0, 0.0])).item()
    assert found == pytest.approx((np.log(4 / 3) + np.log(2)) / 2)
    plain = actions.inverse_loss(guess, told).item()
    assert plain == pytest.approx((np.log(4 / 3) + np.log(2) + np.log(2) + np.log(3)) / 2)


@pytest.mark.parametrize("method", ["icm", "ngu", "disagreement", "rnd+sm+trust+recognise"])
def test_multidiscrete_actions_are_paid_learnt_from_and_checked(method):
    bonus = Bonus(method, (OBS,), B, action_space=spaces.MultiDiscrete([2, 3]))
    obs = torch.randn(B, OBS)
    done = torch.zeros(B, dtype=torch.bool)
    action = torch.tensor([[1, 2]] * B)
    assert bonus.step(obs, action, obs + 1, done).shape == (B,)
    assert "intrinsic/novelty" in bonus.update()
    with pytest.raises(UserError, match="a whole number from 0 to 2"):
        bonus.step(obs, torch.tensor([[1, 3]] * B), obs + 1, done)


UNKNOWN = {
    "missing": None,
    "table of choices": spaces.MultiDiscrete([[2, 3], [2, 3]]),
    "multibinary": spaces.MultiBinary(3),
    "matrix": spaces.Box(-1, 1, (2, 2)),
}


@pytest.mark.parametrize("space", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("method", ["icm", "ngu", "disagreement"])
def test_actions_that_cannot_be_modelled_are_refused(method, space):
    with pytest.raises(UserError, match="This method models"):
        Bonus(method, (OBS,), B, action_space=space)


@pytest.mark.parametrize("method", ["rnd", "ae"])
def test_generators_that_look_at_no_action_need_no_action_space(method):
    bonus = Bonus(method, (OBS,), B, action_space=spaces.MultiDiscrete([2, 3]))
    assert "action" not in bonus.model.uses


def test_disagreement_takes_no_memory_and_all_others_do():
    assert [name for name, entry in SURPRISES.items() if not entry.takes_memory] == ["disagreement"]
    with pytest.raises(UserError, match="disagreement"):
        Bonus("disagreement+sm", (OBS,), B, action_space=spaces.Discrete(4))


def test_boxes_without_width_or_of_all_floats_pass_unscaled():
    most = np.finfo(np.float32).max
    actions = Actions(spaces.Box(np.array([2, -most], np.float32), np.array([2, most], np.float32)))
    assert actions.encode(torch.tensor([[2.0, 5.0]])).tolist() == [[2, 5]]
