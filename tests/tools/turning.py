"""What does a trained bonus pay for turning on the spot? In MazeS3Fast eight turns are a circle.

    python tests/tools/turning.py RUN

RUN is a run in `NoisyTV/MiniWorld-MazeS3Fast-v0`. All environments turn right for 128 steps. Prints
the mean novelty e of each circle, e_2 (the novelty if M held these very surprises) and the pay. The
first circle shows new views, the others exact repeats, so M recalls them if e is e_2 there.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.linalg import vector_norm

from surprise_memory.cli.runs import load
from surprise_memory.training.checkpoint import restore
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import build

STEPS = 128
CIRCLE = 8
RIGHT = 1


def main() -> None:
    """Print a line for each circle."""
    torch.set_num_threads(1)
    run, out = load(Path(sys.argv[1]))
    env, agent, bonus = build(run)
    restore(out, run, agent, bonus)
    step = env.step
    env.step = lambda action: step(np.full_like(action, RIGHT))
    state = RunnerState.reset(env, bonus)
    chunk, _ = collect(env, agent, state, STEPS, bonus)
    reward, trace, _ = bonus(chunk, state.bonus_carry)
    env.close()
    v_2 = bonus.model.memory.if_remembered(trace.u)
    e_2 = vector_norm(v_2, dim=-1)
    print("| circle | e | e_2 | pay |\n|---|---|---|---|")
    for circle in range(STEPS // CIRCLE):
        rows = slice(circle * CIRCLE, (circle + 1) * CIRCLE)
        means = [column[rows].mean() for column in (trace.e, e_2, reward)]
        print(f"| {circle + 1} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")


if __name__ == "__main__":
    main()
