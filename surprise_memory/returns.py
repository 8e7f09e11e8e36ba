"""Returns and advantages: pure functions over time-major arrays."""

import torch
from torch import Tensor


def gae(
    reward: Tensor,
    value: Tensor,
    last_value: Tensor,
    ends: Tensor,
    valid: Tensor,
    gamma: float,
    lam: float,
    end_value: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation, A_t = delta_t + gamma lambda A_{t+1}, delta_t = r_t + gamma v_{t+1} - v_t.

    reward, value (T, B); last_value (B,), the value of what follows the last row; ends (T, B) bool, where the trace stops
    (all False for a non-episodic stream). There v_{t+1} is `end_value` (T, B): zero at a true end, the value of the final
    observation at a time limit; None means zero. Rows that are not valid are stepped over as if they were not there.
    """
    advantage = torch.zeros_like(reward)
    carry, v_next = torch.zeros_like(last_value), last_value
    for t in reversed(range(reward.shape[0])):
        goes_on = ~ends[t]
        successor = torch.where(goes_on, v_next, 0.0 if end_value is None else end_value[t])
        delta = reward[t] + gamma * successor - value[t]
        advantage[t] = delta + gamma * lam * torch.where(goes_on, carry, 0.0)
        carry = torch.where(valid[t], advantage[t], carry)
        v_next = torch.where(valid[t], value[t], v_next)
    return advantage


def discounted_filter(reward: Tensor, carry: Tensor, valid: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """R_t = gamma R_{t-1} + r_t along time, per environment; rows that are not valid leave R as it was.

    reward, valid (T, B), carry (B,) is R before the first row. Returns (R (T, B), the last R (B,)).
    """
    filtered = torch.empty_like(reward)
    for t in range(reward.shape[0]):
        carry = torch.where(valid[t], gamma * carry + reward[t], carry)
        filtered[t] = carry
    return filtered, carry
