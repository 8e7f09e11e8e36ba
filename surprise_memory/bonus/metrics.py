"""What tells whether a bonus is alive and whether its memory does anything."""

from typing import Any

import torch

from surprise_memory.bonus.model import BonusModel
from surprise_memory.bonus.trace import Trace
from surprise_memory.types import Chunk

IDLE_CORRELATION = 0.98  # of novelty with the surprise norm; above it the memory changes nothing


def bonus_metrics(model: BonusModel, chunk: Chunk, trace: Trace) -> dict[str, float]:
    """Means over the steps of a chunk that happened.

    `novelty_norm_corr` and `energy_left` near 1 mean an idle memory: novelty is the norm by
    another name.
    """
    valid = chunk.valid
    norm = trace.surprise_norm[valid]
    novelty = trace.novelty[valid]
    report: dict[str, Any] = {
        "surprise_norm": norm.mean(),
        "novelty": novelty.mean(),
        "novelty_norm_corr": 1.0,  # also of a single step, or of steps that are all alike
    }
    if len(norm) > 1:
        correlation = torch.corrcoef(torch.stack([norm, novelty]))[0, 1]
        report["novelty_norm_corr"] = correlation.nan_to_num(1.0)
    for name, stage in model.stage_items():
        for column in stage.logged:
            report[column] = trace.stages[name].record[column][valid].mean()
    report |= model.memory.metrics(trace.u, trace.v, trace.q, valid)
    if model.persistence is not None:
        report["ignored_features"] = model.persistence.ignored
    return {name: float(value) for name, value in report.items()}
