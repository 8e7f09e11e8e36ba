"""Does an agent learn as well in bfloat16 as in float32? A quick task on images, several seeds.

    python tests/tools/precision_learning.py [--steps 120000] [--seeds 3] [--method rnd+sm]

A ball falls over a picture of 40 x 40 pixels. The paddle at the bottom moves one cell a step and
has to be under the ball when it lands, which pays 1. Prints the mean return of 128 episodes after
training, and the steps after which the last 128 episodes of training returned 0.9.
"""

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from surprise_memory.training.config import RunConfig
from surprise_memory.training.loop import train
from surprise_memory.training.rundir import RunDir

ENV = "Catch-v0"
CELLS = 10
PIXELS = 4  # of a cell, each way
SOLVED = 0.9


class Catch(gym.Env):
    """Be under the ball when it lands."""

    observation_space = gym.spaces.Box(0, 255, (1, PIXELS * CELLS, PIXELS * CELLS), np.uint8)
    action_space = gym.spaces.Discrete(3)  # left, stay, right

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = 0
        self.ball = int(self.np_random.integers(CELLS))
        self.paddle = int(self.np_random.integers(CELLS))
        return self._observe(), {}

    def step(self, action):
        self.paddle = min(max(self.paddle + int(action) - 1, 0), CELLS - 1)
        self.row += 1
        landed = self.row == CELLS - 1
        reward = float(landed and self.ball == self.paddle)
        return self._observe(), reward, landed, False, {}

    def _observe(self):
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[CELLS - 1, self.paddle] = 128
        cells[self.row, self.ball] = 255
        return np.kron(cells, np.ones((PIXELS, PIXELS), np.uint8))[None]


def solved_at(path: Path) -> int | None:
    """Steps after which training had been good for 128 episodes."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row.get("charts/return_128", 0.0) >= SOLVED:
            return int(row["step"])
    return None


def learn(run: RunConfig) -> tuple[float, int | None]:
    """One run: the return after training, and when it was solved."""
    with tempfile.TemporaryDirectory() as folder:
        out = RunDir(Path(folder) / "run")
        out.open(dataclasses.asdict(run), resume=False)
        train(run, out)
        out.close()
        evaluation = json.loads((out.path / "eval.json").read_text())
        return evaluation["mean"], solved_at(out.path / "metrics.jsonl")


def main() -> None:
    """Print a table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=120_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="rnd+sm")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gym.register(ENV, Catch)
    print(f"Catch on images, {options.method}, {options.steps:,} steps\n")
    print("| precision | seed | return | solved after |")
    print("|---|---|---|---|")
    for seed in range(options.seeds):
        for precision in ("float32", "bf16"):
            run = RunConfig(ENV, options.method, steps=options.steps, seed=seed)
            run = dataclasses.replace(run, precision=precision, logger="jsonl")
            mean, when = learn(run)
            after = f"{when:,}" if when else "-"
            print(f"| {precision} | {seed} | {mean:.3f} | {after} |", flush=True)


if __name__ == "__main__":
    main()
