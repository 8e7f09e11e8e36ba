"""The numbers of the paper, as printed. Nothing here was measured by us."""

# Mean and standard deviation over 5 runs; None where the paper prints no deviation.
Score = tuple[float, float | None]

KEY_DOOR = "MiniGrid-DoorKey-16x16-v0"
OBSTACLES = "MiniGrid-Dynamic-Obstacles-16x16-v0"
LAVA = "MiniGrid-LavaCrossingS11N5-v0"
MINIGRID = ("none", "rnd", "rnd+sm", "icm", "icm+sm", "ngu", "ngu+sm", "ae", "ae+sm")
GAMES = ("Freeway", "Frostbite", "Venture", "Gravitar", "Solaris", "MontezumaRevenge")


def _row(env: str, text: str) -> dict[tuple[str, str], Score]:
    """'0.0±0.0 48.3±26 ...' in the order of MINIGRID, by (environment, method)."""
    scores: dict[tuple[str, str], Score] = {}
    for method, cell in zip(MINIGRID, text.split(), strict=True):
        mean, std = cell.split("±")
        scores[env, method] = (float(mean), float(std))
    return scores


# Table 1: task return x 100 over 128 episodes after 10 M steps.
TABLE_1 = (
    _row(KEY_DOOR, "0.0±0.0 48.3±26 79.3±4 5.9±5 4.7±3 64.4±3 83.4±4 1.4±1 91.2±6")
    | _row(OBSTACLES, "-27.0±0.7 -13.6±8 70.8±11 -27.7±2 43.6±16 -23.9±3 48.6±28 -5.1±2 67.5±13")
    | _row(LAVA, "78.0±1.7 25.0±35 71.1±5 56.2±40 84.6±1 42.2±40 69.5±5 29.0±6 70.9±2")
)

# Tables 2 and 5: return over 128 episodes after 50 M frames, games in the order of GAMES.
# The paper takes the rows marked "prior" from the paper of LWM.
PRIOR = "(prior)"
ATARI: dict[str, tuple[float, ...]] = {
    "emi (prior)": (33.8, 7002, 646, 558, 2688, 387),
    "ex2 (prior)": (27.1, 3387, 589, 550, 2276, 0),
    "icm (prior)": (33.6, 4465, 418, 424, 2453, 161),
    "ae-sh (prior)": (33.5, 5214, 445, 482, 4467, 75),
    "lwm (prior)": (30.8, 8409, 998, 1376, 1268, 2276),
    "rnd (prior)": (33.3, 2227, 707, 546, 2051, 377),
    "ngu": (2.6, 1751, 790, 839, 1103, 2062),
    "lwm": (31.1, 8598, 985, 1242, 1839, 2192),
    "lwm+sm": (31.6, 10258, 1381, 1693, 2065, 2269),
    "rnd": (22.2, 2628, 1081, 739, 2206, 2475),
    "rnd+sm": (22.2, 5073, 1119, 987, 2420, 5187),
}
ATARI_MEAN_MEDIAN: dict[str, tuple[float, float]] = {
    "emi (prior)": (61.4, 34.9),
    "ex2 (prior)": (40.5, 32.3),
    "icm (prior)": (46.1, 23.1),
    "ae-sh (prior)": (52.4, 33.3),
    "lwm (prior)": (80.6, 60.8),
    "rnd (prior)": (42.2, 32.7),
    "ngu": (31.2, 33.1),
    "lwm": (80.5, 66.5),
    "lwm+sm": (97.0, 83.7),
    "rnd": (50.7, 58.3),
    "rnd+sm": (74.8, 84.6),
}

# Random and human scores, games in the order of GAMES.
# The paper's means follow from the first row of human scores, but for RND's own (the second)
# and LWM's own (neither).
RANDOM = (0.0, 65.2, 0.0, 173.0, 1236.3, 0.0)
HUMAN = {
    "paper": (29.6, 4334.7, 1187.5, 2672.0, 12326.7, 4366.7),
    "57 games": (29.6, 4334.7, 1187.5, 3351.4, 12326.7, 4753.3),
}
