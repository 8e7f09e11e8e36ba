"""MiniWorld in 3-D on headless OpenGL: four stacked 84 x 84 RGB frames, (12, 84, 84), drawn in worker processes."""

import importlib.util
import os
from typing import Any

import gymnasium as gym
import numpy as np

from surprise_memory.envs.base import Array
from surprise_memory.envs.workers import Workers
from surprise_memory.errors import UserError, unknown

PREFIX = "MiniWorld-"
SIDE = 84
LIBRARIES = "apt-get install libegl1 libgl1-mesa-dri libglu1-mesa"
PAPER = {"MiniWorld-PickupObjects-v0": {"num_objs": 3}}  # the library's default is 5
NOOP = 7  # MiniWorld's `done`: a step in which nothing moves
NAMES = """
CollectHealth FourRooms Hallway Maze MazeS2 MazeS3 MazeS3Fast OneRoom OneRoomS6 OneRoomS6Fast PickupObjects PutNext
RoomObjects Sidewalk Sign TMaze TMazeLeft TMazeRight ThreeRooms WallGap YMaze YMazeLeft YMazeRight
"""


def ids() -> list[str]:
    """Every id, where MiniWorld is installed; importing it to ask would need a display."""
    return (
        [f"{PREFIX}{name}-v0" for name in NAMES.split()]
        if importlib.util.find_spec("miniworld")
        else []
    )


def sights(obs: Array) -> dict[str, Array]:
    """What stacked frames (K, 12, H, W) show, by name, each (K,) bool: the goal is a red box, and nothing else is as red."""
    red, green, blue = obs[:, -3:].astype(int).transpose(1, 0, 2, 3)
    boxes = (red > 60) & (red > 3 * np.maximum(green, blue))
    return {"red box in view": boxes.sum((1, 2)) >= 3}


def make(env_id: str, render: bool) -> gym.Env[Any, Any]:
    """One environment, drawn at our size; runs inside a worker, which has its own GL context."""
    import pyglet

    pyglet.options["headless"] = True
    pyglet.options["debug_gl"] = False  # asks the driver for errors after every call
    os.environ.setdefault("MESA_NO_ERROR", "1")
    import miniworld.miniworld as library
    from miniworld.opengl import FrameBuffer

    # One sample a pixel: the multisampled buffer's resolve takes half of a step in software.
    library.FrameBuffer = lambda width, height, samples: FrameBuffer(width, height, 1)
    side = 4 * SIDE if render else SIDE
    options: dict[str, Any] = {
        "obs_width": SIDE,
        "obs_height": SIDE,
        "window_width": side,
        "window_height": side,
    }
    env = gym.make(
        env_id,
        render_mode="rgb_array",
        disable_env_checker=True,
        **options,
        **PAPER.get(env_id, {}),
    )
    return env.unwrapped


class MiniWorld(Workers):
    """B MiniWorld environments; `noop` is an action that moves nothing."""

    noop = NOOP

    def __init__(
        self, env_id: str, num_envs: int, seed: int, workers: int, render: bool = False
    ) -> None:
        if not ids():
            raise UserError("MiniWorld is not installed: pip install 'surprise-memory[miniworld]'.")
        if env_id not in ids():
            raise UserError(unknown(env_id, ids(), "MiniWorld environment"))
        try:
            super().__init__(
                make, {"env_id": env_id, "render": render}, (SIDE, SIDE, 3), num_envs, seed, workers
            )
        except UserError as error:
            if "while it was made" not in str(error):
                raise
            raise UserError(f"MiniWorld cannot draw here ({error}): {LIBRARIES}.") from error
