"""Before the first update: random actions teach the bonus what is ordinary, and nothing is paid."""

from collections.abc import Callable

from surprise_memory.agents import Agent
from surprise_memory.errors import UserError
from surprise_memory.training.checkpoint import Parts
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.training.plan import warmup_rollouts
from surprise_memory.training.processes import own_actions
from surprise_memory.types import Chunk

Collected = Callable[[int], None]  # gets the number of rollouts that are done
Trained = Callable[[float], None]  # gets the share of the pre-training that is done


def go_on(_done: float) -> None:
    """For callers who neither stop nor save in between."""


def warm_up(
    parts: Parts,
    state: RunnerState,
    done: int = 0,
    collected: Collected = go_on,
    trained: Trained = go_on,
) -> None:
    """Random actions train the bonus and its statistics.

    `done` rollouts are behind a run that resumes here. `collected` is called after each rollout,
    `trained` after each update of an agent that learns from all of them at the end.
    """
    run, _, env, agent, bonus = parts
    if not done:
        env.action_space.seed(run.seed)
        own_actions(env.action_space)
    if agent.needs_warmup(bonus):
        follower = agent if agent.recurrent else None
        actor = RandomAgent(env, follower)
        fill(parts, actor, state, warmup_rollouts(run), done, collected)
        agent.after_warmup(bonus, trained)


def fill(
    parts: Parts,
    actor: Agent,
    state: RunnerState,
    rollouts: int,
    done: int = 0,
    collected: Collected = go_on,
) -> None:
    """Collect rollouts that the agent does not learn from, `done` of which are behind it.

    These come at the start, and when a run resumes without its replay.
    """
    run, _, env, agent, bonus = parts
    for number in range(done, rollouts):
        chunk, _ = collect(env, actor, state, agent.rollout_length(run.rollout), bonus)
        check_finite(chunk)
        state.bonus_carry = agent.warm_up(chunk, bonus, state.bonus_carry)
        collected(number + 1)


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
