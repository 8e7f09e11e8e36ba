"""`python -m surprise_memory` and the `surprise-memory` command."""

import os
import sys

from surprise_memory.training.stop import Handlers, interrupt


def main() -> int:
    """Run a command. A signal ends it with a sentence from the start."""
    try:  # around the handlers: a signal may come while they are being set
        with Handlers(interrupt):
            return run()
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def run() -> int:
    """The command line; importing it may already be interrupted."""
    # Torch asks for large pages then: faulting in small ones took a third of an update on images.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from surprise_memory import cli

    return cli.main()


def leave(code: int) -> None:
    """End the process. Of many, one must not wait for torch's threads, which may abort it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    leave(main())
