"""Ask a trained bonus about every step of an episode, and write down each part's answer."""

from dataclasses import dataclass

import torch
from torch.linalg import vector_norm

from surprise_memory.bonus import Trace
from surprise_memory.bonus.trainer import Trainer
from surprise_memory.memory import SurpriseMemory
from surprise_memory.memory.episodic import read_weights
from surprise_memory.types import Chunk

SUM_TO_ONE = ("ntm", "softmax")


@dataclass(frozen=True)
class Recall:
    """How M was read at each step."""

    read: str
    sums_to_one: bool  # whether the weights are shares
    steps: list[int]  # those that M ever held
    weights: list[list[float]]  # of the steps that M held then, oldest first
    oldest: list[int]  # where in `steps` the one stands that the first weight belongs to
    norm: list[float]  # |u^e|, the size of what came back


@dataclass(frozen=True)
class Rebuilt:
    """What W was asked and what it returned at each step."""

    recalled: int  # so many numbers of q are u^e, the rest is u
    q: list[list[float]]
    w: list[list[float]]  # W(q)
    left: list[float]  # |W(q) - q|^2 / |q|^2


@dataclass(frozen=True)
class Answer:
    """What one bonus says of T steps, from the surprise to the reward."""

    run: str
    method: str
    power: int
    surprise_norm: list[float]  # |u|
    novelty: list[float]  # e = |v|^power
    stages: dict[str, list[float]]  # the reward after each
    scaled: list[float]  # what the policy is paid, before its own coefficient
    recall: Recall | None
    rebuilt: Rebuilt | None


def ask(bonus: Trainer, chunk: Chunk, run: str = "") -> Answer:
    """A bonus's answer about one episode (T, 1, ...), with its memory empty at the start."""
    raw, trace, _ = bonus(chunk, bonus.start(1))
    stages = {}
    for name, stage in trace.stages.items():
        stages[name] = stage.reward[:, 0].tolist()
    return Answer(
        run=run,
        method=bonus.method,
        power=bonus.model.power,
        surprise_norm=trace.surprise_norm[:, 0].tolist(),
        novelty=trace.e[:, 0].tolist(),
        stages=stages,
        scaled=bonus.reward(raw)[:, 0].tolist(),
        recall=recall_of(bonus, trace),
        rebuilt=rebuilt_of(bonus, trace),
    )


@torch.no_grad()
def recall_of(bonus: Trainer, trace: Trace) -> Recall | None:
    """The weights of M's slots; None without an M."""
    memory = bonus.model.memory
    if not isinstance(memory, SurpriseMemory) or memory.m is None:
        return None
    read = memory.m.read
    steps = len(trace.u)
    M, used = trace.log.windows(torch.arange(steps, device=trace.u.device))
    asked = trace.q[:, 0, memory.m.out :]  # the surprise, or zero where a stage withholds it
    k = asked @ memory.m.Q
    w = read_weights(k, M, used, read)  # (T, N), newest last
    filled = used.sum(1).tolist()
    weights = []
    for row, number in zip(w, filled, strict=True):
        weights.append(row[len(row) - number :].tolist())
    written = trace.log.written[:, 0].tolist()
    held = [t for t in range(steps - 1) if written[t + 1] > written[t]]
    u_e = trace.q[:, 0, : memory.m.out]
    return Recall(
        read=read,
        sums_to_one=read in SUM_TO_ONE,
        steps=held,
        weights=weights,
        oldest=[before - kept for before, kept in zip(written, filled, strict=True)],
        norm=vector_norm(u_e, dim=1).tolist(),
    )


def rebuilt_of(bonus: Trainer, trace: Trace) -> Rebuilt | None:
    """The query and its reconstruction; None without a W."""
    memory = bonus.model.memory
    if not isinstance(memory, SurpriseMemory) or memory.w is None:
        return None
    q = trace.q[:, 0]
    v = trace.v[:, 0]
    left = v.square().sum(1) / q.square().sum(1).clamp(min=1e-12)
    return Rebuilt(
        recalled=q.shape[1] - trace.u.shape[-1],
        q=q.tolist(),
        w=(q + v).tolist(),
        left=left.tolist(),
    )
