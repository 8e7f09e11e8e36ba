"""The checks of a part say in one sentence what they cannot even begin with."""

from dataclasses import dataclass

import pytest
import torch

from surprise_memory import Memory, Stage, Surprise, check_memory, check_stage, check_surprise
from surprise_memory.bonus.check import Broken
from surprise_memory.errors import UserError


class OnlyReward(Stage):
    def forward(self, reward, inputs, steps, carry):
        return reward


class NoRecord(Stage):
    def forward(self, reward, inputs, steps, carry):
        return reward, None, carry


class OnlyV(Memory):
    def forward(self, u, first, valid, carry):
        return u


class Pair(Surprise):
    n = 5

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(5, 5)

    def forward(self, inputs):
        return self.net(inputs["next_obs"]), inputs


class OnlyLosses(Pair):
    def forward(self, inputs):
        return self.net(inputs["next_obs"])

    def losses(self, inputs, loss, rng, weight=None):
        return {"surprise": self(inputs).square().mean()}


@pytest.mark.parametrize(
    ("check", "part", "sentence"),
    [
        (check_stage, OnlyReward, r"a Tensor: it must return \(reward, record, carry\)"),
        (check_stage, NoRecord, "The record is a NoneType: it must be a dict"),
        (check_memory, OnlyV, r"a Tensor: it must return \(v, q, log, carry\)"),
        (check_surprise, Pair, "a tuple of 2: it must be a Tensor"),
        (check_surprise, OnlyLosses, r"losses returned a dict: it must return \(u, losses\)"),
        (check_surprise, OnlyV, "OnlyV is not a Surprise"),
        (check_stage, lambda: None, "NoneType is not a Stage"),
    ],
)
def test_answers_of_another_form_are_named(check, part, sentence):
    with pytest.raises(Broken, match=sentence):
        check(lambda *_: part())


@dataclass(frozen=True)
class Options:
    n: int = 3


@pytest.mark.parametrize(
    ("check", "register"),
    [
        (check_surprise, "register_surprise"),
        (check_memory, "register_memory"),
        (check_stage, "register_stage"),
    ],
)
def test_options_of_a_part_that_is_not_registered_yet(check, register):
    def make(*arguments):
        return arguments[-1].mine.n

    with pytest.raises(UserError, match=rf"config.mine.*{register}\('mine'"):
        check(make)


def test_a_mistake_in_the_part_itself_keeps_its_traceback():
    def make(*arguments):
        return torch.nn.Linear(2, 2).nothing

    with pytest.raises(AttributeError, match="nothing"):
        check_memory(make)
