"""PPO as one plain loop, in the shape of CleanRL's scripts, to be timed beside ours.

Storage in tensors, one step at a time; GAE backwards in time; shuffled minibatches; Adam as torch
has it by default. With RND the bonus of each step is asked while acting, and predictor and policy
learn in the same minibatches, the predictor from a quarter of the rows.
"""

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surprise_memory.agents.policy import Policy
from surprise_memory.envs import make_vec
from surprise_memory.errors import UserError
from surprise_memory.nn.devices import built_on_host
from surprise_memory.nn.obs_norm import ObsWhitener
from surprise_memory.nn.reward_scale import RewardScaler
from surprise_memory.surprise import RND
from surprise_memory.tools.bench.timing import Clock, Seconds
from surprise_memory.training.config import RunConfig


class PlainLoop:
    """Environments, a policy of our widths, and rollouts of it."""

    def __init__(self, run: RunConfig, clock: Clock, with_rnd: bool = False) -> None:
        self.run = run
        self.clock = clock
        self.env = make_vec(run.env, run.envs, run.seed, run.threads)
        if not isinstance(self.env.action_space, spaces.Discrete):
            raise UserError(f"{run.env} has no Discrete actions, which the plain loop needs.")
        with built_on_host(run.seed):
            self.policy = Policy(self.env.obs_shape, self.env.action_space, run.ppo.hidden)
            self.rnd = RND(self.env.obs_shape, run.bonus.rnd) if with_rnd else None
        learning = list(self.policy.parameters())
        if self.rnd is not None:
            learning += self.rnd.predictor.parameters()
        self.learning = learning
        self.optimiser = torch.optim.Adam(learning, lr=run.ppo.lr, eps=1e-5)
        self.whitener = ObsWhitener(self.env.obs_shape)
        self.scaler = RewardScaler(run.envs, run.bonus.gamma)
        self.obs = torch.as_tensor(self.env.reset(), device="cpu")
        self.done = torch.zeros(run.envs, device="cpu")

    def lap(self) -> Seconds:
        """Seconds of one rollout and of learning from it."""
        began = self.clock()
        self.learn(self.rollout())
        return {"whole": self.clock() - began}

    @torch.no_grad()
    def rollout(self) -> dict[str, Tensor]:
        """T steps (T, B, ...), advantages and returns included."""
        T, B = self.run.rollout, self.run.envs
        shape = self.env.obs_shape
        names = ("action", "log_prob", "reward", "done", "v_ext", "v_int", "r_int")
        found = {name: torch.zeros(T, B, device="cpu") for name in names}
        found["obs"] = torch.zeros(T, B, *shape, device="cpu")
        found["next_obs"] = torch.zeros(T, B, *shape, device="cpu")
        for t in range(T):
            found["obs"][t] = self.obs
            found["done"][t] = self.done
            logits, found["v_ext"][t], found["v_int"][t] = self.policy(self.obs)
            chosen = torch.distributions.Categorical(logits=logits)
            action = chosen.sample()
            found["action"][t] = action
            found["log_prob"][t] = chosen.log_prob(action)
            step = self.env.step(action.numpy())
            found["reward"][t] = torch.as_tensor(step.reward, device="cpu")
            self.obs = torch.as_tensor(step.obs, device="cpu")
            self.done = torch.as_tensor(step.terminated | step.truncated, device="cpu").float()
            if self.rnd is not None:
                seen = torch.as_tensor(step.next_obs, device="cpu")
                found["next_obs"][t] = seen
                seen = self.whitener(seen)
                error = self.rnd.predictor(seen) - self.rnd.target(seen)
                found["r_int"][t] = error.square().sum(1) / 2
        self._advantages(found)
        return found

    def _advantages(self, found: dict[str, Tensor]) -> None:
        """Add the mixed advantage and each head's return."""
        c = self.run.ppo
        _, last_ext, last_int = self.policy(self.obs)
        done = torch.cat([found["done"], self.done[None]])  # (T + 1, B): before each step
        advantage = gae(found["reward"], found["v_ext"], last_ext, done, c.gamma_ext, c.lam)
        found["ext"] = advantage + found["v_ext"]
        found["advantage"] = c.ext_coef * advantage
        if self.rnd is None:
            return
        valid = torch.ones_like(found["r_int"], dtype=torch.bool)
        self.scaler.update(found["r_int"], valid)
        self.whitener.update(found["next_obs"].flatten(0, 1))
        reward = self.scaler(found["r_int"])
        never = torch.zeros_like(done)
        advantage = gae(reward, found["v_int"], last_int, never, c.gamma_int, c.lam)
        found["int"] = advantage + found["v_int"]
        found["advantage"] += c.int_coef * advantage

    def learn(self, found: dict[str, Tensor]) -> None:
        """Epochs of minibatches."""
        c = self.run.ppo
        rows = self.run.rollout * self.run.envs
        flat = {name: column.flatten(0, 1) for name, column in found.items()}
        if self.rnd is not None:
            flat["next_obs"] = self.whitener(flat["next_obs"])
        order = np.arange(rows)
        rng = np.random.default_rng(self.run.seed)
        size = rows // c.minibatches
        for _ in range(c.epochs):
            rng.shuffle(order)
            for start in range(0, size * c.minibatches, size):
                chosen = torch.as_tensor(order[start : start + size], device="cpu")
                loss = self.loss({name: column[chosen] for name, column in flat.items()})
                self.optimiser.zero_grad()
                loss.backward()
                if c.max_grad_norm:
                    nn.utils.clip_grad_norm_(self.learning, c.max_grad_norm)
                self.optimiser.step()

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Clipped surrogate, value errors, entropy, and the predictor's error."""
        c = self.run.ppo
        logits, v_ext, v_int = self.policy(batch["obs"])
        chosen = torch.distributions.Categorical(logits=logits)
        log_ratio = chosen.log_prob(batch["action"].long()) - batch["log_prob"]
        ratio = log_ratio.exp()
        with torch.no_grad():  # for the log
            (ratio - 1 - log_ratio).mean()
            ((ratio - 1).abs() > c.clip).float().mean().item()
        advantage = batch["advantage"]
        if c.normalise_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        policy = torch.max(-advantage * ratio, -advantage * clipped).mean()
        value = (v_ext - batch["ext"]).square().mean()
        if self.rnd is not None:
            value = value + (v_int - batch["int"]).square().mean()
        loss: Tensor = policy + c.value_coef * value - c.entropy * chosen.entropy().mean()
        if self.rnd is not None:
            loss = loss + self._prediction_loss(batch["next_obs"], self.rnd)
        return loss

    def _prediction_loss(self, seen: Tensor, rnd: RND) -> Tensor:
        with torch.no_grad():
            target = rnd.target(seen)
        error = (rnd.predictor(seen) - target).square().mean(1)
        mask = (torch.rand(len(seen), device="cpu") < self.run.bonus.proportion).float()
        loss: Tensor = (error * mask).sum() / mask.sum().clamp(min=1)
        return loss


def gae(
    reward: Tensor, value: Tensor, last_value: Tensor, done: Tensor, gamma: float, lam: float
) -> Tensor:
    """Advantages (T, B); done (T + 1, B) says that an episode ended before a step."""
    advantage = torch.zeros_like(reward)
    carry = torch.zeros_like(last_value)
    v_next = last_value
    for t in reversed(range(len(reward))):
        goes_on = 1.0 - done[t + 1]
        delta = reward[t] + gamma * v_next * goes_on - value[t]
        carry = delta + gamma * lam * goes_on * carry
        advantage[t] = carry
        v_next = value[t]
    return advantage
