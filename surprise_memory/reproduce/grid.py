"""What a grid is: methods x environments x seeds, for how long, and the paper's numbers."""

from dataclasses import dataclass, field
from typing import Any

from surprise_memory.errors import choose
from surprise_memory.reproduce.published import KEY_DOOR, LAVA, OBSTACLES, Score

BUDGETS = ("smoke", "reduced", "full")
Options = tuple[tuple[str, Any], ...]  # dotted names, as on the command line, and values
TASKS = {KEY_DOOR: "Key-Door", OBSTACLES: "Dynamic-Obstacles", LAVA: "Lava-Cross"}


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


def with_and_without(*names: str) -> tuple[Entry, ...]:
    """Each generator alone and with its memory."""
    entries = []
    for name in names:
        entries += [Entry(name), Entry(f"{name}+sm")]
    return tuple(entries)


def memory_sizes(generator: str) -> tuple[Entry, ...]:
    """Slots and their width, N-d in the paper."""
    entries = []
    for slots, width in ((32, 4), (128, 16), (1024, 64)):
        options = (("bonus.memory.slots", slots), ("bonus.memory.width", width))
        entries.append(Entry(f"{generator}+sm", options, f"{generator}+sm {slots}-{width}"))
    return tuple(entries)
