"""The intrinsic reward for agents that learn from replayed sequences: recomputed with today's weights whenever they are drawn."""

import torch
from torch import Tensor

from surprise_memory.bonus import Bonus, Carry
from surprise_memory.nn.normalise import Standardiser
from surprise_memory.types import Chunk


class ReplayedBonus(Bonus):
    """The same generator and memory, asked and taught by sequence; M is rebuilt inside each, beginning empty.

    While acting, `bonus(row, carry)` follows the running episodes as always. `absorb` belongs to rollouts that are used once
    and is not for this one: `meet` takes what was lived into the statistics, `learn` a drawn batch into the rest.
    """

    def make_scaler(self) -> Standardiser:
        """Replayed rewards have no order in time, so no discounted return to be scaled by."""
        return Standardiser()

    def meet(self, chunk: Chunk, carry: Carry) -> Carry:
        """Take what was just lived through into the observations' statistics, and into what lasts of a memory."""
        self._see_more(chunk)
        return Carry(carry.surprise, self.memory.absorb(None, chunk.valid, carry.memory))

    def learn(
        self, chunk: Chunk, weight: Tensor, warmup: bool = False
    ) -> tuple[Tensor, dict[str, float]]:
        """Pay sequences (T, K) and learn from them, each counting its importance weight (K,). Returns (reward (T, K), metrics).

        A warm-up leaves the reward's statistics alone: untrained surprises are far too large, and they forget slowly.
        """
        (T, K), chunk = chunk.shape, chunk.blanked()
        raw, trace, _ = self(chunk, Carry(self.surprise.start(K), self.memory.fresh(K, T)))
        each = (weight.expand(chunk.shape) * chunk.valid).flatten()
        u, losses = self.surprise.sequence_losses(
            trace.inputs, chunk, self.config.loss, self.rng, each
        )
        rows = torch.arange(len(each))
        losses |= self.memory.losses(u, rows, trace.log, each)
        if self.expectation:
            known = (trace.inputs[name] for name in ("known_obs", "known_action", "found"))
            losses["expect"] = self.expectation.loss(*known)
        self._step(losses)
        self.surprise.absorb(trace.e, trace.extras, chunk.valid, warmup)
        if not warmup:
            self.scaler.absorb(raw[chunk.valid])
        self.rollouts += 1
        reward = torch.where(chunk.valid, self.reward(raw), 0.0)
        return reward, {
            f"losses/{name}": loss.item() for name, loss in losses.items()
        } | self.metrics(chunk, trace, reward)

    def update_encoder(self, a: Tensor, b: Tensor) -> dict[str, float]:
        """Teach the generator on neighbours in time, (K, *obs) each as stored."""
        if len(a) < 2:
            return {}
        loss = self.surprise.pair_loss(self.see(self.frame(a)), self.see(self.frame(b)), self.rng)
        self._step({"pairs": loss})
        return {"losses/pairs": loss.item()}
