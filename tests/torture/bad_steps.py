"""Bad steps for a `Bonus`, by the name of what is wrong with them.

A step is a dict with the arguments of `Bonus.step`, (3, 5) observations and (3,) actions.
"""

from collections.abc import Callable
from typing import Any

REFUSE = "it must be refused"
SAME = "if it is accepted, it pays as the good step does"
FINITE = "if it is accepted, all numbers stay finite"
USED = "it must be refused by methods that look at this column; others may take any"
Change = Callable[[dict[str, Any]], dict[str, Any]]
NAN, INF = float("nan"), float("inf")


def put(column: str, value: Any) -> Change:
    """Replace a column."""
    return lambda step: step | {column: value}


def change(column: str, how: Callable[[Any], Any]) -> Change:
    """A function of a column."""
    return lambda step: step | {column: how(step[column])}


def poison(value: float, dtype: Any = None) -> Callable[[Any], Any]:
    """One bad number in environment 1, feature 2."""

    def how(x: Any) -> Any:
        x = x.clone() if dtype is None else x.to(dtype)
        x[1, 2] = value
        return x

    return how


def all_steps() -> dict[str, tuple[str, Change]]:
    """Name -> what is expected, and the change."""
    import numpy as np
    import torch

    found: dict[str, tuple[str, Change]] = {}
    for column in ("obs", "next_obs"):
        bad: dict[str, Callable[[Any], Any]] = {
            "NaN": poison(NAN),
            "inf": poison(INF),
            "-inf": poison(-INF),
            "1e300 in float64": poison(1e300, torch.float64),
            "-1e39 in float64": poison(-1e39, torch.float64),
            "NaN in an array": lambda x: poison(NAN)(x).numpy(),
            "inf in float16": poison(INF, torch.float16),
            "width 1": lambda x: x[:, :1],
            "width 4": lambda x: x[:, :4],
            "width 6": lambda x: torch.cat([x, x[:, :1]], 1),
            "width 0": lambda x: x[:, :0],
            "2 environments": lambda x: x[:2],
            "4 environments": lambda x: torch.cat([x, x[:1]]),
            "1 environment": lambda x: x[:1],
            "0 environments": lambda x: x[:0],
            "no batch axis": lambda x: x[0],
            "one axis more": lambda x: x[..., None],
            "a leading axis": lambda x: x[None],
            "transposed": lambda x: x.T,
            "a number": lambda x: 1.0,
            "None": lambda x: None,
            "text": lambda x: "x",
            "strings": lambda x: np.full((3, 5), "x"),
            "objects": lambda x: np.full((3, 5), None),
            "ragged": lambda x: [[1.0, 2.0], [1.0], []],
            "complex": lambda x: x.to(torch.complex64) * 1j,
            "a dict": lambda x: {"obs": x},
        }
        for name, how in bad.items():
            number = name.partition(" ")[0] in ("NaN", "inf", "-inf", "1e300", "-1e39")
            found[f"{column}={name}"] = (USED if number else REFUSE, change(column, how))
        same: dict[str, Callable[[Any], Any]] = {
            "list": lambda x: x.tolist(),
            "float64": lambda x: x.double(),
            "float64 array": lambda x: x.double().numpy(),
            "strided": lambda x: torch.stack([x, x], -1)[..., 0],
            "read-only array": lambda x: frozen(x.numpy()),
            "big-endian array": lambda x: x.numpy().astype(">f4"),
            "with gradient": lambda x: x.clone().requires_grad_(),
        }
        found |= {f"{column}={name}": (SAME, change(column, how)) for name, how in same.items()}
        rough: dict[str, Callable[[Any], Any]] = {
            "3e38": poison(3e38),
            "int": lambda x: x.long(),
            "bool": lambda x: x > 0,
            "float16": lambda x: x.half(),
            "constant": torch.zeros_like,
            "1e30 everywhere": lambda x: x * 0 + 1e30,
        }
        found |= {f"{column}={name}": (FINITE, change(column, how)) for name, how in rough.items()}
    return found | bad_flags() | bad_actions()


def frozen(x: Any) -> Any:
    """An array that nobody may write to."""
    x.flags.writeable = False
    return x


def bad_flags() -> dict[str, tuple[str, Change]]:
    """For `done` and `valid`."""
    import torch

    found: dict[str, tuple[str, Change]] = {}
    no = [False] * 3
    for column in ("done", "valid"):
        bad: dict[str, Any] = {
            "2 environments": no[:2],
            "4 environments": [*no, False],
            "empty": [],
            "a number": 7,
            "one axis more": [no],
            "strings": ["x", "y", "z"],
            "NaN": torch.tensor([NAN, 0.0, 0.0]),
            "a dict": {},
        }
        found |= {f"{column}={name}": (REFUSE, put(column, value)) for name, value in bad.items()}
    found["done=None"] = (REFUSE, put("done", None))
    good: dict[str, Callable[[Any], Any]] = {
        "uint8": lambda x: x.to(torch.uint8),
        "list": lambda x: x.tolist(),
        "array": lambda x: x.numpy(),
        "floats of 0 and 1": lambda x: x.float(),
    }
    found |= {f"done={name}": (SAME, change("done", how)) for name, how in good.items()}
    found["valid=ones"] = (SAME, put("valid", [True] * 3))
    found["valid=none of them"] = (FINITE, put("valid", no))
    found["valid=none of them, obs=NaN"] = (
        FINITE,
        lambda step: step | {"valid": no, "obs": step["obs"] * NAN},
    )
    return found


def bad_actions() -> dict[str, tuple[str, Change]]:
    """For `action`, which some methods never look at."""
    import torch

    bad: dict[str, Any] = {
        "2 environments": [0, 1],
        "4 environments": [0, 1, 2, 3],
        "one axis more": [[0, 1, 2]],
        "None": None,
        "text": "x",
        "99": [99, 0, 0],
        "-1": [-1, 0, 0],
        "NaN": torch.tensor([NAN, 0.0, 0.0]),
        "1.5": torch.tensor([1.5, 0.0, 0.0]),
        "10^12": [10**12, 0, 0],
    }
    found = {f"action={name}": (USED, put("action", value)) for name, value in bad.items()}
    good: dict[str, Callable[[Any], Any]] = {
        "list": lambda x: x.tolist(),
        "int8": lambda x: x.to(torch.int8),
        "int32 array": lambda x: x.int().numpy(),
    }
    return found | {f"action={name}": (SAME, change("action", how)) for name, how in good.items()}
