"""The seeds of a run's environments, in three ranges of 32 bits that never meet.

| seeds              | environments                                                        |
|--------------------|---------------------------------------------------------------------|
| 0 to 2^31          | of training: environment i of a run has seed * envs + i             |
| 2^31 to 3 * 2^30   | of evaluation: 128 for each run; seeds 2^23 apart share theirs      |
| 3 * 2^30 to 2^32   | of a resumed run, where environments cannot save their state        |
"""

import numpy as np

from surprise_memory.errors import require

EVALUATION = 2**31
RESUMED = 3 * 2**30
END = 2**32
EVAL_ENVS = 128  # at most, side by side


def check_seed(seed: int, envs: int) -> None:
    """Refuse a seed whose environments would leave the range of training."""
    last = EVALUATION // envs - 1
    require(0 <= seed <= last, "seed", seed, f"between 0 and {last} with {envs} environments")


def training_seed(seed: int, envs: int, resumed_at: int = 0) -> int:
    """The seed of a run's first environment.

    After `resumed_at` steps it is another: the episodes from the run's start must not come again.
    """
    if not resumed_at:
        return seed * envs
    words = np.random.SeedSequence([seed, resumed_at]).generate_state(1)
    return RESUMED + int(words[0]) % (END - RESUMED - envs)


def eval_seed(seed: int) -> int:
    """The seed of the first environment of a run's evaluation."""
    ranges = (RESUMED - EVALUATION) // EVAL_ENVS
    return EVALUATION + EVAL_ENVS * (seed % ranges)
