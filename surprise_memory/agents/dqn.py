"""Recurrent deep Q-learning from prioritised sequences (R2D2: Kapturowski et al., 2019).

Task reward and bonus are summed to one reward. The network remembers by a GRU over (frame, previous
action, previous reward); its state, action and reward are zero where an episode begins. A drawn
sequence starts from the state that the agent had there while acting. Its first `burn_in` steps only
bring that state up to date with today's weights.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from surprise_memory.agents.base import Agent, Learnt, Mode, State
from surprise_memory.agents.dqn_config import DQNConfig, check_dqn
from surprise_memory.agents.qnet import QNet
from surprise_memory.agents.replay import Replay, Sequences
from surprise_memory.agents.td import burn_in_state, priorities, td_errors
from surprise_memory.bonus import Carry, ReplayTrainer
from surprise_memory.errors import UserError
from surprise_memory.nn.devices import HOST, built_on_host, pick_device
from surprise_memory.nn.nets import is_image, set_precision
from surprise_memory.types import Chunk, moved

SMALL = 1e9  # bytes; a smaller replay is saved with the last checkpoint


class DQN(Agent):
    """Acts, stores what it collects, and learns from draws of it."""

    trainer = ReplayTrainer
    recurrent = True
    burn_in_state = staticmethod(burn_in_state)

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_space: Space[Any],
        num_envs: int,
        config: DQNConfig,
        seed: int,
        frame: int,
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        """`frame` is how many channels of an image are its newest frame; only these are used."""
        c = config
        self.config = config
        check_dqn(c)
        self.device = pick_device(device)
        if not isinstance(action_space, spaces.Discrete):
            problem = f"DQN acts in Discrete spaces, this environment has {action_space}"
            raise UserError(f"{problem}: use --agent ppo.")
        self.first_action = int(action_space.start)
        self.frame = 0  # vectors
        shape = obs_shape
        if is_image(obs_shape):
            self.frame = frame
            shape = (frame, *obs_shape[1:])
        with built_on_host(seed):
            self.net = QNet(shape, int(action_space.n), c.hidden)
        set_precision(self.net, precision)
        self.net.to(self.device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.rng = torch.Generator().manual_seed(seed)
        weights = self.net.parameters()
        self.optimiser = torch.optim.Adam(weights, lr=c.lr, eps=c.adam_eps, fused=True)
        length = c.burn_in + c.unroll + c.n_step
        self.replay = Replay(c.replay, num_envs, c.unroll, length, c.priority, c.importance)
        self.updates_due = 0.0  # updates that the steps so far have earned, and not made yet

    def start(self, num_envs: int) -> State:
        """Nothing is known yet."""
        h = torch.zeros(num_envs, self.config.hidden, device=self.device)
        return {
            "h": h,
            "prev_action": h.new_zeros(num_envs, dtype=torch.int64),
            "prev_reward": h.new_zeros(num_envs),
        }

    @torch.no_grad()
    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,), the state before them, and the state after, without the reward yet."""
        B = len(obs)
        state = state or self.start(B)
        rows = {
            "obs": self.newest(obs)[None],
            "first": first[None],
            "prev_action": state["prev_action"][None],
            "prev_reward": state["prev_reward"][None],
        }
        q, h = self.net(rows, state["h"])
        rate = torch.zeros(B, device="cpu")
        if mode == "explore":
            rate = self.epsilons(B)
        elif mode == "sample":
            rate = torch.full((B,), self.config.epsilon_eval, device="cpu")
        draw = torch.rand(2, B, generator=self.rng, device="cpu")
        random_action = (draw[1] * self.net.actions).long().to(self.device)
        is_random = (draw[0] < rate).to(self.device)
        action = torch.where(is_random, random_action, q[0].argmax(1))
        return action + self.first_action, state, state | {"h": h[0]}

    def observe_reward(
        self, state: State, action: Tensor, reward: Tensor, r_int: Tensor | None
    ) -> State:
        """The state after the action (B,) that was taken, its reward and its bonus."""
        if r_int is not None:
            reward = reward + self.config.int_coef * r_int
        return state | {"prev_action": action - self.first_action, "prev_reward": reward}

    def epsilons(self, num_envs: int) -> Tensor:
        """(B,): every environment explores at its own rate, from bold to careful."""
        return self.config.epsilon ** torch.linspace(1, 8, num_envs, device="cpu")

    def newest(self, obs: Tensor) -> Tensor:
        """The newest frame of stacked images (..., C, H, W); vectors as they are, as floats."""
        if not self.frame:
            return obs.float()
        return obs[..., -self.frame :, :, :]

    def rollout_length(self, default: int) -> int:
        """A block of the replay."""
        return self.config.unroll

    def store(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Carry:
        """Put a block into the replay, and its observations into the bonus's statistics."""
        block = replace(
            chunk,
            obs=self.newest(chunk.obs),
            next_obs=self.newest(chunk.next_obs),
            extras={name: chunk.extras[name] for name in ("prev_action", "prev_reward")},
        )
        self.replay.add(block.to(HOST), initial_state=chunk.extras["h"][0].to(HOST))
        if bonus is None:
            return carry
        return bonus.update_stats(chunk, carry)

    def learn(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Learnt:
        """A block goes into the replay; as many updates follow as its steps have earned."""
        carry = self.store(chunk, bonus, carry)
        report: dict[str, list[float]] = {}
        if self.replay.ready:
            self.updates_due += self.config.updates * len(chunk.reward)
        for _ in range(int(self.updates_due)):
            metrics = self.update_once(bonus)
            for name, value in metrics.items():
                report.setdefault(name, []).append(value)
            if not np.isfinite(list(metrics.values())).all():
                break  # priorities that are not numbers cannot be drawn from; the caller stops
        self.updates_due -= int(self.updates_due)
        means = {name: float(np.mean(values)) for name, values in report.items()}
        return chunk.extras.get("r_int"), means, carry

    def update_once(self, bonus: ReplayTrainer | None) -> dict[str, float]:
        """One draw, from which the bonus and then the network learns."""
        drawn = self.draw()
        if bonus is None:
            return self.update_on(drawn, None)
        r_int, metrics = bonus.train_on(drawn.chunk, drawn.weight)
        metrics |= self._update_encoder(bonus)
        return metrics | self.update_on(drawn, r_int)

    def draw(self) -> Sequences:
        """A batch of sequences from the replay, which is on the host."""
        drawn: Sequences = moved(self.replay.sample(self.config.batch, self.rng), self.device)
        return drawn

    def _update_encoder(self, bonus: ReplayTrainer) -> dict[str, float]:
        """Neighbours in time, for generators that learn from them."""
        wanted = bonus.model.surprise.pairs
        if not wanted:
            return {}
        a, b = self.replay.pairs(wanted, self.rng)
        return bonus.update_encoder(a, b)

    def needs_warmup(self, bonus: ReplayTrainer | None) -> bool:
        """The replay has to hold something, with and without a bonus."""
        return True

    def warm_up(self, chunk: Chunk, bonus: ReplayTrainer | None, carry: Carry) -> Carry:
        """Store it: it is learnt from when it is drawn."""
        return self.store(chunk, bonus, carry)

    def after_warmup(self, bonus: ReplayTrainer | None, trained: Callable[[float], None]) -> None:
        """Train the bonus on the random actions: first its encoder, then the rest."""
        if bonus is None or not self.replay.ready:
            return
        pairs = 0
        if bonus.model.surprise.pairs:
            pairs = self.config.pretrain_pairs
        updates = pairs + self.config.pretrain
        for number in range(updates):
            if number < pairs:
                self._update_encoder(bonus)
            else:
                drawn = self.draw()
                bonus.train_on(drawn.chunk, torch.ones_like(drawn.weight), warmup=True)
            trained((number + 1) / updates)

    def can_save_warmup(self) -> bool:
        """Only with the replay, which is what the warm-up makes."""
        return self.replay.ready and self._saves_replay(final=True)

    def rollouts_to_refill(self, steps: int, least: int) -> int:
        """A run that resumes without its replay first collects up to a tenth of it."""
        if self.replay.ready:
            return 0
        held = min(self.config.replay // 10, steps) // (self.replay.B * self.config.unroll)
        return max(least, held)

    def update_on(self, drawn: Sequences, r_int: Tensor | None) -> dict[str, float]:
        """One update from drawn sequences and their bonus (T, K). Sets their new priorities."""
        c = self.config
        error = self.errors(drawn, r_int)  # (unroll, K)
        valid = drawn.chunk.valid[c.burn_in : c.burn_in + c.unroll]
        squares = error.masked_fill(~valid, 0.0).square().sum(0)  # (K,)
        loss = (drawn.weight * squares).mean()
        self.optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_grad_norm)
        self.optimiser.step()
        self.target.follow(self.net, c.target_rate)
        self.replay.set_priority(drawn.index, priorities(error.detach().abs(), valid))
        return {"losses/td": loss.item(), "losses/grad_norm": norm.item()}

    def errors(self, drawn: Sequences, r_int: Tensor | None) -> Tensor:
        """Q(s, a) minus its target for the steps after the burn-in, (unroll, K)."""
        return td_errors(self.net, self.target, drawn, r_int, self.config, self.first_action)

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
        """The replay, if it was asked for, or if it is small and this is the final save."""
        if self._saves_replay(final):
            return self.replay.state_dict()
        return None

    def _saves_replay(self, final: bool) -> bool:
        if self.config.save_replay == "never":
            return False
        size = self.replay.steps * self.replay.bytes_per_step
        small = final and self.replay.ready and size < SMALL
        return small or self.config.save_replay == "always"

    def load_buffer(self, state: dict[str, Any]) -> None:
        """The other half of buffer_state."""
        self.replay.load_state_dict(state)
