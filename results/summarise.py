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

from surprise_memory.plots import plotting
from surprise_memory.rundir import RunDir, read_json

HERE = Path(__file__).parent
KEPT = ("step", "charts/", "intrinsic/", "losses/entropy", "losses/td", "losses/pairs", "noisy_tv/", "rooms/visited")
COLOURS = {"": "#777777", "none": "#c46a1b", "sm": "#1b6fc4", "m": "#7a4fb5", "w": "#2f8f5b", "counts": "#b03a5b"}
SOLVED = {"MiniGrid-KeyCorridorS4R3-v0": 0.5}
LINES = {"default": ("-", ""), "noisy": ("--", ", preset noisy"), "default_expect": (":", ", expect")}


def colour(method: str) -> str:
    """Grey without a bonus, orange for a generator alone, others by memory."""
    generator, _, memory = method.partition("+")
    return COLOURS["" if generator == "none" else memory or "none"]


def take(run: Path, env: str) -> None:
    """Copy what a reader needs of a run, which must be named METHOD-PRESET-SEED."""
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


def later(run: RunDir) -> list[dict]:
    """All rows but the first tenth."""
    rows = list(run.rows())
    return [r for r in rows if r["step"] > rows[-1]["step"] / 10]


def solved_at(run: RunDir) -> str:
    """Steps until the last 128 training episodes returned SOLVED; the first tenth of a run has too few episodes to count."""
    enough = SOLVED.get(run.path.parent.name, 0.9)
    steps = [r["step"] for r in later(run) if r.get("charts/return_128", 0) >= enough]
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
        lines.append(f"| `{method}` | {preset} | {max(last) / 1e6:.2f} M | {len(runs)} | {each} | {mean} | {solved} |")
    return "\n".join(lines)


def panels(env: Path) -> dict[str, dict[str, list[RunDir]]]:
    """What is drawn together, by title: the presets of one generator, or the generators of one preset, each beside no bonus."""
    found = cells(env)
    generators = sorted({method.partition("+")[0] for method, _ in found} - {"none"})
    if len(generators) <= 1:
        return {f"preset {p}": {m: runs for (m, q), runs in found.items() if q == p} for p in sorted({p for _, p in found})}
    plain = found.get(("none", "default"), [])
    drawn = {g: {"none": plain} for g in generators}
    for (method, preset), runs in found.items():
        if method != "none" and preset == "default":
            drawn[method.partition("+")[0]][method] = runs
    return drawn


def curves(env: Path) -> Path:
    """Return of the last 128 training episodes, and the scaled bonus, over steps; a line for each seed."""
    plt, together = plotting(), panels(env)
    figure, axes = plt.subplots(2, len(together), figsize=(3.9 * len(together), 5.4), layout="constrained", squeeze=False)
    for column, (title, methods) in enumerate(together.items()):
        for method, runs in methods.items():
            for i, run in enumerate(runs):
                rows = later(run)
                style = {"color": colour(method), "lw": 1.5, "label": method if i == 0 else None}
                for axis, name in zip(axes[:, column], ("charts/return_128", "intrinsic/reward_norm"), strict=True):
                    paired = [(r["step"] / 1e6, r[name]) for r in rows if name in r]
                    if paired:
                        axis.plot(*zip(*paired, strict=True), **style)
        axes[0, column].set(title=f"{title}: return of the last 128 episodes", ylim=(-0.03, 1.03))
        axes[1, column].set(title="mean scaled bonus per step", xlabel="million steps", yscale="log")
        axes[0, column].legend(frameon=False)
    path = HERE.parent / "docs" / f"curves-{env.name}.png"
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path


def at_the_end(run: RunDir, name: str) -> float:
    """Mean over the last quarter of a run."""
    rows = [r[name] for r in run.rows() if name in r]
    return float(np.mean(rows[-len(rows) // 4 :])) if rows else float("nan")


def noise_table(env: Path) -> str:
    """Markdown: how much each method watches the noisy TV, what it is paid there, and how it does the task."""
    columns = ["method", "preset", "steps", "seeds", "steps watched, last quarter, by seed", "bonus there, z, first rollout"]
    columns += ["share of all bonus, last quarter", "return x 100, by seed"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for (method, preset), runs in cells(env).items():
        shares = ", ".join(f"{100 * at_the_end(run, 'noisy_tv/share'):.0f} %" for run in runs)
        z = np.mean([next((r["noisy_tv/z"] for r in run.rows() if "noisy_tv/z" in r), np.nan) for run in runs])
        pay = np.mean([at_the_end(run, "noisy_tv/pay_share") for run in runs])
        numbers = ["" if np.isnan(z) else f"{z:.2f}", "" if np.isnan(pay) else f"{100 * pay:.0f} %"]
        steps = f"{max(list(run.rows())[-1]['step'] for run in runs) / 1e6:.1f} M"
        scores = ", ".join(f"{100 * read_json(run.eval)['mean']:.1f}" for run in runs if run.eval.exists())
        lines.append("| " + " | ".join([f"`{method}`", preset, steps, str(len(runs)), shares, *numbers, scores]) + " |")
    return "\n".join(lines)


def noise_curves(env: Path) -> Path:
    """TV actions, the scaled bonus and the return over steps, as the paper draws them: one column for each generator."""
    plt, found = plotting(), cells(env)
    rows = {"noisy_tv/share": "steps that watch", "intrinsic/reward_norm": "mean scaled bonus", "charts/return_128": "return"}
    generators = sorted({method.partition("+")[0] for method, _ in found} - {"none"})
    size = (3.3 * len(generators) + 1.2 * (len(generators) == 1), 6.6)
    figure, axes = plt.subplots(len(rows), len(generators), figsize=size, layout="constrained", squeeze=False)
    for column, generator in enumerate(generators):
        for (method, preset), runs in found.items():
            if method.partition("+")[0] not in (generator, "none"):
                continue
            line, more = LINES[preset]
            for i, run in enumerate(runs):
                style = {"color": colour(method), "lw": 1.5, "ls": line, "label": f"{method}{more}" if i == 0 else None}
                for axis, name in zip(axes[:, column], rows, strict=True):
                    paired = [(r["step"] / 1e6, r[name]) for r in run.rows() if name in r]
                    if paired:
                        axis.plot(*zip(*paired, strict=True), **style)
        for axis, title in zip(axes[:, column], rows.values(), strict=True):
            axis.set(title=f"{generator}: {title}")
        axes[0, column].set(ylim=(0, 1.02))
        axes[2, column].set(xlabel="million steps", ylim=(-0.03, 1.03))
        axes[0, column].legend(frameon=False, fontsize=7)
    path = HERE.parent / "docs" / f"curves-{env.name}.png"
    figure.savefig(path, dpi=100)
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
        others = ("__pycache__", "doctor", "bench", "mnir", "inspect", "MontezumaRevenge")  # the last has nothing to tabulate
        for env in sorted(p for p in HERE.iterdir() if p.is_dir() and p.name not in others):
            noisy = env.name.startswith("NoisyTV-")
            print(f"### {env.name}\n\n{(noise_table if noisy else table)(env)}\n\n{(noise_curves if noisy else curves)(env)}\n")
        print(doctor_table())
