"""Proximal policy optimisation with two value heads, for task and bonus (Burda et al., 2018)."""

import copy
import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.agents.ppo_config import PPOConfig, check_ppo
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import built_on_host, double, pick_device, shuffled
from surprise_memory.nn.nets import conv, is_image, mlp, orthogonal, set_precision
from surprise_memory.nn.returns import gae, paid_share
from surprise_memory.types import Chunk

WIDEST_ACTION = 20.0  # of a Box, from bound to bound; draws of N(0, 1) see less than a third of it


class Policy(nn.Module):
    """One trunk, the action distribution, and two values: (logits or mean, v_ext, v_int)."""

    def __init__(self, obs_shape: tuple[int, ...], action_space: Space[Any], hidden: int) -> None:
        super().__init__()
        if is_image(obs_shape):
            net, width = conv(obs_shape, nn.LeakyReLU)
            layers = mlp([width, hidden, hidden], nn.ReLU)
            self.trunk: nn.Module = nn.Sequential(net, layers, nn.ReLU())
        else:
            layers = mlp([*obs_shape, hidden, hidden, hidden], nn.Tanh)
            self.trunk = nn.Sequential(layers, nn.Tanh())
        self.log_std = None
        if isinstance(action_space, spaces.Discrete):
            outputs = int(action_space.n)
        elif isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
            outputs = action_space.shape[0]
            self.log_std = nn.Parameter(torch.zeros(outputs, device="cpu"))
            warn_of_bounds(action_space)
        else:
            raise UserError(
                "PPO acts in Discrete and one-dimensional Box spaces, this environment has "
                f"{action_space}."
            )
        self.actor = orthogonal(nn.Linear(hidden, outputs), 0.01)
        self.critics = orthogonal(nn.Linear(hidden, 2), 0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(K, *obs) to the distribution's parameters (K, A) and the values (K,), (K,)."""
        x = self.trunk(obs)
        values = self.critics(x)
        return self.actor(x), values[:, 0], values[:, 1]

    def sample(self, head: Tensor, rng: torch.Generator, greedy: bool = False) -> Tensor:
        """Actions (K,) or (K, A)."""
        noise = torch.empty(head.shape, device="cpu")  # drawn on the host, as all random numbers
        if self.log_std is None:
            if greedy:
                return head.argmax(1)
            # Gumbel's trick: one draw per logit, no normalisation.
            gumbel = noise.exponential_(generator=rng).log().to(head.device)
            return (head - gumbel).argmax(1)
        if greedy:
            return head
        return head + self.log_std.exp() * noise.normal_(generator=rng).to(head.device)

    def log_prob(self, head: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(log pi(a), entropy), both (K,)."""
        if self.log_std is None:
            log_p = head.log_softmax(1)
            return log_p.gather(1, action[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(1)
        normal = torch.distributions.Normal(head, self.log_std.exp().expand_as(head))
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)


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
        # Without weight, the task's reward must not reach the agent in any way.
        self.fades = intrinsic and config.fade > 0 and config.ext_coef > 0
        self.best = 0.0  # the task's best return so far
        self.success = 0.0  # its mean return, as a share of that
        self.optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=config.lr, eps=1e-8, fused=True
        )

    @torch.no_grad()
    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,) or (B, A) for observations (B, *obs), and what learning needs of them."""
        head, v_ext, v_int = self.policy(_as_input(obs))
        action = self.policy.sample(head, self.rng, mode == "greedy")
        log_prob, _ = self.policy.log_prob(head, action)
        return action, {"log_prob": log_prob, "v_ext": v_ext, "v_int": v_int}, state

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

    def int_weight(self) -> float:
        """The bonus's weight, which fades as the task pays.

        A bonus whose scale follows what novelty is left would never fade by itself. A task that
        only punishes has not paid: then there is all the more to explore.
        """
        c = self.config
        if not self.fades:
            return c.int_coef
        return c.int_coef * (1 - c.fade * self.success)

    def update_success(self, chunk: Chunk, returns: Tensor) -> None:
        """Take the task's returns (T, B) of a rollout into what decides on the bonus's weight.

        The best return is one of a step that was paid: before, a return is the critic's guess.
        """
        happened = returns[chunk.valid]
        paid = returns[chunk.valid & (chunk.reward > 0)]
        here = (max(paid.tolist(), default=0.0), happened.sum().item(), len(happened))
        best, total, rows = zip(*ranks.everyones(here), strict=True)
        self.best = max(self.best, *best)
        self.success = paid_share(sum(total) / max(1, sum(rows)), self.best)

    def _gamma_int(self, chunk: Chunk) -> float | Tensor:
        """The discount of the bonus after each step: (T, B), or one number for all.

        To a bonus that goes on into the next episode, dying costs nothing. Where the task does not
        punish it either, agents walk into lava for ever. A goal, or a death that is punished, is
        the task's business.
        """
        c = self.config
        if c.end_discount == 1:
            return c.gamma_int
        unpaid_end = chunk.terminated & (chunk.reward == 0)
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
        log_prob, entropy = self.policy.log_prob(head, batch["action"])
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
        told = {}
        if self.intrinsic:
            told["charts/int_weight"] = self.int_weight()
        if self.fades:
            self.update_success(chunk, columns["ext"])
        flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        c = self.config
        rows = chunk.valid_rows()
        fewest = min(ranks.everyones(len(rows)))  # ranks take each step together
        number = min(c.minibatches, max(1, fewest))
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
            "best": self.best,
            "success": self.success,
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.policy.load_state_dict(state["policy"])
        self.best = state["best"]
        self.success = state["success"]
        # A copy, because torch would share the moments.
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.rng.set_state(state["rng"])


def warn_of_bounds(space: spaces.Box) -> None:
    """Name an action that a policy that begins as N(0, 1) hardly explores: it is not rescaled."""
    low, high = space.low.astype(float), space.high.astype(float)
    width = high - low
    odd = (low >= 1) | (high <= -1) | ((width > WIDEST_ACTION) & np.isfinite(width))
    if odd.any():
        i = int(odd.argmax())
        warnings.warn(
            f"Action {i} goes from {low[i]:g} to {high[i]:g}, and PPO begins to draw it from "
            "N(0, 1): wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1).",
            stacklevel=2,
        )


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


def _as_input(obs: Tensor) -> Tensor:
    """Bytes stay bytes until the convolution scales them; everything else becomes float32."""
    if obs.dtype == torch.uint8:
        return obs
    return obs.float()
