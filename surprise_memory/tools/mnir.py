"""MNIR by event: what a bonus pays for noise, for plain walls and for what matters.

This is the paper's bar chart. Whole episodes are played, at random or by the trained agent, and the
trained bonus is asked about every step. Each episode's rewards are standardised (MNIR, appendix C),
and the mean is taken over the steps of each event. Nothing learns.
"""

from typing import Any

import numpy as np

from surprise_memory.bonus import Bonus
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import UserError
from surprise_memory.tools.stats import Array, mnir
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.types import Chunk

ROOM = "room "  # and its number
NOISE, NOTHING = "noise", "walls only"
BLOCK = 64  # steps that are asked about at once


def events_of(env: VecEnv, chunk: Chunk) -> dict[str, Array]:
    """Which steps (T, B) lead to which event; empty where the environment names none.

    Events are the rooms, where the environment reports them. Elsewhere they are noise, whatever the
    environment names, and nothing of all this. What is noise is nothing else.
    """
    if "room" in chunk.extras:
        rooms = chunk.extras["room"].numpy()
        return {f"{ROOM}{room}": rooms == room for room in np.unique(rooms)}
    shown = env.events(chunk.next_obs.flatten(0, 1).numpy())
    if not shown:
        return {}
    noise = np.zeros(chunk.shape, bool)
    if "watched" in chunk.extras:
        noise = chunk.extras["watched"].numpy()
    found = {NOISE: noise}
    for name, where in shown.items():
        found[name] = where.reshape(chunk.shape) & ~noise
    found[NOTHING] = ~np.any(list(found.values()), axis=0)
    return found


def mnir_by_event(
    env_id: str,
    bonus: Bonus,
    episodes: int,
    seed: int,
    longest: int,
    agent: Any = None,
    fixed_seed: int | None = None,
) -> dict[str, float]:
    """Mean MNIR of each event in so many episodes, of random actions where there is no agent.

    Of every episode, at most `longest` steps are played. `fixed_seed` as in `make_vec`.
    """
    env = make_vec(env_id, episodes, seed, fixed_seed=fixed_seed)
    env.action_space.seed(seed)
    acting_bonus = bonus if agent else None  # some agents observe the bonus of each step
    loop = RunnerState.reset(env, acting_bonus)
    carry = bonus.start(episodes)
    over = np.zeros(episodes, bool)
    rewards: list[Array] = []
    counted: list[Array] = []
    events: list[dict[str, Array]] = []
    for played in range(0, longest, BLOCK):
        actor = agent or RandomAgent(env)
        T = min(BLOCK, longest - played)
        chunk, _ = collect(env, actor, loop, T, acting_bonus, mode="sample")
        raw, _, carry = bonus(chunk, carry)
        done = chunk.done.numpy()
        ended_before = np.cumsum(done, 0) - done > 0
        # The first episode of each environment is enough.
        counted.append(~over & ~ended_before & chunk.valid.numpy())
        over = over | done.any(0)
        rewards.append(raw.double().numpy())
        events.append(events_of(env, chunk))
        if over.all() or not events[0]:
            break
    env.close()
    if not events[0]:
        raise UserError(
            f"'{env_id}' does not name what it shows: "
            "choose a run on MiniGrid, BabyAI, MiniWorld or MontezumaRevenge."
        )
    return by_event(np.concatenate(rewards), np.concatenate(counted), events)


def by_event(rewards: Array, counted: Array, events: list[dict[str, Array]]) -> dict[str, float]:
    """Mean MNIR by event of rewards (T, B), each column of which is an episode.

    `counted` (T, B) bool marks the steps that count. `events` has an entry for each block of steps.
    """
    standard = np.zeros_like(rewards)
    for b in range(rewards.shape[1]):
        standard[counted[:, b], b] = mnir(rewards[counted[:, b], b])
    where: dict[str, Array] = {}
    start = 0
    for block in events:
        for name, mask in block.items():  # a room may appear in some blocks only
            where.setdefault(name, np.zeros_like(counted))[start : start + len(mask)] = mask
        start += len(next(iter(block.values())))
    for name in list(where):
        if name.startswith(ROOM):
            where |= by_visit(name, where[name] & counted)
    found = {}
    for name, mask in where.items():
        if (mask & counted).any():
            found[name] = float(standard[mask & counted].mean())
    return found


def by_visit(name: str, inside: Array) -> dict[str, Array]:
    """The steps (T, B) in a room, those of its first visit in an episode apart from later ones.

    Only of episodes that come back, so that both are about the same episodes; {} where none does.
    """
    before = np.zeros_like(inside)
    before[1:] = inside[:-1]
    visit = np.cumsum(inside & ~before, axis=0)
    comes_back = visit[-1] > 1
    first = inside & (visit == 1) & comes_back
    if not first.any():
        return {}
    later = inside & (visit > 1)
    return {f"{name}, first visit": first, f"{name}, later visits": later}
