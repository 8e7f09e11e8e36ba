"""A small actor-critic on Gymnasium's vector environments; the bonus is one line (marked BONUS).

    python examples/gymnasium_vector.py --env-id MountainCar-v0 --beta 10

Prints the mean task return of the newest episodes, without the bonus.
"""

import argparse

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Categorical

from surprise_memory.adapters.gymnasium import BonusVectorEnv

parser = argparse.ArgumentParser()
parser.add_argument("--env-id", default="CartPole-v1")
parser.add_argument("--beta", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=100_000)
args = parser.parse_args()
B, T, GAMMA = 16, 32, 0.99

torch.manual_seed(0)
options = {"autoreset_mode": AutoresetMode.SAME_STEP}
envs = gym.make_vec(args.env_id, B, vectorization_mode="sync", vector_kwargs=options)
task = RecordEpisodeStatistics(envs, buffer_length=50)  # inside: it sees the task's reward alone
envs = BonusVectorEnv(task, "rnd+sm+trust+recognise", beta=args.beta)  # BONUS

k, n = envs.single_observation_space.shape[0], envs.single_action_space.n
actor = nn.Sequential(nn.Linear(k, 64), nn.Tanh(), nn.Linear(64, n))
critic = nn.Sequential(nn.Linear(k, 64), nn.Tanh(), nn.Linear(64, 1))
optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2e-3)
obs, _ = envs.reset(seed=0)

for rollout in range(args.steps // (T * B)):
    values, log_probs, rewards, going = [], [], [], []
    for _ in range(T):
        seen = torch.as_tensor(obs, dtype=torch.float32)
        policy = Categorical(logits=actor(seen))
        action = policy.sample()
        obs, reward, terminated, truncated, infos = envs.step(action.numpy())
        values.append(critic(seen).squeeze(1))
        log_probs.append(policy.log_prob(action))
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        going.append(torch.as_tensor(~(terminated | truncated)))
    later = critic(torch.as_tensor(obs, dtype=torch.float32)).squeeze(1).detach()
    loss = 0
    for t in reversed(range(T)):
        later = rewards[t] + GAMMA * later * going[t]
        gain = later - values[t]
        loss = loss + (gain.square() - gain.detach() * log_probs[t]).mean() / T
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if rollout % 10 == 9:
        mean = sum(task.return_queue) / max(1, len(task.return_queue))
        print(f"{(rollout + 1) * T * B:>9,} steps  return {mean:.1f}", flush=True)
