"""What torch saves, with a checksum at its end: a damaged file is refused before it is read."""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import torch

from surprise_memory.errors import UserError
from surprise_memory.files import write_atomically
from surprise_memory.types import moved

MARK = b"surprise-memory sha256:"  # goes before the checksum, at the end of a file
END = len(MARK) + hashlib.sha256().digest_size
PIECE = 2**20  # bytes that are hashed at once: a replay is larger than what should be in memory
UNREADABLE = (
    RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    pickle.UnpicklingError,
)  # fmt: skip


class Damaged(UserError):
    """A file that is not what was written."""


class HashingFile:
    """Passes what is written on to a file, and hashes it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.hash = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write some bytes."""
        self.hash.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """As a file does."""
        self.file.flush()


def save(content: Any, path: Path, previous: Path | None = None) -> None:
    """Write tensors and plain values in containers, whole or not at all; no file knows a device.

    What `path` held before is kept as `previous`, if that is given.
    """

    def write(file: BinaryIO) -> None:
        hashing = HashingFile(file)
        try:
            torch.save(moved(content, "cpu"), hashing)  # type: ignore[arg-type]  # it only writes and flushes
        except RuntimeError:
            if hashing.error is not None:  # torch would hide why it could not write
                raise hashing.error from None
            raise
        file.write(MARK + hashing.hash.digest())

    write_atomically(path, write, previous)


def load(path: Path) -> Any:
    """What `save` wrote, on the host; no code in it is run.

    Raises Damaged if a single bit differs.
    """
    try:
        with open(path, "rb") as file:
            verify(file, path)
            return torch.load(file, weights_only=True, map_location="cpu")
    except UserError:
        raise
    except UNREADABLE as error:
        raise Damaged(f"{path} cannot be read, and nothing in it was run ({error}).") from error


def verify(file: BinaryIO, path: Path) -> None:
    """Compare an open file with its checksum, and go back to its start."""
    size = file.seek(0, io.SEEK_END) - END
    file.seek(max(0, size))
    end = file.read(END)
    if not end.startswith(MARK) or len(end) < END:
        raise Damaged(
            f"{path} does not end with its checksum, and nothing in it was run: "
            "it is damaged, or another program or an earlier version wrote it."
        )
    found = hashlib.sha256()
    file.seek(0)
    while size > 0:
        piece = file.read(min(PIECE, size))
        if not piece:
            break
        found.update(piece)
        size -= len(piece)
    if found.digest() != end[len(MARK) :]:
        raise Damaged(f"{path} is damaged: its checksum is wrong. Nothing in it was run.")
    file.seek(0)
