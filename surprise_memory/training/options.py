"""The options in a config.json when its run is resumed: none may differ, and some came later.

Today's defaults of those would change what a run of an earlier version does.
"""

import copy
from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError

# Options that a resumed run may have other values of: they decide how long and how, not what.
MAY_CHANGE = (
    "steps", "threads", "device", "compile", "save_minutes", "eval_episodes", "eval_steps",
    "step_seconds", "logger",
)  # fmt: skip
# Options that came later, and the values that change nothing. With these, a run keeps its name.
LATER = {
    "same_layouts": False,
    "bonus.channels": "newest",
    "bonus.memory.write_every": 1,
    "ppo.end_discount": 1.0,
    "ppo.fade": 0.0,
    "ppo.random_actions": 0.0,
    "bonus.trust.rate": 0.1,
}


def with_later(options: Any) -> Any:
    """The content of a config.json, with the values that change nothing where options are missing.

    A group that is missing altogether stays so: its part came later, and the run has none of it.
    """
    filled = copy.deepcopy(options)
    for name, value in LATER.items():
        *groups, last = name.split(".")
        group = filled
        for part in groups:
            group = group.get(part) if isinstance(group, dict) else None
        if isinstance(group, dict):
            group.setdefault(last, value)
    return filled


def refuse_other_options(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse options that are not those of the run in `path`; both are flat."""
    missing = []
    changed = {}  # option -> what the run there has
    for name, value in new.items():
        if name in MAY_CHANGE or of_a_new_part(name, old):
            continue
        if name not in old:
            missing.append(name)
        elif old[name] != value:
            changed[name] = repr(old[name])
    if missing:
        raise UserError(
            f"{path / 'config.json'} does not have {', '.join(missing[:5])}: add what the run was "
            "begun with, or choose another --run-dir."
        )
    if changed:
        names = ", ".join(list(changed)[:5])
        values = ", ".join(list(changed.values())[:5])
        raise UserError(
            f"{path} holds another run: {names} differ (it has {values}). Repeat the options that "
            "it was begun with, or choose another --run-dir."
        )


def of_a_new_part(name: str, old: dict[str, Any]) -> bool:
    """Whether an option belongs to a part of the bonus that was not there when `old` was written.

    >>> old = {"ppo.lr": 0.5, "bonus.lr": 0.5, "bonus.rnd.n": 8}
    >>> of_a_new_part("bonus.mine.k", old), of_a_new_part("bonus.rnd.k", old)
    (True, False)
    """
    words = name.split(".")
    if words[0] != "bonus" or len(words) < 3:
        return False
    return not any(other.startswith(f"bonus.{words[1]}.") for other in old)
