"""Files that are whole or absent: written under another name, synced, renamed. No torch here."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from surprise_memory.errors import UserError

NEW = ".new"  # ends the name of a file that is being written; a killed process may leave one behind


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`write` fills a new file, which then replaces `path`. On failure `path` is unchanged."""
    new = path.with_name(f"{path.name}.{os.getpid()}{NEW}")
    try:
        with open(new, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except (OSError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
        new.unlink(missing_ok=True)
        why = "the disk is full"
        if isinstance(error, OSError) and error.errno != errno.ENOSPC:
            why = str(error)
        cure = "The file from before is intact: free some space and --resume."
        raise UserError(f"Could not write {path}: {why}. {cure}") from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Any, indent: int | None = 1, allow_nan: bool = True) -> None:
    """A value as a JSON file, atomically."""
    text = json.dumps(value, indent=indent, allow_nan=allow_nan) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """A JSON file, or a sentence about what is wrong with it."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as JSON ({error}): it is damaged, or not from this program."
        ) from error
