"""Devices: which there are, what is built or drawn on the host first, and float64.

Networks and random numbers are made on the host and moved, so that a seed means the same on every
device. Tensors change their device at the doors alone: the environment, `Bonus.step`, the replay,
files. Everything between stays where its inputs are.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from surprise_memory.errors import UserError, brief

AUTO = "auto"
HOST = torch.device("cpu")
WITHOUT_FLOAT64 = {"mps"}  # statistics stay on the host there


def pick_device(name: str | torch.device) -> torch.device:
    """The device of a name such as cpu, cuda:1 or mps; refuses one that is not there.

    `auto` is CUDA where there is a GPU, else the CPU. It is never mps, which has no float64.
    """
    if name == AUTO:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        raise UserError(
            f"device = {brief(name)} is not there: this machine has {', '.join(found_devices())}."
        ) from error
    if device.type == "meta":
        raise UserError("device = 'meta' holds no numbers: choose one that computes.")
    return device


def found_devices() -> list[str]:
    """The devices of this machine, by name."""
    names = ["cpu"]
    names += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


@contextmanager
def built_on_host(seed: int) -> Iterator[None]:
    """Make float32 networks on the host from a seed, whatever the caller's defaults are.

    The caller's random streams stay as they are. torch.manual_seed would reseed the GPUs' too.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.random.fork_rng(devices=[]), HOST:
            torch.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def own_mode(device: torch.device) -> Iterator[None]:
    """Compute as a bonus does, whatever the caller's gradient mode and autocast are.

    Rollouts are often collected under no_grad or in inference mode, where nothing could learn, and
    agents trained under autocast, which would round what a bonus keeps in float32.
    """
    full: Any = nullcontext()
    if torch.is_autocast_enabled(device.type):  # some devices have none to turn off
        full = torch.autocast(device.type, enabled=False)
    with torch.inference_mode(False), full:
        yield  # where there are gradients, also for a caller who is under no_grad


def shuffled(rows: Tensor, rng: torch.Generator) -> Tensor:
    """The rows (K, ...) in an order that is drawn on the host."""
    order = torch.randperm(len(rows), generator=rng, device=HOST)
    return rows[order.to(rows.device)]


def double(x: Tensor) -> Tensor:
    """As float64, on the host if its device has none."""
    return x.to(float64_device(x.device)).double()


def float64_device(device: torch.device) -> torch.device:
    """Where float64 is kept and computed for what lives on a device."""
    if device.type in WITHOUT_FLOAT64:
        return HOST
    return device
