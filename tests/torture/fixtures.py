"""Small trained runs that the cases copy: made once, in a child."""

import multiprocessing
import os
import shutil
from pathlib import Path

from tests.torture.commands import TOY

SMALL = ["--preset", "debug", "--steps", "512", "--eval-episodes", "4", "--save-minutes", "0"]
RUNS = {
    "ppo": [TOY, *SMALL],
    "other": [TOY, *SMALL, "--seed", "7"],
    "none": [TOY, *SMALL, "--method", "none"],
    "dqn": [TOY, *SMALL, "--agent", "dqn"],
    "grid": ["MiniGrid-DoorKey-5x5-v0", *SMALL],
}
REPRODUCTION = "reproduction"
SB3 = "bonus.pt"
NUM_ENVS = 3


def build(folder: Path) -> None:
    """Make all fixtures; raises if one fails, for then nothing can be tested."""
    process = multiprocessing.get_context("fork").Process(target=_build, args=(folder,))
    process.start()
    process.join(300)
    if process.is_alive() or process.exitcode:
        process.kill()
        raise RuntimeError(f"The fixtures could not be made: see {folder / 'log.txt'}.")


def _build(folder: Path) -> None:
    """In the child."""
    log = os.open(folder / "log.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    from surprise_memory import cli

    for name, words in RUNS.items():
        assert cli.main(["train", *words, "--run-dir", name]) == 0, name
    words = ["t-maze", "--budget", "smoke", "--dir", REPRODUCTION, "--jobs", "1"]
    assert cli.main(["reproduce", *words]) == 0
    env = wrapped()
    play(env, 9)
    env.save(SB3)


def wrapped(**options):
    """CartPole with a small bonus, for Stable-Baselines3; it updates every four steps."""
    from stable_baselines3.common.env_util import make_vec_env

    from surprise_memory.adapters.sb3 import SurpriseVecEnv
    from surprise_memory.training.presets import PRESETS

    options.setdefault("every", 4)
    options.setdefault("config", PRESETS["debug"](TOY).bonus)
    return SurpriseVecEnv(make_vec_env("CartPole-v1", n_envs=NUM_ENVS, seed=0), **options)


def play(env, steps: int, start: bool = True) -> list[float]:
    """Steps with fixed actions; all rewards."""
    import numpy as np

    if start:
        env.reset()
    paid: list[float] = []
    for t in range(steps):
        _, reward, _, _ = env.step(np.full(NUM_ENVS, t % 2))
        paid += [float(value) for value in reward]
    return paid


def copy(source: Path, name: str = "run") -> Path:
    """A copy of a fixture in this case's directory."""
    shutil.copytree(source, name)
    return Path(name).absolute()
