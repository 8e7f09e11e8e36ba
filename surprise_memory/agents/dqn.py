"""Recurrent deep Q-learning from prioritised sequences (R2D2: Kapturowski et al., 2019), with one stream of reward.

The network remembers by a GRU over (frame, action before, reward before), all three wiped where an episode begins. A
drawn sequence starts from the state that acting had there (`opening`); its first `burn_in` steps only bring that state
up to date with today's weights. Targets are n-step, double, and rescaled by h(x) = sign(x)(sqrt(|x| + 1) - 1) + 0.001 x.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.agents.replay import Replay, Sequences
from surprise_memory.errors import UserError, choose, require
from surprise_memory.nn.nets import conv, is_image, mlp, orthogonal, run_gru
from surprise_memory.nn.returns import n_step, rescale, unscale
from surprise_memory.types import Chunk, zero_where

SMALL = 1e9  # bytes of a replay that is saved without being asked for
Memo = dict[str, Tensor]  # what the agent knows of the running episodes


@dataclass(frozen=True)
class DQNConfig:
    """Recurrent DQN."""

    lr: float = 5e-4
    """Adam's rate; the paper has 1e-4."""
    adam_eps: float = 1e-3
    """Adam's epsilon."""
    max_grad_norm: float = 40.0
    """Gradient clipping."""
    gamma: float = 0.99
    """Discount of the sum of task reward and bonus."""
    n_step: int = 5
    """Rewards before the target's bootstrap."""
    int_coef: float = 0.1
    """Weight of the standardised bonus beside the task's reward; the paper has 1."""
    hidden: int = 128
    """Width of the layers and of the GRU; the paper has 512."""
    burn_in: int = 10
    """Steps of a sequence that only refresh its state; the paper has 40."""
    unroll: int = 40
    """Steps of a sequence that are learnt from, and of a block that is collected; the paper has 80."""
    batch: int = 16
    """Sequences in an update."""
    updates: float = 1.0
    """Updates for each vector step."""
    target_rate: float = 0.005
    """Polyak's rate of the target network, after every update."""
    replay: int = 200_000
    """Steps that are kept; the paper has 10^6."""
    priority: float = 0.9
    """Exponent of the priorities."""
    importance: float = 0.6
    """Exponent of the importance weights."""
    epsilon: float = 0.4
    """Environment i of B explores with epsilon^(1 + 7 i / (B - 1))."""
    epsilon_eval: float = 0.001
    """Share of random actions in evaluation."""
    pretrain_pairs: int = 1_000
    """Updates of a generator's encoder after the warm-up; the paper has 10,000."""
    pretrain: int = 200
    """Updates of the bonus after the warm-up; the paper has 5,000."""
    save_replay: str = "auto"
    """Whether checkpoints hold the replay: always, never, or auto, which is when a run stops or ends, if it is below 1 GB."""


class QNet(nn.Module):
    """(obs, action before, reward before, state) to duelling action values, step by step."""

    def __init__(self, obs_shape: tuple[int, ...], actions: int, hidden: int) -> None:
        super().__init__()
        if is_image(obs_shape):
            net, width = conv(obs_shape, nn.ReLU)
            self.look: nn.Module = nn.Sequential(
                net, orthogonal(nn.Linear(width, hidden)), nn.ReLU()
            )
        else:
            self.look = nn.Sequential(mlp([*obs_shape, hidden, hidden], nn.ReLU), nn.ReLU())
        self.actions = actions
        self.cell = nn.GRUCell(hidden + actions + 1, hidden)
        self.advantage = nn.Sequential(
            orthogonal(nn.Linear(hidden, hidden)), nn.ReLU(), nn.Linear(hidden, actions, bias=False)
        )
        self.value = mlp([hidden, hidden, 1], nn.ReLU)

    def forward(self, rows: Memo, h: Tensor) -> tuple[Tensor, Tensor]:
        """Columns obs, prev_action, prev_reward, first, (T, B, ...) each, and h (B, H), to Q (T, B, A) and h (T, B, H)."""
        first = rows["first"]
        action = F.one_hot(rows["prev_action"], self.actions).masked_fill(first[..., None], 0)
        reward = rows["prev_reward"].masked_fill(first, 0)
        x = self.look(rows["obs"].flatten(0, 1)).unflatten(0, first.shape)
        h = run_gru(self.cell, torch.cat([x, action, reward[..., None]], -1), first, h)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(-1, keepdim=True), h


class DQN:
    """Acts, remembers what it lived through, and learns from rng of it."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_space: Space[Any],
        num_envs: int,
        config: DQNConfig,
        seed: int,
        frame: int,
    ) -> None:
        """`frame` is how many channels of an image are its newest frame; only that one is looked at and stored."""
        c = self.config = config
        check(c)
        if not isinstance(action_space, spaces.Discrete):
            raise UserError(
                f"DQN acts in Discrete spaces, this environment has {action_space}: use --agent ppo."
            )
        self.first_action, self.frame = int(action_space.start), frame if is_image(obs_shape) else 0
        shape = (frame, *obs_shape[1:]) if self.frame else obs_shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = QNet(shape, int(action_space.n), c.hidden)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.rng = torch.Generator().manual_seed(seed)
        self.optimiser = torch.optim.Adam(
            self.net.parameters(), lr=c.lr, eps=c.adam_eps, fused=True
        )
        self.replay = Replay(
            c.replay, num_envs, c.unroll, c.burn_in + c.unroll + c.n_step, c.priority, c.importance
        )
        self.updates_due = (
            0.0  # updates that the steps so far have earned and that were not made yet
        )

    # --- acting -------------------------------------------------------------------------------------------------------

    def start(self, num_envs: int) -> Memo:
        """Nothing is known yet."""
        h = torch.zeros(num_envs, self.config.hidden)
        return {
            "h": h,
            "prev_action": torch.zeros(num_envs, dtype=torch.int64),
            "prev_reward": torch.zeros(num_envs),
        }

    @torch.no_grad()
    def act(
        self, obs: Tensor, first: Tensor, memo: Memo, explore: bool = True, greedy: bool = False
    ) -> tuple[Tensor, Memo, Memo]:
        """Actions (B,), what to note down (the memo before), and the memo after; `feel` completes it by what followed."""
        memo, B = memo or self.start(len(obs)), len(obs)
        rows = {"obs": self.newest(obs)[None], "first": first[None]}
        rows |= {name: memo[name][None] for name in ("prev_action", "prev_reward")}
        q, h = self.net(rows, memo["h"])
        action = q[0].argmax(1)
        epsilon = (
            self.epsilons(B)
            if explore
            else torch.full((B,), 0.0 if greedy else self.config.epsilon_eval)
        )
        draw = torch.rand(2, B, generator=self.rng)
        action = torch.where(draw[0] < epsilon, (draw[1] * self.net.actions).long(), action)
        return action + self.first_action, memo, memo | {"h": h[0]}

    def observe_reward(
        self, memo: Memo, action: Tensor, reward: Tensor, r_int: Tensor | None
    ) -> Memo:
        """The memo after the action (B,) that was taken, its reward and its bonus."""
        total = reward if r_int is None else reward + self.config.int_coef * r_int
        return memo | {"prev_action": action - self.first_action, "prev_reward": total}

    def epsilons(self, num_envs: int) -> Tensor:
        """(B,): every environment explores with a rate of its own, from bold to careful."""
        return self.config.epsilon ** torch.linspace(1, 8, num_envs)

    def newest(self, obs: Tensor) -> Tensor:
        """The newest frame of stacked images (..., C, H, W); vectors as they are, as floats."""
        return obs[..., -self.frame :, :, :] if self.frame else obs.float()

    # --- learning -----------------------------------------------------------------------------------------------------

    def remember(self, chunk: Chunk) -> None:
        """Put a lived block into the replay."""
        extras = {name: chunk.extras[name] for name in ("prev_action", "prev_reward")}
        obs, after = self.newest(chunk.obs), self.newest(chunk.next_obs)
        fixed = chunk.columns() | {"obs": obs, "next_obs": after}
        self.replay.add(Chunk(**fixed, extras=extras), chunk.extras["h"][0])

    def learn(self, drawn: Sequences, r_int: Tensor | None) -> dict[str, float]:
        """One update from drawn sequences, the bonus (T, K) recomputed for them. Sets their new priorities."""
        c = self.config
        error = self.errors(drawn, r_int)  # (unroll, K)
        valid = drawn.chunk.valid[c.burn_in : c.burn_in + c.unroll]
        loss = (drawn.weight * error.masked_fill(~valid, 0.0).square().sum(0)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_grad_norm)
        self.optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, c.target_rate)
            self.replay.set_priority(drawn.index, priorities(error.abs(), valid))
        return {"losses/td": loss.item(), "losses/grad_norm": norm.item()}

    def errors(self, drawn: Sequences, r_int: Tensor | None) -> Tensor:
        """Q(s, a) minus its target, both rescaled, for the steps behind the burn-in: (unroll, K)."""
        c, chunk = self.config, drawn.chunk
        rows = {"obs": chunk.obs, "first": chunk.first} | chunk.extras
        never = ~torch.cat([chunk.valid, drawn.last["valid"]])
        rows = {
            name: zero_where(never & (name != "first"), torch.cat([x, drawn.last[name]]))
            for name, x in rows.items()
        }
        old, new = (
            {name: x[part] for name, x in rows.items()}
            for part in (slice(c.burn_in), slice(c.burn_in, None))
        )
        h, h_target = (
            self.burn_in_state(self.net, old, drawn.opening),
            self.burn_in_state(self.target, old, drawn.opening),
        )
        q, _ = self.net(new, h)  # (unroll + n_step, K, A)
        with torch.no_grad():
            later, _ = self.target(new, h_target)
            value = unscale(later.gather(2, q.argmax(2, keepdim=True)).squeeze(2))
            reward = zero_where(
                ~chunk.valid, chunk.reward if r_int is None else chunk.reward + c.int_coef * r_int
            )
            target = rescale(
                n_step(reward[c.burn_in :], chunk.done[c.burn_in :], value, c.n_step, c.gamma)
            )
        action = chunk.action[c.burn_in : c.burn_in + c.unroll] - self.first_action
        taken = q[: c.unroll].gather(2, action[..., None]).squeeze(2)
        error: Tensor = taken - target
        return error

    @staticmethod
    @torch.no_grad()
    def burn_in_state(net: QNet, rows: Memo, h: Tensor) -> Tensor:
        """The state (K, H) after some rows, from the state before them."""
        return net(rows, h)[1][-1] if len(rows["first"]) else h

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self, last: bool = False) -> dict[str, Any]:
        """Everything that lasts; the replay where it was asked for, or at the `last` save where it is small."""
        parts = {
            "net": self.net.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        small = (
            last and self.replay.ready and self.replay.steps * self.replay.bytes_per_step < SMALL
        )
        keep = {"always": True, "never": False, "auto": small}[self.config.save_replay]
        replay = self.replay.state_dict() if keep else None
        return parts | {
            "rng": self.rng.get_state(),
            "updates_due": self.updates_due,
            "replay": replay,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(
            copy.deepcopy(state["optimiser"])
        )  # torch would share the moments
        self.rng.set_state(state["rng"])
        self.updates_due = state["updates_due"]
        if state["replay"] is not None:
            self.replay.load_state_dict(state["replay"])


def priorities(error: Tensor, valid: Tensor) -> Tensor:
    """0.9 max + 0.1 mean of |error| (T, K) over the steps that happened, (K,)."""
    error = error.masked_fill(~valid, 0.0)
    return 0.9 * error.amax(0) + 0.1 * error.sum(0) / valid.sum(0).clamp(min=1)


def check(c: DQNConfig) -> None:
    """Refuse numbers that cannot be."""
    for name in ("lr", "adam_eps", "max_grad_norm", "updates"):
        require(getattr(c, name) > 0, f"dqn.{name}", getattr(c, name), "above 0")
    for name in ("n_step", "hidden", "unroll", "batch"):
        require(getattr(c, name) >= 1, f"dqn.{name}", getattr(c, name), "at least 1")
    for name in ("burn_in", "pretrain", "pretrain_pairs", "int_coef"):
        require(getattr(c, name) >= 0, f"dqn.{name}", getattr(c, name), "at least 0")
    for name in ("gamma", "priority", "importance", "epsilon", "epsilon_eval", "target_rate"):
        require(0 <= getattr(c, name) <= 1, f"dqn.{name}", getattr(c, name), "in [0, 1]")
    choose(dict.fromkeys(("auto", "always", "never")), c.save_replay, "dqn.save_replay")
    reach = c.burn_in + c.n_step
    require(
        reach <= c.unroll,
        "dqn.burn_in + dqn.n_step",
        reach,
        f"at most dqn.unroll = {c.unroll}: a sequence spans two blocks",
    )
