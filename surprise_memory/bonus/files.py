"""A bonus in one file with a checksum: what every adapter's `save` writes and `load` reads."""

import os
from pathlib import Path
from typing import Any

from surprise_memory import torch_files
from surprise_memory.bonus.online import Bonus
from surprise_memory.errors import UserError, require

FORMAT = "surprise-memory bonus 1"


def save_bonus(bonus: Bonus, since: int, path: Any) -> None:
    """Everything that the bonus has learnt and remembers, and the vector steps since its update."""
    content = {
        "format": FORMAT,
        "method": bonus.method,
        "since": since,
        "bonus": bonus.state_dict(),
    }
    torch_files.save(content, as_path(path))


def load_bonus(bonus: Bonus, path: Any, same_episodes: bool = False) -> int:
    """The other half of save_bonus; returns `since`. A file that is refused changes nothing.

    The environments are not in the file, so their episodes are new ones to the bonus, unless they
    are said to be the same.
    """
    content = torch_files.load(as_path(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path} is not a '{FORMAT}': name a file that env.save() wrote.")
    method = content["method"]
    if method != bonus.method:
        raise UserError(f"{path} holds the bonus '{method}', this is '{bonus.method}'.")
    since = int(content["since"])
    bonus.load_state_dict(content["bonus"])
    if not same_episodes:
        bonus.reset()
    return since


def as_path(path: Any) -> Path:
    """A path, or a sentence."""
    require(isinstance(path, str | os.PathLike), "path", path, "the name of a file")
    return Path(path)
