"""The command line."""

from surprise_memory.cli.main import main
from surprise_memory.cli.options import count

__all__ = ["count", "main"]
