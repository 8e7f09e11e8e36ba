"""The paper's tables and figures as grids of runs: what is run, for how long, and which numbers stand beside it."""

from dataclasses import dataclass, field
from typing import Any

from surprise_memory.reproduce.published import ATARI, GAMES, KEY_DOOR, LAVA, MINIGRID, OBSTACLES, TABLE_1, Score
from surprise_memory.types import choose

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
    published: dict[tuple[str, str], Score] = field(default_factory=dict)  # (environment, entry's name)
    short: dict[str, str] = field(default_factory=dict)  # what tables call an environment
    says: str = ""  # what the paper says about it, in our words

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
    return tuple(Entry("rnd+sm", (("bonus.memory.slots", n), ("bonus.memory.width", d)), f"rnd+sm {n}-{d}") for n, d in pairs)


def widths() -> tuple[Entry, ...]:
    """W's hidden units and rate, for each generator."""
    return tuple(
        Entry(f"{g}+sm", (("bonus.memory.w_hidden", hidden), ("bonus.memory_lr", rate)), f"{g}+sm W{hidden} {rate:g}")
        for g in ("rnd", "icm", "ngu", "ae")
        for hidden in (8, 32, 64, 128)
        for rate in (1e-4, 1e-3)
    )


_GAMES = {game: game.removesuffix("Revenge") for game in GAMES}
_OBSTACLES = {OBSTACLES: "Dynamic-Obstacles"}

GRIDS: dict[str, Grid] = {
    "table-1": Grid(
        "MiniGrid: task return x 100 over 128 episodes",
        (KEY_DOOR, OBSTACLES, LAVA),
        methods(*MINIGRID),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published=TABLE_1,
        short={KEY_DOOR: "Key-Door", OBSTACLES: "Dynamic-Obstacles", LAVA: "Lava-Cross"},
        says="The memory improves every generator on every task but ICM on Key-Door.",
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
        "Noisy-TV in a 3-D maze: return, steps before the TV, bonus",
        ("NoisyTV/MiniWorld-MazeS3Fast-v0",),
        methods("none", "rnd", "rnd+sm", "disagreement"),
        steps=(200_000, 4_000_000),
        published={
            ("NoisyTV/MiniWorld-MazeS3Fast-v0", "none"): (0.85, None),
            ("NoisyTV/MiniWorld-MazeS3Fast-v0", "rnd+sm"): (0.9, None),
        },
        says="RND+SM watches less than RND and reaches 0.9, plain PPO 0.85, RND about a quarter less than RND+SM.",
    ),
    "noisy-grid": Grid(
        "Noisy-TV on MiniGrid, which takes minutes (not in the paper)",
        ("NoisyTV/MiniGrid-DoorKey-8x8-v0",),
        (*methods("none", "rnd", "rnd+sm", "disagreement"), Entry("rnd+sm", (("bonus.expect", True),), "rnd+sm expect")),
        steps=(400_000, 2_000_000),
        preset="default",
        scale=100,
    ),
    "ablation-memory": Grid(
        "Without M, without W, counts instead: Dynamic-Obstacles",
        (OBSTACLES,),
        methods("rnd", "rnd+sm", "rnd+m", "rnd+w", "rnd+counts"),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published={key: TABLE_1[key] for key in ((OBSTACLES, "rnd"), (OBSTACLES, "rnd+sm"))},
        short=_OBSTACLES,
        says="Neither half learns much alone.",
    ),
    "ablation-size": Grid(
        "Slots and their width, N-d: Dynamic-Obstacles",
        (OBSTACLES,),
        sizes(),
        steps=(2_000_000, 10_000_000),
        scale=100,
        short=_OBSTACLES,
        says="More is better up to 128-16, and no better beyond.",
    ),
    "no-task-reward": Grid(
        "MiniWorld without task reward: the return that exploring brings",
        ("MiniWorld-PickupObjects-v0", "MiniWorld-FourRooms-v0"),
        methods("rnd", "rnd+sm"),
        steps=(200_000, 100_000_000),
        says="RND+SM collects most; RND less than a random agent in the easy room.",
    ),
    "long-atari": Grid(
        "Atari for 200 M frames",
        ("MontezumaRevenge", "Frostbite"),
        methods("rnd", "rnd+sm"),
        steps=(1_000_000, 50_000_000),
        published={("MontezumaRevenge", "rnd+sm"): (10_000, None), ("Frostbite", "rnd+sm"): (9_000, None)},
        short=_GAMES,
        says="RND+SM reaches about 10,000 and 9,000, well above RND.",
    ),
    "w-study": Grid(
        "How big must W be? KeyCorridorS4R3 (not in the paper)",
        ("MiniGrid-KeyCorridorS4R3-v0",),
        widths(),
        steps=(600_000, 1_200_000),
        preset="default",
        scale=100,
    ),
}
