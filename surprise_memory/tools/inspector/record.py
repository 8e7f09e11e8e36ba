"""Play one episode and write down everything that a page shows of it but the bonuses."""

from dataclasses import dataclass

import numpy as np
import torch

from surprise_memory.agents import Agent
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.tools.episode import join, picture
from surprise_memory.tools.stats import Array
from surprise_memory.training.collect import RandomAgent, RunnerState, collect
from surprise_memory.types import Chunk

TV = "watching the TV"
REWARD = "task reward"


@dataclass(frozen=True)
class Recording:
    """T steps of one episode, as plain values.

    Step t leads from picture t to picture t + 1. Events and places are those after the step: a
    bonus pays for what a step leads to.
    """

    env: str
    seed: int
    player: str  # whose actions they are
    end: str  # "terminated", "truncated" or "cut", if it would have gone on
    actions: list[str]
    rewards: list[float]  # of the task
    events: dict[str, list[bool]]
    places: list[tuple[int, int]]  # column and row; empty where they are unknown
    grid: tuple[int, int]  # columns and rows; (0, 0) where they are unknown

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rewards)


@dataclass(frozen=True)
class Played:
    """A recording, and what it was made of."""

    recording: Recording
    chunk: Chunk  # (T, 1, ...)
    frames: list[Array]  # T + 1 of (H, W, 3)


def play(
    env_id: str,
    agent: Agent | None,
    bonus: Trainer | None,
    player: str,
    seed: int,
    longest: int,
    fixed_seed: int | None = None,
) -> Played:
    """Play one episode of at most `longest` steps, with random actions if there is no agent.

    The bonus is for agents that observe it. `fixed_seed` as in `make_vec`.
    """
    env = make_vec(env_id, 1, seed, render=True, fixed_seed=fixed_seed)
    env.action_space.seed(seed)
    state = RunnerState.reset(env, bonus)
    frames = [picture(env, env_id)]
    chunks: list[Chunk] = []
    shown: list[list[str]] = []
    places = []
    while len(chunks) < longest and not (chunks and chunks[-1].done.any()):
        chunk, _ = collect(env, agent or RandomAgent(env), state, 1, bonus, mode="sample")
        chunks.append(chunk)
        shown.append(events_after(env, chunk))
        frame = picture(env, env_id)
        if not torch.equal(state.obs, chunk.next_obs[0]):
            frame = frames[-1]  # it was reset within the step: this picture is another episode's
        frames.append(frame)
        places.append(env.place())
    env.close()
    episode = join(chunks)
    known = [place for place in places if place is not None]
    recording = Recording(
        env=env_id,
        seed=seed,
        player=player,
        end=end_of(episode),
        actions=[action_word(env, action) for action in episode.action[:, 0].numpy()],
        rewards=episode.reward[:, 0].tolist(),
        events=by_name(shown),
        places=[(place.column, place.row) for place in known],
        grid=(known[0].columns, known[0].rows) if known else (0, 0),
    )
    return Played(recording, episode, frames)


def events_after(env: VecEnv, chunk: Chunk) -> list[str]:
    """What one step (1, 1, ...) leads to, by name. What is noise is nothing else."""
    found = []
    if "watched" in chunk.extras and chunk.extras["watched"].any():
        found.append(TV)
    else:
        if "room" in chunk.extras:
            found.append(f"room {int(chunk.extras['room'])}")
        for name, seen in env.events(chunk.next_obs[0].numpy()).items():
            if seen[0]:
                found.append(name)
    if float(chunk.reward) > 0:
        found.append(REWARD)
    return found


def by_name(shown: list[list[str]]) -> dict[str, list[bool]]:
    """From the names at each step to the steps of each name, in order of appearance."""
    names = dict.fromkeys(name for step in shown for name in step)
    return {name: [name in step for step in shown] for name in names}


def end_of(chunk: Chunk) -> str:
    """How an episode ended."""
    if chunk.terminated[-1].any():
        return "terminated"
    if chunk.truncated[-1].any():
        return "truncated"
    return "cut"


def action_word(env: VecEnv, action: Array) -> str:
    """An action's name, or its numbers."""
    if action.ndim == 0 and int(action) < len(env.action_names):
        return env.action_names[int(action)]
    return ", ".join(f"{number:.3g}" for number in np.atleast_1d(action))
