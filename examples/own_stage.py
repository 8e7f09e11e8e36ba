"""A stage of your own, with an option: a limit to what a step earns. It needs the extra cli.

python examples/own_stage.py train ToyKeyDoor-v0 --method rnd+sm+cap --bonus.cap.times 5 --steps 90k
"""

from dataclasses import dataclass

import torch

from surprise_memory import Stage, check_stage, register_stage
from surprise_memory.cli import main


@dataclass(frozen=True)
class CapConfig:
    """The largest reward of a step."""

    times: float = 3.0
    """In mean rewards of the last rollout."""


class Cap(Stage):
    """min(r, times * mean r)."""

    logged = ("capped",)  # its mean is logged as intrinsic/capped

    def __init__(self, obs_shape, action_space, config) -> None:
        super().__init__()
        self.times = config.cap.times  # what --bonus.cap.times sets
        self.register_buffer("mean", torch.tensor(torch.inf))  # buffers are in every checkpoint

    def forward(self, reward, inputs, steps, carry):
        """The reward (T, B), a record for `update` and the log, the carry. Changes nothing."""
        limit = self.times * self.mean
        return reward.clamp(max=limit), {"found": reward, "capped": (reward > limit).float()}, None

    def update(self, record, valid, warmup) -> None:
        """Once per rollout: the one place where statistics move."""
        self.mean.copy_(record["found"][valid].mean())


register_stage("cap", Cap, "no step earns more than a few times the mean", CapConfig)
if __name__ == "__main__":
    check_stage(Cap)
    raise SystemExit(main())
