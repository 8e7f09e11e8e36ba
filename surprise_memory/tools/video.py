"""A video of an episode, with the surprise's norm and its novelty drawn along it."""

from pathlib import Path
from typing import Any

import numpy as np

from surprise_memory.errors import UserError
from surprise_memory.tools.plots import NORM, NOVELTY, plotting
from surprise_memory.tools.stats import Array, mnir

HEIGHT, STRIP = 384, 144  # pixels of the picture and of the curves below it


def writer() -> Any:
    """The imageio module, or how to get it."""
    try:
        import imageio.v3
    except ImportError as error:
        raise UserError(
            "imageio is not installed: pip install 'surprise-memory[report]'."
        ) from error
    return imageio.v3


def record(path: Path, frames: list[Array], curves: dict[str, Array], fps: int) -> None:
    """Write an mp4 or a gif: frames (H, W, 3) of one episode, and under them `curves` (T,) with a line at the present."""
    if path.suffix not in (".mp4", ".gif"):
        raise UserError(f"'{path}' is neither an .mp4 nor a .gif: name the file so.")
    images = [enlarge(frame) for frame in frames]
    if curves:
        strip, at = draw_curves(curves, images[0].shape[1])
        images = [
            np.concatenate([image, with_line(strip, at(t))]) for t, image in enumerate(images)
        ]
    images = [
        image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2] for image in images
    ]  # video codecs want even sides
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".mp4":
        writer().imwrite(path, np.stack(images), fps=fps, macro_block_size=2)
    else:
        writer().imwrite(path, np.stack(images), duration=1000 / fps, loop=0)


def enlarge(frame: Array) -> Array:
    """Whole multiples of pixels, to about HEIGHT; larger pictures are thinned out."""
    height = frame.shape[0]
    if height > HEIGHT:
        step = -(-height // HEIGHT)
        return np.ascontiguousarray(frame[::step, ::step])
    times = max(1, HEIGHT // height)
    return frame.repeat(times, 0).repeat(times, 1)


def draw_curves(curves: dict[str, Array], width: int) -> tuple[Array, Any]:
    """The curves as one picture (STRIP, width, 3), each standardised over the episode, and step -> its column of pixels."""
    plt = plotting()
    figure = plt.figure(figsize=(width / 100, STRIP / 100), dpi=100)
    axis = figure.add_axes((0.08, 0.2, 0.89, 0.68))
    for (name, curve), colour in zip(curves.items(), (NORM, NOVELTY), strict=False):
        axis.plot(mnir(curve), color=colour, lw=1.2, label=name)
    axis.set_xlim(0, max(1, len(next(iter(curves.values()))) - 1))
    axis.tick_params(labelsize=6)
    axis.legend(frameon=False, fontsize=6, loc="upper right", ncols=2)
    figure.canvas.draw()
    picture = np.asarray(figure.canvas.buffer_rgba())[:STRIP, :width, :3].copy()
    left, right = (axis.transData.transform((x, 0))[0] for x in axis.get_xlim())
    plt.close(figure)
    steps = max(1, len(next(iter(curves.values()))) - 1)
    return picture, lambda t: int(left + (right - left) * min(t, steps) / steps)


def with_line(strip: Array, column: int) -> Array:
    """A copy with a dark line at a column."""
    marked = strip.copy()
    marked[:, column : column + 2] = 40
    return marked
