"""Learning on tiny tasks; the ones that take minutes are marked slow and run by `make learn`."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from surprise_memory.agents.ppo import PPO, PPOConfig
from surprise_memory.envs import make_vec
from surprise_memory.files import read_json
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir


class Echo(gym.Env):
    """Say what you see: reward 1 when the action equals the observation (Discrete), or lies close to it (Box)."""

    def __init__(self, box=False):
        self.box = box
        self.observation_space = (
            gym.spaces.Box(-1, 1, (1,), np.float32) if box else gym.spaces.Discrete(3)
        )
        self.action_space = (
            gym.spaces.Box(-1, 1, (1,), np.float32) if box else gym.spaces.Discrete(3)
        )

    def see(self):
        self.shown = (
            self.np_random.uniform(-1, 1, 1).astype(np.float32)
            if self.box
            else int(self.np_random.integers(3))
        )
        return self.shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.see(), {}

    def step(self, action):
        self.age += 1
        reward = (
            1 - float(np.abs(action - self.shown).min())
            if self.box
            else float(action == self.shown)
        )
        return self.see(), reward, False, self.age >= 8, {}


gym.register("Echo-v0", Echo, disable_env_checker=True)
gym.register("EchoBox-v0", lambda: Echo(box=True), disable_env_checker=True)


@pytest.mark.parametrize(("env_id", "good"), [("Echo-v0", 0.95), ("EchoBox-v0", 0.85)])
def test_ppo_solves_the_identity(env_id, good):
    env = make_vec(env_id, 8, seed=0)
    config = PPOConfig(lr=3e-3, hidden=32, minibatches=4, gamma_ext=0.5, entropy=0.0)
    agent, loop = (
        PPO(env.obs_shape, env.action_space, config, intrinsic=False),
        RunnerState.reset(env, None),
    )
    for _ in range(40):
        chunk, _ = collect(env, agent, loop, 64)
        agent.update(chunk, None)
    assert chunk.reward[chunk.valid].mean() > good


def test_the_value_of_a_constant_reward_is_its_sum_for_ever():
    """v = 1 / (1 - gamma) on a loop that pays 1 for ever: the non-episodic head, across episode ends."""
    env = make_vec("Echo-v0", 4, seed=0)
    config = PPOConfig(lr=3e-3, hidden=16, minibatches=2, gamma_int=0.8, entropy=0.0, epochs=8)
    agent, loop = (
        PPO(env.obs_shape, env.action_space, config, intrinsic=True),
        RunnerState.reset(env, None),
    )
    for _ in range(60):
        chunk, _ = collect(env, agent, loop, 32)
        agent.update(chunk, chunk.valid.float())
    assert chunk.done.any()
    assert np.isclose(chunk.extras["v_int"].mean(), 1 / (1 - 0.8), rtol=0.05)


def final_return(tmp_path, env, method, steps, seed, **changes):
    run = dataclasses.replace(
        PRESETS["default"](env), method=method, steps=steps, seed=seed, **changes
    )
    out = RunDir(tmp_path / f"{method}{seed}")
    out.open(dataclasses.asdict(run), False)
    train(run, out)
    return read_json(out.eval)["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_surprise_memory_solves_doorkey_6x6(tmp_path, seed):
    assert final_return(tmp_path, "MiniGrid-DoorKey-6x6-v0", "rnd+sm", 500_000, seed) > 0.8
