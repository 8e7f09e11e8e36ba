"""A run, fully described: one frozen dataclass, and the presets that fill it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from surprise_memory.agents.dqn import DQNConfig
from surprise_memory.agents.ppo import PPOConfig
from surprise_memory.bonus.methods import BonusConfig, backbone, check_method
from surprise_memory.envs.atari import ids as atari_ids
from surprise_memory.envs.miniworld import PREFIX as MINIWORLD
from surprise_memory.envs.noisy_tv import PREFIX as NOISY_TV
from surprise_memory.errors import UserError, choose, require
from surprise_memory.memory import CountsConfig, MemoryConfig
from surprise_memory.surprise import (
    AEConfig,
    DisagreementConfig,
    ICMConfig,
    LWMConfig,
    NGUConfig,
    RNDConfig,
)

Config = TypeVar("Config")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does."""

    env: str
    """Environment id; `surprise-memory envs` lists them."""
    method: str = "rnd+sm"
    """generator[+memory]; `surprise-memory methods` lists them."""
    agent: str = "auto"
    """Who acts: ppo, dqn (recurrent, from replay), random, or auto, which is dqn for lwm and ppo for all others."""
    preset: str = "default"
    """Where the other defaults come from: default, noisy, paper, released-code, debug."""
    steps: int = 1_000_000
    """Agent steps over all environments, warm-up included."""
    seed: int = 0
    """Seeds the networks, the rng and every environment."""
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
        choose(PRESETS, self.preset, "preset")
        check_method(self.method)
        choose(dict.fromkeys(("auto", "ppo", "dqn", "random")), self.agent, "agent")

    @property
    def backbone(self) -> str:
        """Who acts in the end: ppo, dqn or random."""
        return backbone(self.method) if self.agent == "auto" else self.agent

    @property
    def block(self) -> int:
        """Steps of each environment that are collected at once."""
        return self.dqn.unroll if self.backbone == "dqn" else self.rollout

    @property
    def default_dir(self) -> Path:
        """runs/<env>/<method>-<preset>-<seed>, with the agent's name where it is not the method's own."""
        own = "" if self.backbone == backbone(self.method) else f"-{self.backbone}"
        return (
            Path("runs")
            / self.env.replace("/", "-")
            / f"{self.method}{own}-{self.preset}-{self.seed}"
        )


def _default(env: str) -> RunConfig:
    return RunConfig(env)


def _noisy(env: str) -> RunConfig:
    """For worlds with something unpredictable in them: M read as printed, W wide enough to recall all of its query.

    Noise then becomes familiar. The price is that a first sight in an episode no longer stands out: see docs/results.md.
    """
    run = _default(env)
    memory = dataclasses.replace(run.bonus.memory, read="cosine", w_hidden=128)
    return dataclasses.replace(
        run, preset="noisy", bonus=dataclasses.replace(run.bonus, memory=memory)
    )


def _paper(env: str) -> RunConfig:
    """Every number as printed (tables 3 to 5, appendix B). Widths that are not printed are 512, as RND's."""
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
        lwm=LWMConfig(hidden=256),
        loss="norm",
        scale_momentum=None,
        memory_lr=1e-4,
        minibatches=64,
    )
    dqn = DQNConfig(
        lr=1e-4,
        int_coef=1.0,
        hidden=512,
        burn_in=40,
        unroll=80,
        replay=1_000_000,
        pretrain_pairs=10_000,
        pretrain=5_000,
    )
    run = RunConfig(env, preset="paper", steps=10_000_000, ppo=ppo, dqn=dqn, bonus=bonus)
    game = env.removeprefix(NOISY_TV)
    if game in atari_ids():
        return _with(
            run, envs=128, minibatches=4, clip=0.1, warmup_rollouts=50, steps=12_500_000
        )  # 50 M frames
    if game.startswith(MINIWORLD):
        rewarded = env.startswith(NOISY_TV)  # its other two tasks are explored without their reward
        return _with(
            run,
            clip=0.1,
            warmup_rollouts=50,
            steps=4_000_000 if rewarded else 100_000_000,
            ext_coef=2.0 * rewarded,
        )
    return run


def _with(
    run: RunConfig,
    minibatches: int | None = None,
    clip: float = 0.2,
    ext_coef: float = 2.0,
    **changes: Any,
) -> RunConfig:
    """A run with other numbers for PPO, the bonus's minibatches with its."""
    minibatches = minibatches or run.ppo.minibatches
    ppo = dataclasses.replace(run.ppo, minibatches=minibatches, clip=clip, ext_coef=ext_coef)
    return dataclasses.replace(
        run, ppo=ppo, bonus=dataclasses.replace(run.bonus, minibatches=minibatches), **changes
    )


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
        lwm=LWMConfig(n=8, inputs=16, hidden=16, pairs=32),
        counts=CountsConfig(bits=16),
        minibatches=2,
        epochs=1,
    )
    ppo = PPOConfig(hidden=16, minibatches=2, epochs=1)
    dqn = DQNConfig(
        hidden=16,
        burn_in=4,
        unroll=16,
        n_step=3,
        batch=4,
        updates=0.25,
        replay=2_000,
        pretrain=2,
        pretrain_pairs=2,
    )
    dqn = dataclasses.replace(dqn, save_replay="always")
    small = RunConfig(
        env, preset="debug", steps=2_000, envs=4, rollout=16, warmup_rollouts=1, eval_episodes=4
    )
    return dataclasses.replace(small, ppo=ppo, dqn=dqn, bonus=bonus)


PRESETS: dict[str, Callable[[str], RunConfig]] = {
    "default": _default,
    "noisy": _noisy,
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
            raise UserError(
                f"config.json has the option '{name}', which this version does not know: {cure}."
            )
    nested = {
        name: from_dict(known[name].default_factory, value) if isinstance(value, dict) else value  # type: ignore[arg-type]
        for name, value in values.items()
    }
    return kind(**nested)
