"""Where a run's numbers go besides metrics.jsonl: loggers by name or by import path.

A logger is a class with three methods, made with the run's directory and its options. It may fail
as it likes: the run goes on without it.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from surprise_memory.errors import UserError, brief, need, unknown
from surprise_memory.training.logger_kinds import (
    MLflowLogger,
    TensorBoardLogger,
    TrackioLogger,
    WandbLogger,
)

NOWHERE = "jsonl"  # metrics.jsonl is always written
LOGGERS: dict[str, Callable[[Path, dict[str, Any]], "Logger"]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MLflowLogger,
    "trackio": TrackioLogger,
}


class Logger(Protocol):
    """Made as `Class(run_dir, config)`, config being flat: {"env": ..., "ppo.lr": ...}.

    One that sets `rewinds = True` gets every row, and forgets by itself what a killed process
    logged after its last checkpoint: after the step `self.rewound`, which is set before its first
    row. Others do not get such rows a second time.
    """

    def log(self, row: dict[str, Any]) -> None:
        """One row of metrics: numbers by name, one of them "step"."""

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """A figure of matplotlib."""

    def close(self) -> None:
        """The run has ended, or was stopped."""


def split_names(names: str) -> list[str]:
    """The loggers of --logger, without importing anything; refuses what cannot be one.

    >>> split_names("tensorboard,my_package.logs:Mine"), split_names("jsonl")
    (['tensorboard', 'my_package.logs:Mine'], [])
    """
    found = [name.strip() for name in names.split(",")]
    for name in found:
        module, colon, kind = name.partition(":")
        a_path = colon and all(word.isidentifier() for word in [*module.split("."), kind])
        if not a_path and name not in (*LOGGERS, NOWHERE):
            sentence = unknown(name, [*LOGGERS, NOWHERE], "logger")
            raise UserError(f"{sentence} One of your own is written package.module:Class.")
    return [name for name in dict.fromkeys(found) if name != NOWHERE]


def find_loggers(names: str) -> dict[str, Any]:
    """Every logger's class by its name. What cannot be imported is refused, before a run begins."""
    found: dict[str, Any] = {}
    for name in split_names(names):
        if ":" in name:
            found[name] = import_logger(name)
            continue
        found[name] = LOGGERS[name]
        if name != "tensorboard":  # without which a run only says so
            need(name, extra=name)
    return found


def import_logger(path: str) -> Any:
    """The class that `package.module:Class` names."""
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module of the user's does
        raise UserError(
            f"The logger '{path}' cannot be imported ({type(error).__name__}: {brief(str(error))}):"
            " name a class in a module that Python finds, such as by PYTHONPATH=."
        ) from error
    missing = [word for word in ("log", "log_figure", "close") if not hasattr(kind, word)]
    if missing:
        raise UserError(
            f"The logger '{path}' has no {', '.join(missing)}: give it log(row), "
            "log_figure(name, figure, step) and close()."
        )
    return kind


class Loggers:
    """All loggers of a run, as one. Use it as a context.

    `last_step` is that of the newest row which an earlier process of this run has logged.
    """

    def __init__(
        self, kinds: dict[str, Any], run_dir: Path, config: dict[str, Any], last_step: int
    ) -> None:
        self.last_step = last_step
        self.open: dict[str, Any] = {}
        for name, kind in kinds.items():
            try:
                self.open[name] = kind(run_dir, dict(config))
            except Exception as error:
                leave_out(name, error)

    def __enter__(self) -> "Loggers":
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self.open):
            self._try(name, lambda logger: logger.close())

    def log(self, row: dict[str, Any], rewound: int) -> None:
        """One row of training, unless it was logged before.

        `rewound` is the step that this process took the run back to.
        """
        for name, logger in list(self.open.items()):
            rewinds = getattr(logger, "rewinds", False)
            if rewinds:
                logger.rewound = rewound
            if row["step"] > self.last_step or rewinds:
                self._try(name, lambda logger: logger.log(dict(row)))

    def log_score(self, mean: float, step: int) -> None:
        """The evaluation's mean return."""
        row = {"step": step, "charts/eval_return": mean}
        for name in list(self.open):
            self._try(name, lambda logger: logger.log(dict(row)))

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """A figure of matplotlib."""
        for known in list(self.open):
            self._try(known, lambda logger: logger.log_figure(name, figure, step))

    def _try(self, name: str, call: Callable[[Any], None]) -> None:
        try:
            call(self.open[name])
        except Exception as error:
            del self.open[name]
            leave_out(name, error)


def leave_out(name: str, error: Exception) -> None:
    """Say once that a logger has failed. The run is worth more than its log."""
    why = " ".join(str(error).split())
    if not isinstance(error, UserError):
        why = f"{type(error).__name__}: {why}"
    print(
        f"The logger {name} has failed and is left out from here on, all rows are in "
        f"metrics.jsonl: {why.rstrip('.')}.",
        file=sys.stderr,
        flush=True,
    )
