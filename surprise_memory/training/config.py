"""A run, fully described: one frozen dataclass."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from surprise_memory.agents import AGENTS, DQNConfig, PPOConfig
from surprise_memory.bonus import BonusConfig
from surprise_memory.bonus.config import complete, config_type
from surprise_memory.bonus.methods import backbone, check_method
from surprise_memory.errors import UserError, one_of, require
from surprise_memory.registry import OPTIONS

Config = TypeVar("Config")
PRESET_NAMES = ("default", "noisy", "paper", "released-code", "debug")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does."""

    env: str
    """Environment id; `surprise-memory envs` lists them."""
    method: str = "rnd+sm"
    """generator[+memory][+stage]; `surprise-memory methods` lists them."""
    agent: str = "auto"
    """Who acts: ppo, dqn (recurrent, from replay), random, or auto, which is dqn for lwm and ppo for all others."""
    preset: str = "default"
    """Where the other defaults come from: default, noisy, paper, released-code, debug."""
    steps: int = 1_000_000
    """Agent steps over all environments, warm-up included."""
    seed: int = 0
    """Seeds the networks, the draws and every environment."""
    envs: int = 64
    """B, environments side by side."""
    rollout: int = 128
    """T, steps of each environment between updates of PPO; DQN's are --dqn.unroll."""
    warmup_rollouts: int = 5
    """Rollouts with random actions that teach the bonus what is ordinary before anything is paid."""
    save_minutes: float = 1.0
    """Minutes between checkpoints; 0 saves after every rollout."""
    eval_episodes: int = 128
    """Episodes of the evaluation after training; 0 is none."""
    threads: int = 1
    """Torch's threads; more runs side by side make better use of cores than more threads do."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    dqn: DQNConfig = field(default_factory=DQNConfig)
    bonus: BonusConfig = field(default_factory=BonusConfig)

    def __post_init__(self) -> None:
        for name, least in {
            "steps": 1,
            "envs": 1,
            "rollout": 1,
            "warmup_rollouts": 0,
            "eval_episodes": 0,
            "threads": 1,
        }.items():
            require(getattr(self, name) >= least, name, getattr(self, name), f"at least {least}")
        require(self.save_minutes >= 0, "save_minutes", self.save_minutes, "at least 0")
        require(0 <= self.seed < 2**31, "seed", self.seed, "between 0 and 2^31 - 1")
        one_of(self.preset, PRESET_NAMES, "preset")
        check_method(self.method)
        one_of(self.agent, ("auto", *AGENTS), "agent")

    @property
    def backbone(self) -> str:
        """Who acts in the end: ppo, dqn or random."""
        return backbone(self.method) if self.agent == "auto" else self.agent

    @property
    def default_dir(self) -> Path:
        """runs/<env>/<method>-<preset>-<seed>, with the agent's name where it is not the method's own."""
        own = "" if self.backbone == backbone(self.method) else f"-{self.backbone}"
        return (
            Path("runs")
            / self.env.replace("/", "-")
            / f"{self.method}{own}-{self.preset}-{self.seed}"
        )


def run_type() -> type[RunConfig]:
    """RunConfig with the options of parts that were registered from outside."""
    if not OPTIONS:
        return RunConfig
    kind = config_type()
    added = [("bonus", kind, field(default_factory=kind))]
    return dataclasses.make_dataclass("RunConfig", added, bases=(RunConfig,), frozen=True)


def with_part_options(run: RunConfig) -> RunConfig:
    """The same run, with defaults for the options of parts registered from outside."""
    values = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    return run_type()(**values | {"bonus": complete(run.bonus)})


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """A config from config.json; refuses keys that this version does not have."""
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            cure = "use the version named in versions.txt"
            raise UserError(
                f"config.json has the option '{name}', which this version does not know: {cure}."
            )
    nested = {
        name: from_dict(known[name].default_factory, value) if isinstance(value, dict) else value  # type: ignore[arg-type]
        for name, value in values.items()
    }
    return kind(**nested)
