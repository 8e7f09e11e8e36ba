"""How a loop of another library adds a bonus: the options that all adapters have, checked."""

from surprise_memory.errors import check_option, require


def check_adding(beta: float, ext: float) -> None:
    """Refuse weights of ext * r + beta * r_int that are no numbers."""
    check_option("beta", beta, (float,))
    check_option("ext", ext, (float,))


def check_every(name: str, every: int) -> None:
    """Refuse a number of vector steps between updates below 1; `name` is what the adapter says."""
    check_option(name, every, (int,))
    require(every >= 1, name, every, "at least 1")
