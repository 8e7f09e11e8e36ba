"""Pay for novelty only once remembering has been seen to help; until then, only for the unexpected.

The novelty e is worth seeking where things recur: what was new fades, and the agent moves on. Where
much moves by chance, few sights ever recur, and their novelty never fades. Which of the two it is
shows in what remembering saves (see `gain`):

    saved = E[(e - e_2) / e]                  a running mean over what the memory is shown
    trust = 0 up to `least`, 1 from `full` on, linear in between
    r     = trust e + (1 - trust) max(e - E[e | s, a], 0)

An untrained memory saves nothing, so every run begins with the excess over what was to be expected.
That should be short: it narrows the policy, and what it has found by then may not be the way to the
goal. On most MiniGrid tasks the memory earns full trust within 0.2 million steps. Among balls that
roll about it earns none for as long, and does not keep what it earns later.

With a few smooth observations, as in MountainCar, W rebuilds a surprise whatever M recalls. Then
remembering neither helps nor harms, and nothing follows from that: novelty is paid as it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from surprise_memory.errors import require
from surprise_memory.nn import ranks
from surprise_memory.nn.actions import Actions
from surprise_memory.stages.base import Columns, Steps
from surprise_memory.stages.expect import Expect, ExpectConfig
from surprise_memory.stages.gain import known_gain

PATIENCE = 20  # rollouts before a memory that changes nothing is taken for idle
IDLE = 0.01  # E|gain| of an idle memory; at twice as much it is none


@dataclass(frozen=True)
class TrustConfig:
    """When novelty is paid in full."""

    least: float = 0.035
    """What remembering has to save, as a share of the novelty, for any trust."""
    full: float = 0.05
    """The same for full trust."""
    rate: float = 0.3
    """Weight of the newest rollout in the running mean of what remembering saves."""
    lr: float = 5e-3
    """Learning rate of the expected novelty."""


class Trust(Expect):
    """trust * e + (1 - trust) * max(e - E[e | s, a], 0)."""

    asks_memory = True
    logged = ("expected", "gain", "trust")

    saved: Tensor
    moved: Tensor
    rollouts: Tensor

    def __init__(self, shape: tuple[int, ...], actions: Actions, config: TrustConfig) -> None:
        require(config.lr > 0, "trust.lr", config.lr, "above 0")
        require(config.full > config.least, "trust.full", config.full, "above trust.least")
        require(0 < config.rate <= 1, "trust.rate", config.rate, "above 0 and at most 1")
        super().__init__(shape, actions, ExpectConfig(config.lr))
        self.config = config
        self.register_buffer("saved", torch.zeros((), device="cpu"))  # E[gain]
        self.register_buffer("moved", torch.zeros((), device="cpu"))  # E|gain|
        self.register_buffer("rollouts", torch.tensor(0, device="cpu"))

    def trust(self) -> Tensor:
        """Between 0 and 1: scalar."""
        c = self.config
        earned = ((self.saved - c.least) / (c.full - c.least)).clamp(0, 1)
        idle = (2 - self.moved / IDLE).clamp(0, 1) * (self.rollouts >= PATIENCE)
        return torch.maximum(earned, idle)

    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: None
    ) -> tuple[Tensor, Columns, None]:
        """The novelty as far as it is trusted, the excess for the rest."""
        trust = self.trust()
        excess, record, _ = super().forward(reward, inputs, steps, carry)
        record["gain"] = known_gain(steps)
        record["remembered"] = steps.remembered
        record["trust"] = trust.expand(reward.shape)
        return trust * reward + (1 - trust) * excess, record, None

    @torch.no_grad()
    def update(self, record: Columns, valid: Tensor, warmup: bool) -> None:
        """Follow what remembering saves."""
        known = valid & record["remembered"]
        gain = torch.where(known, record["gain"], 0.0)  # rows that never happened may hold NaN
        sums = torch.stack([gain.sum(), gain.abs().sum(), known.sum()])
        saved, moved, steps = ranks.total(sums)
        happened = steps > 0
        self.rollouts += happened
        rate = self.config.rate
        self.saved.lerp_(saved / steps.clamp(min=1), rate * happened)
        # A plain mean at first: begun at zero, every memory would look idle for long.
        newest = (1 / self.rollouts).clamp(min=rate, max=1.0)
        self.moved.lerp_(moved / steps.clamp(min=1), newest * happened)
