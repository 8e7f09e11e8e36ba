"""MiniWorld in 3-D on headless OpenGL: four stacked 84 x 84 RGB frames, (12, 84, 84).

Worker processes draw them.
"""

import importlib.util
import os
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array, Family, VecEnv
from surprise_memory.envs.workers import Workers
from surprise_memory.errors import UserError, how_to_install, unknown

PREFIX = "MiniWorld-"
SIDE = 84
LIBRARIES = "apt-get install libegl1 libgl1-mesa-dri libglu1-mesa"
PAPER = {"MiniWorld-PickupObjects-v0": {"num_objs": 3}}  # the library's default is 5
NOOP = 7  # MiniWorld's `done`: a step in which nothing moves
NAMES = """
CollectHealth FourRooms Hallway Maze MazeS2 MazeS3 MazeS3Fast OneRoom OneRoomS6 OneRoomS6Fast
PickupObjects PutNext RoomObjects Sidewalk Sign TMaze TMazeLeft TMazeRight ThreeRooms WallGap
YMaze YMazeLeft YMazeRight
"""


def ids() -> list[str]:
    """Every id, where MiniWorld is installed. Importing it to ask would need a display."""
    if importlib.util.find_spec("miniworld") is None:
        return []
    return [f"{PREFIX}{name}-v0" for name in NAMES.split()]


def owns(env_id: str) -> bool:
    """By the prefix."""
    return env_id.startswith(PREFIX)


def missing(env_id: str) -> str | None:
    """MiniWorld, where it is not installed."""
    if owns(env_id) and not ids():
        return f"MiniWorld is not installed: {how_to_install('miniworld')}."
    return None


def make_vec(env_id: str, num_envs: int, seed: int, threads: int, render: bool) -> VecEnv:
    """B environments in as many processes as there are cores."""
    return MiniWorld(env_id, num_envs, seed, min(cores(), num_envs), render)


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def events(obs: Array) -> dict[str, Array]:
    """What stacked frames (K, 12, H, W) show, by name, each (K,) bool.

    The goal is a red box; nothing else is as red.
    """
    red, green, blue = obs[:, -3:].astype(int).transpose(1, 0, 2, 3)
    boxes = (red > 60) & (red > 3 * np.maximum(green, blue))
    return {"red box in view": boxes.sum((1, 2)) >= 3}


def make(env_id: str, render: bool) -> gym.Env[Any, Any]:
    """One environment, drawn at our size. Runs inside a worker, which has its own GL context."""
    import pyglet

    pyglet.options["headless"] = True
    pyglet.options["debug_gl"] = False  # asks the driver for errors after every call
    os.environ.setdefault("MESA_NO_ERROR", "1")
    import miniworld.miniworld as library
    from miniworld.opengl import FrameBuffer
    from pyglet import gl

    # One sample a pixel: resolving the multisampled buffer takes half of a step in software.
    library.FrameBuffer = lambda width, height, samples: FrameBuffer(width, height, 1)
    side = 4 * SIDE if render else SIDE
    env = gym.make(
        env_id,
        render_mode="rgb_array",
        disable_env_checker=True,
        obs_width=SIDE,
        obs_height=SIDE,
        window_width=side,
        window_height=side,
        **PAPER.get(env_id, {}),
    )
    return OwnWalls(env.unwrapped, library, gl)


class OwnWalls(gym.Wrapper[Any, Any, Any, Any]):
    """Draws the walls of its own environment.

    MiniWorld keeps them, and things that cannot move, in OpenGL's display list 1, which all
    environments of a process share: all would be drawn with those of the one reset last.
    """

    def __init__(self, env: gym.Env[Any, Any], library: Any, gl: Any) -> None:
        super().__init__(env)
        self.library = library
        walls = gl.glGenLists(1)
        self.own = {
            "glNewList": lambda _, mode: gl.glNewList(walls, mode),
            "glCallList": lambda _: gl.glCallList(walls),
            "glDeleteLists": lambda _, count: gl.glDeleteLists(walls, count),
        }

    def _use_own(self) -> None:
        """Let MiniWorld take our list where it says 1."""
        vars(self.library).update(self.own)

    def reset(self, **kwargs: Any) -> Any:
        """Build walls, and draw them."""
        self._use_own()
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Move, and draw."""
        self._use_own()
        return self.env.step(action)

    def render(self) -> Any:
        """Draw for people."""
        self._use_own()
        return self.env.render()


class MiniWorld(Workers):
    """B MiniWorld environments."""

    noop = NOOP

    def __init__(
        self, env_id: str, num_envs: int, seed: int, workers: int, render: bool = False
    ) -> None:
        sentence = missing(env_id)
        if sentence is not None:
            raise UserError(sentence)
        if env_id not in ids():
            raise UserError(unknown(env_id, ids(), "MiniWorld environment"))
        options = {"env_id": env_id, "render": render}
        try:
            super().__init__(make, options, (SIDE, SIDE, 3), num_envs, seed, workers)
        except UserError as error:
            if "while it was made" not in str(error):
                raise
            raise UserError(f"MiniWorld cannot draw here ({error}): {LIBRARIES}.") from error

    def events(self, obs: Array) -> dict[str, Array]:
        """The red box in view."""
        return events(obs)


FAMILY = Family(about="mazes in 3-D", ids=ids, owns=owns, make=make_vec, missing=missing)
