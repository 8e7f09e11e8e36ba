"""The conformance checks pass everything of ours and name what is wrong with classes that break a promise."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from surprise_memory import BonusConfig, MemoryConfig, NGUConfig, UserError
from surprise_memory.bonus.check import Broken, check_memory, check_surprise
from surprise_memory.memory import MEMORIES, Memory
from surprise_memory.surprise import SURPRISES, Surprise, register_surprise
from surprise_memory.training.presets import PRESETS

SMALL = PRESETS["debug"]("none").bonus
BOX = spaces.Box(-2, 3, (2,))


@pytest.mark.parametrize("shape", [(5,), (1, 12, 12)], ids=["vectors", "images"])
@pytest.mark.parametrize("space", [spaces.Discrete(3, start=2), BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("name", SURPRISES)
def test_every_generator_keeps_the_contract(name, space, shape):
    check_surprise(SURPRISES[name].make, shape, space, SMALL)


def test_ngu_keeps_it_with_a_memory_that_overflows():
    check_surprise(SURPRISES["ngu"].make, config=BonusConfig(ngu=NGUConfig(k=3, capacity=5)))


@pytest.mark.parametrize("read", ["ntm", "cosine", "cosine-mean", "softmax"])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_keeps_the_contract(name, read):
    check_memory(
        MEMORIES[name].make, config=BonusConfig(memory=MemoryConfig(slots=5, width=4, read=read))
    )


def test_the_released_codes_memory_says_that_it_reaches_the_generator():
    check_memory(MEMORIES["sm"].make, config=PRESETS["released-code"]("none").bonus)


# --- broken generators --------------------------------------------------------------------------------------------------------


class Honest(Surprise):
    """The smallest generator: a linear autoencoder of the state."""

    def __init__(self, shape=(5,)):
        super().__init__()
        self.n = shape[0]
        self.net = nn.Linear(self.n, self.n)

    def forward(self, inputs):
        return self.net(inputs["next_obs"]) - inputs["next_obs"]


class BatchMean(Honest):
    def forward(self, inputs):
        return super().forward(inputs).mean(0).expand(len(inputs["next_obs"]), -1)


class AskingMoves(Honest):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.tensor(0.0))

    def forward(self, inputs):
        self.seen += 1
        return super().forward(inputs)


class ForgottenTarget(Honest):
    def __init__(self):
        super().__init__()
        self.targets = [
            nn.Linear(self.n, self.n).requires_grad_(False)
        ]  # a plain list registers nothing

    def forward(self, inputs):
        return self.net(inputs["next_obs"]) - self.targets[0](inputs["next_obs"])


class NeverTrained(Honest):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(self.n, self.n)


class AcrossEpisodes(Honest):
    def start(self, num_envs):
        return torch.zeros(num_envs)

    def pay(self, e, inputs, first, valid, carry):
        total = carry + (e * valid).cumsum(0)
        return total, {}, total[-1]


class FakeRowsCount(AcrossEpisodes):
    def pay(self, e, inputs, first, valid, carry):
        state = inputs["next_obs"].sum(1).unflatten(0, first.shape).cumsum(0)
        return carry + state, {}, carry + state[-1]


class FirstStepOnly(Honest):
    def pay(self, e, inputs, first, valid, carry):
        return e - e[:1], {}, carry


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (BatchMean, "other steps of its batch"),
        (AskingMoves, "Asking for u changed something"),
        (ForgottenTarget, "register every network"),
        (NeverTrained, "No loss reaches extra.weight, extra.bias"),
        (AcrossEpisodes, "honour `first`"),
        (FakeRowsCount, "never happened"),
        (FirstStepOnly, "one by one"),
    ],
)
def test_a_broken_generator_is_told_which_promise_it_breaks(kind, word):
    check_surprise(lambda shape, space, config: Honest(shape))
    with pytest.raises(Broken, match=word):
        check_surprise(lambda shape, space, config: kind())


# --- broken memories ----------------------------------------------------------------------------------------------------------


class Plain(Memory):
    """The smallest memory with something to learn: subtract a learnt mean surprise."""

    def __init__(self, n):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(n))

    @torch.no_grad()
    def forward(self, u, first, valid, carry):
        return u - self.mean, u, None, carry

    def losses(self, u, rows, log):
        return {"mean": (u.detach() - self.mean).square().sum(1).mean()}


class LeakyGradient(Plain):
    def losses(self, u, rows, log):
        return {"mean": (u - self.mean).square().sum(1).mean()}


class NeverReset(Plain):
    @torch.no_grad()
    def forward(self, u, first, valid, carry):
        u = torch.where(valid[..., None], u, 0.0)
        total = u.cumsum(0) + (0 if carry is None else carry)
        return u - self.mean + total, u, None, total[-1]


class RemembersWhenAsked(Plain):
    def __init__(self, n):
        super().__init__(n)
        self.register_buffer("met", torch.zeros(n))

    @torch.no_grad()
    def forward(self, u, first, valid, carry):
        v = u - self.met
        self.met += u.mean((0, 1))
        return v, u, None, carry


class MixesEnvironments(Plain):
    @torch.no_grad()
    def forward(self, u, first, valid, carry):
        u = torch.where(valid[..., None], u, 0.0)
        return u - u.mean(1, keepdim=True), u, None, carry


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (LeakyGradient, "reaches the generator"),
        (NeverReset, "honour `first`"),
        (RemembersWhenAsked, "Asking changed the memory"),
        (MixesEnvironments, "keep them apart"),
    ],
)
def test_a_broken_memory_is_told_which_promise_it_breaks(kind, word):
    check_memory(lambda n, config: Plain(n))
    with pytest.raises(Broken, match=word):
        check_memory(lambda n, config: kind(n))


# --- registration -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word"), [("rnd", "already"), ("none", "already"), ("my+rnd", "cannot name")]
)
def test_a_name_that_is_taken_or_unsayable_is_refused(name, word):
    with pytest.raises(UserError, match=word):
        register_surprise(name, lambda shape, space, config: Honest(shape), "mine")
