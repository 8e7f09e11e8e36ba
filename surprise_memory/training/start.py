"""Where a run begins, or goes on from its checkpoint: with the warm-up, or after it."""

import warnings
from collections.abc import Callable
from typing import Any

from surprise_memory.nn import ranks
from surprise_memory.training.checkpoint import (
    Parts,
    put_back,
    read_checkpoint,
    resumed_state,
    save_checkpoint,
)
from surprise_memory.training.clock import Clock
from surprise_memory.training.collect import RunnerState
from surprise_memory.training.plan import warmup_rollouts
from surprise_memory.training.processes import join
from surprise_memory.training.rundir import RunDir
from surprise_memory.training.stop import Stop
from surprise_memory.training.warmup import fill, warm_up

At = Callable[[int, str], None]  # gets a step that has no metrics yet, and what is being done


def read_saved(out: RunDir) -> dict[str, Any] | None:
    """The checkpoint to go on from, which only rank 0 may be able to read.

    Over many processes all episodes begin anew: how many share them may have changed.
    """
    saved: dict[str, Any] | None = None
    if ranks.first() and out.checkpoint.exists():
        saved = read_checkpoint(out)
    if ranks.world() > 1:
        saved = ranks.from_first(saved)
        if saved is not None:
            saved["env"] = None
    return saved


def resumed_at(saved: dict[str, Any] | None) -> int:
    """The step from which environments need new seeds; 0 where they go on as they were."""
    if saved is None or saved["env"] is not None:
        return 0
    steps: int = saved["runner"]["steps"]
    return steps


def start(parts: Parts, saved: dict[str, Any] | None, stop: Stop, at: At) -> RunnerState:
    """The state with which learning begins or goes on."""
    run, out, env, agent, bonus = parts
    if saved is not None:
        put_back(saved, out, run, agent, bonus)
    join(agent, bonus)
    if saved is None:
        out.rewind(0)
        state = RunnerState.reset(env, bonus, run.envs)
        finish_warmup(parts, state, 0, stop, at)
        return state
    state = resume(parts, saved, at)
    if saved["warmup"] is not None:
        finish_warmup(parts, state, saved["warmup"]["done"], stop, at)
    elif state.steps < run.steps:
        refill(parts, state, stop, at)
    return state


def resume(parts: Parts, saved: dict[str, Any], at: At) -> RunnerState:
    """The state of a checkpoint, with the metrics of what came after it taken back."""
    out = parts.out
    state = resumed_state(saved, parts)
    out.rewind(state.steps)  # before anything is collected: steps count on from here
    if out.logged < saved.get("logged", 0):
        warnings.warn(
            f"{out.metrics} ends at step {out.logged:,}, the checkpoint is at {state.steps:,}: the "
            "rows between them are lost.",
            stacklevel=2,
        )
        out.logged = saved["logged"]
    if state.steps < parts.run.steps:
        at(state.steps, "continuing from here")
    return state


def finish_warmup(parts: Parts, state: RunnerState, done: int, stop: Stop, at: At) -> None:
    """The warm-up from its rollout `done` on. It may be stopped, and saved, after each rollout."""
    run, agent = parts.run, parts.agent
    clock = Clock(state.steps)

    def collected(number: int) -> None:
        at(state.steps, "warming up")
        asked = ranks.anyones(stop.asked)
        due = ranks.from_first(clock.save_due(run.save_minutes))
        if (asked or due) and agent.can_save_warmup():
            save_checkpoint(parts, state, final=True, warmup=number)
        if asked:
            raise KeyboardInterrupt(stopped_in_warm_up(state.steps, agent.can_save_warmup()))

    def trained(share: float) -> None:
        at(state.steps, f"pre-training, {share:.0%}")
        if ranks.anyones(stop.asked):
            raise KeyboardInterrupt(
                "Stopped in the pre-training, which is not saved: with --resume the run goes on "
                "from a checkpoint of its warm-up, or begins again."
            )

    warm_up(parts, state, done, collected, trained)


def refill(parts: Parts, state: RunnerState, stop: Stop, at: At) -> None:
    """A run that resumes without its replay collects some of it before it learns."""
    began = state.steps

    def collected(number: int) -> None:
        at(state.steps, "refilling the replay")
        if ranks.anyones(stop.asked):
            raise KeyboardInterrupt(
                f"Stopped while the replay was refilled. The checkpoint at step {began:,} is "
                "intact: add --resume to continue."
            )

    missing = parts.agent.rollouts_to_refill(state.steps, warmup_rollouts(parts.run))
    fill(parts, parts.agent, state, missing, collected=collected)


def stopped_in_warm_up(steps: int, saved: bool) -> str:
    """What to say when a run is stopped before its first update."""
    if saved:
        return f"Stopped and saved in the warm-up, at step {steps:,}. Add --resume to continue."
    return (
        "Stopped in the warm-up. Its replay is not saved (--dqn.save-replay): "
        "with --resume it begins again."
    )


def what_is_kept(out: RunDir) -> str:
    """What a run has to go on from when it cannot end as it should."""
    if out.checkpoint.exists():
        return f"{out.checkpoint} is intact: add --resume to continue, also with fewer processes."
    return "No checkpoint was saved before."
