"""TorchRL's PPO with the bonus, two lines (marked BONUS). It needs the extra torchrl.

    python examples/torchrl_ppo.py --env-id MountainCar-v0 --beta 10

Prints the mean task return of the episodes that ended in a batch, without the bonus.
"""

import argparse

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, RewardSum, SerialEnv, TransformedEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from surprise_memory.adapters.torchrl import SurpriseModule

parser = argparse.ArgumentParser()
parser.add_argument("--env-id", default="CartPole-v1")
parser.add_argument("--beta", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=50_000)
args = parser.parse_args()
B, T = 8, 128
torch.manual_seed(0)
env = SerialEnv(B, lambda: GymEnv(args.env_id))
env = TransformedEnv(env, RewardSum())
k, n = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
actor = nn.Sequential(nn.Linear(k, 64), nn.Tanh(), nn.Linear(64, n))
policy = ProbabilisticActor(
    TensorDictModule(actor, in_keys=["observation"], out_keys=["logits"]),
    in_keys=["logits"],
    distribution_class=OneHotCategorical,
    return_log_prob=True,
)
value = nn.Sequential(nn.Linear(k, 64), nn.Tanh(), nn.Linear(64, 1))
critic = ValueOperator(value, in_keys=["observation"])
loss = ClipPPOLoss(policy, critic)
gae = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
optimiser = torch.optim.Adam(loss.parameters(), lr=1e-3)
surprise = SurpriseModule(env, "rnd+sm+trust+recognise", beta=args.beta)  # BONUS 1

collector = Collector(env, policy, frames_per_batch=B * T, total_frames=args.steps)
for i, batch in enumerate(collector):
    surprise(batch)  # BONUS 2: before the advantages; it pays the batch and learns from it
    for _ in range(4):
        with torch.no_grad():
            gae(batch)
        flat = batch.reshape(-1)
        for rows in torch.randperm(B * T).split(256):
            losses = loss(flat[rows])
            total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
    ended = batch["next", "episode_reward"][batch["next", "done"]]
    if len(ended):
        print(f"{(i + 1) * B * T:>9,} steps  return {ended.mean():.1f}", flush=True)
