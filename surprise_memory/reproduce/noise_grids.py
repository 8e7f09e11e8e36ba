"""What noise can buy, and what helps against it."""

from surprise_memory.reproduce.grid import TASKS, Entry, Grid, Options, methods, with_and_without
from surprise_memory.reproduce.published import KEY_DOOR, LAVA, OBSTACLES, TABLE_1

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

# M read as printed, W wide enough to recall all of its query.
WIDE: Options = (("bonus.memory.read", "cosine"), ("bonus.memory.w_hidden", 128))
EXPECT = Entry("rnd+sm+expect", (), "rnd+sm expect")
DEFAULT = Entry("rnd+sm+trust+recognise")
# The default with its fading weight, also where a grid or the paper's preset has none.
FADING = Entry("rnd+sm+trust+recognise", (("ppo.fade", 0.8),))
# What the default was before: the bonus keeps its weight, no action is random, ends cost nothing,
# trust comes later.
PLAIN: Options = (("ppo.fade", 0.0), ("ppo.random_actions", 0.0))
_FREE_ENDS: Options = (("ppo.end_discount", 1.0),)
PAPERS_STREAM: Options = (*PLAIN, *_FREE_ENDS)  # the bonus's return and weight as in the paper
_LATE = (("bonus.trust.least", 0.04), ("bonus.trust.full", 0.08), ("bonus.trust.rate", 0.1))
LATE_TRUST = Entry(
    "rnd+sm+trust+recognise",
    (*PAPERS_STREAM, *_LATE),
    "rnd+sm+trust+recognise, late trust, free ends",
)
LASTING_WEIGHT = Entry("rnd+sm+trust+recognise", PLAIN, "rnd+sm+trust+recognise, no fade")
LIGHT = Entry(
    "rnd+sm+trust+recognise",
    (*PLAIN, ("ppo.int_coef", 0.3)),
    "rnd+sm+trust+recognise, weight 0.3",
)
WITHOUT_ONE_PART = (
    LASTING_WEIGHT,
    Entry("rnd+sm+recognise", PLAIN),
    Entry("rnd+sm+trust", PLAIN),
    Entry("rnd+sm+trust+recognise", PAPERS_STREAM, "rnd+sm+trust+recognise, free ends"),
    Entry("rnd+sm+trust+recognise", (*PLAIN, *_LATE), "rnd+sm+trust+recognise, late trust"),
)
GATED = Entry("rnd+sm+recognise+gate", PAPERS_STREAM)
MOVING = Entry("rnd+sm+recognise+expect", PAPERS_STREAM)  # where things move by chance
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
NOISE_IN_M = Entry(
    "rnd+sm+recognise+gate",
    (("bonus.recognise.withhold", False),),
    "rnd+sm+recognise+gate, noise in M",
)
ALL_FEATURES = Entry(
    "rnd+sm+recognise+gate",
    (("bonus.ignore_noise", False),),
    "rnd+sm+recognise+gate, all features",
)
SCALE_AFTER = Entry(
    "rnd+sm+recognise+gate",
    (("bonus.scale_filtered", True),),
    "rnd+sm+recognise+gate, scale after the filters",
)
_WITH_TV = {
    TV_DOOR_KEY: "DoorKey-8x8 with a TV",
    TV_KEY_CORRIDOR: "KeyCorridorS4R3 with a TV",
    KEY_CORRIDOR: "KeyCorridorS4R3",
}
# Of `reduced`, where they are not the 1.4 million of the grid. Grids that are compared share them.
_STEPS = {TV_DOOR_KEY: 600_000} | dict.fromkeys((KEY_DOOR, OBSTACLES, LAVA), 2_000_000)
_HELD_OUT = {
    HELD_OUT[0]: "MultiRoom-N4-S5 with a TV",
    HELD_OUT[1]: "LavaCrossingS11N5 with a TV",
    HELD_OUT[2]: "KeyCorridorS5R3",
    HELD_OUT[3]: "DoorKey-8x8, a quarter of the view is noise",
    HELD_OUT[4]: "MiniWorld-FourRooms with a TV, in 3-D",
}


def noisy(*names: str) -> tuple[Entry, ...]:
    """Each generator with a memory that recalls even noise."""
    return tuple(Entry(f"{name}+sm", WIDE, f"{name}+sm noisy") for name in names)


NOISE: dict[str, Grid] = {
    "noise": Grid(
        "A bonus that noise cannot buy: with a TV, with moving balls, and with neither",
        (TV_DOOR_KEY, TV_KEY_CORRIDOR, KEY_CORRIDOR, KEY_DOOR, OBSTACLES, LAVA),
        (*methods("none", "rnd+sm"), DEFAULT, GATED, MOVING),
        steps=(1_400_000, 5_000_000),
        env_steps=_STEPS,
        preset="default",
        scale=100,
        short=TASKS | _WITH_TV,
        solved=0.9,
    ),
    "noise-held-out": Grid(
        "The same on tasks that it was not chosen on",
        HELD_OUT,
        (*methods("none", "rnd+sm"), DEFAULT, LASTING_WEIGHT, GATED),
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
            *methods("icm+sm+trust+recognise", "ae+sm+trust+recognise"),
            Entry("icm+sm+recognise+gate", PAPERS_STREAM),
            Entry("ae+sm+recognise+gate", PAPERS_STREAM),
        ),
        steps=(1_400_000, 5_000_000),
        preset="default",
        scale=100,
        short=_WITH_TV,
        solved=0.9,
    ),
    "noise-parts": Grid(
        "The default bonus without one of its parts",
        (TV_DOOR_KEY, TV_KEY_CORRIDOR, KEY_CORRIDOR, KEY_DOOR, OBSTACLES, LAVA),
        WITHOUT_ONE_PART,
        steps=(1_400_000, 5_000_000),
        env_steps=_STEPS,
        preset="default",
        scale=100,
        short=TASKS | _WITH_TV,
        solved=0.9,
    ),
    "noise-ablation": Grid(
        "What the filters need: each alone, and what each choice in them is good for",
        (TV_DOOR_KEY, TV_KEY_CORRIDOR, KEY_CORRIDOR, KEY_DOOR, OBSTACLES, LAVA, *HELD_OUT[:4]),
        (
            *methods("rnd+sm+recognise", "rnd+sm+gate", "rnd+sm+gain"),
            STRICT,
            SLOW_SCALE,
            MEAN_DISTANCE,
            OWN_SCALE,
            SCALE_AFTER,
            LASTING,
            NOISE_IN_M,
            ALL_FEATURES,
            LATE_TRUST,
        ),
        options=PAPERS_STREAM,
        steps=(1_400_000, 5_000_000),
        env_steps=_STEPS,
        preset="default",
        scale=100,
        short=TASKS | _WITH_TV | _HELD_OUT,
        solved=0.9,
    ),
    "noisy-grid": Grid(
        "Noisy-TV on MiniGrid, which takes minutes",
        (TV_DOOR_KEY,),
        (
            Entry("none"),
            *with_and_without("rnd", "icm", "ngu", "ae"),
            *methods("rnd+counts", "disagreement"),
            EXPECT,
            FADING,
            *noisy("rnd", "icm", "ngu", "ae"),
        ),
        steps=(400_000, 2_000_000),
        options=PLAIN,
        preset="default",
        scale=100,
        solved=0.9,
        probes=("mnir",),
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
        short=TASKS,
        options=PAPERS_STREAM,
        solved=0.9,
        comparable=True,
    ),
}
