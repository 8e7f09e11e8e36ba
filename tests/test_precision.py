"""bfloat16 in the networks, compiled losses: what changes, what does not, and that runs resume."""

import fakes
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn

from surprise_memory import Bonus
from surprise_memory.agents import DQN, PPO, DQNConfig, PPOConfig
from surprise_memory.bonus.check.promises import equal
from surprise_memory.cli import main
from surprise_memory.errors import UserError
from surprise_memory.nn.nets import Net, Scale, mlp, set_precision
from surprise_memory.torch_files import load

WORDS = ["--preset", "debug", "--eval-episodes", "0"]


def bf16(x):
    return x.to(torch.bfloat16).float()


def test_hidden_layers_multiply_in_bfloat16_and_the_last_in_float32():
    """By hand: inputs and weights are rounded, products summed and rounded; not so at the end."""
    torch.manual_seed(0)
    net = mlp([64, 32, 16], nn.Tanh)
    x = torch.randn(5, 64)
    exact = net(x)
    set_precision(net, "bf16")
    found = net(x)
    hidden = bf16(bf16(x) @ bf16(net[0].weight).T + bf16(net[0].bias))
    want = bf16(hidden.tanh()) @ net[2].weight.T + net[2].bias
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, want, rtol=0, atol=0.02)
    assert 0 < (found - exact).abs().max() < 0.05
    assert not torch.equal(found, bf16(found))  # the output is not rounded


def test_every_byte_is_scaled_as_by_float32_and_images_stay_as_they_are():
    image = torch.arange(256, dtype=torch.uint8)
    before = image.clone()
    exact = image.float() / 255
    assert torch.equal(Scale()(image), exact)
    with torch.autocast("cpu", torch.bfloat16):
        scaled = Scale()(image)
    assert scaled.dtype == torch.bfloat16 and torch.equal(scaled.float(), bf16(exact))
    assert torch.equal(image, before)
    assert Scale()(exact) is exact


def test_a_bonus_in_bfloat16_is_nearly_the_same_and_its_memory_is_float32():
    chunk = fakes.chunk_of(torch.rand(6, 2, 3, 12, 12) * 255)
    exact = Bonus("rnd+sm+recognise", (3, 12, 12), 2)
    rough = Bonus("rnd+sm+recognise", (3, 12, 12), 2, precision="bf16")
    assert equal(exact.state_dict(), rough.state_dict())
    raw, _, _ = exact(chunk, exact.start())
    near, rough_trace, rough_carry = rough(chunk, rough.start())
    assert not torch.equal(raw, near)
    torch.testing.assert_close(near, raw, rtol=0.02, atol=0.02)
    tensors = [rough_trace.u, rough_trace.v, rough_carry.memory.log, near]
    assert {x.dtype for x in tensors} == {torch.float32}
    nets = [m for m in rough.modules() if isinstance(m, Net)]
    assert nets and {net.dtype for net in nets} == {torch.bfloat16}


@pytest.mark.parametrize("shape", [(4,), (3, 12, 12)])
def test_agents_learn_in_bfloat16_with_float32_weights(shape):
    agent = PPO(shape, Discrete(3), PPOConfig(hidden=8), True, precision="bf16")
    action, extras, _ = agent.act(torch.rand(5, *shape), torch.ones(5).bool(), {}, "sample")
    assert {x.dtype for x in extras.values()} == {torch.float32}
    batch = {"obs": torch.rand(5, *shape), "action": action, "log_prob": extras["log_prob"]}
    batch |= {name: torch.randn(5) for name in ("advantage", "ext", "int")}
    agent.loss(batch)[0].backward()
    grads = [p.grad for p in agent.policy.parameters()]
    assert all(grad.dtype == torch.float32 and grad.any() for grad in grads[:2])
    dqn = DQN(shape, Discrete(3), 2, DQNConfig(hidden=8), 0, 3, precision="bf16")
    for net in (dqn.net, dqn.target):
        assert {m.dtype for m in net.modules() if isinstance(m, Net)} == {torch.bfloat16}


def test_an_unknown_precision_is_refused(capsys):
    with pytest.raises(UserError, match=r"Unknown precision 'bf61'. Did you mean 'bf16'"):
        Bonus("rnd", (3,), 2, precision="bf61")
    assert main(["train", "ToyKeyDoor-v0", "--precision", "half"]) == 2
    assert "precision" in capsys.readouterr().err


def trained(path, *words):
    """Train a debug run in two parts or in one; its checkpoint."""
    assert main(["train", *words, *WORDS, "--run-dir", str(path)]) == 0
    return load(path / "checkpoint.pt")


@pytest.mark.parametrize("words", [["Picture-v0"], ["ToyKeyDoor-v0", "--agent", "dqn"]])
def test_a_run_in_bfloat16_resumes_to_the_same_end(words, tmp_path, capsys):
    words = [*words, "--precision", "bf16"]
    whole = trained(tmp_path / "whole", *words, "--steps", "256")
    trained(tmp_path / "parts", *words, "--steps", "128")
    parts = trained(tmp_path / "parts", *words, "--steps", "256", "--resume")
    if words[0] == "ToyKeyDoor-v0":  # the other environment begins new episodes
        assert equal(parts, whole)
    other = trained(tmp_path / "exact", *words[:-2], "--steps", "128")
    assert not equal(other["agent"], trained(tmp_path / "rough", *words, "--steps", "128")["agent"])
    again = ["train", *words[:-2], *WORDS, "--run-dir", str(tmp_path / "parts"), "--resume"]
    assert main([*again, "--steps", "512"]) == 2  # another precision is another run
    assert "precision differ" in capsys.readouterr().err


@pytest.mark.slow
def test_a_compiled_run_says_so_and_resumes(tmp_path, capsys):
    """Losses are those of a run that is not compiled, to rounding."""
    words = ["ToyKeyDoor-v0", "--method", "rnd+sm"]
    plain = trained(tmp_path / "plain", *words, "--steps", "256")
    trained(tmp_path / "fast", *words, "--steps", "128", "--compile")
    assert "Compiling PPO's loss and the bonus's losses" in capsys.readouterr().out
    fast = trained(tmp_path / "fast", *words, "--steps", "256", "--compile", "--resume")
    for name, weight in plain["agent"]["policy"].items():
        torch.testing.assert_close(fast["agent"]["policy"][name], weight, rtol=1e-3, atol=1e-4)
    refused = ["train", "ToyKeyDoor-v0", "--method", "disagreement", "--compile", *WORDS]
    assert main([*refused, "--run-dir", str(tmp_path / "no")]) == 2
    assert "--compile cannot compile the bonus's losses" in capsys.readouterr().err


def test_nothing_to_compile_is_said(tmp_path, capsys):
    words = ["train", "ToyKeyDoor-v0", "--agent", "dqn", "--method", "none", "--compile"]
    assert main([*words, *WORDS, "--run-dir", str(tmp_path / "run")]) == 2
    assert "nothing to compile" in capsys.readouterr().err
