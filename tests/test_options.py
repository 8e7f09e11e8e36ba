"""Every option: what cannot be is refused by its name, its value and what is allowed."""

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from surprise_memory import Bonus, BonusConfig, RNDConfig, register_stage
from surprise_memory.agents import DQNConfig, PPOConfig
from surprise_memory.agents.dqn_config import check_dqn
from surprise_memory.agents.ppo_config import check_ppo
from surprise_memory.bonus.config import config_type
from surprise_memory.cli import main
from surprise_memory.envs import TOY, make_vec
from surprise_memory.errors import UserError, check_options
from surprise_memory.registry import OPTIONS
from surprise_memory.reproduce.cells import with_options
from surprise_memory.stages import STAGES
from surprise_memory.training.loop import build
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import flatten

DEFAULTS = flatten(dataclasses.asdict(PRESETS["debug"](TOY)))
FLOATS = [name for name, value in DEFAULTS.items() if isinstance(value, float)]
WHOLE = [name for name, value in DEFAULTS.items() if type(value) is int]


def must_refuse(name, value):
    """One sentence that names the option and the value."""
    with pytest.raises(UserError) as error:
        with_options(PRESETS["debug"](TOY), {name: value})
    assert f"{name} = {value!r} is not possible: it must be " in str(error.value)


@pytest.mark.parametrize("name", FLOATS)
def test_no_float_option_takes_what_cannot_be_computed_with(name):
    for value in (math.nan, math.inf, -math.inf, 1e39, "1", True):
        must_refuse(name, value)


@pytest.mark.parametrize("name", WHOLE)
def test_no_whole_number_takes_fractions_or_overflows(name):
    for value in (10**20, 1.5, "1", True, None):
        if (name, value) != ("bonus.memory.w_hidden", None):  # which means n units
            must_refuse(name, value)


def test_words_flags_and_groups_have_their_kind():
    for name, value in (("method", 3), ("ppo.normalise_advantage", "no"), ("bonus.rnd", None)):
        with pytest.raises(UserError, match=f"{name} = "):
            with_options(PRESETS["debug"](TOY), {name: value})


def test_numbers_of_numpy_are_numbers():
    check_options(BonusConfig(lr=np.float32(1e-3), rnd=RNDConfig(n=np.int64(3))))


def test_a_bonus_in_a_library_has_the_same_check():
    with pytest.raises(UserError, match=r"expect\.lr = nan"):
        expect = dataclasses.replace(BonusConfig().expect, lr=math.nan)
        Bonus("rnd", (3,), 2, BonusConfig(expect=expect))


@dataclass(frozen=True)
class Deep:
    """Options inside options."""

    rate: float = 0.5


@dataclass(frozen=True)
class Mine:
    """The options of a part from outside."""

    deep: Deep = field(default_factory=Deep)


def test_kinds_that_only_another_file_knows_are_taken_from_the_values():
    hidden = dataclasses.make_dataclass("Hidden", [("x", "NoSuchName", 1.0)])
    with pytest.raises(UserError, match="x = nan"):
        check_options(hidden(math.nan))
    check_options(hidden(0.5))


def test_options_of_registered_parts_are_checked_too(capsys):
    register_stage("mine", lambda *_: None, "for this test", options=Mine)
    try:
        with pytest.raises(UserError, match=r"mine.deep.rate = nan"):
            check_options(config_type()(mine=Mine(Deep(math.nan))))
        words = ["train", TOY, "--preset", "debug", "--bonus.mine.deep.rate", "inf"]
        assert main(words) == 2
        assert "bonus.mine.deep.rate = inf" in capsys.readouterr().err
    finally:
        del OPTIONS["mine"], STAGES["mine"]


@pytest.mark.parametrize(
    "name",
    ["ext_coef", "int_coef", "reward_clip", "entropy", "value_coef", "max_grad_norm", "lr", "clip"],
)
def test_ppo_refuses_negative_numbers(name):
    with pytest.raises(UserError, match=f"ppo.{name} = -1.0"):
        check_ppo(PPOConfig(**{name: -1.0}), True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": 0}, "dqn.hidden = 0"),
        ({"hidden": 65_537}, "at most 65,536"),
        ({"target_rate": 0.0}, "dqn.target_rate = 0.0 is not possible: it must be above 0"),
        ({"updates": 1e9}, "dqn.updates = 1000000000.0"),
        ({"batch": 10**9}, "dqn.batch = 1000000000"),
    ],
)
def test_dqn_refuses_what_cannot_be(change, says):
    with pytest.raises(UserError, match=says):
        check_dqn(DQNConfig(**change))


METHODS = {  # what has to be named for an option to matter
    "icm": "icm",
    "ngu": "ngu",
    "ae": "ae",
    "disagreement": "disagreement",
    "lwm": "lwm",
    "counts": "rnd+counts",
    "expect": "rnd+expect",
    "recognise": "rnd+recognise",
    "gate": "rnd+sm+gate",
}
MAY_BE_BILLIONS = {  # counts of what happens one after the other, or of what grows as it is used
    "steps",
    "seed",
    "ppo.minibatches",
    "dqn.replay",
    "dqn.pretrain",
    "dqn.pretrain_pairs",
    "bonus.ngu.capacity",
    "bonus.minibatches",
}


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in MAY_BE_BILLIONS])
@pytest.mark.parametrize("value", [-1, 10**9])
def test_sizes_are_refused_before_memory_is_asked_for(name, value):
    part = name.split(".")[1] if name.startswith("bonus.") else ""
    method = METHODS.get(part, "rnd+sm")
    if name.startswith("dqn."):
        method = "lwm"
    run = with_options(PRESETS["debug"](TOY), {"method": method})
    with pytest.raises(UserError, match=f"{name.split('.')[-1]}.* = "):
        build(with_options(run, {name: value}))


def test_too_little_memory_is_one_sentence(capsys, tmp_path):
    words = ["--preset", "debug", "--rollout", "1000000", "--envs", "65536"]
    words += ["--warmup-rollouts", "0"]  # which alone would take more than all steps
    assert main(["train", TOY, *words, "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("surprise-memory: Not enough memory") and "\n" not in said


@pytest.mark.parametrize("env", ["MiniGrid-Empty-5x5-v0", "MontezumaRevenge", TOY, "CartPole-v1"])
def test_the_largest_seed_works_everywhere(env):
    run = PRESETS["debug"](env)
    run = dataclasses.replace(run, seed=2**31 // run.envs - 1)
    env = make_vec(run.env, run.envs, run.seed * run.envs)
    assert len(env.reset()) == run.envs
    env.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "0"], "seeds = 0"),
        (["--seeds", "-1"], "seeds = -1"),
        (["--seeds", "100000000000"], "at most"),
        (["--jobs", "0"], "jobs = 0"),
        (["--jobs", "1000000"], "at most"),
        (["--preset", "papper"], "Did you mean 'paper'"),
    ],
)
def test_grids_refuse_what_cannot_be(capsys, tmp_path, words, says):
    assert main(["reproduce", "table-1", "--dry-run", "--dir", str(tmp_path), *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("method", ["", "+", "rnd+", "rnd++sm", "+sm", "none+sm", "rnd+sm+", "RND"])
def test_methods_that_are_not_spelt_right(capsys, method):
    assert main(["train", TOY, f"--method={method}"]) == 2
    assert "ethod" in capsys.readouterr().err


def test_an_empty_preset_is_not_the_default(capsys):
    assert main(["train", TOY, "--preset", ""]) == 2
    assert "Unknown preset ''" in capsys.readouterr().err
