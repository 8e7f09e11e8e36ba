"""A surprise generator of your own, beside ours: register it, check it, and use it wherever a method is named.

    python examples/own_generator.py train MiniGrid-DoorKey-6x6-v0 --method change+sm --steps 100k
    python examples/own_generator.py methods

The script is the surprise-memory command with one generator more, so eval, --resume, doctor and show know it, too. In a
loop of your own, `register_surprise` and then `Bonus("change+sm", ...)` is all.
"""

import sys

from torch import Tensor, nn

from surprise_memory import Surprise, register_surprise
from surprise_memory.bonus.check import check_surprise
from surprise_memory.cli import main
from surprise_memory.nn.nets import mlp


class Change(Surprise):
    """How badly do I predict what changes? u = F(s) - (s' - s)."""

    uses = ("obs", "next_obs")

    def __init__(self, shape: tuple[int, ...], hidden: int = 256) -> None:
        super().__init__()
        self.n = shape[0]
        self.net = mlp([self.n, hidden, hidden, self.n], nn.ReLU)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """The surprise u (K, n)."""
        u: Tensor = self.net(inputs["obs"]) - (inputs["next_obs"] - inputs["obs"])
        return u


register_surprise(
    "change",
    lambda shape, action_space, config: Change(shape),
    "predict what changes from state to state",
)

if __name__ == "__main__":
    check_surprise(lambda shape, action_space, config: Change(shape))
    sys.exit(main())
