"""Parts from outside and their options, how methods are spelt, what errors call options."""

import dataclasses
import json
import pickle
from dataclasses import dataclass

import pytest
import torch
from fakes import chunk_of
from gymnasium import spaces

from surprise_memory import (
    Bonus,
    BonusConfig,
    Memory,
    Stage,
    Surprise,
    UserError,
    register_memory,
    register_stage,
    register_surprise,
)
from surprise_memory.bonus.config import config_type
from surprise_memory.bonus.methods import check_method, split_method
from surprise_memory.cli import main
from surprise_memory.cli.runs import load, setting
from surprise_memory.envs import TOY
from surprise_memory.memory import MEMORIES
from surprise_memory.registry import OPTIONS
from surprise_memory.stages import STAGES
from surprise_memory.surprise import SURPRISES
from surprise_memory.training.config import RunConfig, run_type, with_part_options
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir

B, K = 3, 5


@dataclass(frozen=True)
class HalfConfig:
    """What is left of the reward."""

    factor: float = 0.5
    """The reward is multiplied by it."""


class Half(Stage):
    """factor * r."""

    logged = ("left",)

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, reward, inputs, steps, carry):
        return self.factor * reward, {"left": self.factor * reward}, carry


def make_half(shape, actions, config):
    return Half(config.half.factor)


@pytest.fixture
def clean_tables():
    """Whatever a test registers is gone after it."""
    tables = (SURPRISES, MEMORIES, STAGES, OPTIONS)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    assert config_type() is BonusConfig and run_type() is RunConfig


@pytest.fixture
def half(clean_tables):
    """A stage from outside, with an option."""
    register_stage("half", make_half, "half of the reward", options=HalfConfig)


def paid(method, config=None):
    """The raw rewards of a bonus that has seen nothing before."""
    bonus = Bonus(method, (K,), B, config)
    chunk = chunk_of(torch.randn(7, B, K, generator=torch.Generator().manual_seed(0)))
    raw, _, _ = bonus(chunk, bonus.start())
    assert raw.all()
    return raw


# --- a stage from outside -------------------------------------------------------------------------


def test_a_stage_from_outside_has_its_options_in_every_config(half):
    assert torch.equal(paid("rnd+sm+half"), 0.5 * paid("rnd+sm"))
    assert torch.equal(paid("rnd+half", BonusConfig()), 0.5 * paid("rnd"))
    quarter = config_type()(half=HalfConfig(0.25), lr=3e-4)
    assert isinstance(quarter, BonusConfig) and quarter.lr == 3e-4
    assert torch.equal(paid("rnd+sm+half", quarter), 0.25 * paid("rnd+sm"))


def test_options_that_were_given_before_another_part_came_are_kept(half):
    @dataclass(frozen=True)
    class Other:
        """Of another part."""

        size: int = 3

    quarter = config_type()(half=HalfConfig(0.25), power=2)
    register_stage("other", lambda shape, actions, c: Half(c.other.size), "thrice", options=Other)
    bonus = Bonus("rnd+half+other", (K,), B, quarter)
    assert bonus.config.half.factor == 0.25 and bonus.config.power == 2
    assert [stage.factor for stage in bonus.model.stages.values()] == [0.25, 3]


def test_a_stage_from_outside_trains_resumes_and_evaluates_by_its_option(half, tmp_path, capsys):
    words = ["train", TOY, "--preset", "debug", "--steps", "256", "--eval-episodes", "2"]

    def train(name, *more):
        assert main([*words, *more, "--run-dir", str(tmp_path / name)]) == 0
        return list(RunDir(tmp_path / name).rows())

    plain = train("plain", "--method", "rnd")
    rows = train("half", "--method", "rnd+half", "--bonus.half.factor", "0.25")
    saved = json.loads((tmp_path / "half" / "config.json").read_text())
    assert saved["bonus"]["half"] == {"factor": 0.25}
    for row, usual in zip(rows, plain, strict=True):
        assert row["intrinsic/std"] == pytest.approx(0.25 * usual["intrinsic/std"], rel=1e-5)
        assert row["losses/surprise"] == usual["losses/surprise"]
        assert row["intrinsic/left"] == pytest.approx(0.25 * row["intrinsic/novelty"])
    run, _ = load(tmp_path / "half")
    assert isinstance(run, RunConfig) and run.bonus.half == HalfConfig(0.25)
    assert setting(run) == "rnd+half, debug, bonus.half.factor 0.25"
    again = [*words, "--method", "rnd+half", "--run-dir", str(tmp_path / "half"), "--resume"]
    capsys.readouterr()
    assert main(again) == 2
    assert "bonus.half.factor differ" in capsys.readouterr().err
    assert main([*again, "--bonus.half.factor", "0.25", "--steps", "512"]) == 0
    assert list(RunDir(tmp_path / "half").rows())[: len(rows)] == rows
    assert main(["eval", str(tmp_path / "half"), "--episodes", "3"]) == 0
    assert json.loads((tmp_path / "half" / "eval-3.json").read_text())["episodes"] == 3


def test_every_preset_takes_the_options_of_a_part_from_outside(half):
    for preset in PRESETS.values():
        plain = preset(TOY)
        run = with_part_options(plain)
        assert run.bonus.half == HalfConfig()
        theirs = dataclasses.asdict(run)
        assert theirs["bonus"].pop("half") == {"factor": 0.5}
        assert theirs == dataclasses.asdict(plain)


def test_a_run_with_options_from_outside_reaches_another_process(half):
    """The doctor sends it to its workers."""
    run = with_part_options(PRESETS["debug"](TOY))
    bonus = dataclasses.replace(run.bonus, half=HalfConfig(0.125))
    run = dataclasses.replace(run, method="rnd+half", bonus=bonus)
    assert pickle.loads(pickle.dumps(run)) == run != with_part_options(PRESETS["debug"](TOY))


def test_without_the_part_its_options_are_unknown(clean_tables, tmp_path, capsys):
    words = ["train", TOY, "--preset", "debug", "--steps", "128", "--eval-episodes", "0"]
    words = [*words, "--run-dir", str(tmp_path / "run")]
    option = ["--bonus.half.factor", "0.25"]
    with pytest.raises(SystemExit) as stop:
        main([*words, *option])
    assert stop.value.code == 2
    register_stage("half", make_half, "half of the reward", options=HalfConfig)
    assert main([*words, *option, "--method", "rnd+half"]) == 0
    for table in (STAGES, OPTIONS):
        del table["half"]
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run")]) == 2
    assert "the option 'half'" in capsys.readouterr().err


class Linear(Surprise):
    """A generator of the width of the state."""

    def __init__(self, n):
        super().__init__()
        self.n = n
        self.net = torch.nn.Linear(n, n)

    def forward(self, inputs):
        return self.net(inputs["next_obs"])


class Scaled(Memory):
    """factor * u."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, u, first, valid, carry):
        return self.factor * u, u, None, carry


def test_generators_and_memories_have_options_too(clean_tables):
    @dataclass(frozen=True)
    class Gain:
        """Factors."""

        factor: float = 2.0

    register_surprise("wide", lambda shape, a, c: Linear(shape[0]), "linear", options=HalfConfig)
    register_memory("scaled", lambda n, c: Scaled(c.scaled.factor), "scaled", options=Gain)
    assert torch.equal(paid("wide+scaled"), 2 * paid("wide"))
    assert torch.equal(paid("wide+scaled", config_type()(scaled=Gain(4.0))), 4 * paid("wide"))
    assert Bonus("wide", (K,), B).config.wide == HalfConfig()


# --- what cannot be registered --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("half", dict, "must be a dataclass"),
        ("expect", HalfConfig, "stage 'expect' already"),
        ("my+half", None, "cannot name"),
        ("none", None, "already"),
    ],
)
def test_a_stage_that_cannot_be_registered_leaves_nothing_behind(clean_tables, name, options, says):
    before = [dict(table) for table in (SURPRISES, MEMORIES, STAGES, OPTIONS)]
    with pytest.raises(UserError, match=says):
        register_stage(name, make_half, "half", options=options)
    assert [dict(table) for table in (SURPRISES, MEMORIES, STAGES, OPTIONS)] == before


def test_two_parts_cannot_share_their_options(half):
    with pytest.raises(UserError, match="option 'half' already"):
        register_surprise("half", lambda shape, a, c: Linear(5), "linear", options=HalfConfig)
    assert "half" not in SURPRISES


@pytest.mark.parametrize("name", ["gamma", "rnd", "memory"])
def test_options_cannot_take_the_place_of_ours(clean_tables, name, capsys):
    register_stage(name, lambda shape, actions, c: Half(0.5), "half", options=HalfConfig)
    with pytest.raises(UserError, match=f"option '{name}' already"):
        config_type()
    with pytest.raises(UserError, match=f"option '{name}' already"):
        Bonus("ae", (K,), B)
    assert main(["train", TOY, "--preset", "debug"]) == 2
    assert f"option '{name}' already" in capsys.readouterr().err


def test_a_stage_cannot_take_the_place_of_a_memory(clean_tables):
    """Both follow a +, so rnd+sm would become another method without a word."""
    register_stage("sm", lambda shape, actions, c: Half(0.5), "half")
    with pytest.raises(UserError, match="'sm' names a memory and a stage"):
        check_method("rnd+sm")


@pytest.mark.parametrize("name", ["half", "double", "train", "type", "keys", "pop", "parameters"])
def test_a_stage_may_have_the_name_of_a_method_of_torch(clean_tables, name):
    class Shift(Stage):
        def __init__(self):
            super().__init__()
            self.by = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, reward, inputs, steps, carry):
            return reward + self.by, {"found": reward}, carry

        def losses(self, inputs, record, weight, rng):
            return {"by": (record["found"] - self.by).square().mean()}

    register_stage(name, lambda shape, actions, c: Shift(), "two more")
    bonus, twin = (Bonus(f"rnd+sm+{name}", (K,), B, seed=seed) for seed in (0, 1))
    assert f"model.stages.{name}.by" in bonus.state_dict()
    chunk = chunk_of(torch.randn(7, B, K, generator=torch.Generator().manual_seed(0)))
    bonus.train_on(chunk, bonus.start())
    assert bonus.model.stages[name].by != 2.0
    twin.load_state_dict(bonus.state_dict())
    assert torch.equal(twin(chunk, twin.start())[0], bonus(chunk, bonus.start())[0])
    assert bonus.double().model.stages[name].by.dtype == torch.float64


# --- how methods are spelt ------------------------------------------------------------------------


def test_a_method_names_a_generator_a_memory_and_stages():
    assert split_method("rnd") == ("rnd", "none", ())
    assert split_method("rnd+sm") == ("rnd", "sm", ())
    assert split_method("rnd+expect") == ("rnd", "none", ("expect",))
    assert split_method("rnd+sm+expect+episodic") == ("rnd", "sm", ("expect", "episodic"))


def test_stages_are_applied_in_the_order_in_which_they_are_named(half):
    class Minus(Stage):
        def forward(self, reward, inputs, steps, carry):
            return reward - 1.0, {}, carry

    register_stage("minus", lambda shape, actions, c: Minus(), "one less")
    assert torch.equal(paid("rnd+half+minus"), 0.5 * paid("rnd") - 1)
    assert torch.equal(paid("rnd+minus+half"), 0.5 * (paid("rnd") - 1))


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("rnd+sm+expect+expect", "'rnd+sm+expect+expect' has the stage 'expect' twice"),
        ("ngu+episodic", "'ngu+episodic' has the stage 'episodic' twice"),
        ("ngu+sm+episodic", "'ngu+sm+episodic' has the stage 'episodic' twice"),
        ("rnd+sm+expct", "Unknown stage 'expct'. Did you mean 'expect'?"),
        ("rnd+expect+sm", "Unknown stage 'sm'"),
        ("rnd+sm+sm", "Unknown stage 'sm'"),
        ("none+expect", "'none+expect' has no bonus that a stage could change"),
        ("none+sm", "Unknown method 'none+sm'"),
        ("expect", "Unknown method 'expect'"),
        ("rnd+", "Unknown method 'rnd+'"),
        ("rnd+sm+", "Unknown stage ''"),
    ],
)
def test_a_method_that_cannot_be_is_refused_in_one_sentence(method, says, capsys, tmp_path):
    with pytest.raises(UserError) as refusal:
        check_method(method)
    assert says in str(refusal.value)
    with pytest.raises(UserError):
        Bonus(method, (K,), B)
    assert main(["train", TOY, "--method", method, "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert said == f"surprise-memory: {refusal.value}" and "\n" not in said
    assert not (tmp_path / "run").exists()


# --- errors name options that can be set ----------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("gamma", 1.5, ["--bonus.gamma", "1.5"]),
        ("gamma", -0.1, ["--bonus.gamma", "-0.1"]),
        ("scale_momentum", 1.0, ["--bonus.scale-momentum", "1.0"]),
        ("scale_momentum", -1.0, ["--bonus.scale-momentum", "-1.0"]),
        ("power", 3, ["--bonus.power", "3"]),
        ("lr", 0.0, ["--bonus.lr", "0"]),
        ("memory_lr", -1.0, ["--bonus.memory-lr", "-1"]),
        ("epochs", 0, ["--bonus.epochs", "0"]),
        ("minibatches", 0, ["--bonus.minibatches", "0"]),
        ("proportion", 0.0, ["--bonus.proportion", "0"]),
    ],
)
@pytest.mark.parametrize("method", ["rnd+sm", "ngu"])
def test_a_number_that_cannot_be_is_refused_by_the_name_that_sets_it(
    method, option, value, words, capsys, tmp_path
):
    config = BonusConfig(**{option: value})
    with pytest.raises(UserError) as refusal:
        Bonus(method, (K,), B, config, action_space=spaces.Discrete(3))
    said = str(refusal.value)
    assert said.startswith(f"{option} = {value!r} is not possible")
    assert "gamma_int" not in said
    where = ["--run-dir", str(tmp_path / "run")]
    assert main(["train", TOY, "--preset", "debug", "--method", method, *words, *where]) == 2
    error = capsys.readouterr().err.strip()
    assert error == f"surprise-memory: {said}"
    assert not (tmp_path / "run").exists()
