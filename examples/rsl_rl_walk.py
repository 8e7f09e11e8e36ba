"""rsl_rl's PPO with the bonus, on a small environment of tensors. It needs the extra rsl-rl.

    python examples/rsl_rl_walk.py --iterations 100

Points start in a corner and are paid only at the opposite one. The bonus is chosen by class_name.
"""

import argparse

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict


class Field(VecEnv):
    """64 points on [0, 1] x [0, 1]; episodes of 64 steps, reset in the same step."""

    num_envs, num_actions, max_episode_length, device, cfg = 64, 2, 64, "cpu", {}

    def __init__(self):
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.place = torch.zeros(self.num_envs, 2)

    def get_observations(self):
        """Where the points are."""
        return TensorDict({"policy": self.place.clone()}, batch_size=[self.num_envs])

    def step(self, actions):
        """Move them; the reset comes in the same step."""
        self.place = (self.place + 0.03 * actions.clamp(-1, 1)).clamp(0, 1)
        self.episode_length_buf += 1
        reward = (self.place > 0.9).all(1).float()
        done = (reward > 0) | (self.episode_length_buf >= self.max_episode_length)
        extras = {"final_obs": self.get_observations(), "time_outs": done & (reward == 0)}
        self.place[done] = 0.0
        self.episode_length_buf[done] = 0
        return self.get_observations(), reward, done, extras


parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=100)
parser.add_argument("--beta", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(0)
network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "elu"}
config = {
    "num_steps_per_env": 32,
    "save_interval": 1000,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},  # and, if you like, "surprise"
    "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution"}},
    "critic": network,
    "algorithm": {
        "class_name": "surprise_memory.adapters.rsl_rl:SurprisePPO",
        "surprise": {"method": "rnd+sm+trust+recognise", "beta": args.beta},
    },
}
runner = OnPolicyRunner(Field(), config)
runner.learn(args.iterations)
print(f"found {runner.alg.storage.rewards.ge(1).float().mean() * 64:.2f} times an episode")
