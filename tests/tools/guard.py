"""What every method computes, as numbers that can be compared between two versions of the package.

    python tests/tools/guard.py record before.json
    python tests/tools/guard.py compare before.json

For each method, agent and task: the metrics of a few updates and a hash of every saved tensor.
Names may change between versions, numbers may not. Metrics are compared by name where both have
it, tensors as a set.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import fakes  # noqa: F401 (registers Picture-v0)

torch.set_num_threads(1)
TASKS = {"vector": "ToyKeyDoor-v0", "noisy": "NoisyTV/ToyKeyDoor-v0", "image": "Picture-v0"}
METHODS = [
    f"{s}{m}"
    for s in ("rnd", "icm", "ngu", "ae", "lwm")
    for m in ("", "+sm", "+m", "+w", "+counts")
]
METHODS = ["none", *METHODS, "disagreement"]
EXTRA = {
    "default": ["--method", "rnd+sm+trust+recognise"],
    "expect": ["--method", "rnd+sm+expect"],
    "paper-like": ["--method", "rnd+sm", "--bonus.loss", "norm"],
}
SKIPPED = ("charts/SPS",)


def tensors(value: object) -> list[torch.Tensor]:
    """Every tensor in a nest of containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def digest(tensor: torch.Tensor) -> str:
    """A short hash of one tensor's type, shape and bytes."""
    data = tensor.detach().contiguous().numpy().tobytes()
    text = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return hashlib.sha1(text + data).hexdigest()[:12]


def run(task: str, options: list[str]) -> dict[str, object]:
    """Train a debug run; its rows of metrics, its evaluation and its tensors."""
    from surprise_memory.cli import main

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        words = [
            "train",
            task,
            "--preset",
            "debug",
            "--steps",
            "768",
            "--eval-episodes",
            "4",
            *options,
        ]
        code = main([*words, "--run-dir", str(path)])
        if code:
            return {"error": code}
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        rows = [{name: value for name, value in row.items() if name not in SKIPPED} for row in rows]
        state = torch.load(path / "checkpoint.pt", weights_only=True)
        hashes = sorted(digest(tensor) for tensor in tensors(state))
        return {
            "rows": rows,
            "eval": json.loads((path / "eval.json").read_text()),
            "tensors": hashes,
        }


def cases() -> dict[str, tuple[str, list[str]]]:
    """Name to (task, options)."""
    found = {}
    for task, env in TASKS.items():
        for agent in ("ppo", "dqn"):
            for method in METHODS:
                found[f"{task} {agent} {method}"] = (env, ["--method", method, "--agent", agent])
            for name, options in EXTRA.items():
                found[f"{task} {agent} {name}"] = (env, [*options, "--agent", agent])
    return found


def difference(old: dict, new: dict) -> str:
    """What differs between two records of one case, in a few words; empty where nothing does."""
    found = []
    if old.get("error") != new.get("error"):
        return f"error {old.get('error')} -> {new.get('error')}"
    if "error" in old:
        return ""
    for i, (a, b) in enumerate(zip(old["rows"], new["rows"], strict=True)):
        moved = [name for name in a if name in b and a[name] != b[name]]
        if moved:
            found.append(f"row {i}: {', '.join(moved[:4])}")
            break
    names = set(old["rows"][-1]) ^ set(new["rows"][-1])
    if names:
        found.append(f"names: {', '.join(sorted(names))}")
    if old["eval"] != new["eval"]:
        found.append("evaluation")
    lost, gained = list(old["tensors"]), []
    for item in new["tensors"]:
        lost.remove(item) if item in lost else gained.append(item)
    if lost or gained:
        found.append(f"tensors: {len(lost)} lost, {len(gained)} gained of {len(old['tensors'])}")
    return "; ".join(found)


def main() -> None:
    """Record, or compare with a record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if args.only in name}
    found = {name: run(*case) for name, case in chosen.items()}
    if args.what == "record":
        args.file.write_text(json.dumps(found))
        print(f"{len(found)} cases in {args.file}")
        return
    old = json.loads(args.file.read_text())
    differing = 0
    for name, new in found.items():
        text = difference(old[name], new)
        differing += bool(text)
        if text:
            print(f"{name:30} {text}")
    print(f"{len(found) - differing} of {len(found)} cases are equal to the last bit")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
