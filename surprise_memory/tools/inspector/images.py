"""An episode's frames as small images inside a page: each picture once, within a budget."""

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from surprise_memory.errors import need
from surprise_memory.tools.stats import Array

SIDE = 256  # pixels of a picture's longer side
SMALLEST = 64  # we make them no smaller, whatever the budget
BUDGET = 5_000_000  # characters of all images together
PLAIN = 4_000  # bytes: what takes more without loss is compressed with some


@dataclass(frozen=True)
class Images:
    """Different pictures as data URIs, and which of them each frame is."""

    uris: list[str]
    index: list[int]
    side: int  # pixels of the longer side


def embed(frames: list[Array], budget: int = BUDGET) -> Images:
    """The frames (H, W, 3), at half the size, or a quarter, where the page would grow too large."""
    number: dict[bytes, int] = {}
    different: list[Array] = []
    index = []
    for frame in map(as_bytes, frames):
        key = frame.tobytes()
        if key not in number:
            number[key] = len(different)
            different.append(frame)
        index.append(number[key])
    side = min(SIDE, max(frames[0].shape[:2]))
    while True:
        uris = [data_uri(frame, side) for frame in different]
        if sum(map(len, uris)) <= budget or side // 2 < SMALLEST:
            return Images(uris, index, side)
        side //= 2


def as_bytes(frame: Array) -> Array:
    """A frame in bytes; some environments draw from 0 to 1."""
    if frame.dtype != np.uint8 and frame.max(initial=0) <= 1:
        frame = frame * 255
    return np.ascontiguousarray(frame[..., :3], np.uint8)


def data_uri(frame: Array, side: int) -> str:
    """One frame (H, W, 3) as WebP, its longer side at most so many pixels."""
    library: Any = need("PIL.Image", extra="report", package="pillow")
    image = library.fromarray(frame)
    if max(image.size) > side:
        image.thumbnail((side, side), library.Resampling.BOX)
    data = encoded(image, lossless=True, quality=20)
    if len(data) > PLAIN:
        data = encoded(image, quality=70)
    return "data:image/webp;base64," + base64.b64encode(data).decode()


def encoded(image: Any, **options: Any) -> bytes:
    """An image as WebP."""
    file = io.BytesIO()
    image.save(file, "WEBP", method=2, **options)
    return file.getvalue()
