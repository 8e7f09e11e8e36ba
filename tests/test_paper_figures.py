"""The paper's figures: views as our environments show them, numbers worked out by hand."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from surprise_memory import Bonus
from surprise_memory.bonus import Trace
from surprise_memory.cli import main, pictures
from surprise_memory.envs import make_vec
from surprise_memory.envs.minigrid import events
from surprise_memory.errors import UserError
from surprise_memory.tools import episode, steps_figures
from surprise_memory.tools import paper_figures as figures
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir

DOOR = "MiniGrid-DoorKey-6x6-v0"


def test_views_cover_every_free_cell_in_four_directions_and_look_as_our_environments_do():
    views = figures.Views(DOOR, 0)
    assert (
        len(views.places) == len(set(views.places)) == len(views.obs) and len(views.places) % 4 == 0
    )
    assert views.obs.shape[1:] == make_vec(DOOR, 1, 0).obs_shape and views.obs.dtype == np.float32
    assert (views.obs[:, 147:].argmax(1) == [d for _, _, d in views.places]).all()
    # An agent that faces the wall from the next cell sees it (type 2) in the row before its own.
    x, y, d = next(p for p in views.places if p[:2] == (1, 1) and p[2] == 2)
    view = views.obs[views.places.index((x, y, d)), :147].reshape(7, 7, 3)
    assert view[3, 5, 0] == 2


def test_an_episode_of_looks():
    chunk = figures.as_episode(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert chunk.next_obs[:, 0].tolist() == [[0, 1], [2, 3], [4, 5]] and chunk.obs[
        :, 0
    ].tolist() == [[0, 1], [0, 1], [2, 3]]
    assert (
        chunk.first[:, 0].tolist() == [True, False, False]
        and chunk.valid.all()
        and not chunk.done.any()
    )


def test_the_highest_of_each_cell_keeps_its_direction():
    best = figures.highest([(1, 1, 0), (1, 1, 3), (2, 1, 1)], np.array([0.5, 2.0, -1.0]))
    assert best == {(1, 1): (2.0, 3), (2, 1): (-1.0, 1)}


def trace_of(u, inputs):
    """A trace whose vectors are all u (T, B, n)."""
    e = u[..., 0]
    return Trace(
        u=u,
        q=u,
        v=u,
        e=e,
        unfiltered=e,
        inputs=inputs,
        remembered=torch.ones_like(e).bool(),
        log=None,
        stages={},
    )


class Sees:
    """A bonus that pays 1 for a key in view, and nothing the second time."""

    def __init__(self, forgets):
        self.forgets = forgets

    def start(self, num_envs):
        return None

    def __call__(self, chunk, carry):
        key = torch.as_tensor(events(chunk.next_obs[:, 0].numpy())["key in view"])
        again = key & (key.cumsum(0) > 1)
        paid = (key & ~(again & (not self.forgets))).float()[:, None]
        return paid, trace_of(paid[..., None], {}), carry


def test_the_key_seen_twice_pays_less_where_it_is_remembered():
    remembers, forgets = (figures.key_twice(Sees(forgets), DOOR, 0) for forgets in (False, True))
    # One of 28 steps pays: z = sqrt(27) there and -1 / sqrt(27) elsewhere.
    # Two of 28 pay: sqrt(13) and -1 / sqrt(13).
    assert list(remembers.values()) == pytest.approx([-(27**-0.5), 27**0.5, -(27**-0.5)])
    assert list(forgets.values()) == pytest.approx([-(13**-0.5), 13**0.5, 13**0.5])
    with pytest.raises(UserError, match="DoorKey"):
        figures.key_twice(Sees(True), "MiniGrid-Empty-5x5-v0", 0)


def test_variances_by_hand():
    u = torch.tensor([[0.0, 0.0], [2.0, 4.0]])[:, None]  # variances 1 and 4
    trace = trace_of(u, {"target": torch.tensor([[0.0, 0.0], [4.0, 2.0]])})  # 4 and 1
    assert figures.variances(trace) == pytest.approx(
        {"dimensions": 2, "share where var u <= var x": 0.5, "sum of var u / sum of var x": 1.0}
    )
    with pytest.raises(UserError, match="does not keep"):
        figures.variances(trace_of(u, {}))


@pytest.mark.parametrize("method", ["rnd+sm", "icm", pytest.param("lwm", marks=pytest.mark.slow)])
def test_the_command_draws_and_refuses(tmp_path, capsys, method):
    small = ["--preset", "debug", "--steps", "256", "--eval-episodes", "0"]
    run = tmp_path / "run"
    assert main(["train", DOOR, "--method", method, *small, "--run-dir", str(run)]) == 0
    assert main(["figures", str(run)]) == 0
    folder = run / "figures"
    name = f"{DOOR}-{method}-debug-0"
    assert {p.name for p in folder.glob("*.png")} == {
        f"{name}-{x}.png" for x in ("map", "tsne", "key-twice", "scan")
    }
    found = json.loads((folder / f"{name}-figures.json").read_text())
    assert ("variances" in found) == (method != "icm") and set(found["key twice"]) == set(
        found["key twice"]
    )
    if method == "icm":
        assert (
            main(["train", DOOR, "--method", "none", *small, "--run-dir", str(tmp_path / "none")])
            == 0
        )
        assert main(["figures", str(tmp_path / "none")]) == 2
        assert "no bonus" in capsys.readouterr().err


def test_pictures_of_many_runs_share_a_folder_and_only_new_ones_are_told(
    tmp_path, capsys, monkeypatch
):
    for drawing in ("draw_tsne", "draw_map", "draw_bars"):
        monkeypatch.setattr(figures, drawing, draw_nothing)
    for drawing in ("draw_scan", "draw_seven"):
        monkeypatch.setattr(steps_figures, drawing, draw_nothing)
    monkeypatch.setattr(steps_figures, "seven_steps", lambda *_: {})
    monkeypatch.setattr(episode, "trained", lambda *_: (None, Sees(forgets=True)))
    seen = figures.as_episode(figures.Views(DOOR, 0).obs[:3])
    monkeypatch.setattr(episode, "play", lambda *_, fixed_seed: (seen, []))
    tv = "NoisyTV:channels=8/MiniGrid-Empty-5x5-v0"
    told = []
    for env, seed in ((DOOR, 0), (DOOR, 1), (tv, 0)):
        run = dataclasses.replace(PRESETS["debug"](env), seed=seed)
        monkeypatch.setattr(pictures, "load", lambda *_, run=run: (run, RunDir(tmp_path)))
        assert main(["figures", "run", "--out", str(tmp_path)]) == 0
        told.append([Path(line).name for line in capsys.readouterr().out.splitlines()])
    assert [len(names) for names in told] == [5, 5, 3]
    assert {path.name for path in tmp_path.iterdir()} == {name for names in told for name in names}
    assert f"{DOOR}-rnd+sm-debug-1-map.png" in told[1]
    assert "NoisyTV:channels=8-MiniGrid-Empty-5x5-v0-rnd+sm-debug-0-seven-steps.png" in told[2]


def draw_nothing(*arguments):
    """An empty file in the place of a picture."""
    next(x for x in arguments if isinstance(x, Path)).touch()


def test_the_scan_says_what_is_paid_and_seen_in_each_view():
    values = steps_figures.scan(Sees(True), DOOR, 0)
    seen = np.flatnonzero(events(figures.Views(DOOR, 0).obs)["key in view"])
    assert values["key in view"] == seen.tolist()
    paid = np.array(values["bonus"])
    assert set(np.flatnonzero(paid > 0)) == set(seen)
    assert paid.mean() == pytest.approx(0) and paid.std() == pytest.approx(1)


def test_seven_steps_are_two_of_noise_three_of_walls_and_two_of_the_rarest_event():
    def mask(*steps):
        return np.isin(np.arange(20), steps)

    noise, door, key = mask(1, 4, 5, 9), mask(2, 3, 6), mask(7, 8)
    shown = {"noise": noise, "door": door, "key": key, "goal": mask(10)}
    shown["walls only"] = ~np.any(list(shown.values()), axis=0)
    want = {1: "noise", 9: "noise", 0: "walls only", 14: "walls only", 19: "walls only"}
    assert steps_figures.choose_seven(shown) == want | {7: "key", 8: "key"}
    assert steps_figures.choose_seven(shown | {"noise": mask(1)}) == {}
    assert steps_figures.choose_seven({"noise": noise, "walls only": ~noise}) == {}


def test_seven_steps_of_one_episode(tmp_path):
    class Watches:
        """Pays 1 for noise, and the norm is 2 where a key is in view."""

        def start(self, num_envs):
            return None

        def __call__(self, chunk, carry):
            self.chunk = chunk
            paid = (chunk.action == env.tv_action).float()
            shown = events(chunk.next_obs.flatten(0, 1).numpy())["key in view"]
            norm = 2.0 * torch.as_tensor(shown).reshape(chunk.shape)
            return paid, trace_of(norm[..., None], {}), carry

    env = make_vec(f"NoisyTV/{DOOR}", 1, 0)
    values = steps_figures.seven_steps(f"NoisyTV/{DOOR}", Watches(), 0)
    assert [kind for kind in values["kind"] if kind in ("noise", "walls only")] == (
        ["noise"] * 2 + ["walls only"] * 3
    )
    assert len(set(values["step"])) == 7
    bonus = np.array(values["bonus"])
    assert (bonus[:2] > 0).all() and (bonus[2:] < 0).all() and len(set(bonus[:2])) == 1
    steps_figures.draw_seven(values, tmp_path / "seven.png", "x")
    assert (tmp_path / "seven.png").exists()
    with pytest.raises(UserError, match="noisy TV"):
        steps_figures.seven_steps(DOOR, Watches(), 0)


def test_asking_for_pictures_changes_nothing(tmp_path):
    bonus = Bonus("rnd+sm", (151,), 1)
    before = {
        name: x.clone() for name, x in bonus.state_dict().items() if isinstance(x, torch.Tensor)
    }
    figures.draw_map(bonus, DOOR, 0, tmp_path / "map.png")
    assert all(torch.equal(x, bonus.state_dict()[name]) for name, x in before.items())
