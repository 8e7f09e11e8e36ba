"""The paper's tables and figures as grids of runs: what is run, for how long, and which numbers stand beside it."""

from dataclasses import dataclass, field
from typing import Any

from surprise_memory.errors import choose
from surprise_memory.reproduce.published import (
    ATARI,
    GAMES,
    KEY_DOOR,
    LAVA,
    MINIGRID,
    OBSTACLES,
    TABLE_1,
    Score,
)

TV_MAZE, KEY_CORRIDOR = "NoisyTV/MiniWorld-MazeS3Fast-v0", "MiniGrid-KeyCorridorS4R3-v0"
BUDGETS = ("smoke", "reduced", "full")


@dataclass(frozen=True)
class Entry:
    """One line of a table: a method in a setting. `options` are dotted names of a run's options, as on the command line."""

    method: str
    options: tuple[tuple[str, Any], ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        """How it is called in tables and directories."""
        return self.label or self.method


@dataclass(frozen=True)
class Grid:
    """Entries x environments x seeds. `steps` and `seeds` are for reduced and full; smoke is always as small as can be."""

    title: str
    envs: tuple[str, ...]
    entries: tuple[Entry, ...]
    steps: tuple[int, int]
    seeds: tuple[int, int] = (3, 5)
    preset: str = "paper"
    scale: float = 1.0  # returns are multiplied by this in tables
    published: dict[tuple[str, str], Score] = field(
        default_factory=dict
    )  # (environment, entry's name)
    short: dict[str, str] = field(default_factory=dict)  # what tables call an environment
    says: str = ""  # what the paper says about it, in our words
    options: tuple[tuple[str, Any], ...] = ()  # of all entries
    asks: tuple[
        str, ...
    ] = ()  # what each finished bonus is asked: "mnir" by kind of state, the "doctor"'s questions
    solved: float | None = None  # the training return (before `scale`) that counts as solved
    comparable: bool = False  # whether scores of different environments may be averaged

    def budget(self, name: str) -> tuple[str, int, int]:
        """(preset, steps, seeds) of a budget."""
        choose(dict.fromkeys(BUDGETS), name, "budget")
        if name == "smoke":
            return "debug", 1_024, 1
        i = BUDGETS.index(name) - 1
        return self.preset, self.steps[i], self.seeds[i]


def methods(*names: str) -> tuple[Entry, ...]:
    """Entries without options."""
    return tuple(Entry(name) for name in names)


def sizes() -> tuple[Entry, ...]:
    """The paper's N-d."""
    pairs = ((32, 4), (128, 16), (1024, 64))
    return tuple(
        Entry("rnd+sm", (("bonus.memory.slots", n), ("bonus.memory.width", d)), f"rnd+sm {n}-{d}")
        for n, d in pairs
    )


def widths() -> tuple[Entry, ...]:
    """W's hidden units and rate, for each generator."""
    return tuple(
        Entry(
            f"{g}+sm",
            (("bonus.memory.w_hidden", hidden), ("bonus.memory_lr", rate)),
            f"{g}+sm W{hidden} {rate:g}",
        )
        for g in ("rnd", "icm", "ngu", "ae")
        for hidden in (8, 32, 64, 128)
        for rate in (1e-4, 1e-3)
    )


def with_and_without(*names: str) -> tuple[Entry, ...]:
    """Each generator alone and with its memory."""
    return tuple(Entry(name + memory) for name in names for memory in ("", "+sm"))


def plain_dqn() -> Entry:
    """No bonus, and the recurrent agent, which would else be PPO."""
    return Entry("none", (("agent", "dqn"),), "none, dqn")


# M read as printed, W wide enough to recall all of its query: the options of the preset `noisy`.
WIDE = (("bonus.memory.read", "cosine"), ("bonus.memory.w_hidden", 128))
# One by one, and all: what the default preset has otherwise.
_NORMALISED, _ENTROPY, _RATE = (
    ("ppo.normalise_advantage", True),
    ("ppo.entropy", 0.01),
    ("ppo.lr", 3e-4),
)
PPO_CHANGES = ((), (_NORMALISED,), (_ENTROPY,), (_RATE,), (_NORMALISED, _ENTROPY, _RATE))
EXPECT = Entry("rnd+sm", (("bonus.expect", True),), "rnd+sm expect")
_GAMES = {game: game.removesuffix("Revenge") for game in GAMES}
_TASKS = {KEY_DOOR: "Key-Door", OBSTACLES: "Dynamic-Obstacles", LAVA: "Lava-Cross"}

GRIDS: dict[str, Grid] = {
    "table-1": Grid(
        "MiniGrid: task return x 100 over 128 episodes",
        (KEY_DOOR, OBSTACLES, LAVA),
        methods(*MINIGRID),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published=TABLE_1,
        short=_TASKS,
        says="The memory improves every generator on every task but ICM on Key-Door.",
        solved=0.9,
        comparable=True,
    ),
    "table-2": Grid(
        "Atari: return over 128 episodes (12.5 M steps are 50 M frames)",
        GAMES,
        methods("rnd", "rnd+sm", "lwm", "lwm+sm", "ngu"),
        steps=(500_000, 12_500_000),
        published={(g, m): (s, None) for m in ATARI for g, s in zip(GAMES, ATARI[m], strict=True)},
        short=_GAMES,
        says="The memory improves RND and LWM in every game; LWM+SM has the best mean.",
    ),
    "noisy-tv": Grid(
        "Noisy-TV in a 3-D maze",
        (TV_MAZE,),
        methods("none", "rnd", "rnd+sm", "rnd+counts", "disagreement"),
        steps=(200_000, 4_000_000),
        scale=100,
        published={(TV_MAZE, "none"): (85, None), (TV_MAZE, "rnd+sm"): (90, None)},
        says="RND+SM watches less than RND and reaches 0.9, plain PPO 0.85, RND about a fifth less than RND+SM.",
        asks=("mnir",),
    ),
    "ablation-memory": Grid(
        "Without M, without W, counts instead: Dynamic-Obstacles",
        (OBSTACLES,),
        methods("rnd", "rnd+sm", "rnd+m", "rnd+w", "rnd+counts"),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published={key: TABLE_1[key] for key in ((OBSTACLES, "rnd"), (OBSTACLES, "rnd+sm"))},
        short=_TASKS,
        says="Neither half learns much alone.",
        solved=0.9,
    ),
    "ablation-atari": Grid(
        "Without M, without W: Atari",
        ("MontezumaRevenge", "Frostbite", "Venture"),
        methods("rnd+sm", "rnd+m", "rnd+w"),
        steps=(500_000, 12_500_000),
        short=_GAMES,
        says="Both halves are needed.",
    ),
    "ablation-size": Grid(
        "Slots and their width, N-d: Dynamic-Obstacles",
        (OBSTACLES,),
        sizes(),
        steps=(2_000_000, 10_000_000),
        scale=100,
        solved=0.9,
        published={(OBSTACLES, "rnd+sm 128-16"): TABLE_1[OBSTACLES, "rnd+sm"]},
        short=_TASKS,
        says="More is better up to 128-16, and no better beyond.",
    ),
    "no-task-reward": Grid(
        "MiniWorld without task reward: the return that exploring brings",
        ("MiniWorld-PickupObjects-v0", "MiniWorld-FourRooms-v0"),
        (Entry("none", (("agent", "random"),), "random"), *methods("rnd", "rnd+sm")),
        steps=(200_000, 100_000_000),
        says="RND+SM collects most; RND less than a random agent in the easy room.",
    ),
    "long-atari": Grid(
        "Atari for 200 M frames",
        ("MontezumaRevenge", "Frostbite"),
        methods("rnd", "rnd+sm"),
        steps=(1_000_000, 50_000_000),
        published={
            ("MontezumaRevenge", "rnd+sm"): (10_000, None),
            ("Frostbite", "rnd+sm"): (9_000, None),
        },
        short=_GAMES,
        says="RND+SM reaches about 10,000 and 9,000, well above RND.",
    ),
    # What the paper does not have.
    "generators": Grid(
        "Every generator where nothing guides the way: KeyCorridorS4R3",
        (KEY_CORRIDOR,),
        (
            Entry("none"),
            *with_and_without("rnd", "icm", "ngu", "ae"),
            *methods("disagreement", "rnd+m", "rnd+w", "rnd+counts"),
            EXPECT,
            Entry("rnd+sm", WIDE, "rnd+sm noisy"),
            Entry("rnd+sm", WIDE[1:], "rnd+sm W128"),
        ),
        steps=(1_200_000, 2_000_000),
        preset="default",
        scale=100,
        solved=0.5,
    ),
    "ablation-ppo": Grid(
        "What plain PPO needs beyond the paper's settings: Dynamic-Obstacles",
        (OBSTACLES,),
        tuple(
            Entry("none", options, " ".join(("none", *(name.split(".")[1] for name, _ in options))))
            for options in PPO_CHANGES
        ),
        steps=(2_000_000, 10_000_000),
        scale=100,
        short=_TASKS,
        solved=0.9,
    ),
    "ablation-read": Grid(
        "How M is read: Key-Door",
        (KEY_DOOR,),
        (Entry("rnd+sm"), Entry("rnd+sm", (("bonus.memory.read", "cosine"),), "rnd+sm cosine")),
        steps=(2_000_000, 10_000_000),
        preset="default",
        scale=100,
        short=_TASKS,
        solved=0.9,
    ),
    "noisy-grid": Grid(
        "Noisy-TV on MiniGrid, which takes minutes",
        ("NoisyTV/MiniGrid-DoorKey-8x8-v0",),
        (
            Entry("none"),
            *with_and_without("rnd", "icm", "ngu", "ae"),
            Entry("disagreement"),
            EXPECT,
            *(Entry(f"{g}+sm", WIDE, f"{g}+sm noisy") for g in ("rnd", "icm", "ngu", "ae")),
        ),
        steps=(400_000, 2_000_000),
        preset="default",
        scale=100,
        solved=0.9,
        asks=("mnir",),
    ),
    "expectation": Grid(
        "The paper's three tasks, paying only what could not be expected",
        (KEY_DOOR, OBSTACLES, LAVA),
        (
            *methods("none", "rnd", "rnd+sm"),
            EXPECT,
            Entry("rnd+sm", WIDE, "rnd+sm noisy"),
            *methods("ngu", "disagreement"),
        ),
        steps=(2_000_000, 10_000_000),
        preset="default",
        scale=100,
        published=TABLE_1,
        short=_TASKS,
        solved=0.9,
        comparable=True,
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
        "A task that needs memory: a sign at the start of a corridor tells which way to turn at its end",
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
        widths(),
        steps=(1_200_000, 2_000_000),
        seeds=(1, 5),
        preset="default",
        scale=100,
        solved=0.5,
        asks=("doctor",),
    ),
}
