"""Before the first update: random actions teach the bonus what is ordinary, and nothing is paid."""

from collections.abc import Callable
from typing import Any

from surprise_memory.agents import Agent
from surprise_memory.envs import VecEnv
from surprise_memory.errors import UserError
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.config import RunConfig
from surprise_memory.training.plan import warmup_rollouts
from surprise_memory.training.processes import own_actions
from surprise_memory.types import Chunk

After = Callable[[int], None]  # gets the number of rollouts that are done


def warm_up(
    run: RunConfig,
    env: VecEnv,
    agent: Agent,
    bonus: Any,
    state: RunnerState,
    done: int = 0,
    after: After | None = None,
) -> None:
    """Random actions train the bonus and its statistics.

    `done` rollouts are behind a run that resumes here. `after` is called between two rollouts.
    """
    if not done:
        env.action_space.seed(run.seed)
        own_actions(env.action_space)
    if agent.needs_warmup(bonus):
        follower = agent if agent.recurrent else None
        actor = RandomAgent(env, follower)
        for number in range(done, warmup_rollouts(run)):
            if number > done and after is not None:
                after(number)
            fill(run, env, actor, agent, bonus, state, 1)
        agent.after_warmup(bonus)


def fill(
    run: RunConfig,
    env: VecEnv,
    actor: Agent,
    agent: Agent,
    bonus: Any,
    state: RunnerState,
    rollouts: int,
) -> None:
    """Collect rollouts that the agent does not learn from.

    These come at the start, and when a run resumes without its replay.
    """
    for _ in range(rollouts):
        chunk, _ = collect(env, actor, state, agent.rollout_length(run.rollout), bonus)
        check_finite(chunk)
        state.bonus_carry = agent.warm_up(chunk, bonus, state.bonus_carry)


def check_finite(chunk: Chunk) -> None:
    """Stop before a NaN or an infinity from the environment reaches a network."""
    columns = {"next_obs": chunk.next_obs, "reward": chunk.reward, "obs": chunk.obs}
    if chunk.after is not None:  # what opens an episode is no step's next_obs
        columns["obs after the rollout"] = chunk.after[None]
    for name, column in columns.items():
        if not column.is_floating_point():  # bytes of images
            continue
        bad = (~column.isfinite()).nonzero()  # (bad values, axes)
        if len(bad):
            _, b, *feature = bad[0].tolist()
            place = f"environment {b}"
            if feature:
                place += f", feature {feature[0]}"
            value = column[tuple(bad[0])].item()
            raise UserError(
                f"The environment returned {value} in {name} ({place}): fix it there. "
                "Nothing was learnt from it."
            )
