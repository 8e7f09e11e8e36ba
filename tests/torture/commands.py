"""Calling the command line in this process, and judging what it did."""

import contextlib
import importlib
import json
import math
from pathlib import Path
from typing import Any

from tests.torture.cases import (
    HARMLESS,
    REFUSED,
    SILENT,
    TRACEBACK,
    Verdict,
    judge,
    printed,
)

TOY = "ToyKeyDoor-v0"
TINY = ["--preset", "debug", "--steps", "192", "--eval-episodes", "2", "--run-dir", "run"]
LOADED = (
    "envpool.registration",
    "imageio.v3",
    "matplotlib.pyplot",
    "rich.progress",
    "sklearn.manifold",
    "stable_baselines3",
    "torch._dynamo",  # the first optimiser's step imports it
    "torch.utils.tensorboard",
    "typeguard",
    "surprise_memory.adapters.sb3",
    "surprise_memory.cli",
    "surprise_memory.reproduce.command",
    "surprise_memory.reproduce.report",
    "surprise_memory.tools.doctor",
    "surprise_memory.tools.paper_figures",
    "surprise_memory.tools.video",
)


def preload() -> None:
    """Import in the parent what every child would import for itself."""
    import torch

    torch.set_num_threads(1)
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def call(argv: list[str]) -> tuple[int, str]:
    """Run a command; its exit code and all that it printed."""
    from surprise_memory import cli

    before = len(printed())
    try:
        code = cli.main(argv)
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    return code, printed()[before:]


def judge_command(argv: list[str]) -> Verdict:
    """Refused with exit code 2 and a sentence, harmless with 0, anything else is a traceback."""
    try:
        code, text = call(argv)
    except BaseException as error:
        verdict = judge(error)  # an error that reaches the terminal is a traceback, whatever it is
        return Verdict(TRACEBACK, verdict.why)
    if "Traceback (most recent call last)" in text:
        last = text.strip().splitlines()[-1][:200]
        return Verdict(TRACEBACK, f"exit code {code}, and a traceback on the terminal: {last}")
    if code == 0:
        return Verdict(HARMLESS)
    if code == 2 and text.strip():
        return Verdict(REFUSED, text.strip()[-300:])
    return Verdict(TRACEBACK, f"exit code {code}: {text.strip()[-160:]}")


def judge_training(argv: list[str], run: Path = Path("run")) -> Verdict:
    """As `judge_command`; a run that was accepted must also have learnt finite numbers."""
    verdict = judge_command(argv)
    if verdict.outcome == HARMLESS:
        wrong = not_finite(run)
        if wrong:
            return Verdict(SILENT, wrong)
    return verdict


def not_finite(run: Path) -> str:
    """What is NaN or infinite in a run's losses, networks and statistics; '' if nothing is."""
    if not (run / "metrics.jsonl").exists():
        return ""
    for line in (run / "metrics.jsonl").read_text().splitlines():
        for name, value in json.loads(line).items():
            if name.startswith(("losses/", "intrinsic/reward")) and not math.isfinite(value):
                return f"{name} is {value} at step {json.loads(line)['step']}"
    content = checkpoint(run)
    for name in ("agent", "bonus"):
        bad = first_not_finite(content[name], name)
        if bad:
            return f"the checkpoint's {bad} is not finite"
    return ""


def checkpoint(run: Path) -> dict[str, Any]:
    """A run's checkpoint, which is refused if it is damaged."""
    from surprise_memory.training.checkpoint import read_checkpoint
    from surprise_memory.training.rundir import RunDir

    return read_checkpoint(RunDir(run))


def first_not_finite(value: Any, name: str) -> str:
    """The name of the first tensor in nested containers that holds a NaN or an infinity."""
    import torch

    if isinstance(value, torch.Tensor):
        return "" if bool(value.isfinite().all()) else name
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, part in items:
        bad = first_not_finite(part, f"{name}.{key}")
        if bad:
            return bad
    return ""
