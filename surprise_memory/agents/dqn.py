"""Recurrent deep Q-learning from prioritised sequences (R2D2: Kapturowski et al., 2019), with one stream of reward.

The network remembers by a GRU over (frame, action before, reward before), all three wiped where an episode begins. A
drawn sequence starts from the state that acting had there (`initial_state`); its first `burn_in` steps only bring that state
up to date with today's weights. Targets are n-step, double, and rescaled by h(x) = sign(x)(sqrt(|x| + 1) - 1) + 0.001 x.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from surprise_memory.agents.base import Agent, Learnt, Mode, State
from surprise_memory.agents.replay import Replay, Sequences
from surprise_memory.bonus import Carry, ReplayTrainer
from surprise_memory.errors import UserError, one_of, require
from surprise_memory.nn.nets import conv, is_image, mlp, orthogonal, run_gru
from surprise_memory.nn.returns import n_step, rescale, unscale
from surprise_memory.types import Chunk, zero_where

SMALL = 1e9  # bytes of a replay that is saved without being asked for


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
            self.encoder: nn.Module = nn.Sequential(
                net, orthogonal(nn.Linear(width, hidden)), nn.ReLU()
            )
        else:
            self.encoder = nn.Sequential(mlp([*obs_shape, hidden, hidden], nn.ReLU), nn.ReLU())
        self.actions = actions
        self.cell = nn.GRUCell(hidden + actions + 1, hidden)
        self.advantage = nn.Sequential(
            orthogonal(nn.Linear(hidden, hidden)), nn.ReLU(), nn.Linear(hidden, actions, bias=False)
        )
        self.value = mlp([hidden, hidden, 1], nn.ReLU)

    def forward(self, rows: State, h: Tensor) -> tuple[Tensor, Tensor]:
        """Columns obs, prev_action, prev_reward, first, (T, B, ...) each, and h (B, H), to Q (T, B, A) and h (T, B, H)."""
        first = rows["first"]
        action = F.one_hot(rows["prev_action"], self.actions).masked_fill(first[..., None], 0)
        reward = rows["prev_reward"].masked_fill(first, 0)
        x = self.encoder(rows["obs"].flatten(0, 1)).unflatten(0, first.shape)
        h = run_gru(self.cell, torch.cat([x, action, reward[..., None]], -1), first, h)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(-1, keepdim=True), h


class DQN(Agent):
    """Acts, stores what it collects, and learns from draws of it."""

    trainer = ReplayTrainer
    recurrent = True

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

    def start(self, num_envs: int) -> State:
        """Nothing is known yet."""
        return {
            "h": torch.zeros(num_envs, self.config.hidden),
            "prev_action": torch.zeros(num_envs, dtype=torch.int64),
            "prev_reward": torch.zeros(num_envs),
        }

    @torch.no_grad()
    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,), the state before them, and the state after; `observe_reward` completes it."""
        B = len(obs)
        state = state or self.start(B)
        rows = {"obs": self.newest(obs)[None], "first": first[None]}
        rows |= {name: state[name][None] for name in ("prev_action", "prev_reward")}
        q, h = self.net(rows, state["h"])
        rates = {
            "explore": self.epsilons(B),
            "sample": torch.full((B,), self.config.epsilon_eval),
            "greedy": torch.zeros(B),
        }
        draw = torch.rand(2, B, generator=self.rng)
        random_action = (draw[1] * self.net.actions).long()
        action = torch.where(draw[0] < rates[mode], random_action, q[0].argmax(1))
        return action + self.first_action, state, state | {"h": h[0]}

    def observe_reward(
        self, state: State, action: Tensor, reward: Tensor, r_int: Tensor | None
    ) -> State:
        """The state after the action (B,) that was taken, its reward and its bonus."""
        total = reward if r_int is None else reward + self.config.int_coef * r_int
        return state | {"prev_action": action - self.first_action, "prev_reward": total}

    def epsilons(self, num_envs: int) -> Tensor:
        """(B,): every environment explores with a rate of its own, from bold to careful."""
        return self.config.epsilon ** torch.linspace(1, 8, num_envs)

    def newest(self, obs: Tensor) -> Tensor:
        """The newest frame of stacked images (..., C, H, W); vectors as they are, as floats."""
        return obs[..., -self.frame :, :, :] if self.frame else obs.float()

    # --- learning -----------------------------------------------------------------------------------------------------

    def rollout_length(self, default: int) -> int:
        """A block of the replay."""
        return self.config.unroll

    def store(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Carry:
        """Put a block into the replay, and its observations into the bonus's statistics."""
        extras = {name: chunk.extras[name] for name in ("prev_action", "prev_reward")}
        fixed = chunk.columns()
        fixed |= {"obs": self.newest(chunk.obs), "next_obs": self.newest(chunk.next_obs)}
        self.replay.add(Chunk(**fixed, extras=extras), chunk.extras["h"][0])
        return carry if bonus is None else bonus.update_stats(chunk, carry)

    def learn(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Learnt:
        """A block goes into the replay; as many updates follow as its steps have earned."""
        carry = self.store(chunk, bonus, carry)
        report: dict[str, list[float]] = {}
        self.updates_due += self.config.updates * len(chunk.reward) * self.replay.ready
        for _ in range(int(self.updates_due)):
            metrics = self.update_once(bonus)
            for name, value in metrics.items():
                report.setdefault(name, []).append(value)
            if not np.isfinite(list(metrics.values())).all():
                break  # the caller says so; no draw from priorities that are not numbers
        self.updates_due -= int(self.updates_due)
        means = {name: float(np.mean(values)) for name, values in report.items()}
        return chunk.extras.get("r_int"), means, carry

    def update_once(self, bonus: ReplayTrainer | None) -> dict[str, float]:
        """One draw, from which first the bonus and then the network learns."""
        drawn = self.replay.sample(self.config.batch, self.rng)
        if bonus is None:
            return self.update_on(drawn, None)
        r_int, metrics = bonus.train_on(drawn.chunk, drawn.weight)
        metrics |= self._update_encoder(bonus)
        return metrics | self.update_on(drawn, r_int)

    def _update_encoder(self, bonus: ReplayTrainer) -> dict[str, float]:
        """Neighbours in time, for generators that learn from them."""
        wanted = bonus.model.surprise.pairs
        if not wanted:
            return {}
        return bonus.update_encoder(*self.replay.pairs(wanted, self.rng))

    def needs_warmup(self, bonus: ReplayTrainer | None) -> bool:
        """The replay has to hold something, with and without a bonus."""
        return True

    def warm_up(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Carry:
        """Only stored: it is learnt from when it is drawn."""
        return self.store(chunk, bonus, carry)

    def after_warmup(self, bonus: ReplayTrainer | None) -> None:
        """Train the bonus on the random actions before anything is paid: first its encoder, then the rest."""
        if bonus is None or not self.replay.ready:
            return
        if bonus.model.surprise.pairs:
            for _ in range(self.config.pretrain_pairs):
                self._update_encoder(bonus)
        for _ in range(self.config.pretrain):
            drawn = self.replay.sample(self.config.batch, self.rng)
            bonus.train_on(drawn.chunk, torch.ones_like(drawn.weight), warmup=True)

    def rollouts_to_refill(self, steps: int, least: int) -> int:
        """A resumed run without its replay first collects up to a tenth of it."""
        if self.replay.ready:
            return 0
        held = min(self.config.replay // 10, steps) // (self.replay.B * self.config.unroll)
        return max(least, held)

    def update_on(self, drawn: Sequences, r_int: Tensor | None) -> dict[str, float]:
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
            self.burn_in_state(self.net, old, drawn.initial_state),
            self.burn_in_state(self.target, old, drawn.initial_state),
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
    def burn_in_state(net: QNet, rows: State, h: Tensor) -> Tensor:
        """The state (K, H) after some rows, from the state before them."""
        return net(rows, h)[1][-1] if len(rows["first"]) else h

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Networks, optimiser, random stream."""
        return {
            "net": self.net.state_dict(),
            "target": self.target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.get_state(),
            "updates_due": self.updates_due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["target"])
        # A copy, because torch would share the moments.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.rng.set_state(state["rng"])
        self.updates_due = state["updates_due"]

    def buffer_state(self, final: bool) -> dict[str, Any] | None:
        """The replay where it was asked for, or at the final save where it is small."""
        size = self.replay.steps * self.replay.bytes_per_step
        small = final and self.replay.ready and size < SMALL
        keep = {"always": True, "never": False, "auto": small}[self.config.save_replay]
        return self.replay.state_dict() if keep else None

    def load_buffer(self, state: dict[str, Any]) -> None:
        """The other half of buffer_state."""
        self.replay.load_state_dict(state)


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
    one_of(c.save_replay, ("auto", "always", "never"), "dqn.save_replay")
    reach = c.burn_in + c.n_step
    require(
        reach <= c.unroll,
        "dqn.burn_in + dqn.n_step",
        reach,
        f"at most dqn.unroll = {c.unroll}: a sequence spans two blocks",
    )
