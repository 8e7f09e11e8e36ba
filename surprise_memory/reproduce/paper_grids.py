"""The paper's tables and figures as grids."""

from surprise_memory.reproduce.grid import TASKS, Entry, Grid, memory_sizes, methods
from surprise_memory.reproduce.noise_grids import (
    DEFAULT,
    FADING,
    GATED,
    LASTING_WEIGHT,
    LIGHT,
    PAPERS_STREAM,
)
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
_GAMES = {game: game.removesuffix("Revenge") for game in GAMES}


def published_atari() -> dict[tuple[str, str], Score]:
    """The paper's scores by (game, method)."""
    scores: dict[tuple[str, str], Score] = {}
    for method, row in ATARI.items():
        for game, score in zip(GAMES, row, strict=True):
            scores[game, method] = (score, None)
    return scores


def published_halves() -> dict[tuple[str, str], Score]:
    """The paper's scores with both halves, and what it says of Montezuma without one of them."""
    scores = {key: score for key, score in published_atari().items() if key[1] == "rnd+sm"}
    scores |= {("MontezumaRevenge", method): (2_000, None) for method in ("rnd+m", "rnd+w")}
    return scores


PAPER: dict[str, Grid] = {
    "table-1": Grid(
        "MiniGrid: task return x 100 over 128 episodes",
        (KEY_DOOR, OBSTACLES, LAVA),
        methods(*MINIGRID),
        steps=(2_000_000, 10_000_000),
        scale=100,
        published=TABLE_1,
        short=TASKS,
        options=PAPERS_STREAM,  # also with our preset
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
        paper_says="The memory improves LWM in every game and RND in all but Freeway, a tie. "
        "LWM+SM has the best mean, RND+SM the best median.",
    ),
    "noisy-tv": Grid(
        "Noisy-TV in a 3-D maze",
        (TV_MAZE,),
        (
            *methods("none", "rnd", "rnd+sm", "rnd+counts", "disagreement"),
            FADING,
            LASTING_WEIGHT,
            LIGHT,
            GATED,
        ),
        steps=(400_000, 4_000_000),
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
        short=TASKS,
        paper_says="Neither half learns much alone.",
        solved=0.9,
    ),
    "ablation-atari": Grid(
        "Without M, without W: Atari",
        ("MontezumaRevenge", "Frostbite", "Venture"),
        methods("rnd+sm", "rnd+m", "rnd+w"),
        steps=(500_000, 12_500_000),
        published=published_halves(),
        short=_GAMES,
        paper_says="Both halves are needed: above 5000 on Montezuma, around 2000 with one.",
    ),
    "ablation-size": Grid(
        "Slots and their width, N-d: Dynamic-Obstacles",
        (OBSTACLES,),
        memory_sizes("rnd"),
        steps=(2_000_000, 10_000_000),
        scale=100,
        solved=0.9,
        published={(OBSTACLES, "rnd+sm 128-16"): TABLE_1[OBSTACLES, "rnd+sm"]},
        short=TASKS,
        paper_says="More is better up to 128-16, and no better beyond.",
    ),
    "no-task-reward": Grid(
        "MiniWorld without task reward: the return that exploring brings",
        ("MiniWorld-PickupObjects-v0", "MiniWorld-FourRooms-v0"),
        (
            Entry("none", (("agent", "random"),), "random"),
            *methods("rnd", "rnd+sm"),
            DEFAULT,
        ),
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
}
