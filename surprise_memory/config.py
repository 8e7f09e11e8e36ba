"""A run, fully described: one frozen dataclass, and the presets that fill it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from surprise_memory.agents.ppo import PPOConfig
from surprise_memory.bonus import BonusConfig, check_method
from surprise_memory.memory import CountsConfig, MemoryConfig
from surprise_memory.surprise import AEConfig, DisagreementConfig, ICMConfig, NGUConfig, RNDConfig
from surprise_memory.types import UserError, choose, require

Config = TypeVar("Config")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does."""

    env: str
    """Environment id; `surprise-memory envs` lists them."""
    method: str = "rnd+sm"
    """generator[+memory]; `surprise-memory methods` lists them."""
    preset: str = "default"
    """Where the other defaults come from: default, paper, released-code, debug."""
    steps: int = 1_000_000
    """Agent steps over all environments, warm-up included."""
    seed: int = 0
    """Seeds the networks, the draws and every environment."""
    envs: int = 64
    """B, environments side by side."""
    rollout: int = 128
    """T, steps of each environment between updates."""
    warmup_rollouts: int = 5
    """Rollouts with random actions that teach the bonus what is ordinary before anything is paid."""
    save_minutes: float = 1.0
    """Minutes between checkpoints; 0 saves after every rollout."""
    eval_episodes: int = 128
    """Episodes of the evaluation after training; 0 is none."""
    threads: int = 1
    """Torch's threads; more runs side by side make better use of cores than more threads do."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    bonus: BonusConfig = field(default_factory=BonusConfig)

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "envs": 1, "rollout": 1, "warmup_rollouts": 0, "eval_episodes": 0, "threads": 1}.items():
            require(getattr(self, name) >= least, name, getattr(self, name), f"at least {least}")
        require(self.save_minutes >= 0, "save_minutes", self.save_minutes, "at least 0")
        require(0 <= self.seed < 2**31, "seed", self.seed, "between 0 and 2^31 - 1")
        choose(PRESETS, self.preset, "preset")
        check_method(self.method)

    @property
    def default_dir(self) -> Path:
        """runs/<env>/<method>-<preset>-<seed>."""
        return Path("runs") / self.env.replace("/", "-") / f"{self.method}-{self.preset}-{self.seed}"


def _default(env: str) -> RunConfig:
    return RunConfig(env)


def _paper(env: str) -> RunConfig:
    """Every number as printed (tables 3 and 4, appendix B); MiniGrid's column."""
    ppo = PPOConfig(
        lr=1e-4,
        entropy=0.001,
        minibatches=64,
        max_grad_norm=0.0,
        normalise_advantage=False,
        bootstrap_time_limits=False,
        reward_clip=1.0,
    )
    memory = MemoryConfig(width=16, read="cosine", w_hidden=32, loss="norm")
    bonus = BonusConfig(
        rnd=RNDConfig(n=512),
        memory=memory,
        icm=ICMConfig(n=512, hidden=512),
        ae=AEConfig(n=512),
        disagreement=DisagreementConfig(features=512, hidden=512),
        loss="norm",
        scale_momentum=None,
        memory_lr=1e-4,
        minibatches=64,
    )
    return RunConfig(env, preset="paper", steps=10_000_000, ppo=ppo, bonus=bonus)


def _released_code(env: str) -> RunConfig:
    """What the authors' code does otherwise, without its bugs: see docs/deviations.md."""
    paper = _paper(env)
    memory = MemoryConfig(
        width=16,
        w_hidden=32,
        read="softmax",
        project_back=False,
        train_q=False,
        m_coef=0.01,
        attach_read=False,
        m_trains_surprise=True,
    )
    bonus = dataclasses.replace(paper.bonus, memory=memory, loss="squared", power=2)
    return dataclasses.replace(paper, preset="released-code", bonus=bonus)


def _debug(env: str) -> RunConfig:
    """Everything small: a whole run in seconds, to see that it runs."""
    memory = MemoryConfig(slots=12, width=4, w_hidden=8)
    bonus = BonusConfig(
        rnd=RNDConfig(n=8, hidden=16),
        memory=memory,
        icm=ICMConfig(n=8, hidden=16),
        ngu=NGUConfig(k=3, embedding=4, hidden=16),
        ae=AEConfig(n=8, hidden=16),
        disagreement=DisagreementConfig(ensemble=3, features=8, hidden=16),
        counts=CountsConfig(bits=16),
        minibatches=2,
        epochs=1,
    )
    ppo = PPOConfig(hidden=16, minibatches=2, epochs=1)
    return RunConfig(
        env, preset="debug", steps=2_000, envs=4, rollout=16, warmup_rollouts=1, eval_episodes=4, ppo=ppo, bonus=bonus
    )


PRESETS: dict[str, Callable[[str], RunConfig]] = {
    "default": _default,
    "paper": _paper,
    "released-code": _released_code,
    "debug": _debug,
}


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """A config from config.json; refuses keys that this version does not have."""
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            cure = "use the version named in versions.txt"
            raise UserError(f"config.json has the option '{name}', which this version does not know: {cure}.")
    nested = {
        name: from_dict(known[name].default_factory, value) if isinstance(value, dict) else value  # type: ignore[arg-type]
        for name, value in values.items()
    }
    return kind(**nested)
