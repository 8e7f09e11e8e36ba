"""A run, fully described: one frozen dataclass."""

import dataclasses
import typing
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

from surprise_memory.agents import AGENTS, DQNConfig, PPOConfig
from surprise_memory.bonus import BonusConfig
from surprise_memory.bonus.config import complete, config_type
from surprise_memory.bonus.methods import DEFAULT_METHOD, backbone, check_method
from surprise_memory.errors import UserError, check_options, one_of, require, require_between
from surprise_memory.nn.nets import PRECISIONS
from surprise_memory.training.loggers import split_names
from surprise_memory.training.seeds import check_seed, training_seed

Config = TypeVar("Config")
PRESET_NAMES = ("default", "paper", "released-code", "debug")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does."""

    env: str
    """Environment id; `surprise-memory envs` lists them."""
    method: str = DEFAULT_METHOD
    """`generator[+memory][+stage]`; `surprise-memory methods` lists them."""
    agent: str = "auto"
    """Who acts: ppo, dqn (recurrent, with replay), random, or auto (dqn for lwm, else ppo)."""
    preset: str = "default"
    """Source of the other defaults: default, paper, released-code, debug."""
    steps: int = 1_000_000
    """Agent steps over all environments, warm-up included."""
    seed: int = 0
    """Seed of the networks, the draws and every environment: from 0, and below 2^31 / envs."""
    envs: int = 64
    """Environments side by side (B)."""
    same_layouts: bool = False
    """All train on one sequence of layouts, as in the paper's code (MiniGrid)."""
    rollout: int = 128
    """Steps of each environment between updates of PPO (T); DQN has --dqn.unroll."""
    warmup_rollouts: int = 5
    """Rollouts of random actions that train the bonus before it pays; more than 5 take at most an
    eighth of the steps."""
    save_minutes: float = 1.0
    """Minutes between checkpoints; 0 saves after every rollout."""
    eval_episodes: int = 128
    """Episodes of the evaluation after training; 0 evaluates nothing."""
    eval_steps: int = 27_000
    """Steps after which an episode of the evaluation is cut; its return so far counts."""
    step_seconds: float = 120.0
    """Seconds that a step may take in a worker process (MiniWorld) or in a Gymnasium environment;
    0 waits for ever."""
    threads: int = 1
    """Threads of torch; with two or more, agent and bonus learn at the same time."""
    device: str = "cpu"
    """Where networks compute: cpu, cuda, cuda:1, mps, or auto (cuda if there is one, else cpu)."""
    precision: str = "float32"
    """What the networks' hidden layers multiply in: float32, or bf16, which images gain from."""
    compile: bool = False
    """Compile the losses of PPO and of the bonus: minutes at the start, less for each update."""
    logger: str = "tensorboard"
    """Where metrics go besides metrics.jsonl: tensorboard, wandb, mlflow, trackio, jsonl (nowhere),
    package.module:Class, or several with commas between them."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    dqn: DQNConfig = field(default_factory=DQNConfig)
    bonus: BonusConfig = field(default_factory=BonusConfig)

    def __post_init__(self) -> None:
        check_options(self)
        require(self.steps >= 1, "steps", self.steps, "at least 1")
        require_between("envs", self.envs, 1, 65_536)
        require_between("rollout", self.rollout, 1, 1_000_000)
        require_between("threads", self.threads, 1, 1_024)
        require_between("warmup_rollouts", self.warmup_rollouts, 0, 1_000_000)
        require_between("eval_episodes", self.eval_episodes, 0, 1_000_000)
        require_between("eval_steps", self.eval_steps, 1, 100_000_000)
        for name in ("save_minutes", "step_seconds"):
            value = getattr(self, name)
            require(value >= 0, name, value, "at least 0")
        check_seed(self.seed, self.envs)
        one_of(self.preset, PRESET_NAMES, "preset")
        check_method(self.method)
        one_of(self.agent, ("auto", *AGENTS), "agent")
        one_of(self.precision, PRECISIONS, "precision")
        split_names(self.logger)

    @property
    def backbone(self) -> str:
        """Who acts in the end: ppo, dqn or random."""
        if self.agent == "auto":
            return backbone(self.method)
        return self.agent

    @property
    def fixed_seed(self) -> int:
        """The seed of what every environment of this run shares, such as a TV's channels."""
        return training_seed(self.seed, self.envs)

    @property
    def default_dir(self) -> Path:
        """runs/<env>/<method>-<preset>-<seed>, with the agent if it is not the method's own."""
        who = self.method
        if self.backbone != backbone(self.method):
            who = f"{self.method}-{self.backbone}"
        return Path("runs") / self.env.replace("/", "-") / f"{who}-{self.preset}-{self.seed}"


_EXTENDED: dict[type[BonusConfig], type[RunConfig]] = {}


def run_type() -> type[RunConfig]:
    """RunConfig with the options of parts that were registered from outside."""
    kind = config_type()
    if kind is BonusConfig:
        return RunConfig
    if kind not in _EXTENDED:
        added = [("bonus", kind, field(default_factory=kind))]
        more = {"__reduce__": lambda run: (revive, (dataclasses.asdict(run),))}
        _EXTENDED[kind] = dataclasses.make_dataclass(
            "RunConfig", added, bases=(RunConfig,), frozen=True, namespace=more
        )
    return _EXTENDED[kind]


def revive(values: dict[str, Any]) -> RunConfig:
    """A run that was sent to another process, where the same parts are registered."""
    return from_dict(run_type(), values)


def with_part_options(run: RunConfig) -> RunConfig:
    """The same run, with defaults for the options of parts registered from outside."""
    values = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    return run_type()(**values | {"bonus": complete(run.bonus)})


def with_options(config: Config, options: dict[str, Any]) -> Config:
    """A config with some options changed, named as on the command line: {'memory.slots': 32}."""
    for name, value in options.items():
        config = _with_value(config, name.split("."), value)
    return config


def _with_value(config: Any, names: list[str], value: Any) -> Any:
    """A copy of a config with one value changed, however deep it is."""
    name, *deeper = names
    if deeper:
        value = _with_value(getattr(config, name), deeper, value)
    return dataclasses.replace(config, **{name: value})


def from_dict(kind: type[Config], values: Any) -> Config:
    """A config from config.json; refuses keys that this version does not have, and wrong types."""
    if not isinstance(values, dict):
        raise UserError(f"config.json is damaged: it has {values!r} where options should be.")
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    types = field_types(kind)
    nested = {}
    for name, value in values.items():
        if name not in known:
            cure = "use the version named in versions.txt, or the script that registers the part"
            raise UserError(
                f"config.json has the option '{name}', which this version does not know: {cure}."
            )
        nested[name] = value
        part: Any = known[name].default_factory
        nests = dataclasses.is_dataclass(types.get(name)) or isinstance(value, dict)
        if nests and part is not dataclasses.MISSING:
            nested[name] = from_dict(part, value)
        elif not fits(value, types.get(name)):
            raise UserError(f"config.json is damaged: {name} = {value!r} is of a wrong type.")
    for name, option in known.items():
        needed = option.default is option.default_factory is dataclasses.MISSING
        if needed and name not in nested:
            raise UserError(f"config.json is damaged: it has no '{name}'.")
    return kind(**nested)


def field_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; none where they name what only another file knows."""
    try:
        return typing.get_type_hints(kind)
    except NameError:
        return {}


def fits(value: object, hint: Any) -> bool:
    """Whether a value from JSON is of a field's type; types that JSON does not have fit all.

    >>> fits(3, float), fits(None, int | None), fits(True, int), fits("3", int)
    (True, True, False, False)
    """
    if isinstance(hint, UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if hint is float:
        hint = (int, float)
    if isinstance(value, bool) and hint in (int, (int, float)):
        return False
    if hint in (int, (int, float), str, bool, NoneType):
        return isinstance(value, hint)
    return True
