"""The same PPO beside other implementations: a plain loop, and Stable-Baselines3 where installed.

All have our environments, and an agent with our widths, rollouts, epochs and minibatches. They take
turns, rollout by rollout, in one process.
"""

import dataclasses
from importlib.util import find_spec
from statistics import median
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.nn.nets import is_image
from surprise_memory.tools.bench.plain_loop import PlainLoop
from surprise_memory.tools.bench.report import print_settings, table_of
from surprise_memory.tools.bench.summary import settings, total
from surprise_memory.tools.bench.timing import OnProgress, Seconds, TimedPPO, take_turns
from surprise_memory.training.config import RunConfig

OURS = ("none", "rnd", "rnd+sm", "rnd+sm+trust+recognise")
PLAIN = "plain loop"
PLAIN_RND = "plain loop with RND"
SB3 = "Stable-Baselines3"
SAME = {PLAIN: "none", SB3: "none", PLAIN_RND: "rnd"}  # the method of ours that does the same


def bench_peers(
    run: RunConfig, rollouts: int = 3, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Steps per second of ours and of each peer, and their time over that of ours."""
    ours = {name: TimedPPO(dataclasses.replace(run, method=name)) for name in OURS}
    first = ours["none"]
    if is_image(first.env.obs_shape):
        raise UserError(f"{run.env} shows images: peers are compared on vectors, as in MiniGrid.")
    timed: dict[str, Any] = dict(ours)
    timed[PLAIN] = PlainLoop(run, first.clock)
    timed[PLAIN_RND] = PlainLoop(run, first.clock, with_rnd=True)
    missing = []
    if find_spec("stable_baselines3"):
        from surprise_memory.tools.bench.sb3_loop import SB3Loop

        timed[SB3] = SB3Loop(run, first.clock)
    else:
        missing.append(SB3)
    timings = take_turns(timed, rollouts, run.threads, on_progress)
    for one in timed.values():
        one.env.close()
    found = {}
    for name, turns in timings.items():
        same = timings[SAME.get(name, name)]
        ratios = [whole(a) / whole(b) for a, b in zip(turns, same, strict=True)]
        found[name] = {
            "steps_per_second": run.envs * run.rollout / median(whole(turn) for turn in turns),
            "over_ours": median(ratios),
        }
    about = settings(run, rollouts, first.clock_name)
    return about | {"peers": found, "missing": missing}


def whole(lap: Seconds) -> float:
    """Seconds of a lap; a peer's has no parts."""
    if "whole" in lap:
        return lap["whole"]
    return total(lap)


def print_peers(result: dict[str, Any], console: Any) -> None:
    """One row for each of ours and each peer."""
    print_settings(result, console)
    table = table_of("who", f"steps per {result['clock']} second", "same as our", "time / ours")
    for name, row in result["peers"].items():
        cells = ["", ""]
        if name in SAME:
            cells = [SAME[name], f"{row['over_ours']:.2f}"]
        table.add_row(name, f"{row['steps_per_second']:,.0f}", *cells)
    console.print(table)
    for name in result["missing"]:
        console.print(f"{name} is not installed here.")
