"""What the recurrent DQN learns from: errors against n-step, double, rescaled targets.

Values are rescaled by h(x) = sign(x)(sqrt(|x| + 1) - 1) + 0.001 x.
"""

import torch
from torch import Tensor

from surprise_memory.agents.base import State
from surprise_memory.agents.dqn_config import DQNConfig
from surprise_memory.agents.qnet import QNet
from surprise_memory.agents.replay import Sequences
from surprise_memory.nn.returns import n_step, rescale, unscale
from surprise_memory.types import zero_where


def td_errors(
    net: QNet,
    target_net: QNet,
    drawn: Sequences,
    r_int: Tensor | None,
    config: DQNConfig,
    first_action: int,
) -> Tensor:
    """Q(s, a) minus its target, both rescaled, for the steps after the burn-in: (unroll, K).

    r_int (T, K) is the bonus of the drawn transitions. `first_action` is the action space's lowest.
    """
    c = config
    chunk = drawn.chunk
    rows = network_rows(drawn)
    old = {name: x[: c.burn_in] for name, x in rows.items()}
    new = {name: x[c.burn_in :] for name, x in rows.items()}
    h = burn_in_state(net, old, drawn.initial_state)
    h_target = burn_in_state(target_net, old, drawn.initial_state)
    q, _ = net(new, h)  # (unroll + n_step, K, A)
    with torch.no_grad():
        later, _ = target_net(new, h_target)
        value = unscale(later.gather(2, q.argmax(2, keepdim=True)).squeeze(2))
        reward = chunk.reward
        if r_int is not None:
            reward = reward + c.int_coef * r_int
        reward = zero_where(~chunk.valid, reward)[c.burn_in :]
        returns = n_step(reward, chunk.done[c.burn_in :], value, c.n_step, c.gamma)
        target = rescale(returns)
    action = chunk.action[c.burn_in : c.burn_in + c.unroll] - first_action
    taken = q[: c.unroll].gather(2, action[..., None]).squeeze(2)
    error: Tensor = taken - target
    return error


def network_rows(drawn: Sequences) -> State:
    """The network's columns of all rows (length, K, ...), zero in rows that never happened."""
    chunk = drawn.chunk
    never = ~torch.cat([chunk.valid, drawn.last["valid"]])
    rows = {"first": torch.cat([chunk.first, drawn.last["first"]])}
    for name, x in ({"obs": chunk.obs} | chunk.extras).items():
        rows[name] = zero_where(never, torch.cat([x, drawn.last[name]]))
    return rows


@torch.no_grad()
def burn_in_state(net: QNet, rows: State, h: Tensor) -> Tensor:
    """The state (K, H) after some rows, from the state before them."""
    if not len(rows["first"]):
        return h
    _, states = net(rows, h)
    last: Tensor = states[-1]
    return last


def priorities(error: Tensor, valid: Tensor) -> Tensor:
    """0.9 max + 0.1 mean of |error| (T, K) over the steps that happened: (K,)."""
    error = error.masked_fill(~valid, 0.0)
    return 0.9 * error.amax(0) + 0.1 * error.sum(0) / valid.sum(0).clamp(min=1)
