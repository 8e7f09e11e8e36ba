"""Environments in worker processes: the stream of one process, and what a dead worker does."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fakes
import numpy as np
import pytest

from surprise_memory import UserError
from surprise_memory.envs.gymnasium import Gymnasium
from surprise_memory.envs.workers import Workers

ROOT = Path(__file__).parents[1]

B, STACK = 5, 4


@pytest.fixture
def pool():
    made = []

    def make(num_envs=B, workers=2, **options):
        made.append(Workers(fakes.make_fragile, options, (40, 36, 3), num_envs, 0, workers, STACK))
        return made[-1]

    yield make
    for env in made:
        env.close()


def test_workers_give_the_stream_of_one_process_with_frames_stacked(pool):
    plain, workers = Gymnasium("Picture-v0", B, 0), pool()
    assert workers.obs_shape == (3 * STACK, 40, 36)
    assert [len(span) for span in workers.spans] == [2, 3]
    first = plain.reset()
    frames = [[f] * STACK for f in first]  # a stack opens with its first frame
    assert np.array_equal(workers.reset(), [np.concatenate(f) for f in frames])
    rng, ended = np.random.default_rng(0), False
    for _ in range(25):
        action = rng.integers(0, 2, B)
        a, b = plain.step(action), workers.step(action)
        for name in ("reward", "terminated", "truncated", "valid"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        frames = [[*f[1:], new] for f, new in zip(frames, a.next_obs, strict=True)]
        assert np.array_equal(b.next_obs, [np.concatenate(f) for f in frames])
        done = a.terminated | a.truncated
        ended = ended or done.any()
        frames = [
            [new] * STACK if over else f for f, new, over in zip(frames, a.obs, done, strict=True)
        ]
        assert np.array_equal(b.obs, [np.concatenate(f) for f in frames])
    assert ended


def test_steps_are_copies_that_later_steps_leave_alone(pool):
    env = pool()
    env.reset()
    step = env.step(np.zeros(B, int))
    kept = step.next_obs.copy(), step.obs.copy()
    env.step(np.ones(B, int))
    assert np.array_equal(step.next_obs, kept[0]) and np.array_equal(step.obs, kept[1])


def test_a_killed_worker_is_named_and_replaced_and_its_episodes_truncated(pool, monkeypatch):
    env = pool()
    env.reset()
    before = env.step(np.zeros(B, int)).obs
    os.kill(env.workers[1].process.pid, signal.SIGKILL)
    with pytest.warns(
        RuntimeWarning, match=r"Worker 1 \(environments 2 to 4\) died with exit code -9"
    ):
        step = env.step(np.zeros(B, int))
    assert step.truncated.tolist() == [False, False, True, True, True]
    assert not step.terminated.any() and step.valid.all() and not step.reward[2:].any()
    assert np.array_equal(step.next_obs[2:], before[2:])
    assert not np.array_equal(step.next_obs[:2], before[:2])
    opened = np.concatenate([step.obs[2:, -3:]] * STACK, 1)
    assert np.array_equal(step.obs[2:], opened)  # a new episode: one frame, four times
    again = env.step(np.zeros(B, int))
    assert not again.truncated.any() and not np.array_equal(again.obs[2:], step.obs[2:])
    seeds = []

    def process(args, **others):
        seeds.append(args[5])
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(env.context, "Process", process)
    env.restarts[1] += 1
    env._spawn(1)
    assert seeds == [2 * 7_919 * B]  # not the first one's again, though that one has stepped since


def test_a_worker_that_dies_again_and_again_ends_the_run(pool, monkeypatch):
    monkeypatch.setattr("surprise_memory.envs.workers.MAX_RESTARTS", 2)
    env = pool(num_envs=2, workers=1, die_at=1)
    env.reset()
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(UserError, match="died 3 times in a row, last with exit code 9"),
    ):
        for _ in range(10):
            env.step(np.zeros(2, int))


def test_a_worker_that_dies_while_it_is_replaced_is_replaced_again(pool, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.write_text("0")
    env = pool(num_envs=2, workers=1, die_at=2, deaths=deaths)
    env.reset()
    env.step(np.zeros(2, int))
    deaths.write_text("1")  # the next reset
    with pytest.warns(RuntimeWarning) as said:
        step = env.step(np.zeros(2, int))
    assert len(said) == 2 and step.truncated.all()
    assert not env.step(np.zeros(2, int)).truncated.any()


def test_an_environments_exception_is_one_sentence(pool):
    env = pool(raise_at=2)
    env.reset()
    env.step(np.zeros(B, int))
    with pytest.raises(
        UserError,
        match=r"failed in worker 0 \(environments 0 to 1\): RuntimeError: the wheel came off",
    ):
        env.step(np.zeros(B, int))


def test_an_environment_that_cannot_be_made_is_one_sentence(pool):
    with pytest.raises(UserError, match="failed while it was made: TypeError"):
        pool(colour="red")


def test_more_workers_than_environments_are_not_started(pool):
    assert len(pool(num_envs=2, workers=6).workers) == 2


def test_a_script_without_a_main_guard_is_told_of_it(tmp_path):
    """Its workers import it, and would start workers of their own."""
    script = tmp_path / "own.py"
    script.write_text(
        "import fakes\n"
        "from surprise_memory.envs.workers import Workers\n"
        "Workers(fakes.Picture, {}, (40, 40, 3), 2, 0, 1)\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert 'under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
