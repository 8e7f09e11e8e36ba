"""MNIR by event: steps go to the right events, and the bars are worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from surprise_memory.cli import main
from surprise_memory.envs import VecEnv, make_vec, miniworld
from surprise_memory.tools import bars, mnir

TV = "NoisyTV/MiniGrid-DoorKey-5x5-v0"


class PaysNoise:
    """A bonus that pays 1 at the TV and 0 elsewhere."""

    asked = 0

    def start(self, num_envs):
        return None

    def __call__(self, chunk, carry):
        self.asked += 1
        return (chunk.action == 6).float(), None, carry


def test_a_bonus_that_pays_noise_alone_has_the_mnir_of_a_coin():
    found = mnir.mnir_by_event(TV, PaysNoise(), episodes=3, seed=0, longest=10_000)
    # With a share p of noise, z is sqrt((1 - p) / p) there and -sqrt(p / (1 - p)) elsewhere.
    # p is about 1/7.
    assert found["noise"] == pytest.approx(6**0.5, rel=0.2)
    assert found["walls only"] == pytest.approx(-(6**-0.5), rel=0.2)


def test_only_the_first_episode_of_each_environment_counts():
    longest = mnir.mnir_by_event(TV, PaysNoise(), episodes=2, seed=3, longest=10_000)
    bonus = PaysNoise()
    assert mnir.mnir_by_event(TV, bonus, episodes=2, seed=3, longest=100_000) == longest
    assert bonus.asked <= 250 // mnir.BLOCK + 1  # DoorKey-5x5 ends after 250 steps


@pytest.mark.parametrize("longest", [5, 64, 70])
def test_no_step_after_the_longest_is_looked_at(longest):
    shown = []

    class Counts(PaysNoise):
        def __call__(self, chunk, carry):
            shown.append(len(chunk.action))
            return super().__call__(chunk, carry)

    mnir.mnir_by_event(TV, Counts(), episodes=2, seed=0, longest=longest)
    assert sum(shown) == longest


def test_what_is_noise_is_nothing_else():
    env = make_vec(TV, 4, 0)
    env.action_space.seed(0)
    from surprise_memory.training.collect import RandomAgent, RunnerState, collect

    chunk, _ = collect(env, RandomAgent(env), RunnerState.reset(env, None), 64)
    found = mnir.events_of(env, chunk)
    assert np.array_equal(found["noise"], ((chunk.action == 6) & ~chunk.done).numpy())
    others = np.any([where for name, where in found.items() if name != "noise"], axis=0)
    assert np.array_equal(others, ~found["noise"]) and found["key in view"].any()


def test_a_red_box_is_seen_in_the_newest_frame_alone():
    frames = np.full((3, 12, 84, 84), 90, np.uint8)
    frames[0, 9:, :2, :2] = np.array([200, 20, 20])[:, None, None]  # four red pixels, newest frame
    frames[1, 6:9, :9, :9] = np.array([200, 20, 20])[:, None, None]  # the frame before it
    frames[2, 9:] = np.array([150, 90, 70])[:, None, None]  # bricks
    assert miniworld.events(frames)["red box in view"].tolist() == [True, False, False]


def test_the_command_writes_bars_and_numbers_and_refuses_what_it_cannot_name(tmp_path, capsys):
    small = ["--preset", "debug", "--steps", "256", "--eval-episodes", "0"]
    for env, method, name in (
        (TV, "rnd", "a"),
        (TV, "rnd+sm", "b"),
        ("ToyKeyDoor-v0", "rnd", "toy"),
        (TV, "none", "plain"),
    ):
        assert (
            main(["train", env, "--method", method, *small, "--run-dir", str(tmp_path / name)]) == 0
        )
    out = tmp_path / "bars.png"
    few = ["--episodes", "2", "--longest", "128", "--out", str(out)]
    assert main(["mnir", str(tmp_path / "a"), str(tmp_path / "b"), *few]) == 0
    assert out.stat().st_size > 5_000 and '"rnd+sm, debug"' in out.with_suffix(".json").read_text()
    for names, said in (
        (["toy"], "does not name"),
        (["a", "toy"], "on one environment"),
        (["plain"], "no bonus"),
        ([], "at least 1"),
    ):
        capsys.readouterr()
        assert main(["mnir", *(str(tmp_path / name) for name in names), *few]) == 2
        assert said in capsys.readouterr().err


def test_mnir_by_event_is_worked_out_episode_by_episode():
    """Episode one pays 0, 2 (MNIR -1, 1), episode two 5, 5: the third row does not count.

    A room may come late.
    """
    paid, counts = (
        np.array([[0.0, 5.0], [2.0, 5.0], [7.0, 8.0]]),
        np.array([[1, 1], [1, 1], [0, 0]], bool),
    )
    one, two = np.array([[1, 0], [0, 0]], bool), np.array([[0, 1], [1, 1]], bool)
    met = [{"room 1": one, "room 2": two}, {"room 3": np.ones((1, 2), bool)}]
    assert mnir.by_event(paid, counts, met) == {"room 1": -1.0, "room 2": pytest.approx(1 / 3)}


def test_rooms_are_events_where_the_environment_reports_them():
    chunk = SimpleNamespace(extras={"room": torch.tensor([[1, 2], [1, 1]])})
    found = mnir.events_of(VecEnv(), chunk)
    assert {name: where.tolist() for name, where in found.items()} == {
        "room 1": [[True, False], [True, True]],
        "room 2": [[False, True], [False, False]],
    }


def test_asking_leaves_the_bonus_as_it_was():
    from surprise_memory import Bonus

    env = make_vec(TV, 2, 0)
    bonus = Bonus("rnd+sm", env.obs_shape, 2)
    before = {
        name: x.clone() for name, x in bonus.state_dict().items() if isinstance(x, torch.Tensor)
    }
    mnir.mnir_by_event(TV, bonus, episodes=2, seed=0, longest=64)
    after = bonus.state_dict()
    assert all(torch.equal(x, after[name]) for name, x in before.items())


def test_runs_of_other_settings_have_other_labels():
    import dataclasses

    from surprise_memory.cli.runs import setting
    from surprise_memory.training.presets import PRESETS

    run = dataclasses.replace(PRESETS["default"](TV), method="lwm+sm")
    dqn, read = dataclasses.replace(run.dqn, int_coef=0.03), dataclasses.replace(run.bonus, power=2)
    runs = [
        run,
        *(
            dataclasses.replace(run, **change)
            for change in ({"dqn": dqn}, {"agent": "ppo"}, {"bonus": read})
        ),
    ]
    assert [setting(r) for r in runs] == [
        "lwm+sm",
        "lwm+sm, dqn.int_coef 0.03",
        "lwm+sm, agent ppo",
        "lwm+sm, bonus.power 2",
    ]
    assert setting(dataclasses.replace(run, seed=3, steps=5)) == "lwm+sm"  # seeds are averaged
    lr = {"ppo": dataclasses.replace(run.ppo, lr=0.5)}, {"bonus": dataclasses.replace(read, lr=0.5)}
    assert len({setting(dataclasses.replace(run, **change)) for change in lr}) == 2


def test_a_bar_is_the_mean_over_the_runs_that_met_the_event():
    found = {"rnd": [{"noise": 1.0, "key": 2.0}, {"noise": 3.0}], "rnd+sm": [{"key": -1.0}]}
    assert bars.averages(found) == {"rnd": {"noise": 2.0, "key": 2.0}, "rnd+sm": {"key": -1.0}}
    (axis,) = bars.event_bars(found, "a task").axes
    heights = {group.get_label(): [bar.get_height() for bar in group] for group in axis.containers}
    assert heights == {"rnd": [2.0, 2.0], "rnd+sm": [0.0, -1.0]}
    assert [label.get_text() for label in axis.get_xticklabels()] == ["noise", "key"]
    dots = sorted(y for line in axis.lines for y in line.get_ydata() if line.get_marker() == ".")
    assert dots == [-1.0, 1.0, 2.0, 3.0]


def test_the_first_visit_of_a_room_is_told_from_later_ones():
    """Two episodes. The first comes back to room 0, the second does not."""
    rooms = np.array([[0, 0], [0, 0], [1, 1], [0, 1], [1, 1], [0, 1]])
    rewards = np.array([[4.0, 1.0], [2.0, 2.0], [9.0, 3.0], [1.0, 4.0], [7.0, 5.0], [1.0, 6.0]])
    counted = np.ones_like(rooms, bool)
    events = [
        {f"room {k}": rooms[:4] == k for k in (0, 1)},
        {f"room {k}": rooms[4:] == k for k in (0, 1)},
    ]
    found = mnir.by_event(rewards, counted, events)
    z = (rewards[:, 0] - 4) / rewards[:, 0].std()
    assert found["room 0, first visit"] == pytest.approx(z[[0, 1]].mean())
    assert found["room 0, later visits"] == pytest.approx(z[[3, 5]].mean())
    assert found["room 1, first visit"] == pytest.approx(z[2])
    assert found["room 1, later visits"] == pytest.approx(z[4])
    counted[3:] = False  # the episode is over before it comes back
    assert set(mnir.by_event(rewards, counted, events)) == {"room 0", "room 1"}
