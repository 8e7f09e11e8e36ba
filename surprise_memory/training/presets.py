"""Where the defaults of a run come from: each preset fills a whole RunConfig for an environment."""

import dataclasses
from collections.abc import Callable
from typing import Any

from surprise_memory.agents import DQNConfig, PPOConfig
from surprise_memory.bonus import BonusConfig
from surprise_memory.envs import family_of
from surprise_memory.memory import CountsConfig, MemoryConfig
from surprise_memory.stages import NGUConfig
from surprise_memory.surprise import AEConfig, DisagreementConfig, ICMConfig, LWMConfig, RNDConfig
from surprise_memory.training.config import RunConfig


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
    family = family_of(env)
    if family == "atari":
        return _with(
            run, envs=128, minibatches=4, clip=0.1, warmup_rollouts=50, steps=12_500_000
        )  # 50 M frames
    if family == "miniworld":
        rewarded = env.startswith(
            "NoisyTV"
        )  # its other two tasks are explored without their reward
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
