"""The conformance checks pass everything of ours and name what is wrong with classes that break a promise."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from surprise_memory import BonusConfig, MemoryConfig, NGUConfig, UserError
from surprise_memory.bonus.check import Broken, check_memory, check_stage, check_surprise
from surprise_memory.memory import MEMORIES, Memory
from surprise_memory.nn.nets import weighted_mean
from surprise_memory.stages import STAGES, Stage
from surprise_memory.surprise import SURPRISES, Surprise, register_surprise
from surprise_memory.training.presets import PRESETS

SMALL = PRESETS["debug"]("none").bonus
BOX = spaces.Box(-2, 3, (2,))


@pytest.mark.parametrize("shape", [(5,), (1, 12, 12)], ids=["vectors", "images"])
@pytest.mark.parametrize("space", [spaces.Discrete(3, start=2), BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("name", SURPRISES)
def test_every_generator_keeps_the_contract(name, space, shape):
    check_surprise(SURPRISES[name].make, shape, space, SMALL)


@pytest.mark.parametrize("shape", [(5,), (1, 12, 12)], ids=["vectors", "images"])
@pytest.mark.parametrize("space", [spaces.Discrete(3, start=2), BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("name", STAGES)
def test_every_stage_keeps_the_contract(name, space, shape):
    check_stage(STAGES[name].make, shape, space, SMALL)


def test_ngu_keeps_it_with_a_memory_that_overflows():
    check_stage(STAGES["episodic"].make, config=BonusConfig(ngu=NGUConfig(k=3, capacity=5)))


@pytest.mark.parametrize("read", ["ntm", "cosine", "cosine-mean", "softmax"])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_keeps_the_contract(name, read):
    check_memory(
        MEMORIES[name].make, config=BonusConfig(memory=MemoryConfig(slots=5, width=4, read=read))
    )


def test_the_released_codes_memory_says_that_it_reaches_the_generator():
    check_memory(MEMORIES["sm"].make, config=PRESETS["released-code"]("none").bonus)


# --- broken generators ----------------------------------------------------------------------------


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


class DeafGenerator(Honest):
    def losses(self, inputs, loss, rng, weight=None):
        return super().losses(inputs, loss, rng)


class AcrossEpisodes(Honest):
    """Adds up what it has seen, and never begins anew."""

    def start(self, num_envs):
        return torch.zeros(num_envs)

    def counted(self, first, valid):
        return valid

    def unroll(self, inputs, first, valid, carry):
        seen = inputs["next_obs"].sum(1).unflatten(0, first.shape)
        total = carry + (seen * self.counted(first, valid)).cumsum(0)
        return inputs | {"total": total.flatten()}, total[-1]

    def forward(self, inputs):
        u = super().forward(inputs)
        return u + inputs["total"][:, None] if "total" in inputs else u


class FakeRowsCount(AcrossEpisodes):
    def counted(self, first, valid):
        return torch.ones_like(valid)


class FirstStepOnly(AcrossEpisodes):
    def unroll(self, inputs, first, valid, carry):
        seen = inputs["next_obs"].sum(1).unflatten(0, first.shape)
        return inputs | {"total": (seen - seen[:1]).flatten()}, carry


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (BatchMean, "other steps of its batch"),
        (AskingMoves, "Asking for u changed something"),
        (ForgottenTarget, "register every network"),
        (NeverTrained, "No loss reaches extra.weight, extra.bias"),
        (DeafGenerator, "ignore `weight`"),
        (AcrossEpisodes, "honour `first`"),
        (FakeRowsCount, "never happened"),
        (FirstStepOnly, "one by one"),
    ],
)
def test_a_broken_generator_is_told_which_promise_it_breaks(kind, word):
    check_surprise(lambda shape, space, config: Honest(shape))
    with pytest.raises(Broken, match=word):
        check_surprise(lambda shape, space, config: kind())


# --- broken memories ------------------------------------------------------------------------------


class Plain(Memory):
    """The smallest memory with something to learn: subtract a learnt mean surprise."""

    def __init__(self, n):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(n))

    @torch.no_grad()
    def forward(self, u, first, valid, carry):
        return u - self.mean, u, None, carry

    def losses(self, u, rows, log, weight=None):
        return {"mean": weighted_mean((u.detach() - self.mean).square().sum(1), weight)}


class LeakyGradient(Plain):
    def losses(self, u, rows, log, weight=None):
        return {"mean": weighted_mean((u - self.mean).square().sum(1), weight)}


class DeafMemory(Plain):
    def losses(self, u, rows, log, weight=None):
        return super().losses(u, rows, log)


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
        (DeafMemory, "ignore `weight`"),
        (NeverReset, "honour `first`"),
        (RemembersWhenAsked, "Asking changed the memory"),
        (MixesEnvironments, "keep them apart"),
    ],
)
def test_a_broken_memory_is_told_which_promise_it_breaks(kind, word):
    check_memory(lambda n, config: Plain(n))
    with pytest.raises(Broken, match=word):
        check_memory(lambda n, config: kind(n))


# --- broken stages --------------------------------------------------------------------------------


class Gate(Stage):
    """The smallest stage with something to learn: subtract a learnt mean reward, up to its running maximum."""

    top: torch.Tensor

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))
        self.register_buffer("top", torch.tensor(0.0))

    def forward(self, reward, inputs, steps, carry):
        paid = (reward - self.mean.detach()).clamp(max=self.top)
        return paid, {"found": reward}, carry

    def losses(self, inputs, record, weight, rng):
        return {"gate": weighted_mean((record["found"] - self.mean).square(), weight)}

    def update(self, record, valid, warmup):
        self.top.copy_(torch.maximum(self.top, record["found"][valid].max()))


class AskingMovesTheStage(Gate):
    def forward(self, reward, inputs, steps, carry):
        self.top += 1
        return super().forward(reward, inputs, steps, carry)


class WritesIntoTheReward(Gate):
    def forward(self, reward, inputs, steps, carry):
        return super().forward(reward.mul_(0.5), inputs, steps, carry)


class BlanksTheReward(Gate):
    """Writes the same thing each time, so that asking twice tells the same."""

    def forward(self, reward, inputs, steps, carry):
        reward[~steps.valid] = 0.0
        return super().forward(reward, inputs, steps, carry)


class FakeRowsArePaidFor(Gate):
    """Compares environments with each other, also where one of them shows nothing that happened."""

    def forward(self, reward, inputs, steps, carry):
        return reward - reward.mean(1, keepdim=True), {"found": reward}, carry


class FakeRowsAreCounted(Gate):
    def update(self, record, valid, warmup):
        self.top.copy_(torch.maximum(self.top, record["found"].max()))


class NeverBeginsAnew(Gate):
    def start(self, num_envs):
        return torch.zeros(num_envs)

    def forward(self, reward, inputs, steps, carry):
        total = carry + (reward * steps.valid).cumsum(0)
        return reward + total, {"found": reward}, total[-1]


class ChunkByChunk(Gate):
    def forward(self, reward, inputs, steps, carry):
        return reward - reward[:1], {"found": reward}, carry


class DeafToWeights(Gate):
    def losses(self, inputs, record, weight, rng):
        return super().losses(inputs, record, None, rng)


class FlatRecord(Gate):
    def forward(self, reward, inputs, steps, carry):
        paid, record, carry = super().forward(reward, inputs, steps, carry)
        return paid, record | {"flat": reward.flatten()}, carry


class LogsNothing(Gate):
    logged = ("gated",)


class NeverTrainedStage(Gate):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(2, 2)


class NoLoss(Gate):
    def losses(self, inputs, record, weight, rng):
        return {}


class ForgetsItsMaximum(Gate):
    """Keeps a statistic where no state_dict looks."""

    def __init__(self):
        super().__init__()
        self.highest = 0.0

    def forward(self, reward, inputs, steps, carry):
        return reward.clamp(max=self.highest / 2), {"found": reward}, carry

    def update(self, record, valid, warmup):
        self.highest = max(self.highest, record["found"][valid].max().item())


class HalfAStep(Gate):
    def forward(self, reward, inputs, steps, carry):
        paid, record, carry = super().forward(reward, inputs, steps, carry)
        return paid[:, :1], record, carry


class DrawsItsRows(Gate):
    """Learns from half of its rows, drawn by chance: it keeps every promise."""

    def losses(self, inputs, record, weight, rng):
        drawn = torch.rand(len(record["found"]), generator=rng) < 0.5
        return {"gate": weighted_mean(drawn * (record["found"] - self.mean).square(), weight)}


@pytest.mark.parametrize("kind", [Gate, DrawsItsRows])
def test_an_honest_stage_is_accepted(kind):
    check_stage(lambda shape, space, config: kind())


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (AskingMovesTheStage, "move statistics in `update`"),
        (WritesIntoTheReward, "wrote into the reward"),
        (BlanksTheReward, "wrote into the reward"),
        (FakeRowsArePaidFor, "changes the reward of others"),
        (FakeRowsAreCounted, "reaches the statistics"),
        (NeverBeginsAnew, "honour `first`"),
        (ChunkByChunk, "one by one"),
        (DeafToWeights, "ignore `weight`"),
        (FlatRecord, r"record\['flat'\] has shape \(120,\)"),
        (LogsNothing, "the record has no gated"),
        (NeverTrainedStage, "No loss reaches extra.weight, extra.bias"),
        (NoLoss, "parameters and no loss"),
        (ForgetsItsMaximum, "load_state_dict the reward is another"),
        (HalfAStep, r"The reward has shape \(40, 1\)"),
    ],
)
def test_a_broken_stage_is_told_which_promise_it_breaks(kind, word):
    with pytest.raises(Broken, match=word):
        check_stage(lambda shape, space, config: kind())


# --- registration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word"), [("rnd", "already"), ("none", "already"), ("my+rnd", "cannot name")]
)
def test_a_name_that_is_taken_or_unsayable_is_refused(name, word):
    with pytest.raises(UserError, match=word):
        register_surprise(name, lambda shape, space, config: Honest(shape), "mine")
