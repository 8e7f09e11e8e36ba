"""The doctor: each measure against numbers worked out by hand, and tiny whole examinations."""

import dataclasses
import json
import re
import sys

import numpy as np
import pytest
import torch

from surprise_memory.bonus import RolloutTrainer
from surprise_memory.bonus.metrics import IDLE_CORRELATION
from surprise_memory.envs import make_vec, minigrid
from surprise_memory.errors import UserError
from surprise_memory.memory.autoencoder import Autoencoder
from surprise_memory.nn.nets import Net
from surprise_memory.tools import doctor
from surprise_memory.tools.doctor import measures as measure
from surprise_memory.tools.doctor import stream
from surprise_memory.tools.doctor.diagnosis import Estimate, titles
from surprise_memory.tools.doctor.examination import in_turn, side_by_side
from surprise_memory.tools.doctor.noise import KINDS, NoiseSource
from surprise_memory.tools.doctor.report import lines, number
from surprise_memory.tools.doctor.seen import Seen
from surprise_memory.tools.doctor.stream import held_out, key_maker
from surprise_memory.tools.doctor.verdict import compare, verdict
from surprise_memory.tools.stats import zscores
from surprise_memory.training.collect import collect
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.progress import Progress
from surprise_memory.types import Chunk

# --- the measures ---------------------------------------------------------------------------------


def test_ranks_share_ties_and_spearman_uses_them():
    assert measure.average_ranks(np.array([10.0, 30.0, 10.0, 20.0])).tolist() == [
        1.5,
        4.0,
        1.5,
        3.0,
    ]
    assert measure.spearman(
        np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 8.0, 27.0, 729.0])
    ) == pytest.approx(1)
    assert measure.spearman(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 0.0])) == pytest.approx(
        -1
    )
    # Ranks (1, 2.5, 2.5, 4) and (1, 2, 3, 4): covariance 4.5, sums of squares 4.5 and 5,
    # so 4.5 / sqrt(22.5).
    assert measure.spearman(
        np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    ) == pytest.approx(4.5 / 22.5**0.5)
    assert np.isnan(measure.spearman(np.array([1.0, 2.0]), np.array([3.0, 3.0])))


def test_pearson_and_zscores():
    assert zscores(np.array([1.0, 3.0])).tolist() == [-1, 1]
    assert zscores(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert measure.pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(
        0.5
    )


def test_spectrum_and_effective_dimension():
    x = np.array(
        [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    )  # energies 4, 2, 1
    shares = measure.energy_shares(x.T @ x)
    assert shares == pytest.approx(np.array([4, 2, 1]) / 7)
    assert measure.participation_ratio(shares) == pytest.approx(49 / 21)
    assert measure.participation_ratio(np.ones(5) / 5) == pytest.approx(5)
    assert measure.participation_ratio(np.array([1.0, 0.0])) == pytest.approx(1)
    assert np.isnan(measure.energy_shares(np.full((2, 2), np.nan))).all()


def test_size_of_counts_zeros_and_leaves_out_what_is_not_finite():
    found = measure.size_of(np.array([0.0, 0.0, 2.0, 2.0, np.nan, np.inf]))
    assert found == {"mean": 1.0, "std": 1.0, "cv": 1.0, "zeros": 0.5, "nonfinite": 2.0}


def test_visits():
    keys = np.array([7, 7, 7, 5, 7, 5, 9])
    counts = measure.visit_counts(keys)
    assert counts.tolist() == [4, 4, 4, 2, 4, 2, 1]
    found = measure.by_visits(np.array([1.0, 1.0, 1.0, 6.0, 1.0, 8.0, 3.0]), counts)
    assert found[:3].tolist() == [3, 7, 1]
    assert np.isnan(found[3:]).all()


def test_first_sights_and_repeats():
    # Two environments, six rows, the last four held out.
    # Environment 0: A was seen before, so it is no first sight there. B comes first with 5, again
    # with 1 and 3. A new episode begins with B, seen once. Environment 1: C with 9, then 7.
    A, B, C, D = range(4)
    keys = np.array([[A, D], [A, D], [B, C], [B, D], [B, C], [B, D]])
    first = np.zeros((6, 2), bool)
    first[0], first[5, 0] = True, True
    value = np.array([[5.0, 9.0], [1.0, 0.0], [3.0, 7.0], [100.0, 0.0]])
    valid = np.ones((6, 2), bool)
    assert measure.first_and_repeats(value, keys, first, valid) == ((5 + 9) / 2, (2 + 7) / 2)
    valid[4, 0] = False  # now B comes again only once, with 1
    assert measure.first_and_repeats(value, keys, first, valid) == ((5 + 9) / 2, (1 + 7) / 2)
    assert np.isnan(
        measure.first_and_repeats(value[:, :1], np.arange(6)[:, None], first[:, :1], valid[:, :1])
    ).all()


def test_events_in_a_hand_made_view():
    obs = np.zeros((6, 151))
    view = obs[:, :147].reshape(6, 7, 7, 3)
    view[..., 0] = 1  # empty cells
    view[0, 2, 3] = (5, 4, 0)  # a yellow key ahead
    view[1, 3, 6] = (5, 4, 0)  # the same key in hand, hence not in view
    view[2, 0, 0] = (4, 4, 2)  # a locked door
    view[3, 6, 1] = (4, 4, 1)  # a closed door
    view[4, 6, 6] = (4, 4, 0)  # an open door
    view[5, 1, 5] = (8, 1, 0)  # the goal
    obs[:, :147] = view.reshape(6, 147)
    found = {name: np.flatnonzero(where).tolist() for name, where in minigrid.events(obs).items()}
    assert found == dict(zip(minigrid.EVENTS, ([0], [1], [2, 3], [4], [5]), strict=True))


def test_t_interval():
    mean, half = measure.t_interval(np.array([1.0, 2.0, 3.0, np.nan]))
    assert (mean, half) == pytest.approx((2, 4.303 / 3**0.5))
    mean, half = measure.t_interval(np.array([4.0]))
    assert mean == 4
    assert np.isnan(half)
    assert np.isnan(measure.t_interval(np.array([np.nan]))[0])


# --- the stream -----------------------------------------------------------------------------------


def chunk_of(next_obs, valid):
    T, B = valid.shape
    no = torch.zeros(T, B, dtype=torch.bool)
    return Chunk(next_obs, torch.zeros(T, B), torch.zeros(T, B), next_obs, no, no, no, valid, {})


def test_noise_stays_in_range_replaces_one_in_eight_and_spares_the_original():
    obs = torch.rand(50, 40, 3) * torch.tensor([1.0, 10.0, 0.0]) + torch.tensor([0.0, -5.0, 2.0])
    before, valid = obs.clone(), torch.ones(50, 40, dtype=torch.bool)
    valid[:, 0] = False
    noisy, where = NoiseSource(0)(chunk_of(obs, valid))
    assert (obs == before).all()
    assert not where[:, 0].any()
    assert where.mean() == pytest.approx(1 / 8, abs=0.03)
    changed = (noisy.next_obs != obs).any(-1).numpy()
    assert (changed == where).all()
    new = noisy.next_obs[torch.as_tensor(where)]
    assert (new.amin((0,)) >= obs[valid].amin(0)).all()
    assert (new.amax((0,)) <= obs[valid].amax(0)).all()
    assert len(new[:, 0].unique()) == len(new)


def replaced(kind, obs):
    """The successors before and after noise of a kind, where there is some, over two rollouts."""
    source = NoiseSource(0, kind)
    pairs = []
    for rollout in obs.split(25):
        noisy, where = source(chunk_of(rollout, torch.ones(rollout.shape[:2], dtype=torch.bool)))
        pairs.append((rollout[torch.as_tensor(where)], noisy.next_obs[torch.as_tensor(where)]))
    before, after = (torch.cat(rows) for rows in zip(*pairs, strict=True))
    return before, after


def test_each_kind_of_noise_shows_what_it_says():
    obs = torch.rand(50, 40, 8)
    real = {tuple(row) for row in obs.flatten(0, 1).tolist()}
    before, fresh = replaced("fresh", obs)
    assert len(fresh.unique(dim=0)) == len(fresh) and (fresh != before).all()
    _, channels = replaced("channels", obs)
    assert len(channels.unique(dim=0)) == 8  # of both rollouts together
    before, shown = replaced("replay", obs)
    assert {tuple(row) for row in shown.tolist()} <= real
    assert (shown != before).any(1).float().mean() > 0.9
    before, view = replaced("view", obs)
    assert torch.equal(view[:, :6], before[:, :6]) and (view[:, 6:] != before[:, 6:]).all()
    with pytest.raises(UserError, match=r"'loud'.*fresh, channels, replay, view"):
        NoiseSource(0, "loud")


def test_the_verdict_names_the_kind_of_noise():
    found = doctor.examine(tiny("rnd"), seeds=1, rollouts=4, noise="replay")
    assert found.noise == "replay"
    assert KINDS["replay"] in " ".join(found.verdict)


def test_noise_in_images_uses_the_whole_range_of_bytes():
    like = np.zeros((2000, 1, 2, 2), np.uint8)
    low, high = np.zeros((1, 2, 2), np.uint8), np.full((1, 2, 2), 255, np.uint8)
    noise = measure.uniform_noise(like, low, high, np.random.default_rng(0))
    assert noise.dtype == np.uint8
    assert (noise.min(), noise.max()) == (0, 255)
    assert noise.mean() == pytest.approx(127.5, abs=3)


@pytest.mark.parametrize(
    ("obs", "counting"),
    [
        (torch.eye(5).repeat(8, 1), "exact"),
        (torch.randn(40, 5), "simhash"),
        (torch.randint(0, 256, (40, 3, 20, 30), dtype=torch.uint8), "downsampled"),
    ],
)
def test_equal_observations_have_equal_keys(obs, counting):
    found, key = key_maker(obs)
    keys = key(torch.cat([obs, obs]))
    assert found == counting
    assert (keys[:40] == keys[40:]).all()
    assert len(np.unique(keys)) > 1


# --- the verdict ----------------------------------------------------------------------------------


def table(**numbers):
    """Measures of two seeds, from (norm, novelty) pairs; a single number belongs to neither."""
    full = {
        "mean": (1.0, 1.0),
        "cv": (0.5, 0.5),
        "zeros": (0.0, 0.0),
        "nonfinite": (0.0, 0.0),
        "rarity": (0.5, 0.5),
    }
    full |= {
        "noise_z": (2.0, 2.0),
        "noise_pay": (0.3, 0.3),
        "corr": 0.5,
        "energy_left": 0.1,
    } | numbers
    columns = {
        k: {"norm": v[0], "novelty": v[1]} if isinstance(v, tuple) else {"all": v}
        for k, v in full.items()
    }
    return {k: {c: Estimate(x, 0.0, [x, x]) for c, x in row.items()} for k, row in columns.items()}


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({}, "bonus is alive"),
        ({"nonfinite": (0.0, 3.0)}, "broken: 3 values"),
        ({"zeros": (0.0, 0.99)}, "dead: it is zero on 99 %"),
        # What pays only the unexpected is zero on most steps, and works.
        ({"zeros": (0.0, 0.65)}, "alive: finite, std 50 % of its mean"),
        ({"zeros": (0.0, 0.65)}, "and zero on 65 % of the steps."),
        ({"cv": (0.5, 0.001)}, "blind"),
        ({"scale_over_today": (1.0, 40.0)}, "drowned: its scale is 40 times"),
        ({"corr": 0.99}, "memory is idle"),
        ({"corr": 0.5}, "memory changes what is paid"),
        ({"energy_left": 1.5}, "adds to the surprise"),
        (
            {"rarity": (0.4, 0.7)},
            "rarity better than the norm: rank correlation 0.70 against 0.40 (in all 2 seeds)",
        ),
        ({"rarity": (0.7, 0.4)}, "rarity worse than the norm"),
        ({"price_noise": (0.0, 3.0)}, "Noise can buy this bonus: a step of noise pays 3 times"),
        ({"price_noise": (3.0, 0.5)}, "Noise is not worth more than anything else"),
        (
            {"price_noise": (3.0, 0.02), "price_first": (0, 1.5), "price_repeat": (0, 0.9)},
            "Noise cannot buy this bonus: a step of noise pays 0.02 times a usual step, "
            "a first sight 1.5 times, a repeat 0.9 times.",
        ),
        ({"noise_z": (2.0, 1.0)}, "drawn to noise less than the norm"),
        ({"noise_z": (1.0, 2.0)}, "drawn to noise more than the norm"),
        (
            {"first_z": (0.0, 0.6), "repeat_z": (0.0, 0.1)},
            "first sight is paid more than its repeats",
        ),
    ],
)
def test_the_verdict_says(numbers, says):
    assert says in " ".join(verdict(table(**numbers)))


@pytest.mark.parametrize(
    ("method", "cure"),
    [
        ("rnd+sm", "Take --method rnd+sm+trust+recognise."),
        ("rnd+sm+gate", "Take --method rnd+sm+trust+recognise."),
        ("rnd+sm+recognise+gate", "rnd+sm+recognise+gate filters noise already: docs/noise.md"),
        ("rnd+sm+recognise+expect", "rnd+sm+recognise+expect filters noise already"),
    ],
)
def test_nobody_is_told_to_take_the_method_that_was_examined(method, cure):
    said = " ".join(verdict(table(price_noise=(3.0, 3.0)), method))
    assert "Noise can buy this bonus" in said and cure in said
    assert f"--method {method}." not in said


@pytest.mark.parametrize(
    ("numbers", "method"),
    [
        ({"nonfinite": (0.0, 3.0)}, "rnd+sm"),
        ({"scale_over_today": (1.0, 40.0)}, "rnd+sm"),
        ({"corr": 0.99}, "rnd+sm"),
        ({"corr": 0.99}, "rnd+m"),
    ],
)
def test_cures_name_options_of_the_command_line(numbers, method):
    said = " ".join(verdict(table(**numbers), method))
    options = re.findall(r"--([a-z.-]+)", said)
    assert len(options) >= 2
    for option in options:
        value = PRESETS["default"]("ToyKeyDoor-v0")
        for name in option.rstrip(".").replace("-", "_").split("."):
            value = getattr(value, name)


@pytest.mark.parametrize("corr", [0.97, 0.985, 0.995])
def test_the_doctor_and_a_running_run_call_the_same_memories_idle(corr, capsys):
    progress = Progress("rnd+sm", 1000)
    row = {"step": 1, "charts/SPS": 1, "intrinsic/recall_ratio": 0.5}
    for _ in range(50):
        progress(row | {"intrinsic/novelty_norm_corr": corr})
    idle = "memory is idle" in " ".join(verdict(table(corr=corr)))
    said = " ".join(capsys.readouterr().out.split())
    assert ("memory is idle" in said) == idle == (corr > IDLE_CORRELATION)


@pytest.mark.parametrize(("trusts", "told"), [([0.0] * 120, 1), ([0.1] * 120, 0), ([0.0] * 49, 0)])
def test_a_run_says_once_that_much_moves_by_chance(capsys, trusts, told):
    progress = Progress("rnd+sm+trust+recognise", 1000)
    for trust in trusts:
        row = {"step": 1, "charts/SPS": 1, "intrinsic/trust": trust, "intrinsic/gain": -0.12}
        progress(row)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("move by chance: remembering saves -12% of the novelty") == told


def test_noise_that_buys_in_some_seeds_is_reported_as_such():
    """A mean of 1.2 may be one seed in which noise pays 3 times as much as anything else."""
    prices = {"norm": Estimate(0.1, 0.0, [0.1] * 3), "novelty": Estimate(1.2, 3.1, [0.2, 0.4, 3.0])}
    said = " ".join(verdict(table() | {"price_noise": prices}))
    assert "Noise can buy this bonus in 1 of 3 seeds: a step of noise pays 1.2 times" in said


def test_seeds_that_disagree_are_reported_as_such():
    row = {
        "rarity": {
            "norm": Estimate(0.0, None, [0.0, 0.0, 0.0]),
            "novelty": Estimate(0.2, None, [0.4, 0.4, -0.2]),
        }
    }
    assert compare(row, "rarity") == ("higher", " (in 2 of 3 seeds)")


def test_numbers_are_not_printed_finer_than_they_are_known():
    assert number(Estimate(0.41234, 0.0312, [])) == "0.412 ± 0.031"
    assert number(Estimate(0.41234, 0.0312, []), percent=True) == "41.2 ± 3.1 %"
    assert number(Estimate(1234.5, 77.0, [])) == "1234 ± 77"
    assert number(Estimate(0.5, None, [])) == "0.5"
    assert number(Estimate(-0.001, 3.0, [])) == "0.0 ± 3.0"
    assert (number(Estimate(None, None, [])), number(None)) == ("-", "")


# --- from end to end ------------------------------------------------------------------------------


def tiny(method):
    return dataclasses.replace(PRESETS["debug"]("ToyKeyDoor-v0"), method=method)


def test_a_useless_memory_is_called_idle(monkeypatch):
    monkeypatch.setattr(Autoencoder, "forward", lambda self, q: torch.zeros_like(q))
    found = doctor.examine(tiny("rnd+w"), seeds=2, rollouts=4)
    assert found.measures["corr"]["all"].mean == pytest.approx(1)
    assert found.measures["energy_left"]["all"].mean == pytest.approx(1)
    assert any("memory is idle" in sentence for sentence in found.verdict)


def test_an_examination_is_plain_data_and_can_be_shown(tmp_path):
    from rich.console import Console

    ticks = []
    run = dataclasses.replace(tiny("rnd+sm"), rollout=48)
    found = doctor.examine(
        run, seeds=2, rollouts=10, on_progress=lambda text, share: ticks.append(share)
    )
    assert ticks == pytest.approx(np.arange(1, 45) / 44)
    assert (found.steps, found.held_out) == (9 * 48 * 4, 2 * 48 * 4)
    assert found.counting == "exact"
    assert json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))["method"] == "rnd+sm"
    for name in ("mean", "rarity", "noise_z", "dimension"):
        assert {c: len(x.seeds) for c, x in found.measures[name].items()} == {
            "norm": 2,
            "novelty": 2,
        }
    # RND looks at the observation alone, so it pays the same for a first sight and for its repeats.
    assert found.measures["first_z"]["norm"].mean == pytest.approx(
        found.measures["repeat_z"]["norm"].mean, abs=1e-5
    )
    console = Console(record=True, width=120)
    doctor.print_diagnosis(found, console)
    text = console.export_text()
    assert "rank correlation with rarity" in text
    assert all(sentence[:40] in text for sentence in found.verdict)
    doctor.plot_diagnosis(found, tmp_path / "new" / "doctor.png")
    assert (tmp_path / "new" / "doctor.png").stat().st_size > 20_000


def test_the_same_seed_gives_the_same_diagnosis():
    timed = ("ask_us", "learn_us")
    one, two = (doctor.examine(tiny("rnd+sm"), 1, 4).measures for _ in range(2))
    assert {k: v for k, v in one.items() if k not in timed} == {
        k: v for k, v in two.items() if k not in timed
    }


def test_a_generator_alone_has_one_column(tmp_path):
    found = doctor.examine(tiny("rnd"), seeds=1, rollouts=4)
    assert all("novelty" not in row for row in found.measures.values())
    assert "corr" not in found.measures
    assert any("to noise" in sentence for sentence in found.verdict)
    assert ("Is it alive?", {}) in lines(found)
    doctor.plot_diagnosis(found, tmp_path / "rnd.png")


def test_the_bonus_is_examined_in_the_precision_that_was_asked_for():
    env = make_vec("ToyKeyDoor-v0", 4, 0)
    run = dataclasses.replace(tiny("rnd"), precision="bf16")
    nets = [x for x in stream.make_bonus(run, "rnd", env).modules() if isinstance(x, Net)]
    assert nets and all(net.dtype == torch.bfloat16 for net in nets)


def test_a_column_is_titled_by_the_method_that_was_measured():
    """`trust` asks the memory and goes with it: there is no rnd+trust+recognise."""
    found = doctor.examine(tiny("rnd+sm+trust+recognise"), seeds=1, rollouts=2)
    assert titles(found) == {"norm": "rnd+recognise", "novelty": "rnd+sm+trust+recognise"}


def test_a_process_of_its_own_finds_the_same():
    tasks, shares = [(tiny("rnd+sm"), 4, noise) for noise in ("", "fresh")], []
    here, there = (
        in_turn(tasks, print),
        side_by_side(tasks, lambda text, share: shares.append(share), workers=1),
    )
    for a, b in zip(here, there, strict=True):
        timed = {"ask_us", "learn_us"}
        assert {k: v for k, v in a["values"].items() if k not in timed} == {
            k: v for k, v in b["values"].items() if k not in timed
        }
    assert shares[-1] == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "none"}, "'none' has no bonus"),
        ({"seeds": 0}, "seeds = 0"),
        ({"rollouts": 1}, "rollouts = 1"),
    ],
)
def test_it_refuses_what_cannot_be_examined(change, says):
    arguments = {"seeds": 1, "rollouts": 4} | {k: v for k, v in change.items() if k != "method"}
    with pytest.raises(UserError, match=says):
        doctor.examine(tiny(change.get("method", "rnd")), **arguments)


@pytest.mark.slow
def test_an_error_in_a_worker_comes_back_as_itself():
    with pytest.raises(UserError, match="Unknown environment"):
        doctor.examine(dataclasses.replace(tiny("rnd"), env="ToyKeyDor-v0"), 1, 4, workers=2)


def test_a_missing_package_names_its_cure(monkeypatch, tmp_path):
    found = doctor.examine(tiny("rnd"), seeds=1, rollouts=4)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install 'surprise-memory\[report\]'"):
        doctor.plot_diagnosis(found, tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "rich.table", None)
    with pytest.raises(UserError, match=r"pip install 'surprise-memory\[cli\]'"):
        doctor.print_diagnosis(found, None)


def test_a_fifth_is_held_out():
    assert [held_out(n) for n in (2, 9, 10, 40)] == [1, 1, 2, 8]


def test_never_give_up_is_judged_by_what_it_pays_not_by_its_surprise():
    run = dataclasses.replace(tiny("ngu"), rollout=32)
    seen = doctor.examine(run, seeds=1, rollouts=6).measures
    rnd = doctor.examine(dataclasses.replace(run, method="rnd"), seeds=1, rollouts=6).measures
    assert (
        seen["zeros"]["norm"].mean > 0 == rnd["zeros"]["norm"].mean
    )  # it pays nothing for the first k steps of an episode


@pytest.mark.parametrize(
    ("method", "without"),
    [
        ("rnd+sm+expect", "rnd+expect"),
        ("ngu+sm", "ngu"),
        ("ngu+sm+expect", "ngu+expect"),
        ("rnd+expect", "rnd+expect"),
        ("ngu", "ngu"),
        ("rnd+sm+gain", "rnd"),
        ("rnd+sm+gain+expect", "rnd+expect"),
        ("rnd+sm", "rnd"),
    ],
)
@pytest.mark.parametrize("power", [1, 2])
def test_the_columns_are_what_the_method_pays_with_and_without_its_memory(
    monkeypatch, method, without, power
):
    """On the same rollouts, to the last bit: stages learn from what they are given."""
    run = dataclasses.replace(tiny(method), rollout=24)
    run = dataclasses.replace(run, bonus=dataclasses.replace(run.bonus, power=power))
    shown, held = [], {"norm": [], "novelty": []}

    def collect_and_keep(*arguments):
        chunk, episodes = collect(*arguments)
        shown.append(chunk)
        return chunk, episodes

    def hold(self, chunk, alone, raw, *rest):
        held["norm"].append(alone)
        held["novelty"].append(raw)
        return real_hold(self, chunk, alone, raw, *rest)

    real_hold = Seen.record_held_out
    monkeypatch.setattr(stream, "collect", collect_and_keep)
    monkeypatch.setattr(Seen, "record_held_out", hold)
    assert stream.observe(run, rollouts=8, noise="", tick=lambda: None)["alone"] == without
    assert len(held["norm"]) == held_out(8) and len(shown) == 8 + run.warmup_rollouts
    for name, column in (("novelty", method), ("norm", without)):
        paid = paid_for(column, run, shown)
        assert len(torch.cat(paid).unique()) > 10
        assert torch.equal(torch.cat(held[name]), torch.cat(paid))


def paid_for(method, run, shown):
    """The raw rewards of the held-out rollouts; the bonus learns from the others as in training."""
    env = make_vec(run.env, run.envs, 0)
    shape, space = env.obs_shape, env.action_space
    env.close()
    bonus = RolloutTrainer(method, shape, run.envs, run.bonus, run.seed, space)
    carry, paid = bonus.start(), []
    for i, chunk in enumerate(shown):
        if i < len(shown) - held_out(8):
            _, _, carry = bonus.train_on(chunk, carry, warmup=i < run.warmup_rollouts)
        else:
            raw, _, carry = bonus(chunk, carry)
            paid.append(raw)
    return paid


def test_counts_have_no_energy_to_leave():
    seen = doctor.examine(tiny("rnd+counts"), seeds=1, rollouts=4).measures
    assert "corr" in seen and "energy_left" not in seen
