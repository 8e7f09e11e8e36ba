"""What a run does in many processes and in one: joining the others, and this one's share."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from gymnasium import Space
from torch import Tensor
from torch import distributed as dist

from surprise_memory.agents import Agent
from surprise_memory.errors import UserError, require
from surprise_memory.nn import ranks
from surprise_memory.training.config import RunConfig
from surprise_memory.training.launched import launched

# Of the agent's and the bonus's state, what each rank has of its own.
OWN = ("rng", "filtered")


@contextmanager
def joined() -> Iterator[None]:
    """Inside, the processes that torchrun started are the ranks of one run."""
    if launched() == 1:
        yield
        return
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        if gpu < torch.cuda.device_count():
            torch.cuda.set_device(gpu)  # what --device cuda means in this process
    try:
        dist.init_process_group(backend)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"The processes of this run did not find each other ({reason}).") from error
    try:
        with ranks.together():
            yield
    finally:
        dist.destroy_process_group()


class Share(NamedTuple):
    """A rank's environments: so many, from this one of the run on."""

    start: int
    number: int


def share(envs: int) -> Share:
    """The share of this rank; the first ranks have one more where they cannot be equal.

    >>> share(64)
    Share(start=0, number=64)
    """
    allowed = f"at least {ranks.world()}: each process needs one"
    require(envs >= ranks.world(), "envs", envs, allowed)
    number, more = divmod(envs, ranks.world())
    rank = ranks.rank()
    return Share(rank * number + min(rank, more), number + (rank < more))


def check_processes(run: RunConfig) -> None:
    """Refuse a run that many processes cannot share."""
    if ranks.world() == 1:
        return
    if run.backbone == "dqn":
        raise UserError(
            "The recurrent DQN learns from a replay in one process: start it without torchrun, or "
            "use --agent ppo."
        )
    device = torch.device(run.device)
    own = device.type == "cpu" or (device.type == "cuda" and device.index is None)
    require(own, "device", run.device, "cpu or cuda with torchrun: each process takes its own GPU")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.type == "cuda" and torch.cuda.device_count() < here:
        raise UserError(
            f"This machine has {torch.cuda.device_count()} GPUs for {here} processes: lower "
            "--nproc-per-node."
        )


def learn_at_once(run: RunConfig) -> bool:
    """Whether agent and bonus may learn at the same time.

    Not over many processes: those have to talk to each other in one order. Nor on a GPU, which
    takes its work from one queue.
    """
    two_jobs = run.method != "none" and run.backbone != "dqn"
    return two_jobs and ranks.world() == 1 and torch.device(run.device).type == "cpu"


def join(agent: Agent, bonus: Any) -> None:
    """Make the ranks' agents one agent, and their bonuses one bonus."""
    if ranks.world() == 1:
        return
    agent.synchronise()
    if bonus is not None:
        bonus.synchronise()


def own_actions(space: Space[Any]) -> None:
    """Let each rank's random actions be others: its stream jumps so many draws ahead."""
    if not ranks.first():
        stream: Any = space.np_random.bit_generator
        stream.state = stream.jumped(ranks.rank()).state


def check_same(state: dict[str, Any]) -> None:
    """Refuse to go on where a rank has learnt something else than rank 0."""
    if ranks.world() == 1:
        return
    mine = {name: digest(x) for name, x in tensors(state, "") if name.split(".")[-1] not in OWN}
    theirs = ranks.from_first(mine)
    differ = [name for name in mine if mine[name] != theirs.get(name)]
    if ranks.anyones(bool(differ)):
        found = (differ or ["nothing"])[0]
        raise UserError(
            f"The processes no longer have the same networks and statistics ({found} differs "
            "here): a part of your own must change by gradients, or merge what it counts."
        )


def tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested dictionaries, by its path."""
    if isinstance(state, Tensor):
        yield name, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from tensors(value, f"{name}.{key}")


def digest(x: Tensor) -> str:
    """A short hash of a tensor's bytes."""
    return hashlib.sha1(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
