"""Does a stage keep its contract?"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor
from torch.linalg import vector_norm

from surprise_memory.bonus.check.promises import (
    FAKE,
    FAKE_COUNTED,
    NO_LOSS,
    ONE_BY_ONE,
    RESET,
    B,
    T,
    before_reset,
    check_losses,
    check_reach,
    check_type,
    check_weight,
    close,
    episodes,
    equal,
    fixed_rng,
    open_game,
    promise,
    spoil,
    spoil_columns,
    take_steps,
    through_a_file,
    trained,
    unpack,
)
from surprise_memory.bonus.config import BonusConfig
from surprise_memory.stages import Stage, Steps

MakeStage = Callable[[tuple[int, ...], Space[Any] | None, Any], Stage]


def check_stage(
    make: MakeStage,
    obs_shape: tuple[int, ...] = (5,),
    action_space: Space[Any] | None = None,
    config: BonusConfig | None = None,
) -> None:
    """`make(obs_shape, action_space, config)` builds it, as in `register_stage`.

    >>> from surprise_memory import check_stage
    >>> from surprise_memory.stages import STAGES
    >>> check_stage(STAGES["expect"].make)
    """
    stage, other, seen = open_game(make, Stage, "stage", obs_shape, action_space, config)
    game = StageGame(stage, seen)
    for _ in range(2):  # the first time its statistics may know nothing yet
        _, record, _ = game.ask()
        stage.update(record, game.valid, False)
    _check_asking(stage, game)
    _check_episodes(stage, game)
    _check_statistics(stage, game)
    _check_training(stage, game)
    reward, _, _ = game.ask()
    other.load_state_dict(through_a_file(stage.state_dict()))
    again, _, _ = StageGame(other, seen).ask()
    promise(
        torch.equal(again, reward),
        "After state_dict -> load_state_dict the reward is another: register networks and buffers.",
    )


class StageGame:
    """A rollout of several episodes to ask a stage about, whole or in parts."""

    def __init__(self, stage: Stage, seen: dict[str, Tensor]) -> None:
        self.stage = stage
        self.seen = seen
        self.first, self.valid = episodes()
        self.u = torch.randn(T, B, 4, generator=torch.Generator().manual_seed(1), device="cpu")
        self.e = vector_norm(self.u, dim=-1)

    def ask(
        self,
        rows: slice = slice(None),
        carry: Any = None,
        seen: dict[str, Tensor] | None = None,
        e: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor], Any]:
        """The stage's answer about some steps."""
        if seen is None:
            seen = self.seen
        if e is None:
            e = self.e
        if carry is None:
            carry = self.stage.start(B)
        e = e[rows].clone()
        given = e.clone()
        steps = Steps(
            first=self.first[rows],
            valid=self.valid[rows],
            remembered=self.valid[rows],
            u=self.u[rows],
            v=self.u[rows],
            e=e,
            e_if_remembered=0.9 * e,
        )
        inputs = self.stage.prepare(take_steps(seen, rows))
        check_type("What prepare returns", inputs, dict)
        answer = self.stage(e, inputs, steps, carry)
        reward, record, carry = unpack("forward", answer, "reward, record, carry")
        check_type("The reward", reward, Tensor)
        check_type("The record", record, dict)
        promise(torch.equal(given, e), "forward wrote into the reward that it was given.")
        return reward, record, carry


def _check_asking(stage: Stage, game: StageGame) -> None:
    state = copy.deepcopy(stage.state_dict())
    chance = torch.get_rng_state()
    carry = stage.start(B)
    kept = copy.deepcopy(carry)
    reward, record, _ = game.ask(carry=carry)
    promise(reward.shape == (T, B), f"The reward has shape {tuple(reward.shape)}, not {(T, B)}.")
    promise(bool(reward[game.valid].isfinite().all()), "The reward is not finite.")
    promise(not reward.requires_grad or reward.grad_fn is not None, "The reward is a parameter.")
    for name, column in record.items():
        shape = tuple(column.shape)
        sentence = f"record['{name}'] has shape {shape}: it must start with (T, B)."
        promise(shape[:2] == (T, B), sentence)
    missing = ", ".join(name for name in stage.logged if name not in record)
    promise(not missing, f"logged = {stage.logged}, but the record has no {missing}.")
    again, _, _ = game.ask(carry=carry)
    unmoved = equal(state, stage.state_dict()) and torch.equal(chance, torch.get_rng_state())
    same = unmoved and equal(kept, carry) and torch.equal(reward, again)
    promise(same, "Asking changed the stage or its carry: move statistics in `update`.")


def _check_episodes(stage: Stage, game: StageGame) -> None:
    """A stage with an episodic state is the same step by step, and forgets old episodes."""
    valid = game.valid
    whole, _, _ = game.ask()
    carry = stage.start(B)
    single = []
    for t in range(T):
        reward, _, carry = game.ask(slice(t, t + 1), carry)
        single.append(reward)
    promise(close(torch.cat(single)[valid], whole[valid]), ONE_BY_ONE)
    changed, _, _ = game.ask(seen=spoil_columns(game.seen, ~valid), e=spoil(game.e, ~valid))
    promise(close(changed[valid], whole[valid]), FAKE)
    past, after = before_reset(game.first)
    changed, _, _ = game.ask(seen=spoil_columns(game.seen, past), e=spoil(game.e, past))
    promise(close(changed[after & valid], whole[after & valid]), RESET)


def _check_statistics(stage: Stage, game: StageGame) -> None:
    """Rows that never happened leave no mark on what `update` moves."""
    _, record, _ = game.ask()
    spoilt = dict(record)
    for name, column in record.items():
        if column.is_floating_point():
            spoilt[name] = spoil(column, ~game.valid)
    plain = copy.deepcopy(stage)
    plain.update(record, game.valid, False)
    fooled = copy.deepcopy(stage)
    fooled.update(spoilt, game.valid, False)
    promise(equal(plain.state_dict(), fooled.state_dict()), FAKE_COUNTED)


def _check_training(stage: Stage, game: StageGame) -> None:
    _, record, _ = game.ask()
    rows = game.valid.flatten().nonzero().squeeze(1)[::2]
    inputs = {name: column[rows] for name, column in stage.prepare(game.seen).items()}
    flat = {name: column.flatten(0, 1)[rows] for name, column in record.items()}
    losses = stage.losses(inputs, flat, None, fixed_rng())
    check_type("What losses returns", losses, dict)
    promise(bool(losses) or not trained(stage), NO_LOSS)
    if not losses:
        return
    check_losses(losses)
    check_reach(stage, losses)
    twice = stage.losses(inputs, flat, torch.full((len(rows),), 2.0, device="cpu"), fixed_rng())
    check_weight(losses, twice)
