"""Is noise still not recognised once it has become rare? Frames of the 3-D maze with its TV.

    python tests/tools/rare_noise.py

A random agent plays. Its frames are put together to rollouts in which an ever smaller share is
fresh noise, as if the agent turned away from the TV. Prints what `recognise` pays for noise and for
real frames, as shares of full pay: if it did not keep odd points apart, if it took all of the first
rollout for usual, and as it is.
"""

from statistics import mean

import numpy as np
import torch
from torch import Tensor

from surprise_memory.bonus.frames import last_frame
from surprise_memory.envs import make_vec
from surprise_memory.nn.obs_norm import ObsWhitener
from surprise_memory.stages import Recognise, RecogniseConfig, Steps

ENV = "NoisyTV/MiniWorld-MazeS3Fast-v0"
ENVS = 16
STEPS = 300
FORWARD = 2
ROLLOUT = 512
SHARES = [0.25] * 6 + [max(0.01, 0.25 * 0.7**i) for i in range(1, 24)] + [0.004] * 20
ROWS = ((4, 6), (7, 8), (8, 9), (9, 10), (10, 11), (11, 12), (12, 13), (20, 29), (30, 49))
MIXED = "among the others"
FIRST = "apart, but for the first rollout"
APART = "kept apart"


def frames() -> tuple[Tensor, Tensor]:
    """Normalised frames (K, 84 x 84): real ones, and noise."""
    env = make_vec(ENV, ENVS, 0, 1)
    rng = np.random.default_rng(0)
    env.reset()
    seen = []
    watched = []
    for _ in range(STEPS):
        action = rng.integers(0, 4, ENVS)
        action = np.where(rng.random(ENVS) < 0.4, FORWARD, action)  # so that it gets about
        seen.append(torch.as_tensor(env.step(action).next_obs))
        watched.append(torch.as_tensor(action == env.tv_action))
    env.close()
    grey = last_frame(torch.cat(seen))
    whiten = ObsWhitener(tuple(grey.shape[1:]))
    whiten.update(grey)
    flat = whiten(grey).flatten(1)
    noise = torch.cat(watched)
    return flat[~noise], flat[noise]


def draw(real: Tensor, noise: Tensor, number: int, rng: torch.Generator) -> Tensor:
    """A rollout that ends with `number` frames of noise; none is the same as any before."""
    rows = torch.randint(len(real), (ROLLOUT - number,), generator=rng)
    shaken = real[rows] + 0.15 * torch.randn(len(rows), real.shape[1], generator=rng)
    one, other = noise[torch.randint(len(noise), (2, number), generator=rng)]
    mixed = torch.where(torch.rand(one.shape, generator=rng) < 0.5, one, other)
    return torch.cat([shaken, mixed])


def paid(real: Tensor, noise: Tensor, odd: str) -> list[tuple[float, float]]:
    """For each rollout: the mean pay of real frames and of noise."""
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    stage = Recognise((1, 84, 84), RecogniseConfig())
    valid = torch.ones(ROLLOUT, 1, dtype=torch.bool)
    one = torch.ones(ROLLOUT, 1)
    found = []
    for share in SHARES:
        number = max(2, int(ROLLOUT * share))
        inputs = stage.prepare({"next_obs": draw(real, noise, number, rng)})
        reward, record, _ = stage(one, inputs, Steps(~valid, valid, valid, one, one, one), None)
        found.append((reward[:-number].mean().item(), reward[-number:].mean().item()))
        if odd == MIXED:
            record["recognised"] = one
        if odd != APART and stage.added == 0:
            stage.added += 1  # so that the first points are not compared with each other
        stage.update(record, valid, warmup=False)
    return found


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    real, noise = frames()
    print("| odd points | share of noise | pay of real frames | of noise |\n|---|---|---|---|")
    for name in (MIXED, FIRST, APART):
        answers = paid(real, noise, name)
        for start, end in ROWS:
            pays = [mean(column) for column in zip(*answers[start:end], strict=True)]
            print(f"| {name} | {SHARES[start]:.1%} | {pays[0]:.2f} | {pays[1]:.3f} |")


if __name__ == "__main__":
    main()
