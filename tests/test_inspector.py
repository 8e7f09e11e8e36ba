"""The inspector: what it writes down is what the bonus said, and the page shows just that."""

import base64
import dataclasses
import io
import json
import re
import tomllib
from pathlib import Path

import fakes
import gymnasium as gym
import numpy as np
import pytest
import torch
from browser import browser
from PIL import Image

from surprise_memory import Bonus, BonusConfig, MemoryConfig
from surprise_memory.agents.base import Agent
from surprise_memory.cli import main
from surprise_memory.envs import make_vec
from surprise_memory.memory.episodic import BETA, READS, attend, read_weights
from surprise_memory.tools import inspector
from surprise_memory.tools.episode import trained
from surprise_memory.tools.inspector import inspect_runs
from surprise_memory.tools.inspector.ask import ask
from surprise_memory.tools.inspector.images import embed
from surprise_memory.tools.inspector.page import page
from surprise_memory.tools.inspector.record import TV, events_after, play
from surprise_memory.training.config import from_dict, run_type
from surprise_memory.training.rundir import RunDir

ROOT = Path(__file__).parent.parent
DOOR = "MiniGrid-DoorKey-5x5-v0"
WIDTH = 6  # of an observation


class Drawn(fakes.Counter):
    """Counts its steps and draws the count: a picture as grey as many steps were taken."""

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        return np.full((8, 12, 3), 10 * self.age, np.uint8)


class Always(Agent):
    """Takes one action."""

    def __init__(self, action):
        self.action = action

    def act(self, obs, first, state, mode):
        return torch.full((len(obs),), self.action), {}, state


gym.register("Drawn-v0", Drawn, disable_env_checker=True)


def episode_of(steps, seed=0):
    """A chunk (T, 1) of random observations, the first of an episode."""
    torch.manual_seed(seed)
    chunk = fakes.chunk_of(torch.randn(steps, 1, WIDTH))
    first = torch.zeros(steps, 1, dtype=torch.bool)
    first[0] = True
    return dataclasses.replace(chunk, first=first)


def bonus_of(method, **memory):
    """An untrained bonus whose M already returns something (V starts at zero)."""
    bonus = Bonus(method, (WIDTH,), 1, config=BonusConfig(memory=MemoryConfig(**memory)))
    m = getattr(bonus.model.memory, "m", None)
    if m is not None:
        torch.manual_seed(1)
        torch.nn.init.normal_(m.V, std=0.3)
    return bonus


# --- what M recalled ------------------------------------------------------------------------------


def test_weights_are_a_softmax_of_cosines_over_the_steps_that_m_holds():
    bonus = bonus_of("rnd+sm", slots=4, width=3)
    chunk = episode_of(9)
    recall = ask(bonus, chunk).recall
    _, trace, _ = bonus(chunk, bonus.start(1))
    keys = (trace.u[:, 0] @ bonus.model.memory.m.Q).detach().double().numpy()
    assert recall.oldest == [0, 0, 0, 0, 0, 1, 2, 3, 4]
    assert recall.weights[0] == []
    for t in range(1, 9):
        held = keys[max(0, t - 4) : t]
        lengths = np.linalg.norm(held, axis=1) * np.linalg.norm(keys[t])
        scores = np.exp(BETA * (held @ keys[t]) / lengths)
        assert recall.weights[t] == pytest.approx(scores / scores.sum(), abs=1e-5)
        assert sum(recall.weights[t]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("read", READS)
def test_weights_times_slots_are_what_was_read(read):
    torch.manual_seed(0)
    k = torch.randn(5, 3)
    M = torch.randn(5, 7, 3)
    used = torch.arange(7) >= torch.tensor([0, 2, 5, 6, 7])[:, None]  # the last is empty
    w = read_weights(k, M, used, read)
    assert not w[~used].any()
    torch.testing.assert_close(torch.einsum("kn,knd->kd", w, M), attend(k, M, used, read))


@torch.no_grad()
@pytest.mark.parametrize("read", READS)
def test_a_recall_has_the_size_of_what_came_back(read):
    bonus = bonus_of("rnd+m", read=read, slots=4, width=3)
    chunk = episode_of(7)
    recall = ask(bonus, chunk).recall
    _, trace, _ = bonus(chunk, bonus.start(1))
    m = bonus.model.memory.m
    keys = trace.u[:, 0] @ m.Q
    for t in range(7):
        w = torch.tensor(recall.weights[t])
        held = keys[recall.steps[recall.oldest[t] : t]]
        assert recall.norm[t] == pytest.approx(float((w @ held @ m.V).norm()), abs=1e-4)
    assert recall.sums_to_one == (read in ("ntm", "softmax"))


@torch.no_grad()
def test_a_recall_is_of_what_m_was_asked_and_of_the_steps_that_it_holds(monkeypatch):
    """What a stage withholds is not in M, and with write_every not every other step is."""
    bonus = bonus_of("rnd+sm+recognise", slots=4, width=3, write_every=3)
    shown = torch.ones(20, dtype=torch.bool)
    shown[[5, 6, 12]] = False
    stage = bonus.model.stages["recognise"]
    monkeypatch.setattr(stage, "remembers", lambda inputs: shown)
    chunk = episode_of(20)
    recall = ask(bonus, chunk).recall
    _, trace, _ = bonus(chunk, bonus.start(1))
    m = bonus.model.memory.m
    keys = trace.u[:, 0] @ m.Q
    written = shown.nonzero().flatten()[::3].tolist()
    assert written == [0, 3, 8, 11, 15, 18]
    for t in shown.nonzero().flatten().tolist():
        w = torch.tensor(recall.weights[t])
        held = recall.steps[recall.oldest[t] :][: len(w)]
        assert held == [step for step in written if step < t][-4:]
        assert recall.norm[t] == pytest.approx(float((w @ keys[held] @ m.V).norm()), abs=1e-4)


# --- what W rebuilt -------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(("method", "recalled"), [("rnd+sm", True), ("rnd+w", False)])
def test_the_reconstruction_is_that_of_w_and_the_share_left_is_its_error(method, recalled):
    bonus = bonus_of(method)
    chunk = episode_of(5)
    rebuilt = ask(bonus, chunk).rebuilt
    n = bonus.model.surprise.n
    q = torch.tensor(rebuilt.q)
    w = torch.tensor(rebuilt.w)
    assert rebuilt.recalled == n * recalled
    assert q.shape[1] == n + rebuilt.recalled
    torch.testing.assert_close(w, bonus.model.memory.w(q), atol=1e-5, rtol=1e-5)
    left = (w - q).norm(dim=1) ** 2 / q.norm(dim=1) ** 2
    assert rebuilt.left == pytest.approx(left.tolist(), rel=1e-4)


def test_a_method_without_m_or_w_has_no_such_answer():
    alone = ask(bonus_of("rnd"), episode_of(3))
    assert alone.recall is None and alone.rebuilt is None and alone.stages == {}
    no_w = ask(bonus_of("rnd+m"), episode_of(3))
    assert no_w.recall is not None and no_w.rebuilt is None
    counts = ask(bonus_of("rnd+counts"), episode_of(3))
    assert counts.recall is None and counts.rebuilt is None


# --- trained runs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs on DoorKey, with a TV and without, by name."""
    root = tmp_path_factory.mktemp("runs")
    for name, env, method in (
        ("stages", DOOR, "rnd+sm+recognise+gate"),
        ("tv", f"NoisyTV/{DOOR}", "rnd+sm"),
        ("none", DOOR, "none"),
        ("drawn", "Drawn-v0", "rnd+sm"),
    ):
        words = ["--preset", "debug", "--steps", "512", "--eval-episodes", "0"]
        path = root / name
        assert main(["train", env, "--method", method, *words, "--run-dir", str(path)]) == 0
    return root


def opened(path):
    out = RunDir(path)
    return from_dict(run_type(), json.loads(out.config.read_text())), out


def test_the_reward_after_a_stage_is_that_of_a_bonus_with_fewer_stages(runs):
    config, out = opened(runs / "stages")
    agent, bonus = trained(config, out, 0)
    chunk = play(DOOR, agent, bonus, "", 0, 30).chunk
    answer = ask(bonus, chunk)
    raw, trace, _ = bonus(chunk, bonus.start(1))
    assert list(answer.stages) == ["recognise", "gate"]
    assert answer.stages["gate"] == raw[:, 0].tolist()
    assert answer.scaled == bonus.reward(raw)[:, 0].tolist()
    assert answer.surprise_norm == trace.surprise_norm[:, 0].tolist()
    assert answer.stages["recognise"] != answer.novelty
    fewer = {"rnd+sm": answer.novelty, "rnd+sm+recognise": answer.stages["recognise"]}
    for method, reward in fewer.items():
        space = gym.spaces.Discrete(7)
        small = Bonus(method, bonus.model.obs_shape, 1, config=config.bonus, action_space=space)
        state = bonus.model.state_dict()
        small.model.load_state_dict({name: state[name] for name in small.model.state_dict()})
        assert reward == small(chunk, small.start(1))[0][:, 0].tolist()


def test_bonuses_are_asked_about_the_first_runs_steps(runs, monkeypatch):
    pair = [opened(runs / "tv"), opened(runs / "stages")]
    made = []
    players = []

    def spied_trained(*words):
        made.append(trained(*words))
        return made[-1]

    def spied_play(env_id, agent, bonus, *words):
        players.append((agent, bonus))
        return play(env_id, agent, bonus, *words)

    monkeypatch.setattr(inspector, "trained", spied_trained)
    monkeypatch.setattr(inspector, "play", spied_play)
    played, answers = inspect_runs(pair, 0, 25, random=False)
    assert [answer.method for answer in answers] == ["rnd+sm", "rnd+sm+recognise+gate"]
    _, bonus = trained(*pair[1], 0)
    assert answers[1] == ask(bonus, played.chunk, "stages")
    assert players == [made[0]]  # the first run's agent and bonus, and they alone
    alone, _ = inspect_runs(pair[:1], 0, 25, random=False)
    assert torch.equal(alone.chunk.next_obs, played.chunk.next_obs)
    other, _ = inspect_runs(pair[::-1], 0, 25, random=False)
    assert (other.recording.env, other.recording.player) == (DOOR, "the agent of stages")
    assert not torch.equal(other.chunk.next_obs, played.chunk.next_obs)  # there is no TV


# --- the recording --------------------------------------------------------------------------------


def test_places_are_where_the_red_agent_is_drawn():
    played = play("MiniGrid-LavaCrossingS9N1-v0", None, None, "random actions", 3, 40)
    recording = played.recording
    assert recording.grid == (9, 9)
    assert len(set(recording.places)) > 3
    for place, frame in zip(recording.places, played.frames[1:], strict=True):
        red = (frame[..., 0] > 200) & (frame[..., 1] < 60) & (frame[..., 2] < 60)
        y, x = np.nonzero(red)
        assert place == (int(x.mean()) // 32, int(y.mean()) // 32)


def test_events_are_those_after_a_step_and_noise_is_nothing_else():
    """This TV shows old views, which may have a key in them."""
    played = play(f"NoisyTV:replay=100/{DOOR}", None, None, "", 0, 60)
    recording = played.recording
    watched = np.array(recording.events[TV])
    done = np.array(played.recording.actions) == "done"  # which turns on the TV
    assert watched.any() and (watched == done).all()
    plain = make_vec(DOOR, 1, 0)
    shown = plain.events(played.chunk.next_obs[:, 0].numpy())
    for name in ("key in view", "carrying"):
        found = np.array(recording.events.get(name, np.zeros(60, bool)))
        assert (found == (shown[name] & ~watched)).all()
    assert (shown["key in view"] & watched).any()


def test_rooms_and_rewards_are_events():
    chunk = fakes.chunk_of(torch.zeros(1, 1, 3))
    chunk = dataclasses.replace(
        chunk, reward=torch.ones(1, 1), extras={"room": torch.tensor([[4]])}
    )
    assert events_after(make_vec("Drawn-v0", 1, 0), chunk) == ["room 4", "task reward"]


@pytest.mark.parametrize(("action", "steps", "end"), [(0, 5, "truncated"), (1, 4, "terminated")])
def test_pictures_are_those_after_a_step_and_never_of_the_next_episode(action, steps, end):
    """Gymnasium's environments are reset within their last step."""
    played = play("Drawn-v0", Always(action), None, "", 0, 50)
    recording = played.recording
    assert (recording.end, recording.steps) == (end, steps)
    assert recording.actions == [str(action)] * steps
    assert recording.places == [] and recording.events["task reward"] == [True] * steps
    greys = [int(frame[0, 0, 0]) for frame in played.frames]
    assert greys == [*(10 * t for t in range(steps)), 10 * (steps - 1)]
    cut = play("Drawn-v0", Always(action), None, "", 0, 2)
    assert cut.recording.end == "cut"
    assert [int(frame[0, 0, 0]) for frame in cut.frames] == [0, 10, 20]


# --- the page -------------------------------------------------------------------------------------


def decoded(uri):
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
    )


def test_equal_frames_are_embedded_once_and_plain_ones_without_loss():
    a = np.zeros((20, 30, 3), np.uint8)
    b = a.copy()
    b[5:10, :, 1] = 200
    images = embed([a, b, a.copy(), b])
    assert images.index == [0, 1, 0, 1] and len(images.uris) == 2 and images.side == 30
    assert (decoded(images.uris[1]) == b).all()


def test_frames_shrink_until_they_fit():
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (200, 300, 3), np.uint8) for _ in range(4)]
    whole = embed(frames, budget=10**9)
    size = sum(map(len, whole.uris))
    half = embed(frames, budget=size - 1)
    assert whole.side == 256 and half.side == 128
    assert sum(map(len, half.uris)) < size
    assert max(decoded(half.uris[0]).shape) == 128
    assert embed(frames, budget=1).side == 64  # no smaller, whatever the budget


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_a_page_is_whole_and_nothing_in_it_can_end_its_data():
    bonus = bonus_of("rnd+sm", slots=3)
    played = play("Drawn-v0", None, None, "</script><b>me</b>", 0, 4)
    answer = ask(bonus, episode_of(4), run="<!-- [[SCRIPT]]")
    text = page(played.recording, embed(played.frames), [answer])
    data = data_of(text)
    assert data["episode"]["player"] == "</script><b>me</b>"
    assert data["episode"]["rewards"] == played.recording.rewards
    assert data["runs"][0]["run"] == "<!-- [[SCRIPT]]"
    assert data["runs"][0]["novelty"] == pytest.approx(answer.novelty, rel=1e-4)
    assert "<b>me" not in text
    assert not re.search(r"https?://|src=\"[^d]|@import|url\(", text)
    packed = data["runs"][0]["rebuilt"]
    numbers = np.frombuffer(base64.b64decode(packed["bytes"]), np.int8).reshape(4, 2, -1)
    scale = np.array(packed["largest"])[:, None] / 127
    assert np.abs(numbers[:, 0] * scale - np.array(answer.rebuilt.q)).max() <= scale.max()
    assert np.abs(numbers[:, 1] * scale - np.array(answer.rebuilt.w)).max() <= scale.max()
    weights = [np.array(row) / 1000 for row in data["runs"][0]["recall"]["weights"]]
    for row, exact in zip(weights, answer.recall.weights, strict=True):
        assert row == pytest.approx(exact, abs=6e-4)


def test_a_wheel_has_every_file_of_the_page():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = setup["package-data"]["surprise_memory.tools.inspector"]
    folder = ROOT / "surprise_memory" / "tools" / "inspector"
    files = {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    assert set(listed) == files


def test_the_command_writes_a_page_and_refuses(runs, tmp_path, capsys):
    assert main(["inspect", str(runs / "drawn")]) == 0
    assert "steps" in capsys.readouterr().out
    assert (runs / "drawn" / "inspect.html").exists()
    out = tmp_path / "new" / "page.html"
    words = ["--random", "--steps", "7", "--seed", "5", "--out", str(out)]
    assert main(["inspect", str(runs / "none"), str(runs / "stages"), *words]) == 0
    data = data_of(out.read_text())
    assert data["episode"]["player"] == "random actions"
    assert data["episode"]["seed"] == 5 and len(data["episode"]["rewards"]) == 7
    assert [run["method"] for run in data["runs"]] == ["rnd+sm+recognise+gate"]
    for words, said in (
        ([str(runs / "none")], "no bonus"),
        ([str(runs / "stages"), str(runs / "drawn")], "Drawn-v0"),
        ([str(runs / "stages"), "--steps", "0"], "steps = 0"),
        ([str(runs / "stages"), "--out", str(tmp_path)], "is a directory"),
    ):
        assert main(["inspect", *words]) == 2
        assert said in capsys.readouterr().err


# --- in a browser ---------------------------------------------------------------------------------


def test_the_page_in_a_browser(runs, tmp_path):
    """Keys, slider, curves, pictures and map move the step; the values are the recorded ones."""
    path = tmp_path / "page.html"
    pair = [str(runs / "tv"), str(runs / "stages")]
    assert main(["inspect", *pair, "--random", "--steps", "200", "--out", str(path)]) == 0
    data = data_of(path.read_text())
    with browser(tmp_path / "browser") as seen:
        seen.open(path.as_uri())
        last = len(data["episode"]["rewards"]) - 1
        assert last == 199
        keys = (("ArrowRight", 39, 0), ("ArrowRight", 39, 8), ("ArrowLeft", 37, 0))
        for key, expected in zip(keys, (1, 11, 10), strict=True):
            seen.press(*key)
            check_step(seen, data, expected)
        seen.press("End", 35)
        check_step(seen, data, last)
        seen.press("Home", 36)
        check_step(seen, data, 0)
        assert "M is empty" in seen.ask("document.querySelector('.recall .say').textContent")
        seen.mouse("#step", 0.5)
        middle = int(seen.ask("document.getElementById('step').value"))
        assert abs(middle - last / 2) < 5
        check_step(seen, data, middle)
        seen.mouse("#runs .run:last-child .plot", 0.25, to=0.75)
        check_step(seen, data, round(0.75 * last))
        seen.mouse("#zoom input", 0.5)
        seen.mouse(".track", 0.0)
        check_step(seen, data, round(0.75 * last) - 50)  # a hundred steps around it
        recalled = int(seen.ask("document.querySelector('.thumb').dataset.step"))
        seen.mouse(".thumb", 0.5)
        check_step(seen, data, recalled)
        places = data["episode"]["places"]
        away = next(place for place in places if place != places[recalled])
        seen.mouse(".grid svg", (away[0] + 0.5) / 5, down=(away[1] + 0.5) / 5)
        later = [*range(recalled + 1, 200), *range(recalled)]
        check_step(seen, data, next(t for t in later if places[t] == away))
        assert seen.console == []
        seen.open(path.as_uri() + "?narrow", width=480)
        assert seen.ask("document.documentElement.scrollWidth") == 480  # nothing sticks out
        assert seen.console == []


def check_step(seen, data, t):
    """All parts of the page are at step t."""
    episode = data["episode"]
    assert seen.ask("document.getElementById('now').textContent") == f"step {t} of 199"
    assert seen.ask("document.getElementById('step').value") == str(t)
    assert seen.ask("document.getElementById('action').textContent") == episode["actions"][t]
    shown = seen.ask("[...document.querySelectorAll('#events .badge')].map(b => b.textContent)")
    assert shown == [name for name, on in episode["events"].items() if on[t]]
    image = data["images"]["uris"][data["images"]["index"][t + 1]]
    assert seen.ask("document.getElementById('frame').src") == image
    for i, run in enumerate(data["runs"]):
        panel = f"document.querySelectorAll('.run')[{i}]"
        values = {"|u|": run["surprise_norm"], "novelty e": run["novelty"], "paid": run["scaled"]}
        for stage, reward in run["stages"].items():
            values[f"after {stage}"] = reward
        found = seen.ask(
            f"[...{panel}.querySelectorAll('[data-series]')].map(o => [o.dataset.series, o.value])"
        )
        assert {name for name, _ in found} == set(values)
        for name, text in found:
            assert float(text) == pytest.approx(values[name][t], rel=0.06, abs=1e-12)
        share = float(seen.ask(f"{panel}.querySelector('.share').dataset.share"))
        assert share == pytest.approx(run["rebuilt"]["left"][t])
        weights = run["recall"]["weights"][t]
        order = sorted(range(len(weights)), key=lambda i: -abs(weights[i]))[:5]
        steps = seen.ask(f"[...{panel}.querySelectorAll('.thumb')].map(b => +b.dataset.step)")
        recall = run["recall"]
        assert steps == [recall["steps"][recall["oldest"][t] + i] for i in order]
