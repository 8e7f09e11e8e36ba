"""A bonus that trains on rollouts, each used once: for PPO and other on-policy loops."""

from torch import Tensor

from surprise_memory.bonus.trace import Carry, Trace
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.errors import UserError
from surprise_memory.nn.devices import shuffled
from surprise_memory.nn.normalise import RewardScaler
from surprise_memory.types import Chunk

Paid = tuple[Tensor, dict[str, float], Carry]  # scaled reward (T, B), metrics, carry


class RolloutTrainer(Trainer):
    """Pays a rollout and learns from it."""

    def make_scaler(self) -> RewardScaler:
        """By the running std of the discounted intrinsic return.

        It lags behind surprises that shrink, so that the bonus fades. A bonus that does not keeps
        agents in Lava-Cross dying for ever: every new episode is novel.
        """
        c = self.model.config
        return RewardScaler(self.num_envs, c.gamma, c.scale_momentum)

    def train_on(self, chunk: Chunk, carry: Carry, warmup: bool = False) -> Paid:
        """Pay a rollout and learn from it; the one place where anything moves.

        The order: the rollout is paid with the statistics from before it, then the scale is
        updated, then the networks train, then the other statistics are updated. In a warm-up
        (random policy) the observations' statistics come first, and the scale is left alone:
        untrained surprises are 10 to 10,000 times too large, and it forgets slowly.
        """
        B = chunk.shape[1]
        if self.num_envs != B:
            raise UserError(
                f"This bonus was made for {self.num_envs} environments, the chunk has {B}."
            )
        chunk = chunk.to(self.device)
        model = self.model
        valid = chunk.valid
        knows_nothing = bool(self.updates == 0)
        if warmup or knows_nothing:
            model.update_obs_norm(chunk)
        raw, trace, after = self(chunk, carry)
        if knows_nothing:  # statistics start from what they are about to judge
            model.update_stages(trace, valid, warmup)
            raw, trace, after = self(chunk, carry)
        self.scaler.update(self._measured(raw, trace), valid, warmup)
        losses = self._train(chunk, trace)
        if not (warmup or knows_nothing):
            model.update_obs_norm(chunk)
        if not knows_nothing:
            model.update_stages(trace, valid, warmup)
        after = model.commit(trace.log, valid, after)
        self.updates += 1
        reward = self.reward(raw)
        return reward, losses | self.metrics(chunk, trace, reward), after

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
        if not len(rows):
            return {}
        size = max(1, int(len(rows) * c.proportion) // c.minibatches)
        for _ in range(c.epochs):
            order = shuffled(rows, self.rng)
            for batch in order[: size * c.minibatches].split(size):
                losses = self.losses(trace, batch)
                self.optimise(losses)
        return {f"losses/{name}": loss.item() for name, loss in losses.items()}
