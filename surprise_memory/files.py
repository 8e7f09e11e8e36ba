"""Files that are whole or absent: written under another name, synced, renamed. No torch here."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from surprise_memory.errors import UserError

NEW = ".new"  # ends the name of a file that is being written; a killed process may leave one behind


def write_atomically(
    path: Path, write: Callable[[BinaryIO], object], previous: Path | None = None
) -> None:
    """`write` fills a new file, which then replaces `path`. On failure `path` is unchanged.

    What `path` held before is kept as `previous`, if that is given.
    """
    if not path.name or path.is_dir():
        raise UserError(f"'{path}' is a directory: name a file in it.")
    new = path.with_name(f"{path.name}.{os.getpid()}{NEW}")
    try:
        with open(new, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            keep(path, previous)
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise cannot_write(path, error) from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def cannot_write(path: Path, error: OSError) -> UserError:
    """Why a file could not be written, what is left of it, and what to do."""
    why = error.strerror or str(error)
    cure = "make it possible to write there"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = "the disk is full"
        cure = "free some space"
    elif not path.parent.is_dir():
        why = f"{path.parent} is gone, or not a directory"
    left = "Nothing was there before"
    if path.exists():
        left = "What was there before is intact"
    return UserError(f"Could not write {path}: {why}. {left}: {cure}, then run it again.")


def keep(path: Path, previous: Path) -> None:
    """Give a file a second name, so that it outlives its replacement. `path` is never missing."""
    new = previous.with_name(f"{previous.name}.{os.getpid()}{NEW}")
    new.unlink(missing_ok=True)
    try:
        os.link(path, new)
    except OSError:  # this file system has no links
        shutil.copyfile(path, new)
    os.replace(new, previous)


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
