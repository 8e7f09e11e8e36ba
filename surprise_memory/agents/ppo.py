"""Proximal policy optimisation with two value heads, for task and bonus (Burda et al., 2018)."""

import copy
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.agents.batches import minibatches, standardise
from surprise_memory.agents.policy import Policy
from surprise_memory.agents.ppo_config import PPOConfig, check_ppo
from surprise_memory.agents.task_pay import TaskPay
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import built_on_host, pick_device, shuffled
from surprise_memory.nn.nets import set_precision
from surprise_memory.nn.returns import gae
from surprise_memory.types import Chunk


class PPO(Agent):
    """Acts and learns. `intrinsic=False` takes the second head out of the loss: plain PPO."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_space: Space[Any],
        config: PPOConfig,
        intrinsic: bool,
        seed: int = 0,
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        check_ppo(config, intrinsic)
        self.device = pick_device(device)
        self.config = config
        self.intrinsic = intrinsic
        with built_on_host(seed):
            self.policy = Policy(obs_shape, action_space, config.hidden)
        set_precision(self.policy, precision)
        self.policy.to(self.device)
        self.rng = torch.Generator().manual_seed(seed)
        self.pay = TaskPay()
        # Without weight, the task's reward must not reach the agent in any way.
        self.follows_pay = intrinsic and config.ext_coef > 0
        self.optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=config.lr, eps=1e-8, fused=True
        )

    @torch.no_grad()
    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,) or (B, A) for observations (B, *obs), and what learning needs of them."""
        head, v_ext, v_int = self.policy(_as_input(obs))
        mix = None
        extras = {}
        if mode == "explore" and self.random_share():
            mix = extras["mix"] = torch.full_like(v_ext, self.random_share())
        action = self.policy.sample(head, self.rng, mode == "greedy", mix)
        log_prob, _ = self.policy.log_prob(head, action, mix)
        return action, extras | {"log_prob": log_prob, "v_ext": v_ext, "v_int": v_int}, state

    def int_weight(self) -> float:
        """The bonus's weight, which fades as the task pays.

        Its scale follows what novelty is left, so that it would never fade by itself, and an agent
        that has solved its task would go on exploring.
        """
        return self.config.int_coef * (1 - self.config.fade * self.pay.share)

    def random_share(self) -> float:
        """The share of uniform actions, which is above 0 while the task punishes and does not pay.

        An agent that is punished for walking into things learns never to do so, and then never
        walks into a goal either. Continuous actions are random enough.
        """
        if not self.pay.punished or self.policy.continuous:
            return 0.0
        return self.config.random_actions * (1 - self.pay.share)

    @torch.no_grad()
    def advantages(self, chunk: Chunk, r_int: Tensor | None) -> dict[str, Tensor]:
        """The mixed advantage and each head's target, all (T, B)."""
        c = self.config
        valid = chunk.valid
        # The bonus's return goes on into the next episode, from the observation that opens it.
        after = chunk.next_obs[-1] if chunk.after is None else chunk.after
        _, last_ext, last_int = self.policy(_as_input(after))
        end_value = None
        if c.bootstrap_time_limits:
            end_value = self._time_limit_values(chunk)
        reward = chunk.reward
        if c.reward_clip:
            reward = reward.clamp(-c.reward_clip, c.reward_clip)
        v_ext = chunk.extras["v_ext"]
        adv = gae(reward, v_ext, last_ext, chunk.done, valid, c.gamma_ext, c.lam, end_value)
        columns = {"advantage": c.ext_coef * adv, "ext": adv + v_ext}
        if r_int is not None:
            never = torch.zeros_like(chunk.done)
            v_int = chunk.extras["v_int"]
            adv = gae(r_int, v_int, last_int, never, valid, self._gamma_int(chunk), c.lam)
            columns["int"] = adv + v_int
            columns["advantage"] = columns["advantage"] + self.int_weight() * adv
        return columns

    def _gamma_int(self, chunk: Chunk) -> float | Tensor:
        """The discount of the bonus after each step: (T, B), or one number for all.

        To a bonus that goes on into the next episode, dying costs nothing. Where the task does not
        punish it either, agents walk into lava for ever. A goal, or a death that is punished, is
        the task's business.
        """
        c = self.config
        if c.end_discount == 1:
            return c.gamma_int
        unpaid_end = chunk.terminated
        if c.ext_coef:  # without weight, what the task pays must not matter here either
            unpaid_end = unpaid_end & (chunk.reward == 0)
        return c.gamma_int * torch.where(unpaid_end, c.end_discount, 1.0)

    def _time_limit_values(self, chunk: Chunk) -> Tensor:
        """v_ext of the final observation where a time limit cut the episode, else 0: (T, B)."""
        cut = chunk.truncated & ~chunk.terminated & chunk.valid
        values = torch.zeros_like(chunk.reward)
        if cut.any():
            values[cut] = self.policy(_as_input(chunk.next_obs[cut]))[1]
        return values

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped surrogate, two value errors and the entropy on a minibatch of K rows."""
        c = self.config
        advantage = batch["advantage"]
        head, v_ext, v_int = self.policy(_as_input(batch["obs"]))
        log_prob, entropy = self.policy.log_prob(head, batch["action"], batch.get("mix"))
        log_ratio = log_prob - batch["log_prob"]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        surrogate = torch.min(ratio * advantage, clipped * advantage).mean()
        errors = []
        if c.ext_coef:  # without weight, the task's reward must not shape the trunk either
            errors.append((v_ext - batch["ext"]).square().mean())
        if self.intrinsic:
            errors.append((v_int - batch["int"]).square().mean())
        value = torch.stack(errors).sum()
        loss = -surrogate + c.value_coef * value - c.entropy * entropy.mean()
        with torch.no_grad():
            report = {
                "policy_loss": -surrogate,
                "value_loss": value,
                "entropy": entropy.mean(),
                "approx_kl": (ratio - 1 - log_ratio).mean(),
                "clipfrac": ((ratio - 1).abs() > c.clip).float().mean(),
            }
        return loss, report

    def update(self, chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
        """Learn from one rollout; r_int (T, B) is the scaled bonus, None for plain PPO."""
        assert (r_int is not None) == self.intrinsic
        columns = {"obs": chunk.obs, "action": chunk.action, "log_prob": chunk.extras["log_prob"]}
        columns |= self.advantages(chunk, r_int)
        if "mix" in chunk.extras:
            columns["mix"] = chunk.extras["mix"]
        told = {}
        if self.intrinsic:
            told["charts/int_weight"] = self.int_weight()
            told["charts/random_share"] = self.random_share()
        flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        c = self.config
        rows = chunk.valid_rows()
        fewest = min(ranks.everyones(len(rows)))  # ranks take each step together
        if not fewest:  # every step only reset an environment
            return told
        number = min(c.minibatches, fewest)
        report: dict[str, Tensor] = {}
        for _ in range(c.epochs):
            order = shuffled(rows, self.rng)
            batches = minibatches(flat, order, number)
            if c.normalise_advantage:
                standardise(batches)
            for batch in batches:
                size = len(batch["advantage"])
                loss, report = self.loss(batch)
                self.optimiser.zero_grad()
                loss.backward()
                ranks.average_gradients(self.policy.parameters(), size)
                if c.max_grad_norm:
                    nn.utils.clip_grad_norm_(self.policy.parameters(), c.max_grad_norm)
                self.optimiser.step()
        if self.follows_pay:
            self.pay.update(chunk, columns["ext"])
        told |= {f"losses/{name}": value.item() for name, value in report.items()}
        return ranks.mean_report(told, size)

    def synchronise(self) -> None:
        """Every rank acts and shuffles by its own draws, and learns from all ranks' rollouts."""
        self.load_state_dict(ranks.from_first(self.state_dict()))
        ranks.own_stream(self.rng)

    def state_dict(self) -> dict[str, Any]:
        """Everything that lasts."""
        return {
            "policy": self.policy.state_dict(),
            "pay": self.pay.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.policy.load_state_dict(state["policy"])
        self.pay.load_state_dict(state["pay"])
        # A copy, because torch would share the moments.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.rng.set_state(state["rng"])


def _as_input(obs: Tensor) -> Tensor:
    """Bytes stay bytes until the convolution scales them; everything else becomes float32."""
    if obs.dtype == torch.uint8:
        return obs
    return obs.float()
