"""A second device on a machine that has one: it computes with real numbers and refuses to mix.

A far tensor holds a CPU tensor. Every operation is unwrapped, refused if a CPU tensor strayed in,
done on the CPU and wrapped again: the numbers are the CPU's, to the last bit. What the host reads
is counted. Stricter than a GPU: even a CPU tensor without axes, or as an index, is refused.

Import it only in a process of its own: a process has one such device, and it stays.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")
# Without it, `module.to` would leave the optimiser with the parameters from before.
torch.__future__.set_swap_module_params_on_conversion(True)

aten = torch.ops.aten
FAR = torch.device("far", 0)
MOVES = (aten._to_copy.default, aten.copy_.default)  # they may see both devices
READS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.is_nonzero.default)
# Whose result has a size that only the numbers tell.
READS += (aten.masked_select.default, aten._unique2.default, aten.unique_dim.default)
INDEXES = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)
LACKS_FLOAT64 = [False]  # as mps
reads = []  # names of the operations that made the host wait


class FarTensor(torch.Tensor):
    """A CPU tensor that says it is elsewhere."""

    @staticmethod
    def __new__(cls, held, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=FAR,
            requires_grad=requires_grad,
        )

    def __init__(self, held, requires_grad=False):
        self.held = held

    def __repr__(self):
        return f"far({self.held})"

    def tolist(self):
        return self.cpu().tolist()

    def __deepcopy__(self, memo):
        copied = FarTensor(self.held.clone(), self.requires_grad)
        if getattr(self, "_is_param", False):  # torch marks parameters of other kinds so
            copied._is_param = True
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def is_far(x):
    return isinstance(x, FarTensor)


def tensors_of(x):
    """All tensors among the arguments; lists and tuples are the only nests there."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, list | tuple):
        return [tensor for part in x for tensor in tensors_of(part)]
    return []


def unwrapped(x):
    if is_far(x):
        return x.held
    if isinstance(x, list | tuple):
        return type(x)([unwrapped(part) for part in x])
    return x


def wrapped(x):
    if not isinstance(x, torch.Tensor) or is_far(x):
        return x
    if LACKS_FLOAT64[0] and x.dtype == torch.float64:
        raise TypeError("This device has no float64.")
    return FarTensor(x)


def run(function, args, kwargs):
    """One operation, on the device that its tensors or its `device` say."""
    tensors = tensors_of(args) + tensors_of(list(kwargs.values()))
    asked = kwargs.get("device")
    goes_far = asked is not None and torch.device(asked).type == "far"
    some_far = any(map(is_far, tensors))
    if not some_far and not goes_far:
        return function(*args, **kwargs)
    if function in MOVES:
        return move(function, args, kwargs)
    strays = [x for x in tensors if not is_far(x)]
    if strays:
        where = f"{function} got a CPU tensor {tuple(strays[0].shape)} {strays[0].dtype}"
        raise RuntimeError(f"{where} among far ones.")
    if asked is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    if function in READS:
        reads.append(str(function))
    if function in INDEXES and any(x is not None and x.dtype == torch.bool for x in args[1]):
        reads.append(f"{function} by a mask")
    kwargs = {name: unwrapped(value) for name, value in kwargs.items()}
    found = function(*unwrapped(args), **kwargs)
    if function is aten._local_scalar_dense.default or (asked is not None and not goes_far):
        return found
    return same_or_wrapped(found, {id(x.held): x for x in tensors})


def same_or_wrapped(found, known):
    """Wrap the results, but return the very tensor that was changed in place."""
    if isinstance(found, list | tuple):
        return type(found)([same_or_wrapped(part, known) for part in found])
    return known.get(id(found)) if id(found) in known else wrapped(found)


def move(function, args, kwargs):
    """Between the devices, or on one of them."""
    if function is aten.copy_.default:
        target, source = args[:2]
        if is_far(source) and not is_far(target):
            reads.append("copy to the host")
        unwrapped(target).copy_(unwrapped(source))
        return target
    (x,) = args
    asked = kwargs.get("device")
    stays = is_far(x) if asked is None else torch.device(asked).type == "far"
    if is_far(x) and not stays:
        reads.append("copy to the host")
    kwargs = {name: value for name, value in kwargs.items() if name != "device"}
    found = function(unwrapped(x), **kwargs)
    return wrapped(found) if stays else found


class FarMode(TorchDispatchMode):
    """Brings `torch.zeros(3, device="far")` here."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


# `torch.tensor` and a few others pass the mode by: they make an empty tensor and copy into it.
LIBRARY = torch.library.Library("aten", "IMPL")


def empty(size, *, dtype=None, **_):
    return wrapped(torch.empty(size, dtype=dtype, device="cpu"))


def empty_strided(size, stride, *, dtype=None, **_):
    return wrapped(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def copy_from(source, target, non_blocking=False):
    return move(aten.copy_.default, (target, source), {})


LIBRARY.impl("empty.memory_format", empty, "PrivateUse1")
LIBRARY.impl("empty_strided", empty_strided, "PrivateUse1")
LIBRARY.impl("_copy_from", copy_from, "PrivateUse1")


@contextmanager
def counting():
    """A list of what the host read within."""
    reads.clear()
    found = []
    yield found
    found += reads
    reads.clear()
