"""A plain single-file PPO for Gymnasium, with the bonus added in five lines (marked BONUS).

    python examples/cleanrl_loop.py --env-id CartPole-v1 --total-timesteps 50000

Everything else is ordinary PPO: one value head, one reward. The bonus is simply added to it.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

from surprise_memory import Bonus  # BONUS 1

GAMMA, LAMBDA = 0.99, 0.95


def layer(width_in: int, width_out: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    linear = nn.Linear(width_in, width_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def network(width_in: int, width_out: int, gain: float) -> nn.Sequential:
    """Two hidden layers of 64."""
    return nn.Sequential(
        layer(width_in, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, width_out, gain)
    )


class Agent(nn.Module):
    """Separate actor and critic."""

    def __init__(self, obs: int, actions: int) -> None:
        super().__init__()
        self.critic = network(obs, 1, 1.0)
        self.actor = network(obs, actions, 0.01)


def parse() -> argparse.Namespace:
    """The options that people expect."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beta", type=float, default=0.1, help="weight of the bonus; 0 is off")
    return parser.parse_args()


def main(args: argparse.Namespace) -> list[float]:
    """Train; returns the task return of every finished episode, without the bonus."""
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        args.env_id,
        args.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    T, B = args.num_steps, args.num_envs
    width = envs.single_observation_space.shape[0]
    agent = Agent(width, envs.single_action_space.n)
    optimiser = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    method, actions = "rnd+sm+trust+recognise", envs.single_action_space
    bonus = Bonus(method, (width,), B, seed=args.seed, action_space=actions)  # BONUS 2

    obs_buf, act_buf = torch.zeros(T, B, width), torch.zeros(T, B, dtype=torch.long)
    logp_buf, rew_buf, done_buf, val_buf = (torch.zeros(T, B) for _ in range(4))
    finished, episode = [], np.zeros(B)
    next_obs, _ = envs.reset(seed=args.seed)

    for iteration in range(args.total_timesteps // (T * B)):
        for t in range(T):
            obs = torch.as_tensor(next_obs, dtype=torch.float32)
            with torch.no_grad():
                policy = Categorical(logits=agent.actor(obs))
                val_buf[t] = agent.critic(obs).squeeze(1)
            action = policy.sample()
            next_obs, reward, terminated, truncated, info = envs.step(action.numpy())
            done = terminated | truncated
            # Where an episode ended, next_obs is already the first observation of the next one.
            successor = next_obs.copy()
            for b in np.flatnonzero(done):
                successor[b] = info["final_obs"][b]
            r_int = bonus.step(obs, action, successor, done)  # BONUS 3
            obs_buf[t] = obs
            act_buf[t] = action
            logp_buf[t] = policy.log_prob(action)
            rew_buf[t] = torch.as_tensor(reward, dtype=torch.float32) + args.beta * r_int  # BONUS 4
            done_buf[t] = torch.as_tensor(done, dtype=torch.float32)
            episode += reward
            finished += episode[done].tolist()
            episode[done] = 0.0
        bonus.update()  # BONUS 5

        with torch.no_grad():
            following = agent.critic(torch.as_tensor(next_obs, dtype=torch.float32)).squeeze(1)
        advantage, later = torch.zeros(T, B), torch.zeros(B)
        for t in reversed(range(T)):
            delta = rew_buf[t] + GAMMA * following * (1 - done_buf[t]) - val_buf[t]
            later = delta + GAMMA * LAMBDA * (1 - done_buf[t]) * later
            advantage[t] = later
            following = val_buf[t]
        returns = (advantage + val_buf).flatten()

        b_obs, b_act = obs_buf.flatten(0, 1), act_buf.flatten()
        b_logp, b_adv = logp_buf.flatten(), advantage.flatten()
        for _ in range(4):
            for rows in torch.randperm(T * B).split(T * B // 4):
                policy = Categorical(logits=agent.actor(b_obs[rows]))
                ratio = (policy.log_prob(b_act[rows]) - b_logp[rows]).exp()
                adv = (b_adv[rows] - b_adv[rows].mean()) / (b_adv[rows].std() + 1e-8)
                surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                value_loss = (agent.critic(b_obs[rows]).squeeze(1) - returns[rows]).square().mean()
                loss = -surrogate + 0.25 * value_loss - 0.01 * policy.entropy().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        if iteration % 10 == 9:
            steps = (iteration + 1) * T * B
            print(f"{steps:>9,} steps  return {np.mean(finished[-50:]):.1f}", flush=True)
    envs.close()
    return finished


if __name__ == "__main__":
    main(parse())
