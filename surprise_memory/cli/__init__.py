"""The command line."""

from surprise_memory.cli.main import count, main

__all__ = ["count", "main"]
