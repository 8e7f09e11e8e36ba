"""What a row of metrics says about a rollout besides the losses."""

from collections import deque

import numpy as np
from torch import Tensor

from surprise_memory.errors import UserError
from surprise_memory.nn import ranks
from surprise_memory.training.collect import RECENT, Episode, RunnerState
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import Chunk


def rollout_metrics(
    chunk: Chunk,
    r_int: Tensor | None,
    episodes: list[Episode],
    state: RunnerState,
) -> dict[str, float]:
    """Episodes, the noisy TV and rooms, if the environment has them; of all ranks.

    Adds the returns to `state.recent`.
    """
    episodes = [episode for theirs in ranks.everyones(episodes) for episode in theirs]
    state.recent.extend(value for value, _ in episodes)
    row = episode_metrics(episodes, state.recent)
    if state.task_reward_total is not None:
        row["charts/task_reward_total"] = sum(ranks.everyones(state.task_reward_total))
    return row | tv_metrics(chunk, r_int) | room_metrics(chunk, r_int)


def episode_metrics(episodes: list[Episode], recent: deque[float]) -> dict[str, float]:
    """Task return and length of the episodes that ended in this rollout; nothing where none did.

    Episodes that succeed end sooner. The mean of the first few would be theirs, so the mean of the
    last 128 is not given before there are as many.
    """
    row = {"charts/episodes": float(len(episodes))}
    if len(recent) == RECENT:
        row["charts/return_128"] = float(np.mean(recent))
    if episodes:
        row["charts/episodic_return"] = float(np.mean([value for value, _ in episodes]))
        row["charts/episodic_length"] = float(np.mean([length for _, length in episodes]))
    return row


def tv_metrics(chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
    """With a noisy TV: the share of steps watching it, and of the bonus that they are paid.

    z is the mean bonus of these steps, in standard deviations from the mean of all.
    """
    if "watched" not in chunk.extras:
        return {}
    watched = ranks.gather(chunk.extras["watched"][chunk.valid])
    if not len(watched):  # every step only reset an environment
        return {}
    report = {"noisy_tv/share": watched.float().mean().item()}
    if r_int is not None and watched.any() and not watched.all():
        paid = ranks.gather(r_int[chunk.valid]).double()
        above = paid[watched].mean() - paid.mean()
        report["noisy_tv/z"] = (above / paid.std(correction=0).clamp(min=1e-12)).item()
        if paid.min() >= 0:  # a standardised bonus, as the DQN's, has no shares
            total = paid.sum().clamp(min=1e-12)
            report["noisy_tv/pay_share"] = (paid[watched].sum() / total).item()
    return report


def room_metrics(chunk: Chunk, r_int: Tensor | None) -> dict[str, float]:
    """Where the environment tells the room: how many were visited, and the mean bonus in each."""
    if "room" not in chunk.extras:
        return {}
    rooms = ranks.gather(chunk.extras["room"][chunk.valid])
    report = {"rooms/visited": float(len(rooms.unique()))}
    if r_int is not None:
        paid = ranks.gather(r_int[chunk.valid])
        for room in rooms.unique().tolist():
            mean = paid[rooms == room].mean()
            report[f"rooms/bonus_{room}"] = mean.item()
    return report


def check_losses(metrics: dict[str, float], out: RunDir, agent: str) -> None:
    """Stop when learning has blown up; a checkpoint from before stays."""
    bad = [name for name, value in metrics.items() if not np.isfinite(value)]
    if bad:
        kept = "No checkpoint was saved before"
        if out.checkpoint.exists():
            kept = f"{out.checkpoint} is from before"
        raise UserError(
            f"Training diverged: {', '.join(bad)} is not a number. {kept}; "
            f"lower --{agent}.lr or --bonus.lr, or look at the reward's size."
        )
