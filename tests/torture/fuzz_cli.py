"""Bad values for every option and argument of every command."""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.torture import fixtures
from tests.torture.cases import HARMLESS, SILENT, Case, Verdict
from tests.torture.commands import TINY, TOY, judge_command, judge_training
from tests.torture.options import Option, options

FAMILY = "command line"
HUGE = "100000000000000000000"
NOT_FINITE = ("nan", "inf", "-inf")
VALUES = {
    "float": (*NOT_FINITE, "-1", "0", "1e308", "1e-320", "", "x"),
    "int": ("nan", "-1", "0", HUGE, "9223372036854775807", "1.5", "", "x"),
    "str": ("", "x", "-1", "nan", "None", "../../x", "☃", "a" * 5000),
    "path": ("", "/dev/null/x", "/proc/x", "a" * 5000, "\u2603"),
    "bool": ("maybe", "", "-1"),
    "": ("", "x", "-1", "nan", HUGE),
}
# Widths and sizes: with none of them there is no network, no memory or no batch.
SIZES = {
    "hidden", "n", "width", "slots", "embedding", "features", "ensemble", "inputs", "bits", "batch",
    "replay", "k", "capacity", "reservoir", "w_hidden", "pairs", "unroll", "n_step", "minibatches",
    "epochs", "envs", "steps", "rollout", "threads", "jobs", "seeds", "episodes", "fps", "longest",
    "rollouts", "workers",
}  # fmt: skip
# Weights, thresholds and margins whose sign is the user's choice.
ANY_SIGN = {"ext_coef", "int_coef", "entropy", "margin", "threshold", "beta", "obs_scale"}
# A huge number of these is honest work for ever.
WORK = {
    "steps", "eval_episodes", "warmup_rollouts", "rollout", "epochs", "pretrain", "pretrain_pairs",
    "updates", "episodes", "rollouts", "seeds", "longest", "unroll", "minibatches", "save_minutes",
}  # fmt: skip
# What makes an option count: a part that is not used must not hide a bad value.
METHODS = {
    "icm": "icm+sm", "ngu": "ngu", "ae": "ae+sm", "disagreement": "disagreement", "lwm": "lwm+sm",
    "counts": "rnd+counts", "expect": "rnd+sm+expect", "recognise": "rnd+sm+recognise",
    "gate": "rnd+sm+gate",
}  # fmt: skip
ENVS = (
    "", "x", ":", "a:b", "nosuchmodule:Env-v0", "MiniGrid-", "MiniGrid-Nothing-v0", "NoisyTV/",
    "NoisyTV:channels=x/ToyKeyDoor-v0", "NoisyTV:channels=-1/ToyKeyDoor-v0",
    "NoisyTV:/ToyKeyDoor-v0",
    "NoisyTV/NoisyTV/ToyKeyDoor-v0", "NoisyView/CartPole-v1", "../x", "☃", "ToyKeyDoor-v0 ",
    "toykeydoor-v0", "Blackjack-v1", "Taxi-v3", "FrozenLake-v1", "Pendulum-v1", "CliffWalking-v1",
    "CartPole-v1", "NoisyTV/CartPole-v1", "NoisyTV/Pendulum-v1", "a" * 5000,
)  # fmt: skip
LINES = (
    [], ["nothing"], ["--help"], ["-1"], [""], ["train"], ["train", "--nothing"],
    ["train", "--env"],
    ["train", TOY, "--nothing"], ["train", TOY, "--nothing", "3"], ["train", TOY, TOY],
    ["train", TOY, *TINY, "--resume"], ["train", TOY, "--method"], ["eval"], ["show"], ["play"],
    ["mnir"], ["inspect"], ["figures"], ["report", "a", "b"], ["reproduce", "nothing"],
    ["envs", "☃"], ["envs", "a", "b"], ["methods", "x"], ["bench", "x"], ["doctor"],
    ["reproduce", "", "x"],
)  # fmt: skip


def cases(seed: int, where: Path) -> list[Case]:
    """All cases in a random order, so that a run that is cut short is a fair sample."""
    found = [*training_cases(), *command_cases(where), *argument_cases(where), *line_cases()]
    random.Random(seed).shuffle(found)
    return found


def training_cases() -> Iterator[Case]:
    """Every option of `train` with every value of its kind."""
    for option in options("train"):
        for value in VALUES[option.kind]:
            argv = without(["train", TOY, *TINY, *companions(option)], option)
            argv += spelt(option, value)
            if option.name == "env":
                argv.remove(TOY)
            yield case(argv, option, value, trains=True)


def companions(option: Option) -> list[str]:
    """The options that make this one count."""
    head, _, rest = option.name.partition(".")
    part = rest.partition(".")[0]
    if option.name == "bonus.obs_scale":
        return ["--bonus.obs-norm", "scale"]
    if head == "bonus" and part in METHODS:
        return ["--method", METHODS[part]]
    if head == "dqn":
        return ["--agent", "dqn", "--method", "lwm+sm" if "pretrain" in part else "rnd+sm"]
    if option.kind == "":  # of a part that is not known here
        return []
    return []


def command_cases(where: Path) -> Iterator[Case]:
    """Every option of the other commands; of the doctor's, those that `train` does not have."""
    of_train = {option.name for option in options("train")}
    for command, base in bases(where).items():
        for option in options(command):
            if command == "doctor" and option.name in of_train:
                continue
            for value in VALUES[option.kind]:
                argv = without([command, *base], option) + spelt(option, value)
                yield case(argv, option, value, trains=False)


def bases(where: Path) -> dict[str, list[str]]:
    """Every command but train, made small."""
    run = str(where / "ppo")
    tiny = ["--preset", "debug"]
    return {
        "eval": [run, "--episodes", "2"],
        "envs": [],
        "methods": [],
        "show": [run],
        "play": [TOY, "--steps", "3", "--out", "play.gif"],
        "inspect": [str(where / "grid"), "--out", "inspect.html"],
        "figures": [str(where / "grid"), "--out", "figures"],
        "mnir": [str(where / "grid"), "--episodes", "2", "--longest", "16", "--out", "mnir.png"],
        "bench": ["--env", TOY, *tiny, "--rollouts", "1"],
        "reproduce": ["t-maze", "--budget", "smoke", "--dry-run", "--dir", "grids"],
        "report": [str(where / fixtures.REPRODUCTION), "--out", "report"],
        "doctor": [TOY, *tiny, "--seeds", "1", "--rollouts", "2", "--workers", "1"],
    }


def without(argv: list[str], option: Option) -> list[str]:
    """A command line without one of its options."""
    if option.flag not in argv:
        return argv
    i = argv.index(option.flag)
    words = 1 if option.kind == "bool" else 2
    return argv[:i] + argv[i + words :]


def spelt(option: Option, value: str) -> list[str]:
    """An option with its value; one that begins with a dash needs the equals sign."""
    if value.startswith("-") or option.kind == "bool":
        return [f"{option.flag}={value}"]
    return [option.flag, value]


def case(argv: list[str], option: Option, value: str, trains: bool) -> Case:
    """One value of one option."""
    huge = value in (HUGE, "9223372036854775807", "1e308")
    endless = huge and option.last in WORK

    def run() -> Verdict:
        verdict = judge_training(argv) if trains else judge_command(argv)
        if verdict.outcome == HARMLESS and senseless(option, value):
            return Verdict(SILENT, f"accepted {option.flag} {value}")
        return verdict

    limit = 8.0 if endless else 60.0
    return Case(FAMILY, shown(argv), run, limit, endless)


def senseless(option: Option, value: str) -> bool:
    """Whether no program can do what this value asks for."""
    if option.kind not in ("int", "float"):
        return False
    if value in NOT_FINITE:
        return True
    if value == "-1":
        return option.last not in ANY_SIGN
    return value == "0" and option.last in SIZES


def shown(argv: list[str]) -> str:
    """A command line as it would be typed."""
    words = [word if len(word) < 200 else f"{word[:8]}... ({len(word)} letters)" for word in argv]
    quoted = [word if word and " " not in word else f"'{word}'" for word in words]
    return " ".join(["surprise-memory", *quoted])


def argument_cases(where: Path) -> Iterator[Case]:
    """Bad positional arguments: environments and run directories."""
    for env in ENVS:
        yield plain(["train", env, *TINY], trains=True)
        yield plain(["play", env, "--steps", "3", "--out", "play.gif"])
    missing = ["", "missing", "/", "/dev/null", "/proc", str(where / "log.txt"), "a" * 5000]
    runs = [*missing, str(where), str(where / "ppo" / "config.json"), str(where / "none")]
    for run in runs:
        for command in ("eval", "show", "inspect", "figures", "mnir"):
            yield plain([command, run])
        yield plain(["play", TOY, "--run", run, "--steps", "3", "--out", "play.gif"])
        yield plain(["report", run, "--out", "report"])
    for out in ("", "/dev/null/x", "missing/x", "play.xyz", "play", "."):
        yield plain(["play", TOY, "--steps", "3", "--out", out])
    yield plain(["play", "CartPole-v1", "--run", str(where / "ppo"), "--steps", "3"])
    yield plain(["mnir", str(where / "ppo"), str(where / "grid")])
    yield plain(["train", TOY, *TINY[:-1], str(where / "log.txt")])
    yield plain(["train", TOY, *TINY[:-1], str(where / "log.txt"), "--resume"])


def line_cases() -> Iterator[Case]:
    """Command lines that make no sense as a whole."""
    for line in LINES:
        yield plain(line, trains=False)


def plain(argv: list[str], trains: bool = False) -> Case:
    """A command line that is judged by what it does alone."""
    run = (lambda: judge_training(argv)) if trains else (lambda: judge_command(argv))
    return Case(FAMILY, shown(argv), run, limit=60.0)
