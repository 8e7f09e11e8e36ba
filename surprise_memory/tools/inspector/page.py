"""From recorded data to one HTML page that needs nothing else."""

import base64
import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from surprise_memory.tools import plots
from surprise_memory.tools.inspector.ask import Answer, Rebuilt, Recall
from surprise_memory.tools.inspector.images import Images
from surprise_memory.tools.inspector.record import Recording

COLOURS = {
    "ink": plots.INK,
    "grey": plots.GREY,
    "norm": plots.NORM,
    "novelty": plots.NOVELTY,
    "return": plots.RETURN,
    "scaled": plots.RED,
    "tv": plots.RED,
    "stage-0": plots.GREEN,
    "stage-1": plots.PURPLE,
    "stage-2": plots.BROWN,
    "stage-3": plots.GREY,
}


def page(recording: Recording, images: Images, answers: list[Answer]) -> str:
    """The page as text."""
    data = {
        "episode": asdict(recording),
        "images": asdict(images),
        "runs": [packed(answer) for answer in answers],
    }
    variables = "".join(f"--{name}: {colour};" for name, colour in COLOURS.items())
    parts = {
        "STYLE": f":root {{ {variables} }}\n{asset('style.css')}",
        "SCRIPT": asset("script.js"),
        "DATA": as_script(data),  # last: words of a run's may look like a place for a part
    }
    text = asset("template.html")
    for name, part in parts.items():
        text = text.replace(f"[[{name}]]", part, 1)
    return text


def asset(name: str) -> str:
    """A file beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def as_script(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


# --- fewer characters -----------------------------------------------------------------------------


def packed(answer: Answer) -> dict[str, Any]:
    """An answer with numbers of five digits, weights of three and vectors of bytes."""
    found = asdict(answer)
    for name in ("surprise_norm", "novelty", "scaled"):
        found[name] = rounded(found[name])
    found["stages"] = {name: rounded(reward) for name, reward in answer.stages.items()}
    if answer.recall is not None:
        found["recall"] = packed_recall(answer.recall)
    if answer.rebuilt is not None:
        found["rebuilt"] = packed_rebuilt(answer.rebuilt)
    return found


def rounded(values: list[float]) -> list[float]:
    """Five digits that count."""
    return [float(f"{value:.5g}") for value in values]


def packed_recall(recall: Recall) -> dict[str, Any]:
    """Weights to a thousandth."""
    found = asdict(recall)
    found["norm"] = rounded(recall.norm)
    found["weights"] = []
    for weights in recall.weights:
        thousandths = [round(1000 * weight) for weight in weights]
        found["weights"].append(thousandths)
    return found


def packed_rebuilt(rebuilt: Rebuilt) -> dict[str, Any]:
    """Each step's q, then its W(q), as bytes from -127 to 127 times the step's own scale."""
    both = np.concatenate([np.array(rebuilt.q), np.array(rebuilt.w)], 1)  # (T, 2 m)
    largest = np.abs(both).max(1)
    scale = np.maximum(largest, 1e-12) / 127
    numbers = np.rint(both / scale[:, None]).astype(np.int8)
    return {
        "recalled": rebuilt.recalled,
        "width": len(rebuilt.q[0]),
        "bytes": base64.b64encode(numbers.tobytes()).decode(),
        "largest": rounded(largest.tolist()),
        "left": rounded(rebuilt.left),
    }
