"""Runs in results/ENV/METHOD-PRESET-SEED to the table and the curves of docs/results.md.

python results/summarise.py            prints the table of every environment and draws docs/curves-ENV.png
python results/summarise.py --take RUN_DIR ENV     copies a run here, its metrics thinned to about 250 rows
"""

import argparse
import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np

from surprise_memory.pictures import plotting
from surprise_memory.rundir import RunDir, read_json

HERE = Path(__file__).parent
KEPT = ("step", "charts/", "intrinsic/", "losses/entropy")
COLOURS = {"none": "#777777", "rnd": "#c46a1b", "rnd+sm": "#1b6fc4"}
SOLVED = 0.9


def take(run: Path, env: str) -> None:
    """Copy what a reader needs of a run."""
    target = HERE / env / run.name
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "eval.json", "versions.txt"):
        if (run / name).exists():
            shutil.copy(run / name, target / name)
    rows = list(RunDir(run).rows())
    kept = rows[:: max(1, len(rows) // 250)] + ([rows[-1]] if rows else [])
    lines = [json.dumps({k: _short(v) for k, v in row.items() if k.startswith(KEPT)}) for row in kept]
    (target / "metrics.jsonl").write_text("\n".join(dict.fromkeys(lines)) + "\n")


def _short(value: float) -> float:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def cells(env: Path) -> dict[tuple[str, str], list[RunDir]]:
    """Runs of one environment by (method, preset)."""
    found = defaultdict(list)
    for path in sorted(p for p in env.iterdir() if p.is_dir()):
        method, preset, _ = path.name.rsplit("-", 2)
        found[method, preset].append(RunDir(path))
    return found


def solved_at(run: RunDir) -> str:
    """Steps until the last 128 training episodes returned SOLVED; the first 0.2 M steps have too few episodes to count."""
    steps = [r["step"] for r in run.rows() if r.get("charts/return_128", 0) >= SOLVED and r["step"] > 200_000]
    return f"{steps[0] / 1e6:.2f} M" if steps else "never"


def table(env: Path) -> str:
    """Markdown: one row for each method and preset."""
    lines = [
        "| method | preset | steps | seeds | return x 100, 128 episodes, by seed | mean | solved at, by seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for (method, preset), runs in cells(env).items():
        last = [list(run.rows())[-1]["step"] for run in runs]
        scores = [100 * read_json(run.eval)["mean"] for run in runs if run.eval.exists()]
        each = ", ".join(f"{x:.1f}" for x in scores) or "not finished"
        mean = f"{np.mean(scores):.1f}" if scores else "-"
        solved = ", ".join(solved_at(run) for run in runs)
        lines.append(f"| `{method}` | {preset} | {max(last) / 1e6:.1f} M | {len(runs)} | {each} | {mean} | {solved} |")
    return "\n".join(lines)


def curves(env: Path) -> Path:
    """Return of the last 128 training episodes, and the scaled bonus, over steps; a line for each seed."""
    plt = plotting()
    presets = sorted({preset for _, preset in cells(env)})
    figure, axes = plt.subplots(2, len(presets), figsize=(5.2 * len(presets), 5.6), layout="constrained", squeeze=False)
    for column, preset in enumerate(presets):
        for (method, kind), runs in cells(env).items():
            for i, run in enumerate(runs if kind == preset else []):
                rows = [r for r in run.rows() if r["step"] > 200_000]
                style = {"color": COLOURS.get(method, "k"), "lw": 1.6, "label": method if i == 0 else None}
                for axis, name in zip(axes[:, column], ("charts/return_128", "intrinsic/reward_norm"), strict=True):
                    paired = [(r["step"] / 1e6, r[name]) for r in rows if name in r]
                    if paired:
                        axis.plot(*zip(*paired, strict=True), **style)
        axes[0, column].set(title=f"preset {preset}: return of the last 128 episodes", ylim=(-0.03, 1.03))
        axes[1, column].set(title="mean scaled bonus per step", xlabel="million steps", yscale="log")
        axes[0, column].legend(frameon=False)
    path = HERE.parent / "docs" / f"curves-{env.name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def doctor_table() -> str:
    """Markdown: what `surprise-memory doctor` found for each setting in results/doctor."""
    columns = ["setting", "corr. with norm", "energy left", "rank corr. with rarity", "z first sight", "z its repeats"]
    columns += ["z open door", "z noise", "noise's share of the pay"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]

    def row(name: str, measures: dict, column: str) -> str:
        def get(key: str, where: str = column) -> float:
            return measures[key][where]["mean"]

        alone = column == "norm"
        numbers = [1.0 if alone else get("corr", "all"), 1.0 if alone else get("energy_left", "all"), get("rarity")]
        numbers += [get("first_z"), get("repeat_z"), get("event/open door in view"), get("noise_z")]
        return f"| {name} | " + " | ".join(f"{x:.2f}" for x in numbers) + f" | {100 * get('noise_pay'):.0f} % |"

    for path in sorted((HERE / "doctor").glob("*/doctor.json")):
        measures = read_json(path)["measures"]
        lines += [row(f"{path.parent.name}: norm", measures, "norm"), row(f"{path.parent.name}: novelty", measures, "novelty")]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--take", nargs=2, metavar=("RUN_DIR", "ENV"))
    words = parser.parse_args()
    if words.take:
        take(Path(words.take[0]), words.take[1])
    else:
        for env in sorted(p for p in HERE.iterdir() if p.is_dir() and p.name not in ("__pycache__", "doctor")):
            print(f"### {env.name}\n\n{table(env)}\n\n{curves(env)}\n")
        print(doctor_table())
