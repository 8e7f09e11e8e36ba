"""MiniWorld in 3-D: size, stack, the TV, the paper's three tasks.

Needs the GL libraries that `make setup` installs.
"""

from ctypes.util import find_library

import numpy as np
import pytest

from surprise_memory import UserError
from surprise_memory.envs import make_vec, miniworld

CAN_DRAW = miniworld.ids() and find_library("EGL") and find_library("GLU")
pytestmark = pytest.mark.skipif(
    not CAN_DRAW, reason=f"pip install 'surprise-memory[miniworld]' and {miniworld.LIBRARIES}"
)
TV = "NoisyTV/MiniWorld-MazeS3Fast-v0"


@pytest.fixture(scope="module")
def maze():
    env = make_vec(TV, 3, 0)
    yield env
    env.close()


def test_four_rgb_frames_of_84_pixels_and_a_remote_control(maze):
    assert maze.obs_shape == (12, 84, 84)
    assert maze.action_space.n == 4 and maze.tv_action == 3
    assert maze.newest_channels == 3 and maze.in_processes and not maze.saves_state
    assert list(maze.events(maze.reset())) == ["red box in view"]
    obs = maze.reset()
    assert obs.dtype == np.uint8 and obs.std() > 5
    assert np.array_equal(obs[:, :3], obs[:, 9:])  # a stack opens with its first frame
    assert not np.array_equal(obs[0], obs[1])  # every environment has a maze of its own


def test_watching_shows_fresh_noise_in_the_newest_frame_and_moves_nothing(maze):
    obs = maze.reset()
    one, two = maze.step(np.full(3, 3)), maze.step(np.full(3, 3))
    # Older frames move down, noise is the newest.
    assert np.array_equal(one.next_obs[:, :9], obs[:, 3:])
    assert np.array_equal(two.next_obs[:, 6:9], one.next_obs[:, 9:])  # it stays in the stack
    assert not np.array_equal(one.next_obs[:, 9:], two.next_obs[:, 9:])
    assert not np.array_equal(one.next_obs[0, 9:], one.next_obs[1, 9:])
    noise = one.next_obs[:, 9:].astype(float)
    assert abs(noise.mean() - 127.5) < 2 and abs(noise.std() - 42.5) < 2
    still = maze.step(np.array([3, 0, 1]))
    moved = [not np.array_equal(still.next_obs[b, 9:], obs[b, 9:]) for b in (1, 2)]
    assert all(moved)


def test_the_pose_stays_while_watching():
    env = miniworld.make("MiniWorld-MazeS3Fast-v0", False)
    before, _ = env.reset(seed=0)
    agent = env.unwrapped.agent
    pose = [*agent.pos, agent.dir]
    after, reward, terminated, truncated, _ = env.step(miniworld.NOOP)
    assert [*agent.pos, agent.dir] == pose and not (reward or terminated or truncated)
    assert np.array_equal(before, after)
    env.step(2)
    assert [*agent.pos, agent.dir] != pose


def test_environments_of_one_process_are_drawn_with_their_own_walls():
    alone = miniworld.make("MiniWorld-MazeS3Fast-v0", False)
    other = miniworld.make("MiniWorld-MazeS3Fast-v0", False)
    before, _ = alone.reset(seed=0)
    other.reset(seed=5)
    after, *_ = alone.step(miniworld.NOOP)
    assert np.array_equal(before, after)
    again, *_ = other.step(miniworld.NOOP)
    assert not np.array_equal(after, again)


def test_the_same_seed_gives_the_same_mazes_and_the_same_noise():
    def stream():
        env = make_vec(TV, 2, 5)
        frames = [env.reset(), *(env.step(np.full(2, a)).obs for a in (0, 2, 3, 1))]
        env.close()
        return frames

    for a, b in zip(stream(), stream(), strict=True):
        assert np.array_equal(a, b)


def test_the_papers_tasks_have_its_sizes():
    pick, rooms, maze = (
        miniworld.make(f"MiniWorld-{name}-v0", False).unwrapped
        for name in ("PickupObjects", "FourRooms", "MazeS3Fast")
    )
    assert pick.num_objs == 3 and pick.action_space.n == 5 and pick.max_episode_steps == 400
    assert rooms.action_space.n == 3 and rooms.max_episode_steps == 250
    assert maze.action_space.n == 3 and maze.max_episode_steps == 300


def test_a_time_limit_truncates_with_the_true_last_frame(maze):
    maze.reset()
    for t in range(300):
        step = maze.step(np.zeros(3, int))  # turning on the spot finds no box
        assert step.truncated.all() == (t == 299) and not step.terminated.any()
    assert not np.array_equal(step.next_obs, step.obs)
    assert np.array_equal(step.obs[:, :3], step.obs[:, 9:])


def test_an_unknown_world_is_named():
    with pytest.raises(UserError, match="Did you mean 'MiniWorld-MazeS3Fast-v0'"):
        make_vec("MiniWorld-MazeS3Fst-v0", 1, 0)


def test_missing_gl_says_what_to_install(monkeypatch):
    monkeypatch.setenv("LIBGL_DRIVERS_PATH", "/nowhere")
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json")
    with pytest.raises(UserError, match="apt-get install libegl1"):
        make_vec("MiniWorld-MazeS3Fast-v0", 1, 0)
