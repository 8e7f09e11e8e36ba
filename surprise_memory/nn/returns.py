"""Returns and advantages: pure functions over time-major arrays."""

import torch
from torch import Tensor

from surprise_memory.nn.devices import double


def gae(
    reward: Tensor,
    value: Tensor,
    last_value: Tensor,
    ends: Tensor,
    valid: Tensor,
    gamma: float | Tensor,
    lam: float,
    end_value: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation.

    A_t = delta_t + gamma lambda A_{t+1},    delta_t = r_t + gamma v_{t+1} - v_t

    reward, value (T, B). last_value (B,) is the value of what follows the last row. ends (T, B)
    bool says where the trace stops; all False for a non-episodic stream. There v_{t+1} is
    `end_value` (T, B): zero at a true end, the value of the final observation at a time limit;
    None means zero. gamma is one number, or (T, B) if it differs from step to step. Rows that are
    not valid are skipped.
    """
    advantage = torch.zeros_like(reward)
    if end_value is None:
        end_value = torch.zeros_like(value)
    carry = torch.zeros_like(last_value)
    v_next = last_value
    for t in reversed(range(reward.shape[0])):
        goes_on = ~ends[t]
        discount = gamma[t] if isinstance(gamma, Tensor) else gamma
        successor = torch.where(goes_on, v_next, end_value[t])
        delta = reward[t] + discount * successor - value[t]
        advantage[t] = delta + discount * lam * torch.where(goes_on, carry, 0.0)
        carry = torch.where(valid[t], advantage[t], carry)
        v_next = torch.where(valid[t], value[t], v_next)
    return advantage


def discounted_filter(
    reward: Tensor, carry: Tensor, valid: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """R_t = gamma R_{t-1} + r_t along time, per environment; invalid rows leave R as it was.

    reward, valid (T, B); carry (B,) is R before the first row. Returns R (T, B), last R (B,).
    """
    filtered = torch.empty_like(reward)
    for t in range(reward.shape[0]):
        carry = torch.where(valid[t], gamma * carry + reward[t], carry)
        filtered[t] = carry
    return filtered, carry


def rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al., 2018).

    Makes large returns small, in place of clipping.
    """
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + eps * x


def unscale(y: Tensor, eps: float = 1e-3) -> Tensor:
    """The inverse of `rescale`; in float64, because it subtracts nearly equal numbers."""
    z = double(y)
    root = ((1 + 4 * eps * (z.abs() + 1 + eps)).sqrt() - 1) / (2 * eps)
    return (z.sign() * (root.square() - 1)).to(y)


def n_step(reward: Tensor, ends: Tensor, value: Tensor, n: int, gamma: float) -> Tensor:
    """r_t + gamma r_{t+1} + ... + gamma^n v_{t+n}, cut off after the first end.

    reward, ends (T, B) of T transitions; value (T + 1, B) of the states before and after them.
    Returns (T - n + 1, B): the last n - 1 steps have no full return.
    """
    steps = len(reward) - n + 1
    total = torch.zeros_like(reward[:steps])
    alive = torch.ones_like(reward[:steps])
    for k in range(n):
        total = total + alive * reward[k : k + steps]
        alive = alive * gamma * ~ends[k : k + steps]
    return total + alive * value[n : n + steps]
