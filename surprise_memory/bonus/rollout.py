"""A bonus that trains on rollouts, each used once: for PPO and other on-policy loops."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surprise_memory.bonus.limits import check_reward
from surprise_memory.bonus.trace import Carry, Trace
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.nn.devices import own_mode, shuffled
from surprise_memory.nn.reward_scale import RewardScaler
from surprise_memory.types import Chunk

Paid = tuple[Tensor, dict[str, float], Carry]  # scaled reward (T, B), metrics, carry


class Payment(NamedTuple):
    """A rollout that is paid and not learnt from yet."""

    reward: Tensor  # (T, B), scaled
    chunk: Chunk
    trace: Trace
    after: Carry
    warmup: bool
    knew_nothing: bool  # it is the first rollout of all


class RolloutTrainer(Trainer):
    """Pays a rollout and learns from it."""

    synchronised = False
    """Whether it is one bonus with those of the other processes."""

    def make_scaler(self) -> RewardScaler:
        """By the running std of the discounted intrinsic return.

        It lags behind surprises that shrink, so that the bonus fades. A bonus that does not keeps
        agents in Lava-Cross dying for ever: every new episode is novel.
        """
        c = self.model.config
        return RewardScaler(self.num_envs, c.gamma, c.scale_momentum)

    def train_on(self, chunk: Chunk, carry: Carry, warmup: bool = False) -> Paid:
        """Pay a rollout and learn from it; the one place where anything moves.

        The order: the rollout is asked about with the statistics from before it, the scale takes
        the raw reward in and scales it, the networks train, the other statistics are updated. In a
        warm-up (random policy) the observations' statistics come first, and the scale is left
        alone: untrained surprises are 10 to 10,000 times too large, and it forgets slowly.
        """
        payment = self.pay(chunk, carry, warmup)
        metrics, carry = self.learn(payment)
        return payment.reward, metrics, carry

    def pay(self, chunk: Chunk, carry: Carry, warmup: bool = False) -> Payment:
        """The first half of `train_on`, after which the reward is known."""
        with ranks.together(self.synchronised), own_mode(self.device):
            return self._pay(chunk, carry, warmup)

    def learn(self, payment: Payment) -> tuple[dict[str, float], Carry]:
        """The other half: metrics, and the carry after the rollout."""
        with ranks.together(self.synchronised), own_mode(self.device):
            return self._learn(payment)

    def _pay(self, chunk: Chunk, carry: Carry, warmup: bool) -> Payment:
        B = chunk.shape[1]
        if self.num_envs != B:
            raise UserError(
                f"This bonus was made for {self.num_envs} environments, the chunk has {B}."
            )
        check_lengths(chunk)
        chunk = chunk.to(self.device)
        model = self.model
        knows_nothing = bool(self.updates == 0)
        if warmup or knows_nothing:
            model.update_obs_norm(chunk)
        if knows_nothing:  # stages start from the rollout that they are about to judge
            _, rehearsal, _ = self(chunk, carry)
            model.update_stages(rehearsal, chunk.valid, warmup)
        raw, trace, after = self(chunk, carry)
        measured = self._measured(raw, trace)
        check_reward(torch.where(chunk.valid, measured, 0.0))
        self.scaler.update(measured, chunk.valid, warmup)
        return Payment(self.reward(raw), chunk, trace, after, warmup, knows_nothing)

    def _learn(self, payment: Payment) -> tuple[dict[str, float], Carry]:
        reward, chunk, trace, after, warmup, knew_nothing = payment
        model = self.model
        valid = chunk.valid
        losses = self._train(chunk, trace)
        if not (warmup or knew_nothing):
            model.update_obs_norm(chunk)
        if not knew_nothing:
            model.update_stages(trace, valid, warmup)
        after = model.commit(trace.log, valid, after)
        self.updates += 1
        metrics = ranks.mean_report(self.metrics(chunk, trace, reward), valid.sum())
        return losses | metrics, after

    def _measured(self, raw: Tensor, trace: Trace) -> Tensor:
        """What the scale is measured on (T, B).

        That is the reward before the filters, so that the scale does not undo what they take away.
        """
        return raw if self.config.scale_filtered else trace.unfiltered

    def _train(self, chunk: Chunk, trace: Trace) -> dict[str, float]:
        """Epochs x minibatches optimiser steps.

        Each epoch draws `proportion` of the rollout anew.
        """
        c = self.config
        rows = chunk.valid_rows()
        number = min(c.minibatches, *ranks.everyones(len(rows)))  # ranks take each step together
        if not number:
            return {}
        size = max(1, int(len(rows) * c.proportion) // c.minibatches)
        for _ in range(c.epochs):
            order = shuffled(rows, self.rng)
            for batch in order[: size * number].split(size):
                losses = self.losses(trace, batch)
                self.optimise(losses, len(batch))
        report = {f"losses/{name}": loss.item() for name, loss in losses.items()}
        return ranks.mean_report(report, len(batch))

    # --- one bonus over many processes ---

    def synchronise(self) -> None:
        """Be one bonus with those of all processes of torch.distributed; call it on each of them.

        Takes over what the bonus of rank 0 has learnt. From here on every `update` or `train_on`
        learns from all processes' environments, so all processes have to make these calls together.
        Steps are paid without asking the others.
        """
        check_group(self)
        with ranks.together():
            state = ranks.from_first(self.state_dict())
            self.load_state_dict(self.with_own_environments(state))
            ranks.own_stream(self.rng)
        self.synchronised = True

    def with_own_environments(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state in which what belongs to single environments is this bonus's own."""
        return dict(state) | {"scaler.filtered": self.scaler.filtered}


def check_group(bonus: RolloutTrainer) -> None:
    """Refuse processes that cannot talk about tensors on the bonus's device."""
    if not ranks.started():
        raise UserError(
            "synchronise() joins the processes of torch.distributed: call init_process_group first."
        )
    if not ranks.speaks(bonus.device):
        raise UserError(
            f"The bonus is on {bonus.device}, of which torch.distributed was started to send "
            "nothing: start it with backend='cpu:gloo,cuda:nccl'."
        )


def check_lengths(chunk: Chunk) -> None:
    """Refuse rollouts that are longer on some ranks than on others."""
    lengths = ranks.everyones(chunk.shape[0])
    if len(set(lengths)) > 1:
        raise UserError(
            f"The rollouts of the processes have {lengths} steps: let all call update() after as "
            "many."
        )
