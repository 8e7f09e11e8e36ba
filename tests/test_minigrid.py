"""EnvPool's MiniGrid is the `minigrid` package's, step by step from the same layouts.

EnvPool draws exactly as `minigrid` does. So a layout can be read off its picture, tile by tile, and
set up in the other.
"""

import gymnasium as gym
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Door, Goal, Key, Lava, Wall

from surprise_memory.envs.minigrid import MiniGrid

TILE = 32
THINGS = [
    lambda: None,
    Wall,
    Goal,
    Lava,
    lambda: Key("yellow"),
    lambda: Door("yellow", is_locked=True),
    lambda: Door("yellow"),
    lambda: Door("yellow", is_open=True),
    lambda: Ball("blue"),
]
LOOKS = {
    Grid.render_tile(make(), facing, lit, TILE, 3).astype(np.uint8).tobytes(): (make, facing)
    for make in THINGS
    for facing in (None, 0, 1, 2, 3)
    for lit in (False, True)  # the agent's view is drawn lighter
}


def copy_layout(picture, env):
    """Set up `env` as the picture shows it, at the start of an episode."""
    size = len(picture) // TILE
    env.grid, env.carrying, env.step_count = Grid(size, size), None, 0
    balls = []
    for i, j in np.ndindex(size, size):
        make, facing = LOOKS[
            picture[j * TILE : (j + 1) * TILE, i * TILE : (i + 1) * TILE].tobytes()
        ]
        thing = make()
        env.grid.set(i, j, thing)
        if facing is not None:
            env.agent_pos, env.agent_dir = np.array([i, j]), facing
        if isinstance(thing, Ball):
            thing.cur_pos = np.array([i, j])
            balls.append(thing)
    env.obstacles = balls


def numbers(env):
    """Our 151 numbers from the package's observation."""
    obs = env.gen_obs()
    return np.concatenate([obs["image"].flatten(), np.eye(4)[obs["direction"]]]).astype(np.float32)


def pair(name, seed=0):
    ours, theirs = MiniGrid(name, 1, seed, render=True), gym.make(name).unwrapped
    theirs.reset(seed=0)
    obs = ours.reset()
    copy_layout(ours.render(), theirs)
    assert np.array_equal(obs[0], numbers(theirs))
    return ours, theirs


def clever(env, rng):
    """Mostly what leads on: fetch the key, open the door, reach the goal; sometimes anything."""
    ahead = env.grid.get(*env.front_pos)
    if isinstance(ahead, Key) and rng.random() < 0.8:
        return env.actions.pickup
    if isinstance(ahead, Door) and not ahead.is_open and env.carrying and rng.random() < 0.8:
        return env.actions.toggle
    if isinstance(ahead, Lava) and rng.random() < 0.9:
        return rng.integers(0, 2)
    return rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 6]) if rng.random() < 0.9 else rng.integers(0, 7)


@pytest.mark.parametrize(
    ("name", "steps", "wanted"),
    [
        ("MiniGrid-DoorKey-16x16-v0", 9000, {"carried", "opened", "dropped"}),
        ("MiniGrid-DoorKey-5x5-v0", 3000, {"carried", "opened", "dropped", "reached"}),
        ("MiniGrid-LavaCrossingS11N5-v0", 3000, {"burnt"}),
        ("MiniGrid-LavaCrossingS9N1-v0", 3000, {"burnt", "reached"}),
    ],
)
def test_the_same_actions_from_the_same_layout_give_the_same_stream(name, steps, wanted):
    (ours, theirs), rng, happened = pair(name), np.random.default_rng(0), set()
    for _ in range(steps):
        carried, action = theirs.carrying, int(clever(theirs, rng))
        step, (_, reward, terminated, truncated, _) = (
            ours.step(np.array([action])),
            theirs.step(action),
        )
        assert np.array_equal(step.next_obs[0], numbers(theirs))
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
        assert step.reward[0] == pytest.approx(reward, abs=1e-6)
        doors = [x for x in theirs.grid.grid if isinstance(x, Door) and x.is_open]
        happened |= {"carried"} if theirs.carrying else set()
        happened |= {"dropped"} if carried and not theirs.carrying else set()
        happened |= ({"opened"} if doors else set()) | ({"reached"} if reward > 0 else set())
        happened |= {"burnt"} if terminated and not reward else set()
        if terminated or truncated:
            ours.step(np.array([0]))  # the row that never happened
            copy_layout(ours.render(), theirs)
    assert wanted <= happened


def test_the_time_limit_is_the_packages():
    ours, theirs = pair("MiniGrid-DoorKey-5x5-v0")
    lengths = []
    for env_step in (lambda: ours.step(np.array([0])).truncated[0], lambda: theirs.step(0)[3]):
        lengths.append(next(t for t in range(1, 1000) if env_step()))
    assert lengths[0] == lengths[1] == theirs.max_steps


def walk(step, reset, episodes, rng):
    """(return, length) of episodes of a policy that mostly goes ahead."""
    found = []
    for _ in range(episodes):
        reset()
        total, length, done = 0.0, 0, False
        while not done:
            reward, done = step(int(rng.choice([0, 1, 2, 2, 2, 2])))
            total, length = total + reward, length + 1
        found.append((total, length))
    return np.array(found)


def obstacle_walks(episodes):
    """The same walks in both, where obstacles move by chance: EnvPool's chance is not NumPy's."""
    name = "MiniGrid-Dynamic-Obstacles-16x16-v0"
    theirs = gym.make(name)
    theirs.reset(seed=1)

    def their_step(action):
        _, reward, terminated, truncated, _ = theirs.step(action)
        return reward, terminated or truncated

    ours = MiniGrid(name, 1, 7)
    ours.reset()

    def our_step(action):
        step = ours.step(np.array([action]))
        return float(step.reward[0]), bool(step.terminated[0] or step.truncated[0])

    opened = iter([True])

    def our_reset():
        if not next(opened, False):
            ours.step(np.array([0]))  # the row that never happened begins the next episode

    return (
        walk(our_step, our_reset, episodes, np.random.default_rng(0)),
        walk(their_step, theirs.reset, episodes, np.random.default_rng(1)),
    )


def agree(ours, theirs):
    """Means of returns and lengths within four standard errors of each other."""
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    return (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error + 1e-9).all()


def test_moving_obstacles_give_the_same_returns_and_lengths_on_average():
    ours, theirs = obstacle_walks(400)
    assert set(np.sign(ours[:, 0])) <= {-1, 0, 1} and ours[:, 0].min() == theirs[:, 0].min() == -1
    assert agree(ours, theirs)
    assert not agree(ours, theirs + np.array([0, 3]))  # the teeth: three steps more would be seen


@pytest.mark.slow
def test_moving_obstacles_over_ten_thousand_episodes():
    ours, theirs = obstacle_walks(10_000)
    assert agree(ours, theirs), (ours.mean(0), theirs.mean(0))


def test_obstacle_worlds_look_the_same():
    (ours, theirs), rng = pair("MiniGrid-Dynamic-Obstacles-16x16-v0"), np.random.default_rng(0)
    for _ in range(60):
        step = ours.step(rng.choice([0, 1, 2], 1))
        if step.terminated[0] or step.truncated[0]:
            step = ours.step(np.array([0]))
        copy_layout(ours.render(), theirs)
        assert np.array_equal(step.obs[0], numbers(theirs))


def test_a_goal_in_the_last_step_is_an_end_and_no_time_limit():
    """What is behind it has no value. EnvPool reports it as the limit alone."""
    env = MiniGrid("MiniGrid-Empty-5x5-v0", 1, 0)
    env.reset()
    left, right, forward = 0, 1, 2
    waiting = [left] * 92 + [6] * 3  # it looks where it did; 100 steps are the limit
    for action in [*waiting, forward, forward, right, forward, forward]:
        step = env.step(np.array([action]))
    assert step.reward[0] == pytest.approx(1 - 0.9)
    assert step.terminated[0] and not step.truncated[0]
    env.close()
