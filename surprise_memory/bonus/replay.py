"""A bonus that trains on replayed sequences, and pays them with today's weights."""

from torch import Tensor

from surprise_memory.bonus.limits import check_carry, check_weight
from surprise_memory.bonus.trace import Carry
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.nn.devices import own_mode
from surprise_memory.nn.reward_scale import Standardiser
from surprise_memory.types import Chunk


class ReplayTrainer(Trainer):
    """The same parts, asked and trained by sequence. M is rebuilt in each, and begins empty.

    While acting, `bonus(row, carry)` follows the running episodes as always. `update_stats` updates
    the statistics from what was collected, `train_on` everything else from a drawn batch.
    """

    def make_scaler(self) -> Standardiser:
        """Replayed rewards have no order in time, so no discounted return to be scaled by."""
        return Standardiser()

    def update_stats(self, chunk: Chunk, carry: Carry) -> Carry:
        """Take what was collected into the observations' statistics and a memory's content."""
        self.door.check(chunk)
        check_carry(carry)
        chunk = chunk.to(self.device)
        self.model.update_obs_norm(chunk)
        return self.model.commit(None, chunk.valid, carry)

    def train_on(
        self, chunk: Chunk, weight: Tensor, warmup: bool = False
    ) -> tuple[Tensor, dict[str, float]]:
        """Pay sequences (T, K) and learn from them, each counting its importance weight (K,).

        Returns (reward (T, K), metrics). A warm-up leaves the reward's statistics alone: untrained
        surprises are far too large, and they forget slowly.
        """
        with own_mode(self.device):
            return self._train_on(chunk, weight, warmup)

    def _train_on(
        self, chunk: Chunk, weight: Tensor, warmup: bool
    ) -> tuple[Tensor, dict[str, float]]:
        self.door.check(chunk, newest_frame=True)
        check_weight(weight, chunk.shape[1])
        chunk = chunk.to(self.device).blanked()
        weight = weight.to(self.device)
        T, K = chunk.shape
        raw, trace, _ = self(chunk, self.model.start_sequences(K, T))
        rows = chunk.valid_rows()
        losses: dict[str, Tensor] = {}
        if len(rows):
            each = weight.expand(T, K).flatten()[rows]
            losses = self.model.losses(trace, rows, self.rng, each, sequences=chunk)
            self.optimise(losses)
        self.model.update_stages(trace, chunk.valid, warmup)
        if not warmup:
            self.scaler.update(raw[chunk.valid])
        self.updates += 1
        reward = self.reward(raw).where(chunk.valid, 0.0)
        report = {f"losses/{name}": loss.item() for name, loss in losses.items()}
        return reward, report | self.metrics(chunk, trace, reward)

    def update_encoder(self, a: Tensor, b: Tensor) -> dict[str, float]:
        """Train the generator's encoder on neighbours in time, (K, *obs) each as stored."""
        if len(a) < 2:
            return {}
        model = self.model
        with own_mode(self.device):
            a = model.see(a.to(self.device))
            b = model.see(b.to(self.device))
            loss = model.surprise.pair_loss(a, b, self.rng)
            self.optimise({"pairs": loss})
        return {"losses/pairs": loss.item()}
