"""Questions of our own: other generators, settings of PPO, reads of M, recurrent agents, W."""

from surprise_memory.reproduce.grid import TASKS, Entry, Grid, methods, with_and_without
from surprise_memory.reproduce.noise_grids import EXPECT, KEY_CORRIDOR, PLAIN, WIDE, noisy
from surprise_memory.reproduce.published import KEY_DOOR, OBSTACLES


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
    "ablation-ppo": Grid(
        "What plain PPO needs beyond the paper's settings: Dynamic-Obstacles",
        (OBSTACLES,),
        ppo_changes(),
        steps=(2_000_000, 10_000_000),
        scale=100,
        short=TASKS,
        solved=0.9,
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
        (
            plain_dqn(),
            *methods("lwm", "lwm+sm"),
            Entry("lwm+sm", (("dqn.int_coef", 0.03),), "lwm+sm coef 0.03"),
        ),
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
