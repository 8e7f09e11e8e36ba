"""The matrix multiplications that no implementation of a method can avoid, to be timed alone."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from surprise_memory.agents.policy import Policy
from surprise_memory.bonus import RolloutTrainer
from surprise_memory.memory import NoMemory, SurpriseMemory
from surprise_memory.nn.nets import PIECE
from surprise_memory.surprise import RND
from surprise_memory.training.config import RunConfig

Matmul = tuple[Tensor, Tensor, Tensor]  # a (m, k), b (k, n), where to put a b (m, n)


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
        per_row = 0
        for layer in self.layers:
            passes = 1
            if self.learn:
                passes += layer.weight_grad + layer.input_grad
            per_row += layer.i * layer.o * passes
        return self.times * self.rows * per_row


def jobs(run: RunConfig, policy: Policy, bonus: RolloutTrainer | None) -> list[Job]:
    """The multiplications of one rollout, in the batch sizes of training.

    They are known for vectors, without a bonus or with RND's and no stage. Elsewhere the list is
    empty.
    """
    if any(isinstance(module, nn.Conv2d) for module in policy.modules()):
        return []
    if bonus is None:
        return policy_jobs(run, policy)
    model = bonus.model
    if not isinstance(model.surprise, RND) or model.stage_items():
        return []
    if isinstance(model.memory, SurpriseMemory):
        recall = memory_layers(model.memory)
    elif isinstance(model.memory, NoMemory):
        recall = []
    else:
        return []
    return policy_jobs(run, policy) + bonus_jobs(run, model.surprise, recall)


def policy_jobs(run: RunConfig, policy: Policy) -> list[Job]:
    """Acting, the value of what follows the last row, and PPO's updates."""
    rows = run.envs * run.rollout
    c = run.ppo
    net = layers(policy)
    return [
        Job(run.rollout + 1, run.envs, net, learn=False),
        Job(c.epochs * c.minibatches, rows // c.minibatches, net, learn=True),
    ]


def bonus_jobs(run: RunConfig, surprise: RND, recall: list[Layer]) -> list[Job]:
    """Asking, a piece at a time, and the updates of a bonus; `recall` are its memory's layers."""
    rows = run.envs * run.rollout
    c = run.bonus
    predictor = layers(surprise.predictor)
    target = layers(surprise.target, trained=False)
    batch = max(1, int(rows * c.proportion) // c.minibatches)
    todo = []
    for start in range(0, rows, PIECE):
        todo.append(Job(1, min(PIECE, rows - start), predictor + target, learn=False))
    todo.append(Job(1, rows, recall, learn=False))
    todo.append(Job(c.epochs * c.minibatches, batch, predictor + recall, learn=True))
    return todo


def layers(net: nn.Module, trained: bool = True, input_grad: bool = False) -> list[Layer]:
    """A network's linear layers; `input_grad`: a gradient also flows out of the first one."""
    found: list[Layer] = []
    for module in net.modules():
        if isinstance(module, nn.Linear):
            flows_on = len(found) > 0 or input_grad
            sizes = (module.in_features, module.out_features)
            found.append(Layer(*sizes, weight_grad=trained, input_grad=trained and flows_on))
    return found


def memory_layers(memory: SurpriseMemory) -> list[Layer]:
    """Q, V and W."""
    m = memory.m
    w = memory.w
    c = memory.config
    found: list[Layer] = []
    if m is not None:
        n, d = m.Q.shape
        found.append(Layer(n, d, c.train_q, c.m_trains_surprise))
        if m.V is not None:
            found.append(Layer(d, n, True, c.train_q))
    if w is not None:
        attached = m is not None and c.attach_read and not c.m_trains_surprise
        found += layers(w, input_grad=attached)
    return found


def matmuls(job: Job) -> list[Matmul]:
    """One pass of a job on tensors of its own, in the layouts and in the order of nn.Linear."""
    forward: list[Matmul] = []
    backward: list[Matmul] = []
    for layer in job.layers:
        x = torch.randn(job.rows, layer.i, device="cpu")
        weight = torch.randn(layer.o, layer.i, device="cpu")
        grad = torch.randn(job.rows, layer.o, device="cpu")
        forward.append((x, weight.t(), torch.empty_like(grad)))
        if job.learn and layer.weight_grad:
            backward.append((grad.t(), x, torch.empty_like(weight)))
        if job.learn and layer.input_grad:
            backward.append((grad, weight, torch.empty_like(x)))
    return forward + backward[::-1]
