"""The command line."""

from surprise_memory.cli.main import main

__all__ = ["main"]
