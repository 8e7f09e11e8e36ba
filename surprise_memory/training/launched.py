"""Whether torchrun started this process. No torch here: the command line asks first."""

import os

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells a process


def launched() -> int:
    """How many processes torchrun has started; 1 where it has not."""
    if not all(name in os.environ for name in LAUNCHED):
        return 1
    return int(os.environ["WORLD_SIZE"])
