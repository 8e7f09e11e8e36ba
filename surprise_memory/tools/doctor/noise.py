"""The doctor's noise: one successor in eight is not what the environment showed.

| kind     | what stands in its place                                | as an environment        |
|----------|---------------------------------------------------------|--------------------------|
| fresh    | uniform noise in the range seen so far, by feature      | NoisyTV/<id>             |
| channels | one of 8 fixed noise images                             | NoisyTV:channels=8/<id>  |
| replay   | a real successor from elsewhere in the same rollout     | NoisyTV:replay=1000/<id> |
| view     | itself, with noise in the last quarter of its numbers   | NoisyView/<id>           |
"""

import dataclasses
from typing import Any

import numpy as np
import torch

from surprise_memory.errors import one_of
from surprise_memory.tools.doctor.measures import uniform_noise
from surprise_memory.tools.stats import Array
from surprise_memory.types import Chunk

SHARE = 1 / 8  # of the steps
CHANNELS = 8
VIEW = 0.25  # of an observation's numbers
KINDS = {  # kind -> how a sentence calls a step of it
    "fresh": "a step of noise",
    "channels": "a step of noise from 8 fixed channels",
    "replay": "a step of replayed real frames",
    "view": "a step with noise in a quarter of the view",
}


class NoiseSource:
    """Replaces successors of rollouts by noise of one kind."""

    def __init__(self, seed: int, kind: str = "fresh") -> None:
        one_of(kind, tuple(KINDS), "noise")
        self.kind = kind
        self.rng = np.random.default_rng(seed)
        self.low: Any = np.inf
        self.high: Any = -np.inf
        self.channels: Array | None = None

    def __call__(self, chunk: Chunk) -> tuple[Chunk, Array]:
        """The chunk with noise, and where the noise is (T, B) bool."""
        obs = chunk.next_obs.numpy()
        valid = chunk.valid.numpy()
        self.low = np.minimum(self.low, obs[valid].min(0))
        self.high = np.maximum(self.high, obs[valid].max(0))
        where = (self.rng.random(chunk.shape) < SHARE) & valid
        noisy = obs.copy()
        noisy[where] = self.draw(obs[where], obs[valid])
        return dataclasses.replace(chunk, next_obs=torch.as_tensor(noisy, device="cpu")), where

    def draw(self, shown: Array, real: Array) -> Array:
        """What stands in the place of some successors `shown` (K, *obs), among `real` ones."""
        if self.kind == "replay":
            return real[self.rng.integers(0, len(real), len(shown))]
        if self.kind == "channels":
            if self.channels is None:
                self.channels = self.fresh(np.repeat(shown[:1], CHANNELS, 0))
            return self.channels[self.rng.integers(0, CHANNELS, len(shown))]
        noise = self.fresh(shown)
        if self.kind == "view":
            kept = noise.shape[-1] - max(1, round(VIEW * noise.shape[-1]))
            noise[..., :kept] = shown[..., :kept]
        return noise

    def fresh(self, like: Array) -> Array:
        """Uniform noise, shaped and typed as `like` (K, *obs)."""
        return uniform_noise(like, self.low, self.high, self.rng)
