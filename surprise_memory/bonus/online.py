"""`Bonus`, for loops that are not ours: one vector step at a time, one update per rollout."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from gymnasium import Space
from torch import Tensor

from surprise_memory.bonus.config import BonusConfig
from surprise_memory.bonus.door import read_flags
from surprise_memory.bonus.limits import check_reward, check_shape
from surprise_memory.bonus.rollout import Paid, RolloutTrainer
from surprise_memory.bonus.trace import Carry
from surprise_memory.errors import UserError, require
from surprise_memory.nn.devices import own_mode
from surprise_memory.nn.reward_scale import RewardScaler
from surprise_memory.types import Chunk, moved, rebuild


class Bonus(RolloutTrainer):
    """An intrinsic reward in five lines. Everything that lasts is in `state_dict()`.

    `method` is `generator[+memory][+stage]`, such as 'rnd+sm'. Observations are vectors (k,) or
    images (C, H, W). `action_space` is that of one environment; parts that model actions need it.
    `device` is where it computes and where its rewards are; steps may come from any. `precision`
    bf16 lets its networks multiply in bfloat16.

    >>> import torch
    >>> from surprise_memory import Bonus
    >>> bonus = Bonus("rnd+sm", (3,), num_envs=2)
    >>> for _ in range(16):
    ...     obs, next_obs = torch.randn(2, 3), torch.randn(2, 3)
    ...     r_int = bonus.step(obs, [0, 1], next_obs, done=[False, False])
    >>> r_int.shape
    torch.Size([2])
    >>> "intrinsic/novelty" in bonus.update()
    True
    """

    def __init__(
        self,
        method: str,
        obs_shape: tuple[int, ...],
        num_envs: int,
        config: BonusConfig | None = None,
        seed: int = 0,
        action_space: Space[Any] | None = None,
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        super().__init__(method, obs_shape, num_envs, config, seed, action_space, device, precision)
        first = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        self.steps = StepBuffer(first, self.start())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `bonus.to(device)` calls: the steps since the last update come along."""
        super()._apply(fn, recurse)
        self.steps.load_state_dict(moved(self.steps.state_dict(), self.device), self.start())
        return self

    def make_scaler(self) -> RewardScaler:
        """By the same std, in units of the newest rewards.

        Nobody knows how long this loop warms up or how much a rollout teaches. Without the units,
        the decline of the first surprises would be most of the spread that is measured.
        """
        c = self.model.config
        follows_level = c.scale_momentum is not None
        return RewardScaler(self.num_envs, c.gamma, c.scale_momentum, follows_level)

    def step(self, obs: Any, action: Any, next_obs: Any, done: Any, valid: Any = None) -> Tensor:
        """The reward (B,) of one vector step.

        `next_obs` is the true successor, also where `done` is True. Nothing is paid at first: one
        `update` learns what is ordinary, then 4,096 steps find the reward's scale. They begin again
        while surprises still fall by more than 15 % from one rollout to the next. With
        Gymnasium's NEXT_STEP autoreset, pass `valid = ~done_of_the_step_before`. A step that is
        refused leaves no trace.
        """
        with own_mode(self.device):
            row = self.door.read_step(obs, action, next_obs, done, valid, self.steps.first)
            row = row.to(self.device)
            raw, _, carry = self(row, self.steps.carry)
            check_reward(raw)
            reward = torch.where(self.scaler.settled.to(raw.device), self.reward(raw), 0.0)
            self.steps.keep(dataclasses.replace(row, reward=reward), carry)
            return reward[0].clone()  # the caller may change it

    def update(self) -> dict[str, float]:
        """Learn from all steps since the last update; call it once per rollout. Returns metrics."""
        if not self.steps.rows:
            raise UserError(
                "Bonus.update() was called before any Bonus.step(): there is nothing to learn from."
            )
        warmup = bool(self.updates == 0)
        chunk = self.steps.chunk()
        payment = self.pay(chunk, self.steps.initial_carry, warmup)
        # The scale has moved since `step` paid these steps: what it paid is what is told.
        report, carry = self.learn(payment._replace(reward=chunk.reward))
        self.steps.next_rollout(carry)
        return report

    def train_on(self, chunk: Chunk, carry: Carry, warmup: bool = False) -> Paid:
        """As a trainer's, for chunks that others made: what does not fit is refused."""
        self.door.check(chunk)
        require(isinstance(warmup, bool), "warmup", warmup, "True or False")
        if chunk.shape[1] == self.num_envs:  # otherwise the trainer refuses
            self._check_carry(chunk, carry)
        return super().train_on(chunk, carry, warmup)

    def _check_carry(self, chunk: Chunk, carry: Carry) -> None:
        """Ask about the first step, which changes nothing: what does not fit fails here."""
        columns = {name: column[:1] for name, column in chunk.columns().items()}
        try:
            self(Chunk(**columns, extras={}), carry)
        except (RuntimeError, TypeError, AttributeError, KeyError, IndexError) as error:
            raise UserError(
                f"The carry does not fit a chunk of {self.num_envs} environments: pass start(), or "
                "what the last train_on returned."
            ) from error

    def reset(self, which: Any = None) -> None:
        """Abandon the running episodes: the next step is the first of new ones.

        `which` (B,) bool names the environments; None is all of them.
        """
        if which is None:
            self.steps.reset()
        else:
            flags = read_flags("which", which, self.num_envs)
            self.steps.first = self.steps.first | flags.to(self.steps.first.device)

    def with_own_environments(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """As a trainer's, with the steps since the last update."""
        extra = state["_extra_state"] | {"steps": self.steps.state_dict()}
        return super().with_own_environments(state) | {"_extra_state": extra}

    def get_extra_state(self) -> dict[str, Any]:
        """As a trainer's, with what `step` has seen since the last update."""
        return super().get_extra_state() | {"steps": self.steps.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The other half of get_extra_state."""
        super().set_extra_state(state)
        self.steps.load_state_dict(moved(state["steps"], self.device), self.start())
        check_shape("first", self.steps.first, (self.num_envs,))
        for row in self.steps.rows:
            self.door.check(row)


class StepBuffer:
    """Collects vector steps into a rollout, and holds the carry of the running episodes."""

    carry: Carry  # after the newest row
    initial_carry: Carry  # before the first row

    def __init__(self, first: Tensor, carry: Carry) -> None:
        """`first` (B,) bool says which environments' next step opens an episode."""
        self.rows: list[Chunk] = []
        self.first = first
        self.carry = self.initial_carry = carry

    def keep(self, row: Chunk, carry: Carry) -> None:
        """Keep one vector step and the carry after it."""
        # `first` follows an end, and it stays set over a row that never happened.
        self.first = row.done[0] | ~row.valid[0]
        self.rows.append(row)
        self.carry = carry

    def chunk(self) -> Chunk:
        """All rows since the last update as one chunk."""
        columns = {}
        for name in self.rows[0].columns():
            columns[name] = torch.cat([row.columns()[name] for row in self.rows])
        return Chunk(**columns, extras={})

    def next_rollout(self, carry: Carry) -> None:
        """Forget the rows; the running episodes go on from `carry`."""
        self.rows = []
        self.carry = self.initial_carry = carry

    def reset(self) -> None:
        """The next step opens new episodes."""
        self.first = torch.ones_like(self.first)

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "rows": [row.columns() for row in self.rows],
            "first": self.first,
            "carry": dataclasses.asdict(self.carry),
            "initial_carry": dataclasses.asdict(self.initial_carry),
        }

    def load_state_dict(self, state: dict[str, Any], empty: Carry) -> None:
        """The other half of state_dict; `empty` is a carry to put the saved values into."""
        self.rows = [Chunk(**row, extras={}) for row in state["rows"]]
        self.first = state["first"]
        self.carry = rebuild(empty, state["carry"])
        self.initial_carry = rebuild(empty, state["initial_carry"])
