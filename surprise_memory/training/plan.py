"""How a run's steps are spent: first a warm-up of random actions, then rollouts to learn from.

A long warm-up is bounded by a share of the steps, and a run that would only warm up is refused.
"""

from surprise_memory.errors import UserError
from surprise_memory.training.config import RunConfig

SHORT = 5  # rollouts of a warm-up that any run may have
SHARE = 8  # a longer warm-up takes at most the eighth part of a run's steps


def rollout_steps(run: RunConfig) -> int:
    """Agent steps of one rollout, over all environments."""
    T = run.rollout
    if run.backbone == "dqn":
        T = run.dqn.unroll
    return run.envs * T


def warmup_rollouts(run: RunConfig) -> int:
    """Rollouts of random actions before the first update: those asked for, within the bound.

    Without a bonus only a replay needs them.
    """
    if run.method == "none" and run.backbone != "dqn":
        return 0
    bound = run.steps // (SHARE * rollout_steps(run))
    return min(run.warmup_rollouts, max(SHORT, bound))


def learning_rollouts(run: RunConfig) -> int:
    """Rollouts after the warm-up. The last one is whole, so a run may pass its number of steps."""
    total = -(-run.steps // rollout_steps(run))
    return max(0, total - warmup_rollouts(run))


def learning_steps(run: RunConfig) -> int:
    """Agent steps that the agent learns from."""
    return learning_rollouts(run) * rollout_steps(run)


def check_plan(run: RunConfig) -> None:
    """Refuse a run that would end before its first update."""
    warmup = warmup_rollouts(run)
    first_update = warmup + 1
    if run.backbone == "dqn":  # a replayed sequence ends in the block after its own
        first_update = max(first_update, 2)
    least = (first_update - 1) * rollout_steps(run) + 1
    if run.steps < least:
        cure = f"raise --steps to {least:,} or more"
        if warmup:
            cure += ", lower --warmup-rollouts or --envs, or choose another preset or budget"
        raise UserError(
            f"steps = {run.steps:,} would end before the first update, after {warmup} rollouts of "
            f"warm-up with {rollout_steps(run):,} steps each: {cure}."
        )


def describe_plan(run: RunConfig) -> str:
    """The warm-up, its share of the steps, and what is left to learn from; for people."""
    learning = f"learning from {learning_steps(run):,} steps"
    if run.backbone == "random":
        learning = f"{learning_steps(run):,} steps after it"
    warmup = warmup_rollouts(run)
    if not warmup:
        return f"no warm-up, {learning}"
    steps = warmup * rollout_steps(run)
    text = f"warm-up {warmup} rollouts"
    if warmup < run.warmup_rollouts:
        text += f" (of {run.warmup_rollouts}: at most an eighth of the steps, or {SHORT})"
    return f"{text}, {steps:,} steps, {steps / run.steps:.1%}; {learning}"
