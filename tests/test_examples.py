"""The examples do what the README says of them."""

import argparse
import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command(folder, script, *words):
    """What a script prints when it is called in a folder that is not ours."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_loop_of_ones_own_learns_with_the_bonus_in_five_lines():
    source = (EXAMPLES / "cleanrl_loop.py").read_text().splitlines()
    assert len(source) <= 200
    assert sum("# BONUS" in line for line in source) == 5
    args = argparse.Namespace(
        env_id="CartPole-v1", total_timesteps=20_480, num_envs=8, num_steps=128, seed=1, beta=0.1
    )
    returns = load("cleanrl_loop").main(args)
    # A random policy holds the pole for about 22 steps.
    assert np.mean(returns[-20:]) > 2 * np.mean(returns[:50])


def test_stable_baselines3_on_mountaincar_prints_its_rollouts(tmp_path):
    pytest.importorskip("stable_baselines3")
    assert len((EXAMPLES / "sb3_mountaincar.py").read_text().splitlines()) <= 60
    printed = command(tmp_path, "sb3_mountaincar.py", "--steps", "4096", "--method", "rnd")
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [row["step"] for row in rows] == [2048, 4096]
    assert rows[-1]["return"] == -200


def run_here(monkeypatch, capsys, script, *words):
    """What a script prints when it is run in this process, which is quicker."""
    source = (EXAMPLES / script).read_text()
    assert len(source.splitlines()) <= 60
    monkeypatch.setattr(sys, "argv", [script, *words])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return capsys.readouterr().out


def test_gymnasiums_vector_loop_prints_its_returns(monkeypatch, capsys):
    printed = run_here(monkeypatch, capsys, "gymnasium_vector.py", "--steps", "5120")
    assert printed.startswith("    5,120 steps  return ")
    assert float(printed.split()[-1]) > 15  # CartPole pays 1 a step; the bonus is not in it


def test_rsl_rl_walks_with_the_bonus(monkeypatch, capsys):
    pytest.importorskip("rsl_rl")
    printed = run_here(monkeypatch, capsys, "rsl_rl_walk.py", "--iterations", "1")
    assert printed.splitlines()[-1].startswith("found 0.")


def test_torchrls_ppo_prints_its_returns(monkeypatch, capsys):
    pytest.importorskip("torchrl")
    printed = run_here(monkeypatch, capsys, "torchrl_ppo.py", "--steps", "1024")
    assert printed.startswith("    1,024 steps  return ")
    assert 15 < float(printed.split()[-1]) < 40  # a random policy, and no bonus in it


def test_a_generator_from_outside_trains_resumes_and_is_listed(tmp_path):
    listed = command(tmp_path, "own_generator.py", "methods")
    names = {line.split()[0] for line in listed.splitlines() if line}
    assert {"change", "change+sm", "change+counts"} <= names
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--method", "change+sm"]
    words = ["own_generator.py", *words, "--run-dir", "run"]
    command(tmp_path, *words, "--steps", "200")
    command(tmp_path, *words, "--steps", "400", "--resume")
    printed = command(tmp_path, "own_generator.py", "eval", "run", "--episodes", "3")
    assert "Return over 3 episodes" in printed


def test_a_stage_from_outside_trains_and_resumes_with_an_option_of_its_own(tmp_path):
    assert len((EXAMPLES / "own_stage.py").read_text().splitlines()) <= 45
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--method", "rnd+sm+cap"]
    words = ["own_stage.py", *words, "--bonus.cap.times", "0.5", "--run-dir", "run"]
    command(tmp_path, *words, "--steps", "200")
    command(tmp_path, *words, "--steps", "400", "--resume")
    printed = command(tmp_path, "own_stage.py", "eval", "run", "--episodes", "3")
    assert "Return over 3 episodes" in printed
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["bonus"]["cap"] == {"times": 0.5}
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    capped = [row["intrinsic/capped"] for row in rows]
    assert 0.5 < np.mean(capped) <= 1  # most rewards are above half of their mean
