"""The intrinsic reward as a chain of parts. Asking changes nothing; training lives elsewhere.

    observations -> obs_norm -> surprise: u -> memory: v -> |v|^p -> stage -> ... -> raw reward

| symbol | shape      | meaning                                                   | paper       |
|--------|------------|-----------------------------------------------------------|-------------|
| u      | (T, B, n)  | surprise: what the generator predicted minus what it saw  | equation 1  |
| u^e    | (T, B, n)  | what the episodic memory M recalls when it is asked for u | section 2.3 |
| q      | (T, B, 2n) | [u^e, u], the query to the autoencoder W                  | section 2.3 |
| v      | (T, B, 2n) | W(q) - q, what the memory cannot reconstruct              | equation 4  |
| e      | (T, B)     | |v|^power, the reward before the first stage              |             |
"""

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.linalg import vector_norm

from surprise_memory.bonus.config import BonusConfig, check_config, complete
from surprise_memory.bonus.frames import seen_as
from surprise_memory.bonus.methods import Method, check_method, split_method
from surprise_memory.bonus.trace import Carry, Columns, StageTrace, Trace, merge, prepare, take
from surprise_memory.errors import UserError, choose
from surprise_memory.memory import MEMORIES
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.devices import built_on_host
from surprise_memory.nn.nets import PIECE, in_pieces
from surprise_memory.nn.obs_norm import ObsScale, ObsWhitener
from surprise_memory.nn.persistence import Persistence
from surprise_memory.stages import STAGES, Stage, Stages, Steps
from surprise_memory.surprise import NOTHING, SURPRISES, Surprise
from surprise_memory.types import Chunk


class BonusModel(nn.Module):
    """The parts of a bonus.

    All that lasts is in its state_dict; what belongs to running episodes is in the carry.
    """

    surprise: Surprise

    def __init__(
        self,
        method: str,
        obs_shape: tuple[int, ...],
        config: BonusConfig,
        action_space: Space[Any] | None,
        seed: int,
    ) -> None:
        super().__init__()
        check_method(method)
        check_config(config)
        c = complete(config)
        self.config = c
        self.obs_shape = tuple(obs_shape)
        shape, self.frame = seen_as(self.obs_shape, c.channels)
        with built_on_host(seed):
            self._build(split_method(method), shape, action_space)
        self.asks_memory = any(stage.asks_memory for _, stage in self.stage_items())
        if self.asks_memory:
            self._check_memory_can_tell(method)
        self.power = self.memory.power or self.surprise.power or c.power
        self.uses = set(self.surprise.uses)
        for _, stage in self.stage_items():
            self.uses |= set(stage.uses)
        self.actions = None
        if "action" in self.uses:
            self.actions = Actions(action_space)
        norms: dict[str, ObsWhitener | ObsScale] = {
            "whiten": ObsWhitener(shape),
            "scale": ObsScale(c.obs_scale),
            "bytes": ObsScale(1 / 128, -1.0),
        }
        self.obs_norm = choose(norms, self.surprise.obs_norm or c.obs_norm, "obs_norm")
        self.persistence = None
        if c.ignore_noise and self.uses:
            self.persistence = Persistence(shape)

    def _build(self, name: Method, shape: tuple[int, ...], action_space: Space[Any] | None) -> None:
        """The parts, in an order that a seed's weights depend on."""
        c = self.config
        entry = SURPRISES.get(name.surprise, NOTHING)
        self.surprise = entry.make(shape, action_space, c)
        stages: dict[str, nn.Module] = {}
        for stage in entry.stages:
            stages[stage] = STAGES[stage].make(shape, action_space, c)
        self.memory = MEMORIES[name.memory].make(self.surprise.n, c)
        for stage in name.stages:
            stages[stage] = STAGES[stage].make(shape, action_space, c)
        self.stages = Stages(stages)

    def _check_memory_can_tell(self, method: str) -> None:
        """Refuse a stage that asks what this memory does not know."""
        if self.memory.if_remembered(torch.zeros(1, 1, self.surprise.n, device="cpu")) is None:
            raise UserError(
                f"'{method}' has a stage that asks what remembering would save: only the memory sm "
                "with project_back can tell."
            )

    def stage_items(self) -> list[tuple[str, Stage]]:
        """The stages by name, in the order in which they change the reward."""
        items: Any = self.stages.items()
        return list(items)

    # --- asking ---

    def start(self, num_envs: int) -> Carry:
        """The carry before the first step: empty memories."""
        stages = {name: stage.start(num_envs) for name, stage in self.stage_items()}
        return Carry(self.surprise.start(num_envs), self.memory.start(num_envs), stages)

    def start_sequences(self, num: int, steps: int) -> Carry:
        """As `start`, for sequences of so many steps and no more."""
        stages = {name: stage.start(num) for name, stage in self.stage_items()}
        return Carry(self.surprise.start(num), self.memory.fresh(num, steps), stages)

    @torch.no_grad()
    def forward(self, chunk: Chunk, carry: Carry) -> tuple[Tensor, Trace, Carry]:
        """The raw reward (T, B) of a chunk, the trace behind it, and the carry after it."""
        first = chunk.first
        valid = chunk.valid
        pieces = self._pieces(chunk)
        u, inputs, after = self._surprises(chunk, pieces, carry)
        given = {name: prepare(stage, pieces) for name, stage in self.stage_items()}
        remembered = self._remembered(given, valid)
        shown = torch.where(remembered[..., None], u, 0.0)  # M has nothing to recall of a zero
        v, q, log, kept = self.memory(shown, first, valid, carry.memory)
        e = vector_norm(v, dim=-1) ** self.power
        steps = Steps(first, valid, remembered, u, v, e, self._e_if_remembered(shown))
        reward = unfiltered = e
        carries = {}
        traces = {}
        for name, stage in self.stage_items():
            reward, record, carries[name] = stage(reward, given[name], steps, carry.stages[name])
            traces[name] = StageTrace(given[name], record, reward)
            if not stage.filters:
                unfiltered = reward
        trace = Trace(
            u=u,
            q=q,
            v=v,
            e=e,
            unfiltered=unfiltered,
            inputs=inputs,
            remembered=remembered,
            log=log,
            stages=traces,
        )
        return torch.where(valid, reward, 0.0), trace, Carry(after, kept, carries)

    def _surprises(
        self, chunk: Chunk, pieces: list[Columns], carry: Carry
    ) -> tuple[Tensor, Columns, Any]:
        """The surprises (T, B, n), what they were made of, and the generator's carry."""
        inputs = prepare(self.surprise, pieces)
        inputs, after = self.surprise.unroll(inputs, chunk.first, chunk.valid, carry.surprise)
        u = in_pieces(self.surprise, inputs).unflatten(0, chunk.shape)
        u = torch.where(chunk.valid[..., None], u, 0.0)  # rows that never happened may hold NaN
        return u, inputs, after

    def _remembered(self, given: dict[str, Columns], valid: Tensor) -> Tensor:
        """The steps (T, B) that happened and that no stage withholds from the memory."""
        remembered = valid
        for name, stage in self.stage_items():
            may = stage.remembers(given[name])
            if may is not None:
                remembered = remembered & may.unflatten(0, valid.shape)
        return remembered

    def _e_if_remembered(self, u: Tensor) -> Tensor | None:
        """The e (T, B) if M held each surprise already, where a stage asks for it."""
        if not self.asks_memory:
            return None
        v = self.memory.if_remembered(u)
        assert v is not None
        e: Tensor = vector_norm(v, dim=-1) ** self.power
        return e

    def _pieces(self, chunk: Chunk) -> list[Columns]:
        """What the parts see, a few thousand flattened steps at a time."""
        columns = {name: getattr(chunk, name).flatten(0, 1) for name in self.uses}
        starts = range(0, chunk.valid.numel(), PIECE)
        return [self._seen(columns, slice(start, start + PIECE)) for start in starts]

    def _seen(self, columns: Columns, rows: slice) -> Columns:
        """Normalised observations, actions as numbers."""
        seen = {}
        for name, column in columns.items():
            if name == "action":
                assert self.actions is not None
                seen[name] = self.actions.encode(column[rows])
            else:
                seen[name] = self.see(column[rows])
        return seen

    def see(self, obs: Tensor) -> Tensor:
        """Observations (K, *obs_shape) as the parts see them."""
        if self.surprise.obs_norm == "bytes" and obs.is_floating_point():
            raise UserError(
                "lwm takes images as bytes, these are floats: pass uint8, such as "
                "(255 * obs).astype(np.uint8) of values in [0, 1]."
            )
        seen: Tensor = self.obs_norm(self.frame(obs))
        if self.persistence is None:
            return seen
        ignoring: Tensor = self.persistence(seen)
        return ignoring

    # --- learning, for trainers, which own an optimiser ---

    def losses(
        self,
        trace: Trace,
        rows: Tensor,
        rng: torch.Generator,
        weight: Tensor | None = None,
        sequences: Chunk | None = None,
    ) -> dict[str, Tensor]:
        """L_SG, L_M, L_W and the stages' losses on flattened steps (K,) that happened.

        Each step counts `weight` (K,). The weights are today's, the memories those of back then.
        `sequences` is the chunk of replayed sequences that the steps belong to, for generators that
        train through time.
        """
        c = self.config
        if sequences is None:
            u, losses = self.surprise.losses(take(trace.inputs, rows), c.loss, rng, weight)
        else:
            assert weight is not None
            u, losses = self.surprise.sequence_losses(
                trace.inputs, sequences, rows, c.loss, rng, weight
            )
        found = {"surprise": losses}
        learns = trace.remembered.flatten()[rows].to(u.dtype)
        if weight is not None:
            learns = learns * weight
        found["memory"] = self.memory.losses(u, rows, trace.log, learns)
        for name, stage in self.stage_items():
            seen = trace.stages[name]
            flat = {key: column.flatten(0, 1) for key, column in seen.record.items()}
            found[name] = stage.losses(take(seen.inputs, rows), take(flat, rows), weight, rng)
        return merge(found)

    def update_obs_norm(self, chunk: Chunk) -> None:
        """Take the steps that happened into the observations' statistics."""
        rows = chunk.valid_rows()
        next_obs = self.frame(chunk.next_obs.flatten(0, 1)[rows])
        self.obs_norm.update(next_obs)
        if self.persistence is not None:
            self.persistence.update(self.frame(chunk.obs.flatten(0, 1)[rows]), next_obs)

    def update_stages(self, trace: Trace, valid: Tensor, warmup: bool) -> None:
        """Take a chunk into the stages' statistics."""
        for name, stage in self.stage_items():
            stage.update(trace.stages[name].record, valid, warmup)

    def commit(self, log: Any, valid: Tensor, carry: Carry) -> Carry:
        """Take a chunk into what lasts of the memory; returns the carry that goes with it."""
        return Carry(carry.surprise, self.memory.commit(log, valid, carry.memory), carry.stages)
