"""Acting: one vector step, or a rollout of them. Nothing learns here."""

import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.bonus import Bonus, Carry
from surprise_memory.envs import VecEnv
from surprise_memory.training.buffers import RolloutBuffer
from surprise_memory.types import Chunk


@dataclass
class RunnerState:
    """All that outlives a rollout besides the agent and the bonus."""

    obs: Tensor  # (B, *obs), what to act on next
    first: Tensor  # (B,) bool
    returns: Tensor  # (B,) task return of the running episodes
    lengths: Tensor  # (B,)
    bonus_carry: Carry  # what the bonus remembers of the running episodes
    agent_state: dict[str, Tensor] = dataclasses.field(default_factory=dict)  # what the agent does
    steps: int = 0
    recent: deque[float] = dataclasses.field(default_factory=lambda: deque(maxlen=128))

    @staticmethod
    def reset(env: VecEnv, bonus: Bonus | None) -> "RunnerState":
        """All environments at the start of an episode."""
        B = env.num_envs
        carry = bonus.start(B) if bonus else Carry(None, None)
        return RunnerState(
            torch.as_tensor(env.reset()),
            torch.ones(B, dtype=torch.bool),
            torch.zeros(B),
            torch.zeros(B),
            carry,
        )


class RandomAgent:
    """Uniform actions, drawn from the action space's own stream; a recurrent `agent` follows what they lead to."""

    def __init__(self, env: VecEnv, agent: Any = None) -> None:
        self.space, self.num_envs, self.agent = env.action_space, env.num_envs, agent

    def act(
        self, obs: Tensor, first: Tensor, memo: dict[str, Tensor], explore: bool = True
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """One action for each environment, and what the agent would have noted."""
        action = torch.as_tensor(np.stack([self.space.sample() for _ in range(self.num_envs)]))
        if self.agent is None:
            return action, {}, memo
        _, extras, memo = self.agent.act(obs, first, memo)
        return action, extras, memo

    def remember(self, chunk: Chunk) -> None:
        """As the agent does."""
        self.agent.remember(chunk)

    def observe_reward(self, *felt: Any) -> dict[str, Tensor]:
        """As the agent does."""
        memo: dict[str, Tensor] = self.agent.observe_reward(*felt)
        return memo


def env_step(
    env: VecEnv, agent: Any, loop: RunnerState, bonus: Bonus | None = None, **how: bool
) -> dict[str, Tensor]:
    """One step of every environment. Moves `loop` on; returns a row of a chunk, (B, ...) each.

    `bonus` is for agents that feel the bonus of each step while they act, that is, all with a memo; it learns nothing.
    """
    action, extras, loop.agent_state = agent.act(loop.obs, loop.first, loop.agent_state, **how)
    step = env.step(action.numpy())
    row: dict[str, Tensor] = {
        name: torch.as_tensor(x) for name, x in step._asdict().items() if name != "info"
    }
    after = row.pop("obs")
    row |= {"obs": loop.obs, "action": action, "first": loop.first}
    if loop.agent_state:
        r_int = None
        if bonus is not None:
            chunk = Chunk(**{name: x[None] for name, x in row.items()}, extras={})
            raw, _, loop.bonus_carry = bonus(chunk, loop.bonus_carry)
            r_int = bonus.reward(raw[0]) * row["valid"]
            extras = extras | {"r_int": r_int}
        loop.agent_state = agent.observe_reward(loop.agent_state, action, row["reward"], r_int)
    # After an end comes a first; a row that never happened stands between them and hands `first` on.
    loop.first = row["terminated"] | row["truncated"] | ~row["valid"]
    loop.obs = after
    loop.steps += env.num_envs
    row |= extras | {name: torch.as_tensor(x) for name, x in step.info.items()}
    return row


def collect(
    env: VecEnv, agent: Any, loop: RunnerState, T: int, bonus: Bonus | None = None, **how: bool
) -> tuple[Chunk, list[tuple[float, int]]]:
    """T steps of every environment. Moves `loop` on; returns the chunk and (return, length) of each finished episode."""
    rollout, episodes = RolloutBuffer(T), []
    for _ in range(T):
        row = env_step(env, agent, loop, bonus, **how)
        rollout.add(**row)
        loop.returns += row["reward"]
        loop.lengths += row["valid"]
        done = row["terminated"] | row["truncated"]
        for b in done.nonzero().squeeze(1).tolist():
            episodes.append((loop.returns[b].item(), int(loop.lengths[b].item())))
        loop.returns[done], loop.lengths[done] = 0.0, 0.0
    return rollout.chunk(), episodes
