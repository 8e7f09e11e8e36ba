"""The intrinsic reward: see -> surprise u -> memory v -> |v| -> scale. The one plug that everybody sees.

| symbol | shape     | meaning                                                            | paper       |
|--------|-----------|--------------------------------------------------------------------|-------------|
| u      | (T, B, n) | surprise: what the generator predicted minus what it saw           | equation 1  |
| u^e    | (T, B, n) | what the episodic memory M recalls when it is asked for u          | section 2.3 |
| q      | (T, B,2n) | [u^e, u], the query to the autoencoder W                           | section 2.3 |
| v      | (T, B,2n) | W(q) - q, what the memory cannot reconstruct                       | equation 4  |
| r_int  | (T, B)    | |v| divided by the running std of its discounted return            | appendix C  |

The generator has the last word on the reward: NGU multiplies |v| with an episodic factor of its own.

Three verbs. Calling a bonus asks and changes nothing; `losses` is pure; `absorb` is the one place where anything moves: it
pays a rollout, learns from it, and updates the running statistics. For your own loop, see `Bonus.step` and `Bonus.update`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.linalg import vector_norm

from surprise_memory.bonus.methods import BonusConfig, check_method, split_method
from surprise_memory.bonus.online import Shell
from surprise_memory.errors import UserError, choose, require
from surprise_memory.memory import MEMORIES
from surprise_memory.nn.nets import is_image
from surprise_memory.nn.normalise import ObsScale, ObsWhitener, RewardScaler
from surprise_memory.surprise import SURPRISES, Actions, Expectation
from surprise_memory.types import Chunk

WARMUP_UPDATES = 2  # updates before `step` pays anything: one teaches what is ordinary, one finds the reward's scale


@dataclass(frozen=True)
class Carry:
    """What lasts between the steps of an episode: the generator's part and the memory's, None where there is none."""

    surprise: Any
    memory: Any


@dataclass(frozen=True)
class Trace:
    """What a bonus saw on a chunk: everything that metrics, pictures and training need, (T, B, ...) each."""

    u: Tensor
    q: Tensor
    v: Tensor
    e: Tensor  # |v|^power, before the generator's last word
    inputs: dict[str, Tensor]  # flattened (T*B, ...)
    extras: dict[str, Tensor]  # of the generator's `pay`
    log: Any  # of the memory

    @property
    def surprise_norm(self) -> Tensor:
        """|u| (T, B), what the generator alone would pay."""
        norm: Tensor = vector_norm(self.u, dim=-1)
        return norm

    @property
    def novelty(self) -> Tensor:
        """|v| (T, B), what the memory leaves of it."""
        norm: Tensor = vector_norm(self.v, dim=-1)
        return norm


def last_frame(obs: Tensor) -> Tensor:
    """Images (..., C, H, W) to their newest frame in grey, (..., 1, H, W); 3 channels, or stacks of 3, are RGB."""
    channels = obs.shape[-3]
    if channels % 3:
        return obs[..., -1:, :, :].float()
    weights = torch.tensor([0.299, 0.587, 0.114], device=obs.device)[:, None, None]
    return (obs[..., -3:, :, :].float() * weights).sum(-3, keepdim=True)


class Bonus(nn.Module):
    """An intrinsic reward. All that lasts is in its state_dict; what episodes leave behind is in the carry, kept by `step`."""

    rollouts: Tensor

    def __init__(
        self,
        method: str,
        obs_shape: tuple[int, ...],
        num_envs: int,
        config: BonusConfig | None = None,
        seed: int = 0,
        action_space: Space[Any] | None = None,
    ) -> None:
        """`method` is generator[+memory], such as 'rnd+sm'; observations are vectors (k,) or images (C, H, W).

        `action_space` is of one environment; generators that model actions (icm, ngu, disagreement, lwm) and `expect` need it.
        """
        super().__init__()
        c = self.config = config or BonusConfig()
        check_method(method)
        require(num_envs >= 1, "num_envs", num_envs, "at least 1")
        require(c.power in (1, 2), "power", c.power, "1 or 2")
        require(0 < c.proportion <= 1, "proportion", c.proportion, "above 0 and at most 1")
        require(
            c.epochs >= 1 and c.minibatches >= 1,
            "epochs, minibatches",
            (c.epochs, c.minibatches),
            "at least 1",
        )
        rates = (c.lr, c.memory_lr, c.expect_lr)
        require(min(rates) > 0, "lr, memory_lr, expect_lr", rates, "above 0")
        choose({"norm": 0, "squared": 0}, c.loss, "loss")
        self.method, self.num_envs, self.obs_shape = method, num_envs, tuple(obs_shape)
        surprise, memory = split_method(method)
        image = is_image(obs_shape)
        shape = (1, *obs_shape[1:]) if image else self.obs_shape
        self.frame: Callable[[Tensor], Tensor] = last_frame if image else nn.Identity()
        with torch.random.fork_rng(devices=[]):  # our rng never shift the caller's stream
            torch.manual_seed(seed)
            self.surprise = SURPRISES[surprise].make(shape, action_space, c)
            self.memory = MEMORIES[memory].make(self.surprise.n, c)
            self.expectation = Expectation(shape, Actions(action_space)) if c.expect else None
        self.power = self.memory.power or self.surprise.power or c.power
        self.uses = set(self.surprise.uses) | ({"obs", "action"} if c.expect else set())
        self.encode_action = Actions(action_space).encode if "action" in self.uses else None
        see: dict[str, ObsWhitener | ObsScale] = {
            "whiten": ObsWhitener(shape),
            "scale": ObsScale(c.obs_scale),
            "bytes": ObsScale(1 / 128, -1.0),
        }
        self.see = choose(see, self.surprise.obs_norm or c.obs_norm, "obs_norm")
        self.scaler = self.make_scaler()
        self.rng = torch.Generator().manual_seed(seed)
        groups: list[tuple[nn.Module, float]] = [
            (self.surprise, self.surprise.lr or c.lr),
            (self.memory, self.surprise.lr or c.memory_lr),
        ]
        groups += [(self.expectation, c.expect_lr)] if self.expectation else []
        learn = [
            {"params": [p for p in m.parameters() if p.requires_grad], "lr": lr} for m, lr in groups
        ]
        # eps 1e-8: PPO's usual 1e-5 stalls losses whose gradients are small per parameter.
        self.optimiser = torch.optim.Adam([g for g in learn if g["params"]], eps=1e-8, fused=True)
        self.register_buffer("rollouts", torch.tensor(0))
        self.shell = Shell()

    def make_scaler(self) -> Any:
        """What puts raw rewards on the policy's scale."""
        return RewardScaler(self.num_envs, self.config.gamma, self.config.scale_momentum)

    # --- asking -------------------------------------------------------------------------------------------------------

    def start(self, num_envs: int | None = None) -> Carry:
        """The carry before the first step: empty memories. Asking works for any number of environments."""
        B = num_envs or self.num_envs
        return Carry(self.surprise.start(B), self.memory.start(B))

    @torch.no_grad()
    def forward(self, chunk: Chunk, carry: Carry) -> tuple[Tensor, Trace, Carry]:
        """The raw reward (T, B) of a chunk, the trace behind it, and the memory after it. Nothing moves."""
        looks = [
            self._look(chunk, slice(start, start + 4096))
            for start in range(0, chunk.valid.numel(), 4096)
        ]
        pieces = [self.surprise.prepare(look) for look in looks]
        inputs = {name: torch.cat([p[name] for p in pieces]) for name in pieces[0]}
        inputs, unrolled = self.surprise.unroll(inputs, chunk.first, chunk.valid, carry.surprise)
        parts = [
            {name: x[start : start + 4096] for name, x in inputs.items()}
            for start in range(0, chunk.valid.numel(), 4096)
        ]
        u = torch.cat([self.surprise(part) for part in parts]).unflatten(0, chunk.shape)
        u = torch.where(
            chunk.valid[..., None], u, 0.0
        )  # what never happened may hold anything, even NaN
        v, q, log, remembered = self.memory(u, chunk.first, chunk.valid, carry.memory)
        e = vector_norm(v, dim=-1) ** self.power
        reward, extras, visited = self.surprise.pay(e, inputs, chunk.first, chunk.valid, unrolled)
        if self.expectation:
            known = {
                f"known_{name}": torch.cat([look[name] for look in looks])
                for name in ("obs", "action")
            }
            expected = torch.cat(
                [self.expectation(look["obs"], look["action"]) for look in looks]
            ).unflatten(0, chunk.shape)
            inputs, extras = (
                inputs | known | {"found": reward.flatten()},
                extras | {"expected": expected},
            )
            reward = (reward - expected).clamp(min=0)
        trace = Trace(u, q, v, e, inputs, extras, log)
        return torch.where(chunk.valid, reward, 0.0), trace, Carry(visited, remembered)

    def _look(self, chunk: Chunk, rows: slice) -> dict[str, Tensor]:
        """What the generator sees of some flattened steps: normalised observations, actions as numbers."""
        seen = {}
        for name in self.uses:
            column = getattr(chunk, name).flatten(0, 1)[rows]
            seen[name] = (
                self.encode_action(column)
                if name == "action" and self.encode_action
                else self.see(self.frame(column))
            )
        return seen

    def losses(self, trace: Trace, rows: Tensor) -> dict[str, Tensor]:
        """L_SG, L_M, L_W on some flattened steps (K,), with today's weights and the memories of back then."""
        inputs = {name: column[rows] for name, column in trace.inputs.items()}
        u, losses = self.surprise.losses(inputs, self.config.loss, self.rng)
        if self.expectation:
            losses["expect"] = self.expectation.loss(
                inputs["known_obs"], inputs["known_action"], inputs["found"]
            )
        return losses | self.memory.losses(u, rows, trace.log)

    # --- moving -------------------------------------------------------------------------------------------------------

    def absorb(
        self, chunk: Chunk, carry: Carry, warmup: bool = False
    ) -> tuple[Tensor, dict[str, float], Carry]:
        """Pay a rollout and learn from it. Returns (scaled reward (T, B), metrics, carry).

        The order: reward with the statistics of the rollout before; the reward scale takes it in; the networks train; the
        other statistics take it in. In a warm-up (random policy) the statistics of the observations come first and
        the reward scale learns nothing: untrained surprises are 10 to 10,000 times too large, and it forgets slowly.
        """
        if chunk.shape[1] != self.num_envs:
            raise UserError(
                f"This bonus was made for {self.num_envs} environments, the chunk has {chunk.shape[1]}."
            )
        opening = (
            self.rollouts == 0
        )  # nothing is known yet: statistics start from what they are about to judge
        if warmup or opening:
            self._see_more(chunk)
        raw, trace, after = self(chunk, carry)
        if opening:
            self.surprise.absorb(trace.e, trace.extras, chunk.valid, warmup)
            raw, trace, after = self(chunk, carry)
        self.scaler.absorb(raw, chunk.valid, warmup)
        losses = self._train(chunk, trace)
        if not (warmup or opening):
            self._see_more(chunk)
        if not opening:
            self.surprise.absorb(trace.e, trace.extras, chunk.valid, warmup)
        after = Carry(after.surprise, self.memory.absorb(trace.log, chunk.valid, after.memory))
        self.rollouts += 1
        reward = self.reward(raw)
        return (
            reward,
            {f"losses/{k}": x for k, x in losses.items()} | self.metrics(chunk, trace, reward),
            after,
        )

    def reward(self, raw: Tensor) -> Tensor:
        """Raw rewards of any shape on the scale of the policy's."""
        scaled: Tensor = self.memory.beta * self.scaler(raw)
        return scaled

    def _see_more(self, chunk: Chunk) -> None:
        self.see.absorb(self.frame(chunk.next_obs.flatten(0, 1)[chunk.valid_rows()]))

    def _train(self, chunk: Chunk, trace: Trace) -> dict[str, float]:
        """Epochs x minibatches Adam steps, each pass on a fresh draw of `proportion` of the rollout."""
        rows, c = chunk.valid_rows(), self.config
        if not len(rows):
            return {}
        size = max(1, int(len(rows) * c.proportion) // c.minibatches)
        for _ in range(c.epochs):
            order = rows[torch.randperm(len(rows), generator=self.rng)]
            for batch in order[: size * c.minibatches].split(size):
                losses = self.losses(trace, batch)
                self._step(losses)
        return {name: loss.item() for name, loss in losses.items()}

    def _step(self, losses: dict[str, Tensor]) -> None:
        """One step of Adam; what the losses do not reach stays where it is."""
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        self.optimiser.step()

    def metrics(self, chunk: Chunk, trace: Trace, reward: Tensor) -> dict[str, float]:
        """What tells whether a bonus is alive and whether its memory does anything.

        `novelty_norm_corr` near 1 and `energy_left` near 1 mean an idle memory: novelty is the norm under another name.
        """
        valid = chunk.valid
        if not valid.any():
            return {}
        norm, novelty = trace.surprise_norm[valid], trace.novelty[valid]
        report: dict[str, Any] = {
            "surprise_norm": norm.mean(),
            "novelty": novelty.mean(),
            "novelty_norm_corr": torch.corrcoef(torch.stack([norm, novelty]))[0, 1].nan_to_num(1.0),
            "reward_norm": reward[valid].mean(),
            "std": self.scaler.std,
        }
        report |= {
            name: note[valid].mean()
            for name, note in trace.extras.items()
            if note.shape == valid.shape
        }
        report |= self.memory.metrics(trace.u[valid], trace.v[valid], trace.q[valid])
        return {f"intrinsic/{name}": float(value) for name, value in report.items()}

    # --- state --------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """The optimiser, the random stream and what `step` has seen ride along in `state_dict()`."""
        state = {"optimiser": self.optimiser.state_dict(), "rng": self.rng.get_state()}
        return state | {"shell": self.shell.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The other half of get_extra_state."""
        self.optimiser.load_state_dict(
            copy.deepcopy(state["optimiser"])
        )  # torch would share the moments
        self.rng.set_state(state["rng"])
        self.shell.load(state["shell"], self.start())

    # --- the shell for other people's loops ---------------------------------------------------------------------------

    def step(self, obs: Any, action: Any, next_obs: Any, done: Any, valid: Any = None) -> Tensor:
        """The reward (B,) of one vector step. Give the true successor as `next_obs`, also where `done` (B,) is True.

        Nothing is paid before the second `update`: the first is a warm-up, the second finds the reward's scale. With
        Gymnasium's NEXT_STEP autoreset, pass `valid = ~done_of_the_step_before`.
        """
        shell = self.shell
        if shell.first is None:
            shell.first, shell.carry = torch.ones(self.num_envs, dtype=torch.bool), self.start()
            shell.opening = shell.carry
        row = shell.record(obs, action, next_obs, done, valid)
        assert shell.carry is not None
        raw, _, shell.carry = self(row, shell.carry)
        reward = self.reward(raw[0])
        return reward if self.rollouts >= WARMUP_UPDATES else torch.zeros_like(reward)

    def update(self) -> dict[str, float]:
        """Learn from all steps since the last update; call it once per rollout. Returns metrics."""
        if not self.shell.rows:
            raise UserError(
                "Bonus.update() was called before any Bonus.step(): there is nothing to learn from."
            )
        assert self.shell.opening is not None
        _, report, self.shell.carry = self.absorb(
            self.shell.chunk(), self.shell.opening, warmup=bool(self.rollouts == 0)
        )
        self.shell.rows, self.shell.opening = [], self.shell.carry
        return report
