"""The paper's tables and figures as grids: what is run, for how long, and the paper's numbers."""

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

TV_MAZE = "NoisyTV/MiniWorld-MazeS3Fast-v0"
KEY_CORRIDOR = "MiniGrid-KeyCorridorS4R3-v0"
TV_KEY_CORRIDOR = f"NoisyTV/{KEY_CORRIDOR}"
TV_DOOR_KEY = "NoisyTV/MiniGrid-DoorKey-8x8-v0"
# Named before anything was run on them.
HELD_OUT = (
    "NoisyTV/MiniGrid-MultiRoom-N4-S5-v0",
    "NoisyTV/MiniGrid-LavaCrossingS11N5-v0",
    "MiniGrid-KeyCorridorS5R3-v0",
    "NoisyView/MiniGrid-DoorKey-8x8-v0",
    "NoisyTV/MiniWorld-FourRooms-v0",
)
BUDGETS = ("smoke", "reduced", "full")
Options = tuple[tuple[str, Any], ...]  # dotted names, as on the command line, and values


@dataclass(frozen=True)
class Entry:
    """One line of a table: a method, and the options that it sets."""

    method: str
    options: Options = ()
    label: str = ""

    @property
    def name(self) -> str:
        """How it is called in tables and directories."""
        return self.label or self.method

    @property
    def generator(self) -> str:
        """The first part of the method: 'rnd' of 'rnd+sm', 'none' without a bonus."""
        return self.method.partition("+")[0]

    @property
    def memory(self) -> str:
        """What follows the generator: 'sm' of 'rnd+sm', 'sm+expect'; empty if nothing does."""
        return self.method.partition("+")[2]


@dataclass(frozen=True)
class Grid:
    """Entries x environments x seeds.

    `steps` and `seeds` are for the budgets reduced and full. Smoke is always as small as possible.
    """

    title: str
    envs: tuple[str, ...]
    entries: tuple[Entry, ...]
    steps: tuple[int, int]
    seeds: tuple[int, int] = (3, 5)
    env_steps: dict[str, int] = field(default_factory=dict)
    """Steps at the budget reduced, of environments that differ from the others."""
    preset: str = "paper"
    scale: float = 1.0
    """Returns are multiplied by this in tables."""
    published: dict[tuple[str, str], Score] = field(default_factory=dict)
    """The paper's scores, by environment and name of the entry."""
    short: dict[str, str] = field(default_factory=dict)
    """What tables call an environment."""
    paper_says: str = ""
    """What the paper says about it, in our words."""
    options: Options = ()
    """Options of all entries, except at the budget smoke."""
    rules: Options = ()
    """Options of all entries at every budget and preset: without them it is another experiment."""
    cumulative: bool = False
    """Whether what counts is the task reward that is collected over all of training."""
    probes: tuple[str, ...] = ()
    """What is measured of each finished bonus: "mnir" by kind of state, the "doctor"'s numbers."""
    solved: float | None = None
    """The training return, before `scale`, that counts as solved."""
    comparable: bool = False
    """Whether scores of different environments may be averaged."""

    @property
    def entry_names(self) -> list[str]:
        """The names of the entries, in order."""
        return [entry.name for entry in self.entries]

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


def memory_sizes() -> tuple[Entry, ...]:
    """Slots and their width, N-d in the paper."""
    entries = []
    for slots, width in ((32, 4), (128, 16), (1024, 64)):
        options = (("bonus.memory.slots", slots), ("bonus.memory.width", width))
        entries.append(Entry("rnd+sm", options, f"rnd+sm {slots}-{width}"))
    return tuple(entries)


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


def with_and_without(*names: str) -> tuple[Entry, ...]:
    """Each generator alone and with its memory."""
    entries = []
    for name in names:
        entries += [Entry(name), Entry(f"{name}+sm")]
    return tuple(entries)


def noisy(*names: str) -> tuple[Entry, ...]:
    """Each generator with a memory that recalls even noise."""
    return tuple(Entry(f"{name}+sm", WIDE, f"{name}+sm noisy") for name in names)


def plain_dqn() -> Entry:
    """No bonus, and the recurrent agent. The default agent would be PPO."""
    return Entry("none", (("agent", "dqn"),), "none, dqn")


def published_atari() -> dict[tuple[str, str], Score]:
    """The paper's scores by (game, method)."""
    scores: dict[tuple[str, str], Score] = {}
    for method, row in ATARI.items():
        for game, score in zip(GAMES, row, strict=True):
            scores[game, method] = (score, None)
    return scores


# M read as printed, W wide enough to recall all of its query.
WIDE: Options = (("bonus.memory.read", "cosine"), ("bonus.memory.w_hidden", 128))
EXPECT = Entry("rnd+sm+expect", (), "rnd+sm expect")
DEFAULT = Entry("rnd+sm+recognise+gate")
_STRICT = ("bonus.gate.margin", 0.02)
STRICT = Entry("rnd+sm+recognise+gate", (_STRICT,), "rnd+sm+recognise+gate, margin 0.02")
_SLOW_SCALE = (_STRICT, ("bonus.scale_momentum", 0.97))
SLOW_SCALE = Entry("rnd+sm+recognise+gate", _SLOW_SCALE, "rnd+sm+recognise+gate, slow scale")
_MEAN_DISTANCE = (
    _STRICT,
    ("bonus.recognise.threshold", 0.3),
    ("bonus.recognise.local_threshold", 0.99),
)
MEAN_DISTANCE = Entry(
    "rnd+sm+recognise+gate", _MEAN_DISTANCE, "rnd+sm+recognise+gate, mean distance"
)
_OWN_SCALE = (("bonus.scale_filtered", True), ("bonus.gate.margin", 0.0))
OWN_SCALE = Entry("rnd+sm+recognise+gate", _OWN_SCALE, "rnd+sm+recognise+gate, own scale")
LASTING = Entry(
    "rnd+sm+recognise+gate",
    (("bonus.memory.lasting", True),),
    "rnd+sm+recognise+gate, lasting M",
)
_GAMES = {game: game.removesuffix("Revenge") for game in GAMES}
_WITH_TV = {
    TV_DOOR_KEY: "DoorKey-8x8 with a TV",
    TV_KEY_CORRIDOR: "KeyCorridorS4R3 with a TV",
    KEY_CORRIDOR: "KeyCorridorS4R3",
}
_HELD_OUT = {
    HELD_OUT[0]: "MultiRoom-N4-S5 with a TV",
    HELD_OUT[1]: "LavaCrossingS11N5 with a TV",
    HELD_OUT[2]: "KeyCorridorS5R3",
    HELD_OUT[3]: "DoorKey-8x8, a quarter of the view is noise",
    HELD_OUT[4]: "MiniWorld-FourRooms with a TV, in 3-D",
}
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
        paper_says="The memory improves every generator on every task but ICM on Key-Door.",
        solved=0.9,
        comparable=True,
    ),
    "table-2": Grid(
        "Atari: return over 128 episodes (12.5 M steps are 50 M frames)",
        GAMES,
        methods("rnd", "rnd+sm", "lwm", "lwm+sm", "ngu"),
        steps=(500_000, 12_500_000),
        published=published_atari(),
        short=_GAMES,
        paper_says="The memory improves RND and LWM in every game; LWM+SM has the best mean.",
    ),
    "noisy-tv": Grid(
        "Noisy-TV in a 3-D maze",
        (TV_MAZE,),
        (*methods("none", "rnd", "rnd+sm", "rnd+counts", "disagreement"), DEFAULT),
        steps=(200_000, 4_000_000),
        scale=100,
        published={(TV_MAZE, "none"): (85, None), (TV_MAZE, "rnd+sm"): (90, None)},
        paper_says="RND+SM watches less than RND and reaches 0.9. Plain PPO reaches 0.85, "
        "RND about a fifth less than RND+SM.",
        probes=("mnir",),
    ),
    "ablation-memory": Grid(
        "Without M, without W, counts instead: Dynamic-Obstacles",
        (OBSTACLES,),
        methods("rnd", "rnd+sm", "rnd+m", "rnd+w", "rnd+counts"),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published={
            (OBSTACLES, "rnd"): TABLE_1[OBSTACLES, "rnd"],
            (OBSTACLES, "rnd+sm"): TABLE_1[OBSTACLES, "rnd+sm"],
        },
        short=_TASKS,
        paper_says="Neither half learns much alone.",
        solved=0.9,
    ),
    "ablation-atari": Grid(
        "Without M, without W: Atari",
        ("MontezumaRevenge", "Frostbite", "Venture"),
        methods("rnd+sm", "rnd+m", "rnd+w"),
        steps=(500_000, 12_500_000),
        short=_GAMES,
        paper_says="Both halves are needed.",
    ),
    "ablation-size": Grid(
        "Slots and their width, N-d: Dynamic-Obstacles",
        (OBSTACLES,),
        memory_sizes(),
        steps=(2_000_000, 10_000_000),
        scale=100,
        solved=0.9,
        published={(OBSTACLES, "rnd+sm 128-16"): TABLE_1[OBSTACLES, "rnd+sm"]},
        short=_TASKS,
        paper_says="More is better up to 128-16, and no better beyond.",
    ),
    "no-task-reward": Grid(
        "MiniWorld without task reward: the return that exploring brings",
        ("MiniWorld-PickupObjects-v0", "MiniWorld-FourRooms-v0"),
        (Entry("none", (("agent", "random"),), "random"), *methods("rnd", "rnd+sm")),
        steps=(200_000, 100_000_000),
        rules=(("ppo.ext_coef", 0.0),),
        cumulative=True,
        paper_says="RND+SM collects most; RND less than a random agent in the easy room.",
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
        paper_says="RND+SM reaches about 10,000 and 9,000, well above RND.",
    ),
    # Not in the paper.
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
        (TV_DOOR_KEY,),
        (
            Entry("none"),
            *with_and_without("rnd", "icm", "ngu", "ae"),
            Entry("disagreement"),
            EXPECT,
            *noisy("rnd", "icm", "ngu", "ae"),
        ),
        steps=(400_000, 2_000_000),
        preset="default",
        scale=100,
        solved=0.9,
        probes=("mnir",),
    ),
    "noise": Grid(
        "A bonus that noise cannot buy: with a TV, with moving balls, and with neither",
        (TV_DOOR_KEY, TV_KEY_CORRIDOR, KEY_CORRIDOR, KEY_DOOR, OBSTACLES, LAVA),
        (*methods("none", "rnd+sm"), DEFAULT),
        steps=(1_400_000, 5_000_000),
        env_steps={TV_DOOR_KEY: 600_000, KEY_DOOR: 2_000_000},
        preset="default",
        scale=100,
        short=_TASKS | _WITH_TV,
        solved=0.9,
    ),
    "noise-held-out": Grid(
        "The same on tasks that it was not chosen on",
        HELD_OUT,
        (*methods("none", "rnd+sm"), DEFAULT),
        steps=(1_400_000, 5_000_000),
        env_steps={HELD_OUT[4]: 200_000},
        preset="default",
        scale=100,
        short=_HELD_OUT,
        solved=0.9,
    ),
    "noise-peers": Grid(
        "Other bonuses with a TV in the room, and the filters on other generators",
        (TV_KEY_CORRIDOR,),
        (
            *methods("none", "rnd", "icm", "ngu", "disagreement", "rnd+sm"),
            DEFAULT,
            *methods("icm+sm+recognise+gate", "ae+sm+recognise+gate"),
        ),
        steps=(1_400_000, 5_000_000),
        preset="default",
        scale=100,
        short=_WITH_TV,
        solved=0.9,
    ),
    "noise-ablation": Grid(
        "What the filters need: each alone, their scale, their measures, their margin, a lasting M",
        (TV_DOOR_KEY, TV_KEY_CORRIDOR, KEY_CORRIDOR, KEY_DOOR, OBSTACLES, LAVA),
        (
            *methods("rnd+sm+recognise", "rnd+sm+gate", "rnd+sm+gain"),
            STRICT,
            SLOW_SCALE,
            MEAN_DISTANCE,
            OWN_SCALE,
            LASTING,
        ),
        steps=(1_400_000, 5_000_000),
        preset="default",
        scale=100,
        short=_TASKS | _WITH_TV,
        solved=0.9,
    ),
    "expectation": Grid(
        "The paper's three tasks, paying only what could not be expected",
        (KEY_DOOR, OBSTACLES, LAVA),
        (
            *methods("none", "rnd", "rnd+sm"),
            EXPECT,
            *noisy("rnd"),
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
        preset="default",
        scale=100,
        solved=0.5,
        probes=("doctor",),
    ),
}
