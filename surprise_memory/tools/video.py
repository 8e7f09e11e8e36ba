"""A video of an episode, with curves such as the surprise's norm and novelty below it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.errors import UserError, need
from surprise_memory.tools.plots import NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, mnir

HEIGHT = 384  # pixels of the frame
STRIP = 144  # pixels of the curves below it


def writer() -> Any:
    """The imageio module, or how to get it."""
    return need("imageio.v3", extra="report")


def check_video(path: Path) -> None:
    """Refuse a file that cannot become a video."""
    if path.suffix not in (".mp4", ".gif"):
        raise UserError(f"'{path}' is neither an .mp4 nor a .gif: change the file's name.")


def record(path: Path, frames: list[Array], curves: dict[str, Array], fps: int) -> None:
    """Write an mp4 or a gif from the frames (H, W, 3) of one episode.

    Below them are the `curves` (T,), with a line at the current step.
    """
    check_video(path)
    images = [enlarge(frame) for frame in frames]
    if curves:
        strip, column_of = draw_curves(curves, images[0].shape[1])
        for t, image in enumerate(images):
            images[t] = np.concatenate([image, with_line(strip, column_of(t))])
    video = even_sides(np.stack(images))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".mp4":
        writer().imwrite(path, video, fps=fps, macro_block_size=2)
    else:
        writer().imwrite(path, video, duration=1000 / fps, loop=0)


def enlarge(frame: Array) -> Array:
    """Scale a frame to about HEIGHT by a whole number; larger frames are thinned out."""
    height = frame.shape[0]
    if height > HEIGHT:
        step = -(-height // HEIGHT)
        return np.ascontiguousarray(frame[::step, ::step])
    times = max(1, HEIGHT // height)
    return frame.repeat(times, 0).repeat(times, 1)


def even_sides(images: Array) -> Array:
    """Images (T, H, W, 3) without an odd last row or column, which video codecs refuse."""
    height = images.shape[1] // 2 * 2
    width = images.shape[2] // 2 * 2
    return np.ascontiguousarray(images[:, :height, :width])


def draw_curves(curves: dict[str, Array], width: int) -> tuple[Array, Callable[[int], int]]:
    """The curves as one picture (STRIP, width, 3), and a function from a step to its pixel column.

    Each curve is standardised over the episode.
    """
    plt = plotting()
    figure = plt.figure(figsize=(width / 100, STRIP / 100), dpi=100)
    axis = figure.add_axes((0.08, 0.2, 0.89, 0.68))
    for (name, curve), colour in zip(curves.items(), (NORM, NOVELTY), strict=False):
        axis.plot(mnir(curve), color=colour, lw=1.2, label=name)
    last = max(1, len(next(iter(curves.values()))) - 1)
    axis.set_xlim(0, last)
    axis.tick_params(labelsize=6)
    axis.legend(frameon=False, fontsize=6, loc="upper right", ncols=2)
    figure.canvas.draw()
    picture = np.asarray(figure.canvas.buffer_rgba())[:STRIP, :width, :3].copy()
    left = axis.transData.transform((0, 0))[0]
    right = axis.transData.transform((last, 0))[0]
    plt.close(figure)

    def column_of(t: int) -> int:
        return int(left + (right - left) * min(t, last) / last)

    return picture, column_of


def with_line(strip: Array, column: int) -> Array:
    """A copy with a dark line at a column."""
    marked = strip.copy()
    marked[:, column : column + 2] = 40
    return marked
