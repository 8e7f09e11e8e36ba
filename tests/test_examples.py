"""The examples do what the README says of them."""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_loop_of_ones_own_learns_with_the_bonus_in_five_lines():
    source = (EXAMPLES / "cleanrl_loop.py").read_text().splitlines()
    assert len(source) <= 200
    assert sum("# BONUS" in line for line in source) == 5
    args = argparse.Namespace(
        env_id="CartPole-v1", total_timesteps=20_480, num_envs=8, num_steps=128, seed=1, beta=0.1
    )
    returns = load("cleanrl_loop").main(args)
    assert np.mean(returns[-20:]) > 2 * np.mean(
        returns[:50]
    )  # a random policy holds the pole for about 22 steps


def test_a_generator_from_outside_trains_resumes_and_is_listed(tmp_path):
    def command(*words):
        done = subprocess.run(
            [sys.executable, EXAMPLES / "own_generator.py", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = command("methods")
    assert {"change", "change+sm", "change+counts"} <= {
        line.split()[0] for line in listed.splitlines()
    }
    words = [
        "train",
        "ToyKeyDoor-v0",
        "--preset",
        "debug",
        "--method",
        "change+sm",
        "--run-dir",
        "run",
    ]
    command(*words, "--steps", "200")
    command(*words, "--steps", "400", "--resume")
    assert "Return over 3 episodes" in command("eval", "run", "--episodes", "3")
