"""Questions of our own: other generators, settings of PPO, reads of M, recurrent agents, W."""

from surprise_memory.reproduce.grid import (
    TASKS,
    Entry,
    Grid,
    memory_sizes,
    methods,
    with_and_without,
)
from surprise_memory.reproduce.noise_grids import (
    DEFAULT,
    EXPECT,
    KEY_CORRIDOR,
    PAPERS_STREAM,
    PLAIN,
    WIDE,
    noisy,
)
from surprise_memory.reproduce.published import KEY_DOOR, OBSTACLES, TABLE_1


def w_sizes() -> tuple[Entry, ...]:
    """W's hidden units and learning rate, for each generator."""
    entries = []
    for generator in ("rnd", "icm", "ngu", "ae"):
        for hidden in (8, 32, 64, 128):
            for rate in (1e-4, 1e-3):
                options = (("bonus.memory.w_hidden", hidden), ("bonus.memory_lr", rate))
                label = f"{generator}+sm W{hidden} {rate:g}"
                entries.append(Entry(f"{generator}+sm", options, label))
    return tuple(entries)


def ppo_changes() -> tuple[Entry, ...]:
    """Plain PPO, with the settings in which the default preset differs: one by one, and all."""
    normalised = ("ppo.normalise_advantage", True)
    entropy = ("ppo.entropy", 0.01)
    rate = ("ppo.lr", 3e-4)
    entries = []
    for options in ((), (normalised,), (entropy,), (rate,), (normalised, entropy, rate)):
        label = "none"
        for name, _ in options:
            label += " " + name.removeprefix("ppo.")
        entries.append(Entry("none", options, label))
    return tuple(entries)


# The settings in which the paper's and our preset differ, by what they belong to: paper's, ours.
_AGENT = {
    "entropy 0.001": (("ppo.entropy", 0.001, 0.01),),
    "raw advantages": (("ppo.normalise_advantage", False, True),),
    "policy at 1e-4": (("ppo.lr", 1e-4, 3e-4),),
    "free gradient norm": (("ppo.max_grad_norm", 0.0, 0.5),),
    "time limits end": (("ppo.bootstrap_time_limits", False, True),),
    "64 minibatches": (("ppo.minibatches", 64, 16), ("bonus.minibatches", 64, 16)),
}
_BONUS = {
    "n 512": (("bonus.rnd.n", 512, 64),),
    "W 32": (("bonus.memory.w_hidden", 32, None),),
    "n 512, W 32": (("bonus.rnd.n", 512, 64), ("bonus.memory.w_hidden", 32, None)),
    "M cosine, d 16": (("bonus.memory.read", "cosine", "ntm"), ("bonus.memory.width", 16, 32)),
    "norm losses": (("bonus.loss", "norm", "squared"), ("bonus.memory.loss", "norm", "squared")),
    "memory at 1e-4": (("bonus.memory_lr", 1e-4, 1e-3),),
    "L_M trains RND": (("bonus.memory.m_trains_surprise", True, False),),
    "scale over the past": (("bonus.scale_momentum", None, 0.9),),
}


def papers_settings() -> tuple[Entry, ...]:
    """Our settings, then with each of the paper's in turn."""
    entries = [Entry("rnd+sm")]
    for label, changes in (_AGENT | _BONUS).items():
        options = tuple((name, paper) for name, paper, _ in changes)
        entries.append(Entry("rnd+sm", options, f"rnd+sm, {label}"))
    return tuple(entries)


def our_settings() -> tuple[Entry, ...]:
    """The paper's settings, then with the two that matter most, and with all of ours.

    All for the agent, for the bonus, and for both. One row has the other reading of the paper's
    gradients (docs/deviations.md).
    """
    kept = (("bonus.memory.m_trains_surprise", False),)
    two = (("bonus.memory.w_hidden", None), ("bonus.memory.read", "ntm"))
    entries = [
        Entry("rnd+sm"),
        Entry("rnd+sm", kept, "rnd+sm, L_M kept from RND"),
        Entry("rnd+sm", two, "rnd+sm, W 512, M ntm"),
    ]
    for label, groups in (
        ("our agent", _AGENT),
        ("our bonus", _BONUS),
        ("our agent and bonus", _AGENT | _BONUS),
    ):
        options = [(name, ours) for changes in groups.values() for name, _, ours in changes]
        entries.append(Entry("rnd+sm", tuple(options), f"rnd+sm, {label}"))
    return tuple(entries)


def plain_dqn() -> Entry:
    """No bonus, and the recurrent agent. The default agent would be PPO."""
    return Entry("none", (("agent", "dqn"),), "none, dqn")


STUDIES: dict[str, Grid] = {
    "generators": Grid(
        "Every generator where nothing guides the way: KeyCorridorS4R3",
        (KEY_CORRIDOR,),
        (
            Entry("none"),
            *with_and_without("rnd", "icm", "ngu", "ae"),
            *methods("disagreement", "rnd+m", "rnd+w", "rnd+counts"),
            EXPECT,
            *noisy("rnd"),
            Entry("rnd+sm", WIDE[1:], "rnd+sm W128"),
        ),
        steps=(1_200_000, 2_000_000),
        options=PLAIN,
        preset="default",
        scale=100,
        solved=0.5,
    ),
    "ablation-ae": Grid(
        "The memory's halves and sizes where it works among the balls: the autoencoder on "
        "Dynamic-Obstacles",
        (OBSTACLES,),
        (*methods("ae", "ae+sm", "ae+m", "ae+w", "ae+counts"), *memory_sizes("ae")),
        steps=(2_000_000, 10_000_000),
        options=PAPERS_STREAM,
        preset="default",
        scale=100,
        short=TASKS,
        solved=0.9,
    ),
    "ablation-ppo": Grid(
        "What plain PPO needs beyond the paper's settings: Dynamic-Obstacles",
        (OBSTACLES,),
        ppo_changes(),
        steps=(2_000_000, 10_000_000),
        scale=100,
        short=TASKS,
        solved=0.9,
    ),
    "papers-settings": Grid(
        "Which of the paper's settings keep RND+SM from learning: ours, with one of the paper's",
        (KEY_DOOR,),
        papers_settings(),
        steps=(1_200_000, 10_000_000),
        seeds=(1, 3),
        options=PAPERS_STREAM,
        preset="default",
        scale=100,
        short=TASKS,
        solved=0.9,
    ),
    "our-settings": Grid(
        "Which of our settings RND+SM needs: the paper's, with ours for the agent or the bonus",
        (KEY_DOOR, OBSTACLES),
        our_settings(),
        steps=(2_000_000, 10_000_000),
        seeds=(1, 5),
        scale=100,
        short=TASKS,
        solved=0.9,
    ),
    "same-layouts": Grid(
        "The paper's settings, all environments on the same layouts in turn, as in its code",
        (KEY_DOOR, OBSTACLES),
        methods("none", "rnd", "rnd+sm"),
        steps=(2_000_000, 10_000_000),
        seeds=(1, 5),
        rules=(("same_layouts", True),),
        scale=100,
        published={
            (env, name): TABLE_1[env, name]
            for env in (KEY_DOOR, OBSTACLES)
            for name in ("none", "rnd", "rnd+sm")
        },
        short=TASKS,
        solved=0.9,
    ),
    "atari-cpu": Grid(
        "Atari on two cores: a game on which learning shows early, and one that needs exploring",
        ("Breakout", "MontezumaRevenge"),
        (Entry("none"), DEFAULT),
        steps=(300_000, 2_000_000),
        seeds=(1, 3),
        options=(("envs", 16), ("ppo.minibatches", 4), ("bonus.minibatches", 4)),
        preset="default",
    ),
    "ablation-read": Grid(
        "How M is read: Key-Door",
        (KEY_DOOR,),
        (Entry("rnd+sm"), Entry("rnd+sm", (("bonus.memory.read", "cosine"),), "rnd+sm cosine")),
        steps=(2_000_000, 10_000_000),
        options=PLAIN,
        preset="default",
        scale=100,
        short=TASKS,
        solved=0.9,
    ),
    "recurrent": Grid(
        "Recurrent DQN and the latent world model: DoorKey-6x6",
        ("MiniGrid-DoorKey-6x6-v0",),
        (plain_dqn(), *methods("lwm", "lwm+sm")),
        steps=(150_000, 1_000_000),
        preset="default",
        scale=100,
        options=(("envs", 32),),
        solved=0.9,
    ),
    "t-maze": Grid(
        "A task that needs memory: a sign at the start of a corridor tells "
        "which way to turn at its end",
        ("ToyTMaze-v0",),
        (plain_dqn(), Entry("none", (("agent", "ppo"),), "none, ppo")),
        steps=(80_000, 160_000),
        preset="default",
        options=(("envs", 32), ("dqn.hidden", 64)),
        solved=0.9,
    ),
    "w-study": Grid(
        "How big must W be? KeyCorridorS4R3",
        (KEY_CORRIDOR,),
        w_sizes(),
        steps=(1_200_000, 2_000_000),
        seeds=(1, 5),
        options=PLAIN,
        preset="default",
        scale=100,
        solved=0.5,
        probes=("doctor",),
    ),
}
