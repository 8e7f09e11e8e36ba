"""Where the defaults of a run come from: each preset fills a whole RunConfig for an environment."""

import dataclasses
from collections.abc import Callable

from surprise_memory.agents import DQNConfig, PPOConfig
from surprise_memory.bonus import BonusConfig
from surprise_memory.bonus.methods import PAPERS_METHOD
from surprise_memory.envs import family_of
from surprise_memory.memory import CountsConfig, MemoryConfig
from surprise_memory.stages import NGUConfig
from surprise_memory.surprise import AEConfig, DisagreementConfig, ICMConfig, LWMConfig, RNDConfig
from surprise_memory.training.config import RunConfig


def _default(env: str) -> RunConfig:
    return RunConfig(env)


def _paper(env: str) -> RunConfig:
    """Every number as printed (tables 3 and 4, appendix B), gradients as in Algorithm 1.

    Widths that are not printed are 512, as in RND.
    """
    ppo = PPOConfig(
        lr=1e-4,
        entropy=0.001,
        minibatches=64,
        max_grad_norm=0.0,
        normalise_advantage=False,
        bootstrap_time_limits=False,
        end_discount=1.0,
        fade=0.0,
        random_actions=0.0,
        reward_clip=1.0,
    )
    memory = MemoryConfig(width=16, read="cosine", w_hidden=32, loss="norm", m_trains_surprise=True)
    bonus = BonusConfig(
        rnd=RNDConfig(n=512),
        memory=memory,
        icm=ICMConfig(n=512, hidden=512),
        ae=AEConfig(n=512),
        disagreement=DisagreementConfig(features=512, hidden=512),
        lwm=LWMConfig(hidden=256),
        loss="norm",
        ignore_noise=False,
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
    run = RunConfig(
        env, PAPERS_METHOD, preset="paper", steps=10_000_000, ppo=ppo, dqn=dqn, bonus=bonus
    )
    family = family_of(env)
    if family == "atari":
        return _paper_atari(run)
    if family == "miniworld":
        return _paper_miniworld(run)
    return run


def _paper_atari(run: RunConfig) -> RunConfig:
    """50 million frames, 4 to a step."""
    return dataclasses.replace(
        run,
        envs=128,
        steps=12_500_000,
        warmup_rollouts=50,
        ppo=dataclasses.replace(run.ppo, minibatches=4, clip=0.1),
        bonus=dataclasses.replace(run.bonus, minibatches=4),
    )


def _paper_miniworld(run: RunConfig) -> RunConfig:
    """The noisy TV with its task's reward; the other two tasks are explored without theirs."""
    steps = 100_000_000
    ext_coef = 0.0
    if run.env.startswith("NoisyTV"):
        steps = 4_000_000
        ext_coef = 2.0
    ppo = dataclasses.replace(run.ppo, clip=0.1, ext_coef=ext_coef)
    return dataclasses.replace(run, steps=steps, warmup_rollouts=50, ppo=ppo)


def _released_code(env: str) -> RunConfig:
    """What the authors' code does differently, without its bugs: see docs/deviations.md."""
    paper = _paper(env)
    n = paper.bonus.rnd.n
    width = 16
    # That code weighs L_M by 0.01 and averages squares over the slot's width, those of L_SG over n.
    # Here both are sums, so their ratio asks for another weight.
    m_coef = 0.01 * n / width
    memory = MemoryConfig(
        width=width,
        w_hidden=32,
        read="softmax",
        project_back=False,
        train_q=False,
        m_coef=m_coef,
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
        save_replay="always",
    )
    return RunConfig(
        env,
        PAPERS_METHOD,
        preset="debug",
        steps=2_000,
        envs=4,
        rollout=16,
        warmup_rollouts=1,
        eval_episodes=4,
        ppo=ppo,
        dqn=dqn,
        bonus=bonus,
    )


PRESETS: dict[str, Callable[[str], RunConfig]] = {
    "default": _default,
    "paper": _paper,
    "released-code": _released_code,
    "debug": _debug,
}
