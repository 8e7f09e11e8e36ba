"""Proximal policy optimisation with two value heads: one for the task's reward, one for the bonus (Burda et al., 2018)."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.errors import UserError, require
from surprise_memory.nn.nets import conv, is_image, mlp, orthogonal
from surprise_memory.nn.returns import gae
from surprise_memory.types import Chunk


@dataclass(frozen=True)
class PPOConfig:
    """Two-headed PPO."""

    lr: float = 3e-4
    """Adam's rate."""
    gamma_ext: float = 0.999
    """Discount of the task's reward; its episodes end."""
    gamma_int: float = 0.99
    """Discount of the bonus."""
    episodic_intrinsic: bool = False
    """Whether the bonus's return ends with an episode; by default it flows on into the next."""
    lam: float = 0.95
    """GAE's lambda, both streams."""
    ext_coef: float = 2.0
    """Weight of the task's advantage; 0 trains on the bonus alone."""
    int_coef: float = 1.0
    """beta, weight of the bonus's advantage."""
    reward_clip: float = 0.0
    """Clip the task's reward at plus and minus this before learning; 0 is none, the paper has 1."""
    clip: float = 0.2
    """epsilon of the clipped ratio."""
    entropy: float = 0.01
    """Weight of the policy's entropy; the paper has 0.001."""
    value_coef: float = 0.5
    """Weight of the two value losses."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 16
    """Updates per pass (the tables' "minibatch size" is this number)."""
    max_grad_norm: float = 0.5
    """Gradient clipping; 0 is none, as in the paper."""
    normalise_advantage: bool = True
    """Whether each minibatch's mixed advantage is standardised; the paper does not."""
    bootstrap_time_limits: bool = True
    """Whether a time limit is followed by the value of the final observation; in the paper it is an end like any other."""
    hidden: int = 256
    """Width of the fully connected layers."""


class Policy(nn.Module):
    """One trunk, the action distribution, and two values: (logits or mean, v_ext, v_int)."""

    def __init__(self, obs_shape: tuple[int, ...], action_space: Space[Any], hidden: int) -> None:
        super().__init__()
        if is_image(obs_shape):
            net, width = conv(obs_shape, nn.LeakyReLU)
            self.trunk: nn.Module = nn.Sequential(
                net, mlp([width, hidden, hidden], nn.ReLU), nn.ReLU()
            )
        else:
            self.trunk = nn.Sequential(
                mlp([*obs_shape, hidden, hidden, hidden], nn.Tanh), nn.Tanh()
            )
        if isinstance(action_space, spaces.Discrete):
            outputs, self.log_std = int(action_space.n), None
        elif isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
            outputs = action_space.shape[0]
            self.log_std = nn.Parameter(torch.zeros(outputs))
        else:
            raise UserError(
                f"PPO acts in Discrete and one-dimensional Box spaces, this environment has {action_space}."
            )
        self.actor = orthogonal(nn.Linear(hidden, outputs), 0.01)
        self.critics = orthogonal(nn.Linear(hidden, 2), 0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(K, *obs) to the distribution's parameters (K, A) and the values (K,), (K,)."""
        x = self.trunk(obs)
        values = self.critics(x)
        return self.actor(x), values[:, 0], values[:, 1]

    def sample(self, head: Tensor, generator: torch.Generator, greedy: bool = False) -> Tensor:
        """Actions (K,) or (K, A)."""
        noise = torch.empty_like(head)
        if self.log_std is None:  # Gumbel's trick: one draw per logit, no normalisation
            return (
                head.argmax(1)
                if greedy
                else (head - noise.exponential_(generator=generator).log()).argmax(1)
            )
        return head if greedy else head + self.log_std.exp() * noise.normal_(generator=generator)

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
    ) -> None:
        c = config
        for name, gamma in (("gamma_ext", c.gamma_ext), ("gamma_int", c.gamma_int), ("lam", c.lam)):
            require(0 <= gamma <= 1, f"ppo.{name}", gamma, "in [0, 1]")
        require(c.lr > 0 and c.clip > 0, "ppo.lr, ppo.clip", (c.lr, c.clip), "above 0")
        require(
            c.epochs >= 1 and c.minibatches >= 1,
            "ppo.epochs, ppo.minibatches",
            (c.epochs, c.minibatches),
            "at least 1",
        )
        require(
            c.ext_coef != 0 or intrinsic,
            "ppo.ext_coef",
            c.ext_coef,
            "above 0 where there is no bonus: nothing is left to learn",
        )
        self.config, self.intrinsic = config, intrinsic
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = Policy(obs_shape, action_space, config.hidden)
        self.rng = torch.Generator().manual_seed(seed)
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
        c, extras = self.config, chunk.extras
        _, last_ext, last_int = self.policy(_as_input(chunk.next_obs[-1]))
        no_end = torch.zeros_like(chunk.done)
        end_value = self._time_limit_values(chunk) if c.bootstrap_time_limits else None
        reward = (
            chunk.reward.clamp(-c.reward_clip, c.reward_clip) if c.reward_clip else chunk.reward
        )
        adv = gae(
            reward,
            extras["v_ext"],
            last_ext,
            chunk.done,
            chunk.valid,
            c.gamma_ext,
            c.lam,
            end_value,
        )
        targets = {"ext": adv + extras["v_ext"]}
        mixed = c.ext_coef * adv
        if r_int is not None:
            ends = chunk.done if c.episodic_intrinsic else no_end
            adv = gae(r_int, extras["v_int"], last_int, ends, chunk.valid, c.gamma_int, c.lam)
            targets["int"] = adv + extras["v_int"]
            mixed = mixed + c.int_coef * adv
        return {"advantage": mixed} | targets

    def _time_limit_values(self, chunk: Chunk) -> Tensor:
        """v_ext of the final observation where a time limit cut the episode, else 0: (T, B)."""
        cut = chunk.truncated & ~chunk.terminated & chunk.valid
        values = torch.zeros_like(chunk.reward)
        if cut.any():
            values[cut] = self.policy(_as_input(chunk.next_obs[cut]))[1]
        return values

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped surrogate, two value errors and the entropy on a minibatch of K rows."""
        c, advantage = self.config, batch["advantage"]
        head, v_ext, v_int = self.policy(_as_input(batch["obs"]))
        log_prob, entropy = self.policy.log_prob(head, batch["action"])
        if c.normalise_advantage and len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log_ratio = log_prob - batch["log_prob"]
        ratio = log_ratio.exp()
        surrogate = torch.min(
            ratio * advantage, ratio.clamp(1 - c.clip, 1 + c.clip) * advantage
        ).mean()
        used = (
            {"ext": v_ext} if c.ext_coef else {}
        )  # without weight the task's reward must not shape the trunk, either
        used |= {"int": v_int} if self.intrinsic else {}
        value = torch.stack([(v - batch[name]).square().mean() for name, v in used.items()]).sum()
        loss = -surrogate + c.value_coef * value - c.entropy * entropy.mean()
        with torch.no_grad():
            kl, clipped = (
                (ratio - 1 - log_ratio).mean(),
                ((ratio - 1).abs() > c.clip).float().mean(),
            )
        return loss, {
            "policy_loss": -surrogate, "value_loss": value, "entropy": entropy.mean(), "approx_kl": kl, "clipfrac": clipped,
        }  # fmt: skip

    def update(self, chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
        """Learn from one rollout; r_int (T, B) is the scaled bonus, None for plain PPO."""
        assert (r_int is not None) == self.intrinsic
        columns = {"obs": chunk.obs, "action": chunk.action, "log_prob": chunk.extras["log_prob"]}
        columns |= self.advantages(chunk, r_int)
        flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        rows, c, report = chunk.valid_rows(), self.config, dict[str, Tensor]()
        for _ in range(c.epochs):
            order = rows[torch.randperm(len(rows), generator=self.rng)]
            shuffled = [
                column[order].tensor_split(min(c.minibatches, max(1, len(rows))))
                for column in flat.values()
            ]
            for batch in zip(*shuffled, strict=True):  # views
                loss, report = self.loss(dict(zip(flat, batch, strict=True)))
                self.optimiser.zero_grad()
                loss.backward()
                if c.max_grad_norm:
                    nn.utils.clip_grad_norm_(self.policy.parameters(), c.max_grad_norm)
                self.optimiser.step()
        return {f"losses/{name}": value.item() for name, value in report.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that lasts."""
        parts = {"policy": self.policy.state_dict(), "optimiser": self.optimiser.state_dict()}
        return parts | {"rng": self.rng.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        self.policy.load_state_dict(state["policy"])
        self.optimiser.load_state_dict(
            copy.deepcopy(state["optimiser"])
        )  # torch would share the moments
        self.rng.set_state(state["rng"])


def _as_input(obs: Tensor) -> Tensor:
    """Bytes stay bytes until the convolution scales them; everything else becomes float32."""
    return obs if obs.dtype == torch.uint8 else obs.float()
