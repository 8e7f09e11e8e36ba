"""The recurrent DQN and its replay against numbers worked out by hand and plain loops in NumPy.

A `life` has observations that occur only once, so that a draw tells where it comes from.
"""

import copy
import io
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import Counter
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import nn

from surprise_memory import BonusConfig, Chunk, LWMConfig
from surprise_memory.agents.dqn import DQN, DQNConfig, QNet, priorities
from surprise_memory.agents.replay import Replay
from surprise_memory.bonus import Carry, ReplayTrainer
from surprise_memory.envs import make_vec
from surprise_memory.envs.gymnasium import Gymnasium
from surprise_memory.nn.nets import run_gru
from surprise_memory.nn.returns import n_step, rescale, unscale
from surprise_memory.training.collect import RandomAgent, RunnerState, collect

UNROLL, BURN, STEPS, B, BLOCKS, H, A, OBS = (
    6,
    2,
    3,
    4,
    5,
    7,
    9,
    8,
)  # all different, so that no two axes can be swapped unseen
LENGTH = BURN + UNROLL + STEPS
NOTHING = Carry(None, None, {})  # to carry where there is no bonus


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)  # what networks begin with does not depend on the tests before


# --- a life, and who remembers it -----------------------------------------------------------------


def life(blocks, seed=0, unroll=UNROLL):
    """A chunk of many blocks. After an end comes, with even chance, a row that never happened.

    Such a row holds the last observation.
    """
    rng, number, T = np.random.default_rng(seed), itertools.count(1), blocks * unroll
    column = {
        name: np.zeros((T, B), bool) for name in ("terminated", "truncated", "first", "valid")
    }
    column |= {
        name: rng.normal(size=(T, B, OBS)).astype(np.float32) for name in ("obs", "next_obs")
    }
    for b in range(B):
        now, first, fake = next(number), True, False
        for t in range(T):
            after = next(number)
            column["obs"][t, b, 0], column["next_obs"][t, b, 0] = now / 64, after / 64
            column["first"][t, b], column["valid"][t, b] = first, not fake
            ends = not fake and rng.random() < 0.3
            column[rng.choice(["terminated", "truncated"])][t, b] = ends
            now, first, fake = after, ends or fake, bool(ends and rng.random() < 0.5)
            if ends and not fake:
                now = next(number)  # the reset frame
    column |= {
        "action": rng.integers(A, size=(T, B)),
        "reward": rng.normal(size=(T, B)).astype(np.float32) * 3,
    }
    goes_on = column["next_obs"][:-1, :, 0] == column["obs"][1:, :, 0]
    column["next_obs"][:-1][goes_on] = column["obs"][1:][goes_on]
    extras = {
        "prev_action": rng.integers(A, size=(T, B)),
        "prev_reward": rng.normal(size=(T, B)).astype(np.float32),
    }
    extras |= {"h": np.tanh(rng.normal(size=(T, B, H))).astype(np.float32)}
    column, extras = (
        {name: torch.as_tensor(x) for name, x in part.items()} for part in (column, extras)
    )
    return Chunk(**column, extras=extras)


def cut(whole, rows):
    return Chunk(
        **{name: x[rows] for name, x in whole.columns().items()},
        extras={k: x[rows] for k, x in whole.extras.items()},
    )


def block(whole, k, unroll=UNROLL):
    return cut(whole, slice(k * unroll, (k + 1) * unroll))


def where(whole):
    """{first number of an observation that was acted on: (t, b)}."""
    return {whole.obs[t, b, 0].item(): (t, b) for t in range(len(whole.obs)) for b in range(B)}


def replay_of(whole, written, alpha=1.0, beta=1.0):
    """A replay that has met so many blocks of a life; it has room for BLOCKS and a bit."""
    replay = Replay(BLOCKS * B * UNROLL + 5, B, UNROLL, LENGTH, alpha, beta)
    for k in range(written):
        replay.add(block(whole, k), whole.extras["h"][k * UNROLL])
    return replay


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def places(drawn, whole):
    """[(block, b)] of drawn sequences."""
    at = where(whole)
    found = [at[x.item()] for x in drawn.chunk.obs[0, :, 0]]
    assert all(t % UNROLL == 0 for t, _ in found)
    return [(t // UNROLL, b) for t, b in found]


def give(replay, whole, priority):
    """Set priorities {(block, b): p} of sequences, each found by drawing it."""
    drawn = replay.sample(400, rng(9))
    index = dict(zip(places(drawn, whole), drawn.index.tolist(), strict=True))
    replay.set_priority(
        torch.tensor([index[place] for place in priority]), torch.tensor(list(priority.values()))
    )


def weights(replay, whole, number=400):
    """{(block, b): importance weight} of all that can be drawn, and nobody has two."""
    drawn = replay.sample(number, rng(5))
    found = dict(zip(places(drawn, whole), drawn.weight.tolist(), strict=True))
    assert [found[place] for place in places(drawn, whole)] == drawn.weight.tolist()
    return found


# --- returns --------------------------------------------------------------------------------------


def test_rescale_by_hand():
    # sign(x) (sqrt(|x| + 1) - 1) + x / 1000: sqrt 4 = 2, sqrt 9 = 3, sqrt 1.44 = 1.2,
    # sqrt 10^4 = 100
    x = torch.tensor([0.0, 3.0, -8.0, 0.44, -9999.0], dtype=torch.float64)
    y = torch.tensor([0.0, 1.003, -2.008, 0.20044, -99 - 9.999], dtype=torch.float64)
    torch.testing.assert_close(rescale(x), y, rtol=1e-12, atol=0)
    torch.testing.assert_close(unscale(y), x, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        rescale(x, 0.5), torch.tensor([0.0, 2.5, -6.0, 0.42, -99 - 4999.5], dtype=torch.float64)
    )


@pytest.mark.parametrize(("kind", "rtol"), [(torch.float64, 1e-9), (torch.float32, 5e-4)])
def test_unscale_undoes_rescale_and_the_other_way_round(kind, rtol):
    x = torch.logspace(-3, 5, 400, dtype=torch.float64).to(kind)
    x = torch.cat([-x, x])
    for there, back in ((rescale, unscale), (unscale, rescale)):
        part = x if there is rescale else x[x.abs() < 400]  # h(1e5) is 415
        torch.testing.assert_close(back(there(part)), part, rtol=rtol, atol=0)
        assert there(part).dtype == kind


def test_n_step_by_hand():
    # gamma 1/2, n 3: 1 + 2/2 + 4/4 + 80/8 = 13;  2 + 4/2 + 8/4 + 160/8 = 26
    reward, value = (
        torch.tensor([1.0, 2, 4, 8])[:, None],
        torch.tensor([1000.0, 2000, 4000, 80, 160])[:, None],
    )
    go = torch.zeros(4, 1, dtype=torch.bool)
    assert n_step(reward, go, value, 3, 0.5).flatten().tolist() == [13, 26]
    # n 1: r + v' / 2
    assert n_step(reward, go, value, 1, 0.5).flatten().tolist() == [1001, 2002, 44, 88]
    # n 4 = T: 1 + 1 + 1 + 1 + 160/16
    assert n_step(reward, go, value, 4, 0.5).flatten().tolist() == [14]


def test_n_step_is_cut_off_behind_an_end():
    reward, value = torch.tensor([1.0, 2, 4, 8, 16])[:, None].repeat(1, 2), torch.full((6, 2), 80.0)
    ends = torch.zeros(5, 2, dtype=torch.bool)
    ends[1, 0] = True  # in the first environment after the second reward
    # end: 1 + 2/2;  2;  4 + 8/2 + 16/4 + 80/8.
    # other: 1 + 1 + 1 + 10;  2 + 2 + 2 + 10;  4 + 4 + 4 + 10
    assert n_step(reward, ends, value, 3, 0.5).tolist() == [[2, 13], [2, 16], [22, 22]]
    ends[3, 0] = True  # after the window of 0, and the last but one of 2:  4 + 8/2
    assert n_step(reward, ends, value, 3, 0.5)[:, 0].tolist() == [2, 2, 8]
    ends[:] = False
    ends[2, 0] = True  # the last of the window of 0: all of its rewards, and no bootstrap
    assert n_step(reward, ends, value, 3, 0.5)[:, 0].tolist() == [3, 4, 4]
    assert n_step(reward, ends, value, 1, 0.5)[:, 0].tolist() == [41, 42, 4, 48, 56]


def test_priorities_by_hand():
    error = torch.tensor([[1.0, 5.0, 9.0], [3.0, 100.0, 9.0], [2.0, 7.0, 9.0]])
    valid = torch.tensor([[True, True, False], [True, False, False], [True, True, False]])
    # 0.9 * 3 + 0.1 * 2;  0.9 * 7 + 0.1 * 6;  nothing happened
    torch.testing.assert_close(priorities(error, valid), torch.tensor([2.9, 6.9, 0.0]))


# --- the replay -----------------------------------------------------------------------------------


@pytest.mark.parametrize("written", range(2, 2 * BLOCKS + 3))
def test_a_drawn_sequence_is_what_was_lived(written):
    """Its rows, true successors, extras and what follows; only whole sequences can be drawn."""
    whole = life(written)
    replay = replay_of(whole, written)
    assert replay.ready
    assert replay.steps == min(written, BLOCKS) * UNROLL * B
    drawn = replay.sample(400, rng())
    found = places(drawn, whole)
    for i, (k, b) in enumerate(found):
        t = k * UNROLL
        for name, column in drawn.chunk.columns().items():
            assert torch.equal(column[:, i], getattr(whole, name)[t : t + LENGTH - 1, b]), name
        assert drawn.chunk.extras.keys() == whole.extras.keys()
        for name, column in drawn.chunk.extras.items():
            assert torch.equal(column[:, i], whole.extras[name][t : t + LENGTH - 1, b]), name
        for name, column in drawn.last.items():
            assert torch.equal(
                column[0, i], (whole.columns() | whole.extras)[name][t + LENGTH - 1, b]
            ), name
        assert torch.equal(drawn.initial_state[i], whole.extras["h"][t, b])
    assert drawn.last.keys() >= {"obs", "first", "prev_action", "prev_reward"}
    # A block is gone when BLOCKS came after it; the newest has no block after it.
    assert set(found) == set(
        itertools.product(range(max(0, written - BLOCKS), written - 1), range(B))
    )


def test_a_life_holds_every_case():
    """Ends with and without a row that never happened: inside a block, at its end, at the seam."""
    kinds = set()
    for whole in map(life, range(BLOCKS + 1, 2 * BLOCKS + 3)):
        for t, b in whole.done[:-1].nonzero().tolist():
            place = (
                "seam"
                if (t + 1) % (BLOCKS * UNROLL) == 0
                else "boundary"
                if (t + 1) % UNROLL == 0
                else "inside"
            )
            kinds.add((place, bool(whole.valid[t + 1, b]), bool(whole.terminated[t, b])))
            assert torch.equal(whole.next_obs[t, b], whole.obs[t + 1, b]) == (
                not whole.valid[t + 1, b]
            )
        goes_on = ~whole.done[:-1]
        assert torch.equal(whole.next_obs[:-1][goes_on], whole.obs[1:][goes_on])
        assert not (whole.done & ~whole.valid).any()
    assert kinds >= set(itertools.product(["boundary", "inside"], [True, False], [True, False]))
    assert {kind[:2] for kind in kinds} >= {("seam", True), ("seam", False)}


def test_nothing_can_be_drawn_before_the_second_block():
    whole = life(2)
    replay = replay_of(whole, 0)
    for ready in (False, False, True):
        assert replay.ready == ready
        k = replay.steps // (UNROLL * B)
        replay.add(block(whole, min(k, 1)), whole.extras["h"][0])


def test_a_block_is_copied():
    """Rollouts hand out tensors that somebody may write into."""
    whole = life(3)
    mine = copy.deepcopy(whole)
    replay = replay_of(mine, 3)
    for column in [*mine.columns().values(), *mine.extras.values()]:
        column.zero_()
    drawn = replay.sample(50, rng())
    for i, (k, b) in enumerate(places(drawn, whole)):
        assert torch.equal(
            drawn.chunk.next_obs[:, i], whole.next_obs[k * UNROLL : k * UNROLL + LENGTH - 1, b]
        )
        assert torch.equal(drawn.initial_state[i], whole.extras["h"][k * UNROLL, b])


def test_draws_go_by_priority_to_the_power_alpha():
    whole = life(3)
    replay = replay_of(whole, 3, alpha=0.5)
    priority = {place: 4.0**i for i, place in enumerate(itertools.product(range(2), range(B)))}
    give(replay, whole, priority)
    number = 8000
    drawn = places(replay.sample(number, rng(1)), whole)
    for i, place in enumerate(priority):
        p = 2.0**i / 255  # sqrt(4^i), and 1 + 2 + ... + 128
        assert abs(drawn.count(place) / number - p) < 5 * (p * (1 - p) / number) ** 0.5
    # All alike with alpha 0, as without priorities.
    flat = replay_of(whole, 3, alpha=0.0)
    give(flat, whole, priority)
    assert set(weights(flat, whole).values()) == {1.0}


def test_importance_weights_by_hand():
    whole = life(2)
    replay = replay_of(whole, 2, alpha=1.0, beta=0.5)
    give(replay, whole, {(0, 0): 1.0, (0, 1): 3.0, (0, 2): 4.0, (0, 3): 8.0})
    # p = 1/16, 3/16, 1/4, 1/2; N p = 1/4, 3/4, 1, 2;
    # to the power -1/2: 2, 1.1547, 1, 0.7071; over the largest, 2:
    expected = {(0, 0): 1.0, (0, 1): 0.577350, (0, 2): 0.5, (0, 3): 0.353553}
    assert weights(replay, whole) == pytest.approx(expected, abs=1e-6)
    # The largest of the batch, not of the replay: who is drawn alone weighs 1.
    assert {replay.sample(1, rng(seed)).weight.item() for seed in range(20)} == {1.0}
    # With alpha and beta as in the paper: (8 / 1)^(-0.9 * 0.6) = 2^-1.62
    replay.alpha, replay.beta = 0.9, 0.6
    assert weights(replay, whole)[0, 3] == pytest.approx(2**-1.62, abs=1e-6)


def test_new_sequences_have_the_highest_priority():
    """With alpha = beta = 1 a weight is the smallest priority over one's own."""
    whole = life(5)
    replay = replay_of(whole, 2)
    give(replay, whole, {(0, 0): 0.5, (0, 1): 5.0, (0, 2): 1.0, (0, 3): 2.0})
    replay.add(block(whole, 2), whole.extras["h"][0])
    expected = {(0, 0): 1.0, (0, 1): 0.1, (0, 2): 0.5, (0, 3): 0.25} | {
        (1, b): 0.1 for b in range(B)
    }
    assert weights(replay, whole) == pytest.approx(expected)
    replay.add(block(whole, 3), whole.extras["h"][0])
    assert weights(replay, whole) == pytest.approx(expected | {(2, b): 0.1 for b in range(B)})
    # Where all are small the new ones are still not smaller.
    timid = replay_of(whole, 2)
    give(timid, whole, {(0, b): 0.1 for b in range(B)})
    timid.add(block(whole, 2), whole.extras["h"][0])
    found = weights(timid, whole)
    assert max(found[1, b] for b in range(B)) <= found[0, 0] == 1.0


def test_a_sequence_without_error_can_still_be_drawn():
    whole = life(2)
    replay = replay_of(whole, 2)
    give(replay, whole, {(0, b): 0.0 for b in range(B)})
    assert set(places(replay.sample(200, rng()), whole)) == set(itertools.product([0], range(B)))


def test_a_late_priority_does_not_bring_back_what_was_overwritten():
    """Drawn, overwritten by the newest block, then judged: its slot has no whole sequence yet."""
    whole = life(2 * BLOCKS)
    replay = replay_of(whole, BLOCKS)
    drawn = replay.sample(400, rng())
    replay.add(block(whole, BLOCKS), whole.extras["h"][0])
    replay.set_priority(drawn.index, torch.full((400,), 2.0))
    found = set(places(replay.sample(400, rng(1)), whole))
    assert found == set(itertools.product(range(1, BLOCKS), range(B)))


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(one, other):
    parts = [
        (
            one.chunk.columns() | one.chunk.extras | one.last,
            other.chunk.columns() | other.chunk.extras | other.last,
        )
    ]
    parts += [({"o": x.initial_state, "i": x.index, "w": x.weight} for x in (one, other))]
    return all(torch.equal(a[name], b[name]) for a, b in parts for name in a)


@pytest.mark.parametrize("written", [0, 1, 3, BLOCKS, BLOCKS + 2])
@pytest.mark.parametrize("carried", [through_a_file, lambda state: state], ids=["file", "memory"])
def test_a_restored_replay_goes_on_alike(written, carried):
    whole, other = life(2 * BLOCKS + 2), life(2 * BLOCKS + 2, seed=1)
    replay, twin = replay_of(whole, written), replay_of(other, 0)
    if replay.ready:
        drawn = replay.sample(30, rng(2))
        replay.set_priority(drawn.index, torch.rand(30, generator=rng(3)) * 9)
    twin.load_state_dict(carried(replay.state_dict()))
    for k in range(written, written + 3):
        assert (twin.ready, twin.steps, twin.written) == (
            replay.ready,
            replay.steps,
            replay.written,
        )
        if twin.ready:
            assert same(replay.sample(60, rng(4)), twin.sample(60, rng(4)))
        for one in (replay, twin):
            one.add(block(whole, k), whole.extras["h"][k * UNROLL])
    assert same(replay.sample(60, rng(4)), twin.sample(60, rng(4)))


def test_a_restored_replay_is_on_its_own():
    """What one of them learns after that is not known to the other, nor to the saved state."""
    whole, other = life(BLOCKS + 3), life(BLOCKS + 3, seed=1)
    replay, twin = replay_of(whole, BLOCKS), replay_of(whole, 0)
    state = replay.state_dict()
    twin.load_state_dict(state)
    expected = replay.sample(60, rng(4))
    for k in range(BLOCKS, BLOCKS + 3):
        twin.add(block(other, k), other.extras["h"][k * UNROLL])
    twin.set_priority(twin.sample(60, rng(4)).index, torch.rand(60, generator=rng(3)))
    assert same(replay.sample(60, rng(4)), expected)
    replay.set_priority(expected.index, torch.rand(60, generator=rng(3)))
    third = replay_of(whole, 0)
    third.load_state_dict(state)
    assert same(third.sample(60, rng(4)), expected)


def test_a_break_between_blocks_is_no_transition():
    """Environments that cannot be restored begin anew on --resume: a block then breaks off.

    A row that has a successor must not get another episode's first frame for it, nor its rewards.
    """
    whole, other = life(4), life(4, seed=3)
    replay, at = (
        replay_of(whole, 2),
        where(whole) | {x + 1000: place for x, place in where(other).items()},
    )
    for k in range(2):
        anew = block(other, k)
        obs, next_obs = anew.obs.clone(), anew.next_obs.clone()
        obs[..., 0] += 1000
        next_obs[..., 0] += 1000
        replay.add(replace(anew, obs=obs, next_obs=next_obs), other.extras["h"][k * UNROLL])
    assert not whole.done[2 * UNROLL - 1].all()
    drawn = replay.sample(400, rng())
    for i in range(400):
        for t in range(LENGTH - 1):
            if drawn.chunk.valid[t, i]:
                x = drawn.chunk.obs[t, i, 0].item()
                row, b = at[x]
                lived = whole if x < 1000 else other
                assert drawn.chunk.next_obs[t, i, 0] == lived.next_obs[row, b, 0] + 1000 * (
                    x >= 1000
                )
                after = (
                    drawn.chunk.first[t + 1, i] if t + 1 < LENGTH - 1 else drawn.last["first"][0, i]
                )
                assert not after or drawn.chunk.done[t, i]


@pytest.mark.parametrize("written", [1, 2, BLOCKS, BLOCKS + 1, 2 * BLOCKS + 2])
def test_pairs_are_neighbours_of_one_episode(written):
    whole = life(written)
    at, end = where(whole), written * UNROLL
    start = max(0, written - BLOCKS) * UNROLL
    one, two = replay_of(whole, written).pairs(6000, rng())
    assert one.dtype == two.dtype == torch.float32
    found = {(at[x[0].item()], at[y[0].item()]) for x, y in zip(one, two, strict=True)}
    allowed = {
        ((t, b), (t + apart, b))
        for t, b, apart in itertools.product(range(start, end), range(B), (1, 2))
        if t + apart < end and not whole.first[t + 1 : t + apart + 1, b].any()
    }
    assert found <= allowed
    assert found >= {
        pair for pair in allowed if pair[0][0] + 2 < end
    }  # all of them, but for the very last
    assert 0.2 * 6000 < len(one) < 6000


def test_pairs_never_hold_what_was_not_written():
    whole = life(2, unroll=1)
    replay = Replay(9 * B, B, 1, 2, 1.0, 1.0)
    for k in range(2):
        replay.add(
            replace(block(whole, k, 1), first=torch.zeros(1, B, dtype=torch.bool)),
            whole.extras["h"][k],
        )
    assert replay.ready
    replay.columns["obs"][2:], replay.columns["first"][2:] = torch.nan, False
    assert all(x.isfinite().all() for x in replay.pairs(50, rng()))


def test_an_atari_step_takes_its_bytes():
    """84 * 84 + action 8 + reward 4 + four flags + action before 8 + reward before 4 bytes.

    For each block of 2 steps 3 floats of state; the newest of four frames, as bytes.
    """
    config = DQNConfig(hidden=3, burn_in=0, unroll=2, n_step=1, replay=3 * 2 * 2)
    agent = DQN((4, 84, 84), spaces.Discrete(3), 2, config, 0, frame=1)
    no = torch.zeros(2, 2, dtype=torch.bool)
    frames = torch.randint(256, (3, 2, 4, 84, 84), dtype=torch.uint8, generator=rng())
    extras = {"h": torch.zeros(2, 2, 3), "prev_action": no.long(), "prev_reward": no.float()}
    for part in (slice(0, 2), slice(0, 2)):
        seen = Chunk(frames[part], no.long(), no.float(), frames[1:], no, no, no, ~no, extras)
        agent.store(seen, None, NOTHING)
    assert agent.replay.bytes_per_step == 84 * 84 + 8 + 4 + 4 + 8 + 4 + 3 * 4 // 2
    drawn = agent.replay.sample(9, rng())
    assert drawn.chunk.obs.dtype == torch.uint8
    assert drawn.chunk.obs.shape == (2, 9, 1, 84, 84)
    newest = frames[:2, :, -1:]
    assert all(
        any(torch.equal(drawn.chunk.obs[:, i], newest[:, b]) for b in range(2)) for i in range(9)
    )


# --- the network ----------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0.0)


def gru(w, x, h):
    """r = s(x W_r + h U_r), z = s(x W_z + h U_z), c = tanh(x W_c + r (h U_c)).

    h' = (1 - z) c + z h.
    """
    x, y = w["cell.weight_ih"] @ x + w["cell.bias_ih"], w["cell.weight_hh"] @ h + w["cell.bias_hh"]
    k = len(h)
    r, z = sigmoid(x[:k] + y[:k]), sigmoid(x[k : 2 * k] + y[k : 2 * k])
    return (1 - z) * np.tanh(x[2 * k :] + r * y[2 * k :]) + z * h


def values(w, obs, before, reward, first, h):
    """Q (A,) and h' of one step."""
    if first:
        h = np.zeros_like(h)
    x = relu(
        w["encoder.0.2.weight"] @ relu(w["encoder.0.0.weight"] @ obs + w["encoder.0.0.bias"])
        + w["encoder.0.2.bias"]
    )
    actions = len(w["advantage.2.weight"])
    known = np.array([float(a == before and not first) for a in range(actions)])
    h = gru(w, np.concatenate([x, known, [0.0 if first else reward]]), h)
    advantage = w["advantage.2.weight"] @ relu(w["advantage.0.weight"] @ h + w["advantage.0.bias"])
    value = (
        w["value.2.weight"] @ relu(w["value.0.weight"] @ h + w["value.0.bias"]) + w["value.2.bias"]
    )
    return value[0] + advantage - sum(advantage) / actions, h


def numbers(net):
    return {name: x.detach().double().numpy().copy() for name, x in net.state_dict().items()}


def through(net, rows, k, h):
    """Q (T, A) and h (T, H) of one column of rows, step by step in NumPy."""
    w, h, found = numbers(net), np.asarray(torch.as_tensor(h).tolist()), []
    columns = [
        rows[name][:, k].double().numpy() for name in ("obs", "prev_action", "prev_reward", "first")
    ]
    for row in zip(*columns, strict=True):
        q, h = values(w, *row, h)
        found.append((q, h))
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def shake(net, seed):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in net.parameters():
            p += 0.3 * torch.as_tensor(rng.normal(size=p.shape)).to(p.dtype)
    return net


def net_and_rows(seed=0):
    net, whole = shake(QNet((OBS,), A, H).double(), seed), life(2, seed)
    rows = {"obs": whole.obs, "first": whole.first} | {
        name: whole.extras[name] for name in ("prev_action", "prev_reward")
    }
    return (
        net,
        {name: x.double() if x.is_floating_point() else x for name, x in rows.items()},
        whole.extras["h"][0].double(),
    )


@pytest.mark.parametrize("resets", ["none", "some", "all"])
def test_unroll_is_torchs_cell_step_by_step(resets):
    torch.manual_seed(0)
    cell, x, h0 = (
        nn.GRUCell(5, H).double(),
        torch.randn(11, 3, 5).double(),
        torch.randn(3, H).double(),
    )
    share = {"none": 0.0, "some": 0.4, "all": 1.0}[resets]
    first = torch.rand(11, 3, generator=rng(1)) < share
    h, expected = h0, []
    for t in range(11):
        h = cell(x[t], torch.where(first[t][:, None], 0.0, h))
        expected.append(h)
    found = run_gru(cell, x, first, h0)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)
    # and its gradient
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), list(cell.parameters())),
        torch.autograd.grad(torch.stack(expected).square().sum(), list(cell.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_what_is_wiped_may_be_anything():
    """The state after a row that never happened is wiped, not multiplied by zero."""
    cell, x, first = (
        nn.GRUCell(5, H),
        torch.randn(2, 3, 5, generator=rng()),
        torch.tensor([[True] * 3, [False] * 3]),
    )
    assert torch.equal(
        run_gru(cell, x, first, torch.full((3, H), torch.nan)),
        run_gru(cell, x, first, torch.zeros(3, H)),
    )


def test_the_network_is_its_formula():
    net, rows, h = net_and_rows()
    q, states = net(rows, h)
    for b in range(B):
        expected_q, expected_h = through(net, rows, b, h[b])
        np.testing.assert_allclose(q[:, b].detach(), expected_q, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(states[:, b].detach(), expected_h, rtol=1e-9, atol=1e-11)


def test_an_episode_begins_without_a_past():
    """Where `first`, neither state nor action and reward before matter; elsewhere each does."""
    net, rows, h = net_and_rows()
    rows = {name: x[:1].clone() for name, x in rows.items()}
    for begins in (True, False):
        rows["first"][:] = begins
        q, _ = net(rows, h)
        others = [(rows | {"prev_action": (rows["prev_action"] + 1) % A}, h)]
        others += [(rows | {"prev_reward": rows["prev_reward"] + 1}, h), (rows, h + 1)]
        for other in others:
            assert torch.equal(net(*other)[0], q) == begins


def test_duelling_heads():
    """V is the mean of Q over the actions, and what is left is the advantage minus its mean."""
    net, rows, h = net_and_rows()
    q, states = net(rows, h)
    torch.testing.assert_close(q.mean(-1, keepdim=True), net.value(states), rtol=1e-9, atol=1e-11)
    advantage = net.advantage(states)
    assert advantage.mean(-1).abs().max() > 1e-3
    torch.testing.assert_close(
        q - q.mean(-1, keepdim=True),
        advantage - advantage.mean(-1, keepdim=True),
        rtol=1e-9,
        atol=1e-11,
    )
    assert net.advantage[-1].bias is None


@pytest.mark.parametrize("seed", range(4))
def test_values_start_near_zero(seed):
    """A value above what a task can pay makes its end look bad, and fades slowly."""
    torch.manual_seed(seed)
    width, hidden, T = 151, 128, 20
    net = QNet((width,), A, hidden)
    rows = {
        "obs": torch.randint(6, (T, B, width)).float(),
        "first": torch.zeros(T, B, dtype=torch.bool),
        "prev_action": torch.randint(A, (T, B)),
        "prev_reward": torch.zeros(T, B),
    }
    q, _ = net(rows, torch.zeros(B, hidden))
    assert unscale(q.detach()).abs().max() < 0.2


def test_step_by_step_is_all_at_once():
    net, rows, h = net_and_rows()
    whole, states = net(rows, h)
    for t in range(len(whole)):
        q, after = net({name: x[t : t + 1] for name, x in rows.items()}, h)
        torch.testing.assert_close(q[0], whole[t], rtol=1e-10, atol=1e-12)
        h = after[0]
    torch.testing.assert_close(h, states[-1], rtol=1e-10, atol=1e-12)


# --- acting ---------------------------------------------------------------------------------------


def agent_of(obs=OBS, space=None, num_envs=B, seed=0, **options):
    config = {
        "hidden": H,
        "burn_in": BURN,
        "unroll": UNROLL,
        "n_step": STEPS,
        "replay": BLOCKS * num_envs * UNROLL,
    } | options
    agent = DQN((obs,), space or spaces.Discrete(A), num_envs, DQNConfig(**config), seed, 1)
    shake(agent.net, seed)
    shake(agent.target, seed + 1)  # not the same network
    return agent


class Decided:
    """A network that always finds the fourth action best."""

    actions = A

    def __call__(self, rows, h):
        q = torch.zeros(*rows["first"].shape, A)
        q[..., 3] = 1.0
        return q, h[None]


def test_the_ladder_of_epsilons():
    agent = agent_of()
    # 0.4^1, 0.4^2, ..., 0.4^8
    eight = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    assert agent.epsilons(8).tolist() == pytest.approx(eight, rel=1e-5)
    epsilons = agent.epsilons(128).tolist()
    assert (epsilons[0], epsilons[-1]) == pytest.approx((0.4, 0.00065536), rel=1e-5)
    assert epsilons[10] == pytest.approx(0.4 ** (1 + 70 / 127), rel=1e-5)
    assert agent.epsilons(1).tolist() == pytest.approx([0.4])
    assert DQNConfig().epsilon_eval == 0.001


@pytest.mark.parametrize("how", ["explore", "sample", "greedy"])
def test_each_environment_explores_with_its_own_epsilon(how):
    agent = agent_of(space=spaces.Discrete(A, start=5), epsilon=0.5, epsilon_eval=0.25)
    agent.net = Decided()
    obs, first, number = torch.zeros(B, OBS), torch.zeros(B, dtype=torch.bool), 3000
    actions = torch.stack([agent.act(obs, first, {}, how)[0] for _ in range(number)])
    # 0.5^1, 0.5^(1 + 7/3), 0.5^(1 + 14/3), 0.5^8; a random action is another one 8 times in 9
    epsilon = {
        "explore": [0.5, 0.5 ** (10 / 3), 0.5 ** (17 / 3), 0.5**8],
        "sample": [0.25] * B,
        "greedy": [0.0] * B,
    }[how]
    for b, e in enumerate(epsilon):
        p = e * 8 / 9
        assert abs((actions[:, b] != 5 + 3).float().mean() - p) <= 5 * (p * (1 - p) / number) ** 0.5
    if how != "greedy":
        counts = torch.bincount(actions[:, 0] - 5, minlength=A)
        counts = counts[torch.arange(A) != 3] / counts.sum()
        p = epsilon[0] / 9
        assert len(counts) == A - 1
        assert (counts - p).abs().max() < 5 * (p / number) ** 0.5


def test_what_an_agent_feels():
    agent = agent_of(space=spaces.Discrete(A, start=5), int_coef=0.25)
    memo, reward = agent.start(2), torch.tensor([1.0, -2.0])
    felt = agent.observe_reward(memo, torch.tensor([5, 13]), reward, torch.tensor([8.0, 4.0]))
    assert felt["prev_action"].tolist() == [0, 8]
    assert felt["prev_reward"].tolist() == [3.0, -1.0]  # 1 + 8/4, -2 + 4/4
    assert agent.observe_reward(memo, torch.tensor([5, 13]), reward, None)[
        "prev_reward"
    ].tolist() == [
        1.0,
        -2.0,
    ]


def counters(num_envs):
    """Counts to seven, with rows that never happened between the episodes."""
    assert Counter is not None
    return Gymnasium("Counter-v0", num_envs, 0, mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize(
    "world", [lambda n: make_vec("ToyTMaze-v0", n, 0), counters], ids=["tmaze", "counter"]
)
@pytest.mark.parametrize("curious", [False, True])
@pytest.mark.parametrize("random", [False, True])
def test_a_burnt_in_state_is_the_one_that_acted(world, curious, random):
    """With unmoved weights: from the stored state on, as if read from the episode's beginning."""
    env, U = (
        world(B),
        7,
    )  # with six, the counter's five steps and a row that never happened would fill a block
    agent = agent_of(env.obs_shape[0], env.action_space, unroll=U, replay=BLOCKS * B * U)
    bonus = None
    if curious:
        config = BonusConfig(lwm=LWMConfig(n=3, inputs=4, hidden=5))
        bonus = ReplayTrainer("lwm", env.obs_shape, B, config, 0, env.action_space)
        bonus.scaler.update(torch.tensor([0.0, 2.0]))
    env.action_space.seed(0)
    actor, loop, chunks = (
        RandomAgent(env, agent) if random else agent,
        RunnerState.reset(env, bonus),
        [],
    )
    for _ in range(BLOCKS - 1):
        chunks.append(collect(env, actor, loop, U, bonus)[0])
        agent.store(chunks[-1], None, NOTHING)
    action, reward, first, obs, valid = (
        torch.cat([getattr(c, name) for c in chunks])
        for name in ("action", "reward", "first", "obs", "valid")
    )
    done = torch.cat([c.done for c in chunks])
    assert torch.equal(first[1:], (done | ~valid)[:-1])  # also behind a row that never happened
    assert first[0].all()
    if curious:
        r_int = torch.cat([c.extras["r_int"] for c in chunks])
        assert r_int.abs().max() > 0.1
        reward = reward + 0.1 * r_int
    before = {
        "prev_action": action.roll(1, 0),
        "prev_reward": reward.roll(1, 0),
    }  # the last one stands before a first
    whole = {"obs": obs, "first": first} | before
    drawn = agent.replay.sample(60, rng())
    past = {"obs": drawn.chunk.obs, "first": drawn.chunk.first} | drawn.chunk.extras
    old, new = (
        {name: x[part] for name, x in past.items()} for part in (slice(BURN), slice(BURN, None))
    )
    h = agent.burn_in_state(agent.net, old, drawn.initial_state)
    q, _ = agent.net(new, h)
    from_nothing = agent.burn_in_state(agent.net, old, torch.zeros_like(drawn.initial_state))
    mattered = 0
    for b in range(B):
        expected_q, expected_h = through(agent.net, whole, b, np.zeros(H))
        for i, index in enumerate(drawn.index.tolist()):
            if index % B == b:
                t = index // B * U
                if valid[t + BURN - 1, b]:
                    np.testing.assert_allclose(h[i], expected_h[t + BURN - 1], rtol=1e-4, atol=1e-5)
                    mattered += not torch.allclose(h[i], from_nothing[i], atol=1e-3)
                lived = valid[t + BURN : t + BURN + U + STEPS - 1, b]
                expected = expected_q[t + BURN : t + BURN + U + STEPS - 1]
                np.testing.assert_allclose(
                    q[:, i][lived].detach(), expected[lived], rtol=1e-4, atol=1e-4
                )
    assert mattered > 0
    assert valid.all() == (world is not counters)


def test_a_replayed_action_is_the_action_that_was_taken():
    """Whatever number the action space begins with: acting and replay mean the same actions."""
    space = spaces.Discrete(A, start=2)
    agent, whole = agent_of(space=space), life(3)
    config = BonusConfig(lwm=LWMConfig(n=3, inputs=4, hidden=5))
    bonus = ReplayTrainer("lwm", (OBS,), B, config, 0, space)
    whole = replace(
        whole, action=whole.action + 2, first=torch.ones_like(whole.first)
    )  # every step by itself
    for k in range(3):
        agent.store(block(whole, k), None, NOTHING)
    acting, _, _ = bonus(whole, bonus.start())
    drawn = agent.replay.sample(20, rng())
    replayed, _, _ = bonus(drawn.chunk, bonus.start(20))
    for i, (k, b) in enumerate(places(drawn, whole)):
        expected = acting[k * UNROLL : k * UNROLL + LENGTH - 1, b]
        torch.testing.assert_close(replayed[:, i], expected, rtol=1e-4, atol=1e-5)


# --- learning -------------------------------------------------------------------------------------


def h_of(x):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x


def h_inverse(y):
    """By halving an interval: h grows."""
    low, high = -1e7, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h_of(middle) < y else (low, middle)
    return (low + high) / 2


def errors(agent, drawn, r_int):
    """Q(s, a) - h(r + g r' + ... + g^n h^-1(Q_target(s^n, argmax Q(s^n)))), (unroll, K)."""
    c, chunk = agent.config, drawn.chunk
    rows = {"obs": chunk.obs, "first": chunk.first} | chunk.extras
    rows = {name: torch.cat([x, drawn.last[name]]) for name, x in rows.items()}
    reward, done = chunk.reward.double().numpy(), chunk.done.numpy()
    reward = reward if r_int is None else reward + c.int_coef * r_int.double().numpy()
    found = np.zeros((c.unroll, chunk.shape[1]))
    for k in range(chunk.shape[1]):
        online, _ = through(agent.net, rows, k, drawn.initial_state[k])
        target, _ = through(agent.target, rows, k, drawn.initial_state[k])
        for i in range(c.unroll):
            t = c.burn_in + i
            total, factor = 0.0, 1.0
            for j in range(t, t + c.n_step):
                total += factor * reward[j, k]
                factor *= c.gamma * (not done[j, k])
            best = max(range(A), key=lambda a: online[t + c.n_step, a])
            total += factor * h_inverse(target[t + c.n_step, best])
            found[i, k] = online[t, chunk.action[t, k]] - h_of(total)
    return found


def with_junk(whole, junk):
    """A life whose rows that never happened hold something else."""
    hole = ~whole.valid
    obs, next_obs = (torch.where(hole[..., None], junk, x) for x in (whole.obs, whole.next_obs))
    extras = whole.extras | {"prev_reward": torch.where(hole, junk, whole.extras["prev_reward"])}
    return replace(
        whole,
        obs=obs,
        next_obs=next_obs,
        reward=torch.where(hole, junk, whole.reward),
        extras=extras,
    )


def lesson(seed=0, K=6, curious=True, junk=None, **options):
    """(agent, a drawn batch, a bonus for it)."""
    agent, whole = agent_of(seed=seed, **options), life(BLOCKS + 2, seed)
    whole = whole if junk is None else with_junk(whole, junk)
    for k in range(BLOCKS + 2):
        agent.store(block(whole, k), None, NOTHING)
    known = agent.replay.sample(200, rng(8))
    agent.replay.set_priority(
        known.index, torch.rand(200, generator=rng(7)) * 5 + 0.1
    )  # so that weights differ
    drawn = agent.replay.sample(K, rng(seed))
    r_int = torch.where(
        drawn.chunk.valid, drawn.chunk.obs[..., 1] * 9, 0.0
    )  # the same for who is drawn twice
    return agent, drawn, r_int if curious else None


def doubled(agent, drawn, r_int):
    agent.net.double()
    agent.target.double()

    def wide(x):
        return x.double() if x.is_floating_point() else x

    columns, extras = (
        {name: wide(x) for name, x in part.items()}
        for part in (drawn.chunk.columns(), drawn.chunk.extras)
    )
    last = {name: wide(x) for name, x in drawn.last.items()}
    drawn = replace(
        drawn,
        chunk=Chunk(**columns, extras=extras),
        last=last,
        initial_state=drawn.initial_state.double(),
    )
    return agent, drawn, None if r_int is None else r_int.double()


@pytest.mark.parametrize("burn_in", [0, BURN])
@pytest.mark.parametrize("n", [1, STEPS])
@pytest.mark.parametrize("curious", [False, True])
def test_errors_are_the_double_n_step_rescaled_ones(burn_in, n, curious):
    for seed in range(2):
        agent, drawn, r_int = doubled(*lesson(seed, curious=curious, burn_in=burn_in, n_step=n))
        expected, valid = (
            errors(agent, drawn, r_int),
            drawn.chunk.valid[burn_in : burn_in + UNROLL].numpy(),
        )
        found = agent.errors(drawn, r_int).detach().numpy()
        assert found.shape == (UNROLL, 6)
        assert not valid.all()
        np.testing.assert_allclose(found[valid], expected[valid], rtol=1e-7, atol=1e-9)


def test_the_batch_of_errors_has_every_case():
    """The two networks disagree about the best action, and windows end inside and behind them."""
    agent, drawn, _ = lesson()
    rows = {"obs": drawn.chunk.obs, "first": drawn.chunk.first} | drawn.chunk.extras
    best, other = (net(rows, drawn.initial_state)[0].argmax(2) for net in (agent.net, agent.target))
    assert (best != other).any()
    ends = drawn.chunk.done[BURN:].unfold(0, STEPS, 1)  # (UNROLL, K, STEPS)
    assert ends[..., 0].any()
    assert (ends[..., -1] & ~ends[..., :-1].any(-1)).any()
    assert (~ends.any(-1)).any()
    assert drawn.weight.unique().numel() > 2


def test_nothing_is_learnt_from_the_burn_in_nor_from_the_target():
    agent, drawn, r_int = lesson()
    obs, initial_state = (
        drawn.chunk.obs.clone().requires_grad_(),
        drawn.initial_state.clone().requires_grad_(),
    )
    no = torch.zeros_like(drawn.chunk.first)  # one long episode
    seen = replace(
        drawn, chunk=replace(drawn.chunk, obs=obs, first=no, valid=~no), initial_state=initial_state
    )
    agent.target.requires_grad_(True)
    agent.errors(seen, r_int).square().sum().backward()
    assert initial_state.grad is None
    assert not obs.grad[:BURN].any()
    assert (
        obs.grad[BURN : BURN + UNROLL]
        .flatten(2)
        .any(2)[drawn.chunk.valid[BURN : BURN + UNROLL]]
        .all()
    )
    assert not obs.grad[BURN + UNROLL :].any()  # there only the target looks
    assert all(p.grad is None for p in agent.target.parameters())


def test_the_loss_sums_over_time_and_averages_over_weighted_sequences():
    agent, drawn, r_int = lesson()
    error, valid = errors(agent, drawn, r_int), drawn.chunk.valid[BURN : BURN + UNROLL].numpy()
    total = 0.0
    for k in range(6):
        total += (
            drawn.weight[k].item() * sum(error[i, k] ** 2 for i in range(UNROLL) if valid[i, k]) / 6
        )
    twin = copy.deepcopy(agent)
    metrics = agent.update_on(drawn, r_int)
    assert metrics["losses/td"] == pytest.approx(total, rel=1e-4)
    # its gradient, which is not clipped here
    mask = torch.as_tensor(valid)
    loss = (
        sum(
            w * e[m].square().sum()
            for w, e, m in zip(drawn.weight, twin.errors(drawn, r_int).T, mask.T, strict=True)
        )
        / 6
    )
    gradient = torch.autograd.grad(loss, list(twin.net.parameters()))
    norm = sum(g.square().sum().item() for g in gradient) ** 0.5
    assert metrics["losses/grad_norm"] == pytest.approx(norm, rel=1e-3)
    scale = min(1.0, 40 / norm)
    for p, g in zip(agent.net.parameters(), gradient, strict=True):
        torch.testing.assert_close(p.grad, scale * g, rtol=1e-3, atol=1e-4 * scale * norm)


@pytest.mark.parametrize("clip", [1e-2, 1e6])
def test_an_update_is_adam_on_the_clipped_gradient_and_the_target_follows(clip):
    """Adam's first step is lr g / (|g| + eps); then the target goes 1/8 of the way."""
    agent, drawn, r_int = lesson(max_grad_norm=clip, lr=0.25, adam_eps=0.5, target_rate=0.125)
    net, target = numbers(agent.net), numbers(agent.target)
    agent.update_on(drawn, r_int)
    gradient = {name: p.grad.double().numpy() for name, p in agent.net.named_parameters()}
    norm = sum((g**2).sum() for g in gradient.values()) ** 0.5
    assert norm == pytest.approx(1e-2, rel=1e-3) if clip < 1 else norm > 1
    moved, followed = numbers(agent.net), numbers(agent.target)
    for name, g in gradient.items():
        np.testing.assert_allclose(
            moved[name], net[name] - 0.25 * g / (abs(g) + 0.5), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            followed[name], 0.875 * target[name] + 0.125 * moved[name], rtol=1e-4, atol=1e-5
        )
    assert DQNConfig().target_rate == 0.005


def test_learning_sets_the_priorities_of_what_was_drawn_and_of_nothing_else():
    agent, drawn, r_int = lesson()
    error, valid = abs(errors(agent, drawn, r_int)), drawn.chunk.valid[BURN : BURN + UNROLL].numpy()
    before = agent.replay.priority.flatten().clone()
    agent.update_on(drawn, r_int)
    after = agent.replay.priority.flatten()
    for k, index in enumerate(drawn.index.tolist()):
        lived = error[valid[:, k], k]
        assert after[index].item() == pytest.approx(
            0.9 * lived.max() + 0.1 * lived.mean(), rel=1e-4
        )
    others = ~torch.isin(torch.arange(len(after)), drawn.index)
    assert others.sum() > B
    assert torch.equal(after[others], before[others])


@pytest.mark.parametrize("junk", [7.0, 1e30, torch.nan])
def test_rows_that_never_happened_teach_nothing(junk):
    (agent, drawn, r_int), (twin, other, r_other) = (
        lesson(K=30, junk=filling) for filling in (0.0, junk)
    )
    assert torch.equal(drawn.index, other.index)
    hole = ~other.chunk.valid
    assert hole[:BURN].any()
    assert hole[BURN : BURN + UNROLL].any()
    assert (drawn.last["obs"] != other.last["obs"]).any()  # in the row after the last, too
    calm, wild = agent.update_on(drawn, r_int), twin.update_on(other, r_other)
    assert wild == pytest.approx(calm, rel=1e-5)
    assert all(
        torch.allclose(x, y, atol=1e-6)
        for x, y in zip(agent.net.parameters(), twin.net.parameters(), strict=True)
    )
    assert torch.allclose(agent.replay.priority, twin.replay.priority, atol=1e-5)
