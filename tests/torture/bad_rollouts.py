"""Bad rollouts and states for a `Bonus`, by the name of what is wrong with them."""

import copy
from collections.abc import Callable
from typing import Any

from tests.torture.bad_steps import FINITE, INF, NAN, REFUSE


def chunk(T: int = 4, num: int = 3, width: int = 5, **columns: Any) -> Any:
    """A good rollout, with some columns replaced."""
    import torch

    from surprise_memory import Chunk

    draw = torch.Generator().manual_seed(T)
    no = torch.zeros(T, num, dtype=torch.bool)
    good = {
        "obs": torch.randn(T, num, width, generator=draw),
        "next_obs": torch.randn(T, num, width, generator=draw),
        "action": no.long(),
        "reward": no.float(),
        "terminated": no,
        "truncated": no,
        "first": no,
        "valid": ~no,
        "extras": {},
    }
    return Chunk(**good | columns)


def all_chunks() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Calls of a bonus with a bad rollout or carry: name -> what is expected, and the call."""
    import torch

    nan = torch.full((4, 3, 5), NAN)
    never = torch.zeros(4, 3, dtype=torch.bool)
    return {
        "train_on(chunk of NaN)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(next_obs=nan, obs=nan), bonus.start())),
        "train_on(chunk of inf)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(next_obs=nan + INF), bonus.start())),
        "train_on(chunk of 2 environments)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(num=2), bonus.start())),
        "train_on(chunk of width 1)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(width=1), bonus.start())),
        "train_on(chunk of width 6)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(width=6), bonus.start())),
        "train_on(chunk of no steps)": (
            FINITE, lambda bonus: bonus.train_on(chunk(T=0), bonus.start())),
        "train_on(chunk that never happened)": (
            FINITE, lambda bonus: bonus.train_on(chunk(valid=never), bonus.start())),
        "train_on(NaN that never happened)": (
            FINITE, lambda bonus: bonus.train_on(
                chunk(valid=never, obs=nan, next_obs=nan), bonus.start())),
        "train_on(chunk with int flags)": (
            REFUSE, lambda bonus: bonus.train_on(chunk(first=never.int()), bonus.start())),
        "train_on(chunk with actions of another length)": (
            REFUSE, lambda bonus: bonus.train_on(
                chunk(action=torch.zeros(4, 2).long()), bonus.start())),
        "(chunk of NaN)": (
            FINITE, lambda bonus: bonus(chunk(next_obs=nan, obs=nan), bonus.start())),
    }  # fmt: skip


def all_states() -> dict[str, Callable[[Any], Any]]:
    """Bad states, each made from a good one; all of them must be refused."""
    import torch

    def tensors(state: dict[str, Any]) -> list[str]:
        return [name for name, value in state.items() if isinstance(value, torch.Tensor)]

    def edited(state: Any, how: Callable[[Any], Any]) -> Any:
        state = copy.deepcopy(dict(state))
        how(state)
        return state

    def weight(state: Any) -> str:
        wanted = [n for n in tensors(state) if state[n].dtype == torch.float32 and state[n].dim()]
        return wanted[-1]

    def extra(state: Any) -> Any:
        return next(value for value in state.values() if isinstance(value, dict))

    changes: dict[str, Callable[[Any], Any]] = {
        "a tensor missing": lambda s: s.pop(tensors(s)[-1]),
        "the first tensor missing": lambda s: s.pop(tensors(s)[0]),
        "a key more": lambda s: s.update(more=torch.zeros(1)),
        "another shape": lambda s: s.update({weight(s): torch.zeros(3, 3, 3)}),
        "NaN in a tensor": lambda s: s[weight(s)].fill_(NAN),
        "text for a tensor": lambda s: s.update({weight(s): "x"}),
        "None for a tensor": lambda s: s.update({weight(s): None}),
        "no optimiser": lambda s: extra(s).pop("optimiser"),
        "no random stream": lambda s: extra(s).pop("rng"),
        "a random stream of another kind": lambda s: extra(s).update(rng=torch.zeros(3)),
        "no steps": lambda s: extra(s).pop("steps"),
        "text for steps": lambda s: extra(s).update(steps="x"),
        "an empty optimiser": lambda s: extra(s).update(optimiser={}),
        "steps of other columns": lambda s: extra(s).update(steps={"rows": [{}]}),
    }
    found = {name: (lambda s, h=how: edited(s, h)) for name, how in changes.items()}
    found["{}"] = lambda s: {}
    found["None"] = lambda s: None
    found["a list"] = lambda s: []
    found["text"] = lambda s: "x"
    return found
