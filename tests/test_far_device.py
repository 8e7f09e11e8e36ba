"""Every device: the second one of `far_device.py`, names of devices, and where tensors are made."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gymnasium.spaces import Discrete

import surprise_memory
from surprise_memory import Bonus
from surprise_memory.agents import PPO, PPOConfig
from surprise_memory.bonus.check.promises import equal
from surprise_memory.cli import main, runs
from surprise_memory.errors import UserError
from surprise_memory.nn import devices
from surprise_memory.nn.devices import pick_device

ROOT = Path(surprise_memory.__file__).parent
ACTIONS = Discrete(3)
CASES = Path(__file__).parent / "far_cases.py"
# Functions that make a tensor out of nothing, or of what is no tensor.
MAKERS = {
    "arange", "as_tensor", "asarray", "bernoulli", "empty", "empty_strided", "eye", "frombuffer",
    "from_numpy", "full", "hann_window", "linspace", "logspace", "normal", "ones", "rand",
    "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices",
    "zeros", "Tensor", "FloatTensor", "LongTensor", "BoolTensor", "ByteTensor",
}  # fmt: skip


def test_everything_on_a_second_device():
    """In a process of its own: a process has one such device, and it stays."""
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [*words, str(CASES)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


# --- where tensors are made -----------------------------------------------------------------------


def without_device(text):
    """Lines that call one of torch's makers and do not say where."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        whose = node.func.value
        is_torch = isinstance(whose, ast.Name) and whose.id == "torch"
        says = any(word.arg in ("device", None) for word in node.keywords)
        if is_torch and node.func.attr in MAKERS and not says:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_makes_a_tensor_without_a_device(path):
    text = path.read_text()
    assert not without_device(text)
    for node in ast.walk(ast.parse(text)):  # `from torch import zeros` would hide them
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            assert not {alias.name for alias in node.names} & (MAKERS - {"Tensor"})


@pytest.mark.parametrize(
    "call",
    [
        "torch.zeros(3)",
        "x = y + torch.arange(len(z))",
        "f(torch.tensor([1, 2], dtype=torch.float32))",
        "torch.rand(3, generator=rng) < 2",
        "torch.from_numpy(x)",
    ],
)
def test_a_stray_maker_is_seen(call):
    assert without_device(f"def f():\n    {call}\n") == [2]
    assert not without_device("torch.zeros(3, device=x.device)\nx.new_zeros(3)\ntorch.ones_like(x)")


# --- names of devices -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:7", "mps", "gpu", "", "cuda:x", "xpu", 3.5])
def test_a_device_that_is_not_there_is_refused_in_one_sentence(name):
    with pytest.raises(UserError, match=r"^device = .* is not there: this machine has cpu.*\.$"):
        pick_device(name)
    with pytest.raises(UserError, match="is not there"):
        Bonus("rnd+sm", (3,), 2, device=name)


def test_meta_holds_no_numbers():
    with pytest.raises(UserError, match="holds no numbers"):
        pick_device("meta")


def test_auto_is_a_gpu_if_there_is_one(monkeypatch):
    assert pick_device("auto") == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: device)
    assert pick_device("auto") == torch.device("cuda")


def test_the_command_line_refuses_and_records_a_device(tmp_path, capsys):
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--steps", "128", "--eval-episodes"]
    words += ["0", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--device", "cuda:99"]) == 2
    assert "device = 'cuda:99' is not there" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*words, "--device", "auto"]) == 0
    recorded = (tmp_path / "run" / "config.json").read_text()
    assert f'"device": "{pick_device("auto")}"' in recorded
    assert main(["doctor", "ToyKeyDoor-v0", "--preset", "debug", "--device", "auto"]) == 2
    assert "the doctor" in capsys.readouterr().err


def test_a_run_of_a_lost_device_is_evaluated_on_the_cpu(tmp_path, capsys):
    path = tmp_path / "run"
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--steps", "128", "--eval-episodes"]
    assert main([*words, "0", "--run-dir", str(path)]) == 0
    config = path / "config.json"
    config.write_text(config.read_text().replace('"device": "cpu"', '"device": "cuda:99"'))
    assert runs.load(path)[0].device == "cpu"  # so does everything that draws
    assert main(["eval", str(path), "--episodes", "1", "--eval-steps", "3"]) == 0
    assert main(["eval", str(path), "--episodes", "1", "--device", "cuda:99"]) == 2
    again = [*words, "0", "--run-dir", str(path), "--resume"]
    again[again.index("128")] = "192"
    assert main(again) == 0  # on another device


# --- a seed means the same everywhere -------------------------------------------------------------


def test_networks_are_made_on_the_host_whatever_the_default_device_is():
    want = Bonus("ngu+sm+recognise", (1, 9, 9), 2, action_space=ACTIONS)
    with torch.device("meta"):
        got = Bonus("ngu+sm+recognise", (1, 9, 9), 2, action_space=ACTIONS)
        agent = PPO((3,), ACTIONS, PPOConfig(hidden=4), True)
    assert equal(got.state_dict(), want.state_dict())
    assert equal(agent.state_dict(), PPO((3,), ACTIONS, PPOConfig(hidden=4), True).state_dict())


def test_making_a_bonus_leaves_every_random_stream_alone(monkeypatch):
    """torch.manual_seed would also reseed all GPUs."""
    monkeypatch.setattr(torch, "manual_seed", None)
    monkeypatch.setattr(torch.random, "manual_seed", None)
    before = torch.get_rng_state()
    with devices.built_on_host(3):
        torch.nn.Linear(2, 2)
    assert torch.equal(torch.get_rng_state(), before)
    Bonus("rnd+sm", (3,), 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_callers_default_dtype_stays_outside():
    torch.set_default_dtype(torch.float64)
    try:
        bonus = Bonus("rnd+sm", (3,), 2)
        paid = bonus.step(torch.zeros(2, 3), torch.zeros(2), torch.ones(2, 3), torch.zeros(2))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert paid.dtype == torch.float32
    assert {p.dtype for p in bonus.parameters()} == {torch.float32}
