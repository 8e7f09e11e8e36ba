"""The recurrent DQN's network: a GRU over (frame, previous action, previous reward)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.agents.base import State
from surprise_memory.nn.nets import Net, conv, is_image, mlp, orthogonal, run_gru

SMALL = 0.01  # gain of the last layers


class QNet(nn.Module):
    """(obs, previous action, previous reward, state) to duelling action values, step by step."""

    def __init__(self, obs_shape: tuple[int, ...], actions: int, hidden: int) -> None:
        super().__init__()
        if is_image(obs_shape):
            net, width = conv(obs_shape, nn.ReLU)
            last = orthogonal(nn.Linear(width, hidden))
            self.encoder: nn.Module = nn.Sequential(net, last, nn.ReLU())
        else:
            self.encoder = nn.Sequential(mlp([*obs_shape, hidden, hidden], nn.ReLU), nn.ReLU())
        self.actions = actions
        self.cell = nn.GRUCell(hidden + actions + 1, hidden)
        # Values start near zero. One that starts above what the task can pay makes an episode's end
        # look bad, and fades slowly: its targets come from the slow network that has it, too.
        self.advantage = nn.Sequential(
            orthogonal(nn.Linear(hidden, hidden)),
            nn.ReLU(),
            orthogonal(nn.Linear(hidden, actions, bias=False), SMALL),
        )
        self.value = Net(
            orthogonal(nn.Linear(hidden, hidden)),
            nn.ReLU(),
            orthogonal(nn.Linear(hidden, 1), SMALL),
        )

    def forward(self, rows: State, h: Tensor) -> tuple[Tensor, Tensor]:
        """From columns and the state h (B, H) to Q (T, B, A) and all states (T, B, H).

        The columns are obs, prev_action, prev_reward and first, (T, B, ...) each.
        """
        first = rows["first"]
        action = F.one_hot(rows["prev_action"], self.actions).masked_fill(first[..., None], 0)
        reward = rows["prev_reward"].masked_fill(first, 0)
        x = self.encoder(rows["obs"].flatten(0, 1)).unflatten(0, first.shape)
        x = torch.cat([x, action, reward[..., None]], -1)
        h = run_gru(self.cell, x, first, h)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(-1, keepdim=True), h

    @torch.no_grad()
    def follow(self, net: nn.Module, rate: float) -> None:
        """Move the weights towards those of another network by a share `rate` (Polyak)."""
        for slow, fast in zip(self.parameters(), net.parameters(), strict=True):
            slow.lerp_(fast, rate)
