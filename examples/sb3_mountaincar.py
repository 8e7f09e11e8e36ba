"""Stable-Baselines3's PPO on MountainCar, which it does not solve without a bonus.

    python examples/sb3_mountaincar.py --seed 0
    python examples/sb3_mountaincar.py --method none --seed 0

It needs the extra sb3. Prints the mean return of the last hundred episodes after every rollout.
"""

import argparse
import json

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from surprise_memory.adapters.sb3 import SurpriseVecEnv


class Print(BaseCallback):
    """One line of JSON for each rollout."""

    def _on_training_start(self) -> None:
        self.bonus: list[float] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            self.bonus.append(info["r_int"])
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        row = {"step": self.num_timesteps, "return": None, "r_int": float(np.mean(self.bonus))}
        if returns:
            row["return"] = float(np.mean(returns))
        print(json.dumps(row), flush=True)
        self.bonus = []


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="rnd+sm+recognise+gate")
    parser.add_argument("--beta", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    envs = make_vec_env("MountainCar-v0", n_envs=16, seed=args.seed)
    env = SurpriseVecEnv(envs, args.method, beta=args.beta, seed=args.seed)
    PPO("MlpPolicy", env, n_steps=128, seed=args.seed).learn(args.steps, callback=Print())


if __name__ == "__main__":
    main()
