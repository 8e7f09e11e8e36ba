"""A surprise generator of your own: register it, check it, use it wherever a method is named.

    python examples/own_generator.py train MiniGrid-DoorKey-6x6-v0 --method change+sm --steps 100k
    python examples/own_generator.py methods

It needs the extra cli; MiniGrid also needs minigrid.
This script is the surprise-memory command with one more generator, so eval, --resume, doctor and
show know it as well. In your own loop, call `register_surprise` and then `Bonus("change+sm", ...)`.
"""

from typing import Any

from torch import Tensor, nn

from surprise_memory import Surprise, check_surprise, register_surprise
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


def make_change(obs_shape: tuple[int, ...], action_space: Any, config: Any) -> Change:
    """Build the generator for vectors of this shape."""
    return Change(obs_shape)


register_surprise("change", make_change, "predict what changes from state to state")

if __name__ == "__main__":
    check_surprise(make_change)  # says which promise is broken; leave it out once it passes
    raise SystemExit(main())
