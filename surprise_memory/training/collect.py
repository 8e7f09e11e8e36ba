"""Acting: one vector step, or a rollout of them. Nothing learns here."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surprise_memory.agents.base import Agent, Mode, State
from surprise_memory.bonus import Carry
from surprise_memory.envs import VecEnv
from surprise_memory.training import door
from surprise_memory.training.buffers import RolloutBuffer
from surprise_memory.types import Chunk

RECENT = 128  # episodes whose mean return is logged
Episode = tuple[float, int]  # return and length


@dataclass
class RunnerState:
    """All that outlives a rollout besides the agent and the bonus.

    What belongs to the environments is on the host, the other two are on their device.
    """

    obs: Tensor  # (B, *obs), what to act on next
    first: Tensor  # (B,) bool
    returns: Tensor  # (B,) task return of the running episodes
    lengths: Tensor  # (B,)
    bonus_carry: Carry  # what the bonus remembers of the running episodes
    agent_state: State = field(default_factory=dict)  # what the agent does
    steps: int = 0
    others: int = 0  # environments of this run in other processes
    # Of all environments here since the run began, with rank 0 those of earlier processes; None if
    # an older version began it and did not count.
    task_reward_total: float | None = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    @staticmethod
    def reset(env: VecEnv, bonus: Any, envs: int | None = None) -> "RunnerState":
        """All environments at the start of an episode; `envs` is how many the whole run has."""
        B = env.num_envs
        carry = Carry(None, None, {})
        if bonus is not None:
            carry = bonus.start(B)
        return RunnerState(
            obs=torch.as_tensor(door.reset(env), device="cpu").clone(),
            first=torch.ones(B, dtype=torch.bool, device="cpu"),
            returns=torch.zeros(B, device="cpu"),
            lengths=torch.zeros(B, device="cpu"),
            bonus_carry=carry,
            others=(envs or B) - B,
        )


class RandomAgent(Agent):
    """Uniform actions from the action space's own random stream; a recurrent `agent` follows."""

    def __init__(self, env: VecEnv, agent: Agent | None = None) -> None:
        self.space = env.action_space
        self.num_envs = env.num_envs
        self.agent = agent
        if agent is not None:
            self.device = agent.device

    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """One action for each environment, and what the agent would have written down."""
        drawn = [self.space.sample() for _ in range(self.num_envs)]
        action = torch.as_tensor(np.stack(drawn), device=self.device)
        if self.agent is None:
            return action, {}, state
        _, extras, state = self.agent.act(obs, first, state, mode)
        return action, extras, state

    def observe_reward(
        self, state: State, action: Tensor, reward: Tensor, r_int: Tensor | None
    ) -> State:
        """As the agent does."""
        assert self.agent is not None
        return self.agent.observe_reward(state, action, reward, r_int)


def env_step(
    env: VecEnv, agent: Agent, state: RunnerState, bonus: Any = None, mode: Mode = "explore"
) -> dict[str, Tensor]:
    """One step of every environment. Moves `state` on; returns a row of a chunk, (B, ...) each.

    `bonus` is for agents with a state, which observe the bonus of each step; it learns nothing.
    What the agent saw and made is on its device, what the environment answered on the host.
    """
    obs = state.obs.to(agent.device)
    first = state.first.to(agent.device)
    action, extras, state.agent_state = agent.act(obs, first, state.agent_state, mode)
    step = door.step(env, action.cpu().numpy())
    row = {
        "obs": obs,
        "action": action,
        "reward": torch.as_tensor(step.reward, device="cpu"),
        "next_obs": torch.as_tensor(step.next_obs, device="cpu"),
        "terminated": torch.as_tensor(step.terminated, device="cpu"),
        "truncated": torch.as_tensor(step.truncated, device="cpu"),
        "first": first,
        "valid": torch.as_tensor(step.valid, device="cpu"),
    }
    if state.agent_state:
        r_int = None
        if bonus is not None:
            columns = {name: column[None] for name, column in row.items()}
            chunk = Chunk(**columns, extras={})
            raw, _, state.bonus_carry = bonus(chunk, state.bonus_carry)
            r_int = bonus.reward(raw[0]).to(agent.device) * row["valid"].to(agent.device)
            extras = extras | {"r_int": r_int}
        reward = row["reward"].to(agent.device)
        state.agent_state = agent.observe_reward(state.agent_state, action, reward, r_int)
    # `first` follows an end, and it stays set over a row that never happened.
    state.first = row["terminated"] | row["truncated"] | ~row["valid"]
    state.obs = torch.as_tensor(step.obs, device="cpu").clone()  # the environment may reuse it
    state.steps += env.num_envs + state.others
    info = {name: torch.as_tensor(value, device="cpu") for name, value in step.info.items()}
    return row | extras | info


def collect(
    env: VecEnv,
    agent: Agent,
    state: RunnerState,
    T: int,
    bonus: Any = None,
    mode: Mode = "explore",
) -> tuple[Chunk, list[Episode]]:
    """T steps of every environment. Moves `state` on; returns the chunk and finished episodes."""
    buffer = RolloutBuffer(T, agent.device)
    episodes: list[Episode] = []
    for _ in range(T):
        row = env_step(env, agent, state, bonus, mode)
        buffer.add(**row)
        state.returns += row["reward"]
        state.lengths += row["valid"]
        done = row["terminated"] | row["truncated"]
        for b in done.nonzero().squeeze(1).tolist():
            episodes.append((state.returns[b].item(), int(state.lengths[b].item())))
        state.returns[done] = 0.0
        state.lengths[done] = 0.0
    chunk = buffer.chunk(after=state.obs.to(agent.device))
    if state.task_reward_total is not None:
        state.task_reward_total += chunk.reward[chunk.valid].cpu().double().sum().item()
    return chunk, episodes
