"""Networks: perceptrons, convolutions, a GRU over episodes; and the size of an error."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.errors import UserError, one_of
from surprise_memory.nn.at_once import each

SMALLEST = 7  # pixels that two 3x3 convolutions, one of stride 2, leave something of
PRECISIONS = ("float32", "bf16")
LOSSES = ("norm", "squared")  # of an error vector: as the paper prints it, or squared
PIECE = 4096  # rows that a network is shown at once
Activation = Callable[[], nn.Module]


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Linear | nn.Conv2d:
    """Orthogonal weights, zero bias: what RND, its ports and the paper's code use."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Net(nn.Sequential):
    """Layers, one after the other; `set_precision` lets all but the last multiply in bfloat16.

    The last stays in float32: a surprise is a small difference of its outputs.
    """

    dtype: torch.dtype | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(K, ...) to float32."""
        if self.dtype is None:
            out: Tensor = super().forward(x)
            return out
        *hidden, last = self
        with torch.autocast(x.device.type, self.dtype):
            for layer in hidden:
                x = layer(x)
        out = last(x.float())
        return out


def set_precision(module: nn.Module, precision: str) -> None:
    """Choose what the networks in a module multiply in: float32 or bf16.

    Weights, statistics, losses, the memories M and W and recurrent states stay in float32.
    """
    one_of(precision, PRECISIONS, "precision")
    if precision == "float32":
        return
    for net in module.modules():
        if isinstance(net, Net):
            net.dtype = torch.bfloat16


def mlp(sizes: Sequence[int], activation: Activation, gain: float = 2**0.5) -> Net:
    """Linear layers with an activation between them; the output is linear."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [orthogonal(nn.Linear(width_in, width_out), gain), activation()]
    return Net(*layers[:-1])


class Scale(nn.Module):
    """Bytes to [0, 1], inside the network so that images stay uint8 until here; floats pass."""

    def forward(self, image: Tensor) -> Tensor:
        """(..., C, H, W) to float."""
        if image.dtype != torch.uint8:
            return image
        dtype = torch.float32
        device = image.device.type
        if torch.is_autocast_enabled(device):  # bytes are exact in bfloat16, too
            dtype = torch.get_autocast_dtype(device)
        return image.to(dtype).div_(255)


def conv(shape: Sequence[int], activation: Activation) -> tuple[Net, int]:
    """Convolutions for (C, H, W) images; returns (net, width of its output).

    Nature-DQN's from 36 pixels on, two 3x3 ones for smaller images.
    """
    channels, height, width = shape
    if min(height, width) < SMALLEST:
        raise UserError(
            f"Images are (channels, height, width) of at least {SMALLEST} x {SMALLEST} pixels, "
            f"this is {tuple(shape)}: if its channels are last, move them to the front."
        )
    plan = [(32, 3, 2), (64, 3, 1)]  # channels, kernel, stride
    if min(height, width) >= 36:
        plan = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    layers: list[nn.Module] = [Scale()]
    for out, kernel, stride in plan:
        layers += [orthogonal(nn.Conv2d(channels, out, kernel, stride)), activation()]
        channels = out
    net = Net(*layers, nn.Flatten())
    with torch.no_grad():
        return net, int(net(torch.zeros(1, *shape, device="cpu")).shape[1])


def is_image(shape: Sequence[int]) -> bool:
    """Observations of rank 3 are (C, H, W) images; the environment layer ensures it."""
    return len(shape) == 3


def freeze(net: nn.Module) -> nn.Module:
    """No gradient, ever: for RND's target."""
    return net.requires_grad_(False)


def weighted_mean(x: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of x (K,), each value counting `weight` (K,)."""
    if weight is None:
        return x.mean()
    return (weight * x).mean()


def mean_error(error: Tensor, loss: str, weight: Tensor | None = None) -> Tensor:
    """E|x| (loss='norm', as printed in the paper) or E|x|^2 (loss='squared'), over leading axes."""
    # The norm's gradient at zero is zero, not nan.
    if loss == "norm":
        return weighted_mean(torch.linalg.vector_norm(error, dim=-1), weight)
    return weighted_mean(error.square().sum(-1), weight)


def in_pieces(part: Callable[[dict[str, Tensor]], Tensor], columns: dict[str, Tensor]) -> Tensor:
    """A network over the rows of some columns (K, ...), a few thousand at a time."""
    rows = len(next(iter(columns.values())))
    pieces = []
    for start in range(0, rows, PIECE):
        pieces.append({name: column[start : start + PIECE] for name, column in columns.items()})
    return torch.cat(each(part, pieces))


def run_gru(cell: nn.GRUCell, x: Tensor, first: Tensor, h: Tensor) -> Tensor:
    """A GRU over time whose state is zero wherever an episode begins.

    x (T, B, I), first (T, B) and h (B, H) to all states (T, B, H). The formulas are the cell's own;
    the products of all inputs are done at once.
    """
    gates = F.linear(x, cell.weight_ih, cell.bias_ih)
    states = []
    for gate, begins in zip(gates.unbind(0), first[..., None].unbind(0), strict=True):
        # Not times zero: the state of a row that never happened may be NaN.
        h = h.masked_fill(begins, 0.0)
        reset_x, update_x, new_x = gate.chunk(3, 1)
        reset_h, update_h, new_h = F.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)
        reset = torch.sigmoid(reset_x + reset_h)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + reset * new_h)
        h = new + update * (h - new)
        states.append(h)
    return torch.stack(states)


def gru_step(cell: nn.GRUCell, x: Tensor, h: Tensor) -> Tensor:
    """The state (B, H) after one input (B, I): what `cell(x, h)` computes on a CPU, to the bit.

    Elsewhere torch would take a fused kernel, which adds the biases in another order.
    """
    reset_x, update_x, new_x = F.linear(x, cell.weight_ih, cell.bias_ih).unsafe_chunk(3, 1)
    reset_h, update_h, new_h = F.linear(h, cell.weight_hh, cell.bias_hh).unsafe_chunk(3, 1)
    reset = reset_h.add_(reset_x).sigmoid_()
    update = update_h.add_(update_x).sigmoid_()
    new = new_x.add(new_h.mul_(reset)).tanh_()
    return (h - new).mul_(update).add_(new)


def encoder(shape: tuple[int, ...], hidden: list[int], n: int, activation: Activation) -> nn.Module:
    """phi, n linear outputs: vectors through `hidden` layers, images through `conv`."""
    if is_image(shape):
        net, width = conv(shape, nn.LeakyReLU)
        return nn.Sequential(net, orthogonal(nn.Linear(width, n)))
    return mlp([*shape, *hidden, n], activation)


def flat(shape: tuple[int, ...], width: int) -> tuple[nn.Module, int]:
    """What makes observations (K, *shape) flat, and how wide: vectors pass, images are encoded."""
    if not is_image(shape):
        return nn.Identity(), shape[0]
    return nn.Sequential(encoder(shape, [], width, nn.LeakyReLU), nn.ReLU()), width
