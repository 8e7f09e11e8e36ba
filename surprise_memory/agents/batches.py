"""A rollout's steps in shuffled minibatches, and their advantages standardised."""

from torch import Tensor

from surprise_memory.nn import ranks
from surprise_memory.nn.devices import double


def minibatches(columns: dict[str, Tensor], rows: Tensor, number: int) -> list[dict[str, Tensor]]:
    """Some rows of each column, in `number` parts: views of one shuffled copy."""
    parts = {}
    for name, column in columns.items():
        parts[name] = column.index_select(0, rows).tensor_split(number)
    return [{name: part[i] for name, part in parts.items()} for i in range(number)]


def standardise(batches: list[dict[str, Tensor]]) -> None:
    """Give the advantages of each minibatch mean 0 and standard deviation 1.

    That is over all ranks' parts of it. One call tells the ranks of all minibatches.
    """
    if ranks.world() == 1:
        for batch in batches:
            batch["advantage"] = standardised(batch["advantage"])
        return
    wide = [double(batch["advantage"]) for batch in batches]
    for batch, x, (size, mean, var) in zip(batches, wide, ranks.moments_of_each(wide), strict=True):
        if size > 1:
            std = (var * size / (size - 1)).sqrt()
            batch["advantage"] = ((x - mean) / (std + 1e-8)).to(batch["advantage"])


def standardised(advantage: Tensor) -> Tensor:
    """Advantages (K,) with mean 0 and standard deviation 1."""
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
