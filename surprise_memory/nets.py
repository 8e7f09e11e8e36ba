"""Networks: perceptrons and convolutions that know their input, orthogonal initialisation, freezing; the size of an error."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Linear | nn.Conv2d:
    """Orthogonal weights, zero bias: what RND, its ports and the paper's code use."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(sizes: Sequence[int], activation: Activation, gain: float = 2**0.5) -> nn.Sequential:
    """Linear layers with an activation between them; the output is linear."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [orthogonal(nn.Linear(width_in, width_out), gain), activation()]
    return nn.Sequential(*layers[:-1])


class Scale(nn.Module):
    """Bytes to [0, 1], inside the network so that images stay uint8 until here; floats pass."""

    def forward(self, image: Tensor) -> Tensor:
        """(..., C, H, W) to float."""
        return image.float() / 255 if image.dtype == torch.uint8 else image


def conv(shape: Sequence[int], activation: Activation) -> tuple[nn.Sequential, int]:
    """The Nature-DQN convolutions for (C, H, W) images of 36 pixels and more, 3x3 ones below. Returns (net, width)."""
    channels, height, width = shape
    plan = [(32, 8, 4), (64, 4, 2), (64, 3, 1)] if min(height, width) >= 36 else [(32, 3, 2), (64, 3, 1)]
    layers: list[nn.Module] = [Scale()]
    for out, kernel, stride in plan:
        layers += [orthogonal(nn.Conv2d(channels, out, kernel, stride)), activation()]
        channels = out
    net = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        return net, int(net(torch.zeros(1, *shape)).shape[1])


def is_image(shape: Sequence[int]) -> bool:
    """Observations of rank 3 are (C, H, W) images; the environment layer makes sure of it. All others are vectors."""
    return len(shape) == 3


def freeze(net: nn.Module) -> nn.Module:
    """No gradient, ever: for RND's target."""
    return net.requires_grad_(False)


def magnitude(error: Tensor, loss: str) -> Tensor:
    """E|x| (loss='norm', as the paper writes it) or E|x|^2 (loss='squared') over the leading axes."""
    if loss == "norm":
        error = torch.linalg.vector_norm(error, dim=-1)  # its gradient at zero is zero, not nan
        return error.mean()
    return error.square().sum(-1).mean()
