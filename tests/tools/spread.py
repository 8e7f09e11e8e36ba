"""How far does the return of the paid bonus spread, in a loop that is not ours?

    python tests/tools/spread.py [--quick] [--envs CartPole-v1 ...]

Plays random actions through `Bonus.step` and `Bonus.update`, over environments, methods, rollout
lengths and numbers of environments. Prints the std of the discounted paid return over each stretch
of 512 steps, from the first paid step to the last. All of it should lie between 0.5 and 2.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

import gymnasium as gym
import numpy as np
import torch

from surprise_memory import Bonus

GAMMA = 0.99
STRETCH = 512
STRETCHES = 4
MOST = 20 * STRETCH  # steps to wait for them
ENVS = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1", "MiniGrid-DoorKey-8x8-v0")
METHODS = (
    "rnd",
    "icm",
    "ngu",
    "ae",
    "disagreement",
    "lwm",
    "rnd+sm",
    "icm+sm",
    "ae+sm",
    "rnd+sm+gain",
    "rnd+sm+trust+recognise",
)
FEW_METHODS = ("rnd", "ngu", "rnd+sm")
LONG = (16, 128)
SHAPES = ((4, 8), (4, 256), (16, 32), (64, 64))  # environments, rollout length


def make(name: str) -> gym.Env:
    """One environment with vector observations."""
    if not name.startswith("MiniGrid"):
        return gym.make(name)
    from minigrid.wrappers import ImgObsWrapper

    return gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make(name)))


def cases(quick: bool, envs: Sequence[str]) -> Iterator[tuple[str, str, int, int]]:
    """Environment, method, number of environments, rollout length."""
    if quick:
        for shape in SHAPES:
            yield ENVS[0], "rnd+sm", *shape
        for env in ENVS[1:]:
            for method in FEW_METHODS:
                yield env, method, *LONG
        return
    for env in envs:
        for method in METHODS:
            yield env, method, *LONG
        for shape in SHAPES:
            yield env, "rnd+sm", *shape


def paid(env: str, method: str, num_envs: int, length: int, seed: int = 0) -> np.ndarray:
    """The bonus (steps, num_envs) of random actions, from the first paid step on."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([lambda: make(env)] * num_envs, autoreset_mode=mode)
    shape = envs.single_observation_space.shape
    bonus = Bonus(method, shape, num_envs, seed=seed, action_space=envs.single_action_space)
    obs, _ = envs.reset(seed=seed)
    envs.action_space.seed(seed)
    rewards: list[np.ndarray] = []
    paid_steps = 0
    while paid_steps < STRETCHES * STRETCH and len(rewards) < MOST:
        for _ in range(length):
            action = envs.action_space.sample()
            next_obs, _, terminated, truncated, info = envs.step(action)
            done = terminated | truncated
            successor = next_obs.copy()
            for i in np.flatnonzero(done):
                successor[i] = info["final_obs"][i]
            rewards.append(bonus.step(obs, action, successor, done).numpy())
            paid_steps += bool(paid_steps or rewards[-1].any())
            obs = next_obs
        bonus.update()
    found = np.array(rewards)
    first = np.flatnonzero(found.any(1))[0]
    return found[first:]


def spreads(reward: np.ndarray) -> list[float]:
    """The std of the discounted return over each stretch of steps."""
    carry = np.full(reward.shape[1], reward[:128].mean() / (1 - GAMMA))  # no climb from zero
    returns = np.empty(reward.shape)
    for t, now in enumerate(reward):
        carry = GAMMA * carry + now
        returns[t] = carry
    whole = len(returns) // STRETCH * STRETCH
    return [float(returns[t : t + STRETCH].std()) for t in range(0, whole, STRETCH)]


def main() -> None:
    """Print a table; exit code 1 if a spread is outside."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="16 cases instead of 75")
    parser.add_argument("--envs", nargs="+", default=ENVS, help="of the whole table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outside = 0
    print("| environment | method | environments x steps | spread | largest step |")
    print("|---|---|---|---|---|")
    for env, method, num_envs, length in cases(options.quick, options.envs):
        reward = paid(env, method, num_envs, length)
        found = spreads(reward)
        text = " ".join(f"{x:.2f}" for x in found)
        if min(found) < 0.5 or max(found) > 2:
            outside += 1
            text += " **outside**"
        print(f"| {env} | {method} | {num_envs} x {length} | {text} | {reward.max():.2f} |")
        sys.stdout.flush()
    print(f"\n{outside} outside")
    sys.exit(bool(outside))


if __name__ == "__main__":
    main()
