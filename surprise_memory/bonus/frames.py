"""What a bonus sees of an image (C, H, W): the newest frame of a stack in grey, or every channel.

An image does not say whether its channels are frames, colours or something else. A multiple of 3 is
taken for RGB frames, any other number for grey ones.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from surprise_memory.nn.nets import is_image

CHANNELS = ("newest", "all")
COMMON = (1, 3, 4, 6, 9, 12)  # channels of usual stacks; of other numbers the guess is doubtful

Shape = tuple[int, ...]


def seen_as(obs_shape: Shape, channels: str) -> tuple[Shape, Callable[[Tensor], Tensor]]:
    """The shape that a bonus sees, and how observations (..., *obs_shape) get it."""
    if not is_image(obs_shape) or channels == "all":
        return obs_shape, nn.Identity()
    warn_of_channels(obs_shape[0])
    return (1, *obs_shape[1:]), last_frame


def newest_shape(obs_shape: Shape, channels: str) -> Shape:
    """The shape of the newest frame, which is all that a replay has to keep for the bonus.

    >>> newest_shape((12, 84, 84), "newest"), newest_shape((4, 84, 84), "newest")
    ((3, 84, 84), (1, 84, 84))
    >>> newest_shape((4, 84, 84), "all"), newest_shape((7,), "newest")
    ((4, 84, 84), (7,))
    """
    if not is_image(obs_shape) or channels == "all":
        return obs_shape
    return (frame_channels(obs_shape[0]), *obs_shape[1:])


def frame_channels(channels: int) -> int:
    """Channels of one frame of an image, or of a stack of frames: RGB, or grey."""
    return 1 if channels % 3 else 3


def last_frame(obs: Tensor) -> Tensor:
    """Images (..., C, H, W) to their newest frame in grey (..., 1, H, W)."""
    if frame_channels(obs.shape[-3]) == 1:
        return obs[..., -1:, :, :].float()
    weights = torch.tensor([0.299, 0.587, 0.114], device=obs.device)[:, None, None]
    return (obs[..., -3:, :, :].float() * weights).sum(-3, keepdim=True)


def warn_of_channels(channels: int) -> None:
    """Say what an unusual number of channels is taken for."""
    if channels in COMMON:
        return
    kind = "grey" if frame_channels(channels) == 1 else "RGB"
    warnings.warn(
        f"Images of {channels} channels are taken for stacks of {kind} frames, of which the bonus "
        "sees the newest. If they are something else, set its option channels = 'all' "
        "(--bonus.channels all).",
        stacklevel=2,
    )
