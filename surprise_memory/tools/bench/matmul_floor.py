"""The matrix multiplications that no implementation of a method can avoid, to be timed alone."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from surprise_memory.agents.ppo import Policy
from surprise_memory.bonus import RolloutTrainer
from surprise_memory.memory import Memory, NoMemory, SurpriseMemory
from surprise_memory.surprise import RND
from surprise_memory.training.config import RunConfig

ASKED = 4096  # rows that Bonus.forward shows to its networks at once

Product = tuple[Tensor, Tensor, Tensor]  # a (m, k), b (k, n), where to put a b (m, n)


class Layer(NamedTuple):
    """A weight (i, o), and the gradients that its training needs."""

    i: int
    o: int
    weight_grad: bool
    input_grad: bool


class Job(NamedTuple):
    """`times` passes of `rows` rows through some layers, forward only or also backward."""

    times: int
    rows: int
    layers: list[Layer]
    learn: bool

    @property
    def multiply_adds(self) -> int:
        """How many, in all."""
        per_row = sum(
            x.i * x.o * (1 + (x.weight_grad + x.input_grad) * self.learn) for x in self.layers
        )
        return self.times * self.rows * per_row


def jobs(run: RunConfig, policy: Policy, bonus: RolloutTrainer | None) -> list[Job]:
    """The multiplications of one rollout, in the batch sizes of training; listed for vectors, without a bonus or with RND's."""
    if any(isinstance(m, nn.Conv2d) for m in policy.modules()):
        return []
    if bonus is not None and not is_listed(bonus):
        return []
    rows, ppo, net = run.envs * run.rollout, run.ppo, layers(policy)
    todo = [
        Job(run.rollout + 1, run.envs, net, False)
    ]  # acting, and the value of what follows the last row
    todo += [Job(ppo.epochs * ppo.minibatches, rows // ppo.minibatches, net, True)]
    if bonus is not None:
        c, surprise = bonus.config, bonus.model.surprise
        assert isinstance(surprise, RND)
        predictor, memory = layers(surprise.predictor), memory_layers(bonus.model.memory)
        once = predictor + layers(surprise.target, trained=False)
        todo += [Job(1, len(part), once, False) for part in torch.arange(rows).split(ASKED)]
        todo += [Job(1, rows, memory, False)]
        todo += [
            Job(
                c.epochs * c.minibatches,
                max(1, int(rows * c.proportion) // c.minibatches),
                predictor + memory,
                True,
            )
        ]
    return todo


def is_listed(bonus: RolloutTrainer) -> bool:
    """Whether the bonus is RND, alone or with M and W, and nothing more."""
    model = bonus.model
    known = isinstance(model.memory, NoMemory | SurpriseMemory)
    return isinstance(model.surprise, RND) and known and not model.stages


def layers(net: nn.Module, trained: bool = True, input_grad: bool = False) -> list[Layer]:
    """A network's linear layers; `input_grad` says whether a gradient flows on out of the first."""
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    return [
        Layer(m.in_features, m.out_features, trained, trained and (i > 0 or input_grad))
        for i, m in enumerate(linear)
    ]


def memory_layers(memory: Memory) -> list[Layer]:
    """Q, V and W; nothing without them."""
    if not isinstance(memory, SurpriseMemory):
        return []
    m, c, found = memory.m, memory.config, list[Layer]()
    if m is not None:
        n, d = m.Q.shape
        found += [Layer(n, d, c.train_q, c.m_trains_surprise)]
        found += [Layer(d, n, True, c.train_q)] if m.V is not None else []
    attached = m is not None and c.attach_read and not c.m_trains_surprise
    return found + (layers(memory.w, input_grad=attached) if memory.w is not None else [])


def products(job: Job) -> list[Product]:
    """One pass of a job as matrix products on tensors of their own, in the layouts and in the order of nn.Linear."""
    forward, backward = list[Product](), list[Product]()
    for layer in job.layers:
        x, weight, grad = (
            torch.randn(job.rows, layer.i),
            torch.randn(layer.o, layer.i),
            torch.randn(job.rows, layer.o),
        )
        forward.append((x, weight.t(), torch.empty_like(grad)))
        if job.learn and layer.weight_grad:
            backward.append((grad.t(), x, torch.empty_like(weight)))
        if job.learn and layer.input_grad:
            backward.append((grad, weight, torch.empty_like(x)))
    return forward + backward[::-1]
