"""The stage `recognise`: what resembles something seen before is paid, noise is not."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import chunk_of

from surprise_memory import Bonus, BonusConfig, UserError
from surprise_memory.bonus import ReplayTrainer
from surprise_memory.stages.base import Steps
from surprise_memory.stages.recognise import (
    PROJECTED,
    Recognise,
    RecogniseConfig,
    among_each_other,
    recognised,
)

T, B, d = 24, 5, 150
SMALL = RecogniseConfig(reservoir=48, turnover=0.25)
NONE = torch.zeros(0, 2)


def world(seed, noise_share=0.25, sights=6):
    """(observations (T, B, d), where they are noise): fixed sights, fresh draws among them."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(0).standard_normal((sights, d)) * 2
    obs = fixed[rng.integers(0, sights, (T, B))]
    noise = rng.random((T, B)) < noise_share
    obs[noise] = rng.standard_normal((noise.sum(), d)) * 2
    return torch.as_tensor(obs, dtype=torch.float32), noise


def ask(stage, obs, valid=None):
    """The stage's answer to a reward of one everywhere."""
    shape = obs.shape[:2]
    yes = torch.ones(shape, dtype=torch.bool)
    valid = yes if valid is None else valid
    reward = torch.ones(shape)
    u = torch.zeros(*shape, 1)
    inputs = stage.prepare({"next_obs": obs.flatten(0, 1)})
    paid, record, _ = stage(reward, inputs, Steps(~yes, valid, valid, u, u, reward), None)
    return paid, record


def taught(config=SMALL, rollouts=6, noise_share=0.25):
    stage = Recognise((d,), config)
    for seed in range(1, rollouts + 1):
        obs, _ = world(seed, noise_share)
        _, record = ask(stage, obs)
        stage.update(record, torch.ones(T, B, dtype=torch.bool), warmup=False)
    return stage


def test_rho_is_one_minus_nearest_over_mean_distance():
    known = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    point = torch.tensor([[0.0, 0.0], [0.0, 5.0]])
    first = 1 - 0 / np.mean([0, 5, 10])
    second = 1 - np.hypot(3, 1) / np.mean([5, np.hypot(3, 1), np.hypot(6, 3)])
    assert recognised(point, known, NONE)[:, 0].tolist() == pytest.approx([first, second], rel=1e-6)


def test_the_local_rho_compares_with_an_eighth_of_the_reservoir():
    known = torch.arange(1.0, 17.0)[:, None]  # 1 to 16 on a line: an eighth of them are two
    point = torch.tensor([[0.0], [4.25]])
    rho = recognised(point, known, NONE[:, :1])
    assert rho[:, 1].tolist() == pytest.approx([1 - 1 / 2, 1 - 0.25 / 0.75], abs=1e-6)
    assert torch.equal(recognised(point, known, NONE[:, :1], block=1), rho)


def test_a_new_thing_before_a_usual_background_is_paid():
    """Half of all sights are this background: the local rho alone would not recognise it."""
    stage = Recognise((d,), SMALL)
    rng = torch.Generator().manual_seed(0)
    background = torch.randn(d, generator=rng) * 2
    for _ in range(4):
        obs = torch.randn(T, B, d, generator=rng) * 2
        obs[:, :3] = background
        _, record = ask(stage, obs)
        stage.update(record, torch.ones(T, B, dtype=torch.bool), warmup=False)
    thing = background.clone()
    thing[:5] += 4
    paid, record = ask(stage, thing.expand(1, 1, d))
    assert record["local_rho"].item() < 0.1
    assert paid.item() > 0.8


def test_noise_that_is_nearer_to_noise_than_to_anything_real_is_not_paid():
    """Grey noise varies less than real images do. The mean distance alone would recognise it."""
    stage = Recognise((d,), SMALL)
    rng = torch.Generator().manual_seed(0)
    fixed = torch.randn(6, d, generator=rng) * 1.5
    for rollout in range(12):
        obs = fixed[torch.randint(0, 6, (T, B), generator=rng)]
        obs[:, 3:] = torch.randn(T, B - 3, d, generator=rng) * 0.7
        paid, record = ask(stage, obs)
        if rollout:  # the first is compared with nothing
            assert paid[:, 3:].mean() < 0.02, rollout
            assert paid[:, :3].mean() > (0.5 if rollout < 4 else 0.9), rollout
        stage.update(record, torch.ones(T, B, dtype=torch.bool), warmup=False)
    fresh = torch.randn(20, d, generator=rng) * 0.7
    together = torch.cat([stage.points[: stage.filled[0]], stage.odd[: stage.filled[1]]])
    assert recognised(fresh, together, fresh[:0])[:, 0].mean() > 0.3


@pytest.mark.parametrize("noise_share", [0.05, 0.25, 0.6])
def test_noise_is_not_paid_and_what_recurs_is(noise_share):
    stage = taught(noise_share=noise_share)
    obs, noise = world(99, noise_share)
    paid, _ = ask(stage, obs)
    assert paid.numpy()[noise].max() < 0.05
    assert paid.numpy()[~noise].min() > 0.95


def test_a_first_sight_that_resembles_others_is_paid():
    """Most of it was seen before, an eighth is new: a key in a room that looks like others."""
    stage = taught()
    obs, _ = world(1, noise_share=0.0)
    new = obs.clone()
    new[..., : d // 8] = torch.randn(T, B, d // 8, generator=torch.Generator().manual_seed(5))
    paid, record = ask(stage, new)
    assert paid.min() > 0.9
    assert record["rho"].max() < 0.9  # it is not simply taken for a repeat


def smooth_world(seed, noise_share, steps=256):
    """Points of a smooth world (three hidden numbers), and noise that varies less than it does."""
    rng = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(0)
    shape = torch.randn(3, d, generator=fixed) * 0.8
    obs = torch.randn(steps, 3, generator=rng) @ shape
    number = max(2, int(steps * noise_share))
    obs[-number:] = 1.3 + torch.randn(number, d, generator=rng)
    return obs[:, None], number


def test_noise_that_has_become_rare_is_still_not_recognised():
    """Rarer than an eighth of the reservoir, noise is nearer to noise than to its neighbourhood."""
    stage = Recognise((d,), RecogniseConfig(reservoir=1024, turnover=0.125))
    shares = [0.3] * 5 + [0.3 * 0.75**i for i in range(12)] + [0.02] * 16
    for seed, share in enumerate(shares, 1):
        obs, number = smooth_world(seed, share)
        paid, record = ask(stage, obs)
        if seed > 2:
            assert paid[-number:].mean() < 0.1, (seed, share)
            assert paid[:-number].mean() > 0.9, (seed, share)
        stage.update(record, torch.ones(256, 1, dtype=torch.bool), warmup=False)
    assert stage.filled == (1024, 256)


def test_a_place_that_was_odd_at_first_is_recognised_when_it_is_seen_again():
    stage = Recognise((d,), RecogniseConfig(reservoir=1024, turnover=0.125))
    rng = torch.Generator().manual_seed(0)
    place = 30 * torch.randn(d, generator=rng)
    answers = []
    for seed in range(1, 13):
        obs, _ = smooth_world(seed, 0.1)
        if seed > 8:
            obs[:16, 0] = place + 0.5 * torch.randn(16, d, generator=rng)
        paid, record = ask(stage, obs)
        answers.append(paid[:16].mean().item())
        stage.update(record, torch.ones(256, 1, dtype=torch.bool), warmup=False)
    assert answers[8] < 0.1  # resembles nothing
    assert min(answers[9:]) > 0.9


def test_odd_points_recognise_only_what_is_twice_as_near():
    """On a line: usual points at 0 and 10, an odd one at 100."""
    usual, odd = torch.tensor([[0.0], [10.0]]), torch.tensor([[100.0]])
    point = torch.tensor([[1.0], [97.0], [70.0]])
    want = [1 - 1 / np.mean([1, 9, 99]), 1 - 2 * 3 / np.mean([97, 87, 3]), 0]
    want[2] = max(1 - 60 / np.mean([70, 60, 30]), 1 - 2 * 30 / np.mean([70, 60, 30]))
    assert recognised(point, usual, odd)[:, 0].tolist() == pytest.approx(want, rel=1e-5)


def test_a_loaded_stage_knows_how_many_points_it_has():
    stage = taught()
    assert min(stage.filled) > 0
    other = Recognise((d,), SMALL)
    other.load_state_dict(stage.state_dict())
    assert other.filled == stage.filled
    obs, _ = world(99)
    assert torch.equal(ask(other, obs)[1]["rho"], ask(stage, obs)[1]["rho"])


def test_the_first_points_are_compared_with_each_other():
    """By hand: of four on a line, the last is about as far from all others."""
    stage = Recognise((1,), RecogniseConfig(reservoir=4, turnover=1.0))
    line = torch.tensor([[0.0], [1.0], [2.0], [12.0]])
    rho = among_each_other(line)
    want = [1 - 1 / 5, 1 - 1 / (13 / 3), 1 - 1 / (13 / 3), 1 - 10 / 11]
    torch.testing.assert_close(rho[:, 0], torch.tensor(want))
    assert rho[:, 1].tolist() == [0.0] * 4  # d_k is d_1 among so few
    _, record = ask(stage, line[:, None])
    stage.update(record, torch.ones(4, 1, dtype=torch.bool), warmup=False)
    assert stage.filled == (3, 1)
    assert stage.points[:3].flatten().sort().values.tolist() == [0.0, 1.0, 2.0]
    assert stage.odd[0].item() == 12.0
    assert among_each_other(line[:1]).tolist() == [[1.0, 1.0]]


def test_before_the_first_rollout_everything_is_paid():
    obs, _ = world(1)
    paid, _ = ask(Recognise((d,), SMALL), obs)
    assert paid.min() > 0.99


def test_rows_that_never_happened_never_enter_the_reservoir():
    stage = Recognise((d,), RecogniseConfig(reservoir=64, turnover=1.0))
    obs, _ = world(1)
    valid = torch.rand(T, B, generator=torch.Generator().manual_seed(0)) < 0.5
    obs[~valid] = torch.nan
    _, record = ask(stage, obs, valid)
    stage.update(record, valid, warmup=True)
    assert sum(stage.filled) > 0
    assert stage.points.isfinite().all() and stage.odd.isfinite().all()
    stage.update(record, torch.zeros(T, B, dtype=torch.bool), warmup=True)  # nothing happened
    assert stage.points.isfinite().all() and stage.odd.isfinite().all()


def test_the_reservoir_is_an_even_spread_of_all_environments_and_times_and_forgets_the_oldest():
    stage = Recognise((2,), RecogniseConfig(reservoir=40, turnover=0.5))
    yes = torch.ones(T, B, dtype=torch.bool)
    for rollout in range(3):
        place = torch.stack(torch.meshgrid(torch.arange(T), torch.arange(B), indexing="ij"), -1)
        ones = torch.ones(T, B)
        record = {"point": place.float() + 100 * rollout}
        record |= dict.fromkeys(("rho", "local_rho", "recognised"), ones)
        stage.update(record, yes, warmup=False)
    kept = stage.points.view(2, 20, 2)  # half a reservoir from each of the last two rollouts
    rollouts = (kept[..., 0] // 100).long()
    assert sorted(rollouts.unique().tolist()) == [1, 2]
    for half in kept:
        times, envs = half[:, 0] % 100, half[:, 1] % 100
        assert len(times.unique()) >= 15 and len(envs.unique()) == B


def test_images_are_projected_and_keep_their_distances():
    shape = (1, 48, 48)
    stage = Recognise(shape, SMALL)
    images = torch.randn(60, *shape)
    points = stage.prepare({"next_obs": images})["point"]
    assert points.shape == (60, PROJECTED)
    true, kept = torch.pdist(images.flatten(1)), torch.pdist(points)
    assert (kept / true - 1).abs().max() < 0.35 and (kept / true).mean() == pytest.approx(
        1, abs=0.05
    )


def test_the_threshold_follows_what_is_well_recognised_here():
    """Where part of every view is noise nothing is recognised exactly; the real is still paid."""
    stage = Recognise((d,), SMALL)
    yes = torch.ones(T, B, dtype=torch.bool)
    for seed in range(1, 60):
        obs, noise = world(seed)
        obs[..., : d // 2] = torch.randn(T, B, d // 2) * 2
        paid, record = ask(stage, obs)
        stage.update(record, yes, warmup=False)
    assert stage.usual.max() < 0.5
    # Not all: to a sight that was odd at first, half of a view is what a TV is to the others.
    assert paid.numpy()[~noise].mean() > 0.8


@pytest.mark.parametrize("kind", [Bonus, ReplayTrainer])
def test_a_bonus_with_it_cannot_be_bought_by_noise(kind):
    """The same rollouts, with and without the stage: the share of the pay that goes to noise."""
    shares = {}
    for method in ("rnd+sm", "rnd+sm+recognise"):
        bonus = kind(method, (d,), B, BonusConfig(recognise=SMALL))
        carry = bonus.start()
        for seed in range(1, 9):
            obs, noise = world(seed)
            chunk = chunk_of(obs)
            if kind is Bonus:
                raw, _, _ = bonus(chunk, carry)
                _, _, carry = bonus.train_on(chunk, carry)
            else:
                carry = bonus.update_stats(chunk, carry)
                raw, _, _ = bonus(chunk, bonus.start())
                bonus.train_on(chunk, torch.ones(B))
        shares[method] = float(raw[torch.as_tensor(noise)].sum() / raw.sum())
    assert shares["rnd+sm"] > 0.25  # as many as there are
    assert shares["rnd+sm+recognise"] < 0.02


def bonus_after(withhold, rollouts=12):
    """(bonus, carry) after some rollouts of sights and noise."""
    options = replace(SMALL, withhold=withhold)
    bonus = Bonus("rnd+sm+recognise", (d,), B, BonusConfig(recognise=options))
    carry = bonus.start()
    for seed in range(1, rollouts + 1):
        _, _, carry = bonus.train_on(chunk_of(world(seed)[0]), carry)
    return bonus, carry


@pytest.mark.parametrize("withhold", [True, False])
def test_what_is_not_recognised_is_not_remembered(withhold):
    """The same sights, once with noise before them: M recalls the same unless it kept the noise."""
    bonus, carry = bonus_after(withhold)
    sights, _ = world(20, noise_share=0.0)
    noisy = sights.clone()
    noisy[4] = world(21, noise_share=1.0)[0][4]
    first = torch.zeros(T, B, dtype=torch.bool)
    first[4] = True  # all that M can know is what came before in this episode
    _, trace, _ = bonus(chunk_of(sights, first), carry)
    _, trace_after_noise, _ = bonus(chunk_of(noisy, first), carry)
    assert (trace.remembered.all() and not trace_after_noise.remembered[4].any()) == withhold
    nothing_in_m = trace_after_noise.q[5, :, : -trace.u.shape[-1]]
    assert bool((nothing_in_m == 0).all()) == withhold


def test_the_memory_does_not_learn_from_what_is_not_recognised():
    """Replacing noise by other noise leaves the memory's losses exactly as they were."""
    bonus, carry = bonus_after(withhold=True)
    obs, noise = world(20)
    other = obs.clone()
    other[noise] = world(21, noise_share=1.0)[0][noise]
    found = []
    for seen in (obs, other):
        _, trace, _ = bonus(chunk_of(seen), carry)
        rows = torch.arange(T * B)
        found.append(bonus.model.losses(trace, rows, torch.Generator().manual_seed(0)))
    assert found[0]["surprise"] != found[1]["surprise"]
    for name in ("m", "w"):
        torch.testing.assert_close(found[0][name], found[1][name])


def test_it_resumes_bit_for_bit():
    a = Bonus("rnd+sm+recognise", (d,), B, BonusConfig(recognise=SMALL))
    carry = a.start()
    for seed in range(1, 5):
        _, _, carry = a.train_on(chunk_of(world(seed)[0]), carry)
    b = Bonus("rnd+sm+recognise", (d,), B, BonusConfig(recognise=SMALL), seed=7)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    for seed in range(5, 8):
        chunk = chunk_of(world(seed)[0])
        paid, metrics, after = a.train_on(chunk, carry)
        again, metrics_again, _ = b.train_on(chunk, carry)
        assert torch.equal(paid, again) and metrics == metrics_again
        carry = after


@pytest.mark.parametrize(
    "options", [{"reservoir": 1}, {"turnover": 0.0}, {"threshold": 1.0}, {"temperature": 0.0}]
)
def test_impossible_options_are_named(options):
    (name,) = options
    with pytest.raises(UserError, match=f"recognise.{name}"):
        Bonus("rnd+recognise", (d,), B, BonusConfig(recognise=RecogniseConfig(**options)))


def test_a_small_rollout_gives_each_of_its_steps_once():
    stage = Recognise((4,), RecogniseConfig())
    valid = torch.ones(16, 8, dtype=torch.bool)
    valid[3, 5] = False
    chosen = stage._choose(valid)
    assert chosen.tolist() == valid.flatten().nonzero().squeeze(1).tolist()
