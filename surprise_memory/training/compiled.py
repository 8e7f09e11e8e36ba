"""`--compile`: the loss functions through torch.compile, from outside and never silently.

PPO's loss and the bonus's are pure functions of a minibatch, so each becomes one graph. The
recurrent DQN's is a loop over time, which would take far longer to compile: it stays as it is.
"""

from collections.abc import Callable
from typing import Any

import torch

from surprise_memory.agents import PPO, Agent
from surprise_memory.errors import UserError


def compile_losses(agent: Agent, bonus: Any) -> None:
    """Let an agent and a bonus, None without one, compute their losses in compiled graphs."""
    owners: dict[str, tuple[Any, str]] = {}
    if isinstance(agent, PPO):
        owners["PPO's loss"] = (agent, "loss")
    if bonus is not None:
        owners["the bonus's losses"] = (bonus.model, "losses")
    if not owners:
        raise UserError("--compile has nothing to compile here: leave it out.")
    mode = None
    if agent.device.type == "cuda":
        mode = "reduce-overhead"  # CUDA graphs
    for what, (owner, name) in owners.items():
        setattr(owner, name, compiled(getattr(owner, name), what, mode))
    what = " and ".join(owners)
    print(f"Compiling {what}: the first update takes up to some minutes.", flush=True)


def compiled(function: Callable[..., Any], what: str, mode: str | None) -> Callable[..., Any]:
    """A function as one graph, made when it is first called; a sentence where that is impossible.

    Losses that draw random numbers, such as disagreement's, are not one graph.
    """
    from torch._dynamo.exc import TorchDynamoException  # heavy: half a second

    fast = torch.compile(function, fullgraph=True, mode=mode)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fast(*args, **kwargs)
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"--compile cannot compile {what} ({reason}): leave it out for this method."
            ) from error

    return call
