"""What the training loop needs of an agent. The defaults are those of an on-policy one."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from surprise_memory.bonus import Carry, RolloutTrainer
from surprise_memory.errors import UserError
from surprise_memory.nn.at_once import at_once
from surprise_memory.nn.devices import HOST
from surprise_memory.types import Chunk

State = dict[str, Tensor]  # what an agent knows of the running episodes, (B, ...) each
# How to act: as in training, as in evaluation, or always the likeliest action.
Mode = Literal["explore", "sample", "greedy"]
Learnt = tuple[Tensor | None, dict[str, float], Carry]  # bonus (T, B) that was paid, metrics, carry


class Agent:
    """Base of the agents: subclass it, write `act`, `update` and the two halves of the state."""

    rng: torch.Generator
    device: torch.device = HOST
    """Where it computes. It is given tensors that are there."""
    trainer: type[Any] = RolloutTrainer
    """How a bonus is trained beside this agent."""
    recurrent: bool = False
    """Whether it has a state, and so has to follow what random actions lead to."""

    def act(
        self, obs: Tensor, first: Tensor, state: State, mode: Mode
    ) -> tuple[Tensor, State, State]:
        """Actions (B,) or (B, A) for observations (B, *obs).

        Also returns the columns to keep for learning, and the state after the step.
        """
        raise NotImplementedError

    def observe_reward(
        self, state: State, action: Tensor, reward: Tensor, r_int: Tensor | None
    ) -> State:
        """The state once an action's reward and bonus are known; only for agents with a state."""
        return state

    def update(self, chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
        """Learn from one rollout with its bonus r_int (T, B), None without one. Returns metrics."""
        raise NotImplementedError

    def rollout_length(self, default: int) -> int:
        """Steps of each environment that are collected at once."""
        return default

    def learn(self, chunk: Chunk, bonus: Any, carry: Carry) -> Learnt:
        """The bonus pays a rollout, then both learn from it."""
        if bonus is None:
            return None, self.update(chunk, None), carry
        payment = bonus.pay(chunk, carry)
        r_int = payment.reward
        (metrics, carry), own = at_once(
            lambda: bonus.learn(payment), lambda: self.update(chunk, r_int)
        )
        return r_int, metrics | own, carry

    def synchronise(self) -> None:
        """Be one agent with those of the other ranks, and take over what rank 0's has learnt."""
        raise UserError(f"{type(self).__name__} learns in one process: start it without torchrun.")

    # --- before the first update ---

    def needs_warmup(self, bonus: Any) -> bool:
        """Whether rollouts of random actions are of any use."""
        return bonus is not None

    def warm_up(self, chunk: Chunk, bonus: Any, carry: Carry) -> Carry:
        """A rollout of random actions teaches the bonus what is ordinary; nothing is paid."""
        _, _, carry = bonus.train_on(chunk, carry, warmup=True)
        return carry

    def after_warmup(self, bonus: Any, trained: Callable[[float], None]) -> None:
        """Learn once from all warm-up rollouts; `trained` gets the share done after each update."""

    def can_save_warmup(self) -> bool:
        """Whether a run can resume in the midst of its warm-up."""
        return True

    def rollouts_to_refill(self, steps: int, least: int) -> int:
        """Rollouts to collect without learning when a run resumes at `steps`, at least `least`."""
        return 0

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Everything that lasts, except what `buffer_state` holds."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The other half of state_dict."""
        raise NotImplementedError

    def buffer_state(self, final: bool) -> dict[str, Any] | None:
        """Stored experience, if it is to be saved. `final`: the run stops or ends here."""
        return None

    def load_buffer(self, state: dict[str, Any]) -> None:
        """The other half of buffer_state."""
