"""NGU's episodic factor (Badia et al., 2020): novelty in the episode times life-long surprise.

| symbol | meaning                                                               |
|--------|-----------------------------------------------------------------------|
| f(s)   | embedding of the controllable state, trained to predict the action    |
| d^2    | squared distances from f(s') to its k nearest in this episode         |
| d_m^2  | running mean of these                                                 |
| K      | kernel eps / (max(d^2 / d_m^2 - xi, 0) + eps), near 1 for a repeat    |
| r_epi  | 1 / (sqrt(sum of K) + c), and 0 above s_max                           |
| alpha  | 1 + (e - mean e) / std e, clipped to [1, L]; e is the reward so far   |

The reward is r_epi * alpha. NGU is RND with this stage. With a memory, e is the novelty of RND's
surprise.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surprise_memory.errors import require, require_width
from surprise_memory.nn.actions import Actions
from surprise_memory.nn.moments import RunningMoments
from surprise_memory.nn.nets import encoder, mlp
from surprise_memory.stages.base import Columns, Stage, Steps
from surprise_memory.types import episode_ages

BLOCK = 2**23  # distances held at once


@dataclass(frozen=True)
class NGUConfig:
    """The episodic factor of never give up; its life-long part is RND (rnd.n, rnd.hidden)."""

    k: int = 10
    """Nearest neighbours; an episode with fewer steps pays nothing."""
    capacity: int = 30_000
    """Newest embeddings of an episode that are kept."""
    embedding: int = 32
    """Width of f."""
    hidden: int = 128
    """Width of the hidden layers."""
    eps: float = 1e-4
    """Kernel's epsilon; 1e-3 in the NGU paper's text, 1e-4 in its public code."""
    xi: float = 0.008
    """Squared distances below this many times the mean count as zero."""
    c: float = 1e-3
    """Keeps the episodic reward finite."""
    s_max: float = 8.0
    """Similarity above which the episodic reward is zero."""
    clip: float = 5.0
    """Largest life-long factor (L)."""


@dataclass(frozen=True)
class Visited:
    """What the running episodes have seen."""

    log: Tensor  # (B, rows, p) embeddings, newest last
    age: Tensor  # (B,) int64, steps since the episode began


class Episodic(Stage):
    """The reward becomes r_epi * alpha, where e is the reward that comes in."""

    uses = ("obs", "action", "next_obs")
    logged = ("episodic", "alpha")

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: Actions,
        config: NGUConfig,
        momentum: float | None = None,
    ) -> None:
        """`momentum` is the window of the running statistics, as `RunningMoments` takes it."""
        super().__init__()
        c = config
        require(c.k >= 1, "ngu.k", c.k, "at least 1")
        require(c.capacity >= c.k, "ngu.capacity", c.capacity, f"at least ngu.k = {c.k}")
        require_width("ngu.embedding", c.embedding)
        require_width("ngu.hidden", c.hidden)
        for name in ("eps", "c", "s_max"):
            value = getattr(c, name)
            require(value > 0, f"ngu.{name}", value, "above 0")
        require(c.xi >= 0, "ngu.xi", c.xi, "at least 0")
        require(c.clip >= 1, "ngu.clip", c.clip, "at least 1")
        self.actions = actions
        self.config = config
        self.embed = encoder(shape, [c.hidden, c.hidden], c.embedding, nn.ReLU)
        self.inverse_model = mlp([2 * c.embedding, c.hidden, actions.width], nn.ReLU)
        self.distance = RunningMoments(momentum=momentum)
        self.error = RunningMoments(momentum=momentum)

    @torch.no_grad()
    def prepare(self, seen: Columns) -> Columns:
        """The transition, and the embedding as it is while acting."""
        return seen | {"embedding": self.embed(seen["next_obs"])}

    def start(self, num_envs: int) -> Visited:
        """Nothing visited."""
        weight = next(self.embed.parameters())
        log = weight.new_zeros(num_envs, 0, self.config.embedding)
        return Visited(log, log.new_zeros(num_envs, dtype=torch.int64))

    @torch.no_grad()
    def forward(
        self, reward: Tensor, inputs: Columns, steps: Steps, carry: Visited
    ) -> tuple[Tensor, Columns, Visited]:
        """r_epi * alpha; nothing before the running mean of the distances is known."""
        c = self.config
        points = inputs["embedding"].unflatten(0, reward.shape)
        distance, carry = episodic_knn(points, steps.first, steps.valid, carry, c.k, c.capacity)
        device = reward.device
        episodic = episodic_reward(distance, self.distance.mean.to(distance), c)
        episodic = torch.where((self.distance.count >= 1).to(device), episodic, 0.0)
        alpha = lifelong_factor(reward, self.error, c.clip)
        alpha = torch.where((self.error.count >= 1).to(device), alpha, 1.0)
        record = {"e": reward, "distance": distance, "episodic": episodic, "alpha": alpha}
        return (episodic * alpha).to(reward.dtype), record, carry

    def losses(
        self, inputs: Columns, record: Columns, weight: Tensor | None, rng: torch.Generator
    ) -> dict[str, Tensor]:
        """The inverse model's loss, which alone trains the embedding."""
        before = self.embed(inputs["obs"])
        after = self.embed(inputs["next_obs"])
        guess = self.inverse_model(torch.cat([before, after], 1))
        return {"inverse": self.actions.inverse_loss(guess, inputs["action"], weight)}

    def update(self, record: Columns, valid: Tensor, warmup: bool) -> None:
        """Take in the distances, and e after the warm-up: untrained surprises are far too large."""
        distance = record["distance"][valid]
        self.distance.update(distance[distance.isfinite()])
        if not warmup:
            self.error.update(record["e"][valid])


def episodic_knn(
    points: Tensor, first: Tensor, valid: Tensor, carry: Visited, k: int, capacity: int
) -> tuple[Tensor, Visited]:
    """Squared distances (T, B, k) of points (T, B, p) to the nearest earlier ones of the episode.

    They are inf where there are fewer. A point is never its own neighbour.
    """
    T, B = first.shape
    age, next_age = episode_ages(first, valid, carry.age)
    points = torch.where(valid[..., None], points, 0.0)  # what never happened may hold anything
    log = torch.cat([carry.log, points.transpose(0, 1)], 1)  # step t is row L + t
    length = log.shape[1]
    place = torch.arange(length - T, length, device=log.device)[None, :, None]  # (1, T, 1)
    row = torch.arange(length, device=log.device)
    oldest = place - age.clamp(max=capacity).T[:, :, None]  # (B, T, 1)
    found = points.new_full((B, T, k), torch.inf)
    for envs in torch.arange(B, device=log.device).split(max(1, BLOCK // (T * length))):
        hidden = (row < oldest[envs]) | (row >= place)
        found[envs] = nearest(log[envs, -T:], log[envs], hidden, k)
    keep = min(capacity, int(next_age.max()))
    return found.transpose(0, 1), Visited(log[:, length - keep :].clone(), next_age)


def nearest(query: Tensor, keys: Tensor, hidden: Tensor, k: int) -> Tensor:
    """The k smallest squared distances of query (b, T, p) to keys (b, L, p).

    Keys that are `hidden` (b, T, L) do not count. A product finds the neighbours quickly, about
    their centre for precision. Their distances are then taken from the differences, because
    |a|^2 + |b|^2 - 2 ab of two equal points is not zero in float32.
    """
    centre = keys.mean(1, keepdim=True)
    centred = keys - centre
    products = 2 * (query - centre) @ centred.transpose(1, 2)
    rough = centred.square().sum(2)[:, None] - products  # |b|^2 - 2 ab
    rough.masked_fill_(hidden, torch.inf)
    values, which = rough.topk(min(k, rough.shape[2]), dim=2, largest=False, sorted=False)
    near = keys[torch.arange(len(keys), device=keys.device)[:, None, None], which]  # (b, T, k, p)
    exact = (near - query[:, :, None]).square().sum(3).masked_fill(values.isinf(), torch.inf)
    return nn.functional.pad(exact, (0, k - exact.shape[2]), value=torch.inf)


def episodic_reward(distance: Tensor, mean: Tensor, config: NGUConfig) -> Tensor:
    """Compute r_epi from squared distances (..., k); zero in an episode's first k steps."""
    c = config
    kernel = c.eps / ((distance / mean.clamp(min=1e-12) - c.xi).clamp(min=0) + c.eps)
    similarity = kernel.sum(-1).sqrt() + c.c
    pays = distance.isfinite().all(-1) & (similarity <= c.s_max)
    return torch.where(pays, 1 / similarity, 0.0)


def lifelong_factor(e: Tensor, seen: RunningMoments, clip: float) -> Tensor:
    """Alpha = 1 + (e - mean) / std, clipped to [1, clip]."""
    std = (seen.var + 1e-8).sqrt().to(e)
    return (1 + (e - seen.mean.to(e)) / std).clamp(1, clip)
