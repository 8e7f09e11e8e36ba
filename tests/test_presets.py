"""The paper's tables as presets, and what leaving the task's reward out means."""

import dataclasses

import fakes
import pytest
import torch
from gymnasium import spaces

from surprise_memory.agents.ppo import PPO, PPOConfig
from surprise_memory.bonus import Bonus
from surprise_memory.envs import make_vec
from surprise_memory.memory.episodic import attend
from surprise_memory.training import loop
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir
from surprise_memory.training.seeds import eval_seed


@pytest.mark.parametrize(
    ("env", "envs", "minibatches", "clip", "steps", "ext_coef"),
    [
        ("MiniGrid-DoorKey-16x16-v0", 64, 64, 0.2, 10_000_000, 2),
        ("NoisyTV/MiniWorld-MazeS3Fast-v0", 64, 64, 0.1, 4_000_000, 2),
        ("MiniWorld-FourRooms-v0", 64, 64, 0.1, 100_000_000, 0),
        ("MontezumaRevenge", 128, 4, 0.1, 12_500_000, 2),
    ],
)
def test_the_papers_tables(env, envs, minibatches, clip, steps, ext_coef):
    run = PRESETS["paper"](env)
    assert (run.envs, run.rollout, run.steps) == (envs, 128, steps)
    assert (run.ppo.minibatches, run.bonus.minibatches, run.ppo.clip, run.ppo.ext_coef) == (
        minibatches,
        minibatches,
        clip,
        ext_coef,
    )
    assert (run.ppo.lr, run.ppo.lam, run.ppo.gamma_ext, run.ppo.gamma_int, run.ppo.int_coef) == (
        1e-4,
        0.95,
        0.999,
        0.99,
        1,
    )


PAPER_MEMORY = dict(slots=128, width=16, read="cosine", w_hidden=32, w_bias=True, m_coef=1.0)


@pytest.mark.parametrize("env", ["MiniGrid-DoorKey-16x16-v0", "MontezumaRevenge"])
def test_every_other_number_of_the_paper_preset(env):
    """Appendix B: N, d, W's hidden units. Table 3: n = 512. The rest is its public code's."""
    run = PRESETS["paper"](env)
    memory = dataclasses.asdict(run.bonus.memory)
    assert {name: memory[name] for name in PAPER_MEMORY} == PAPER_MEMORY
    assert memory["loss"] == run.bonus.loss == "norm"
    assert (run.bonus.rnd.n, run.bonus.icm.n, run.bonus.ae.n, run.bonus.rnd.hidden) == (512,) * 4
    assert (run.bonus.disagreement.features, run.bonus.icm.hidden) == (512, 512)
    assert (run.bonus.lr, run.bonus.memory_lr, run.bonus.gamma, run.bonus.power) == (
        1e-4,
        1e-4,
        0.99,
        1,
    )
    assert (run.bonus.epochs, run.bonus.proportion, run.bonus.scale_momentum) == (4, 0.25, None)
    ppo = run.ppo
    assert (ppo.entropy, ppo.epochs, ppo.value_coef, ppo.hidden) == (0.001, 4, 0.5, 256)
    assert (ppo.reward_clip, ppo.max_grad_norm) == (1.0, 0.0)
    assert not (ppo.normalise_advantage or ppo.bootstrap_time_limits)
    assert (ppo.end_discount, ppo.fade, ppo.random_actions) == (1, 0, 0)
    assert run.method == "rnd+sm" and run.eval_episodes == 128
    assert run.warmup_rollouts == (50 if env == "MontezumaRevenge" else 5)


def test_evaluation_and_training_never_share_a_layout(monkeypatch, tmp_path):
    """Evaluation i of 128 in run s has seed 2^31 + 128 s + i; training is below 2^31."""
    assert [eval_seed(s) for s in (0, 1, 2**23)] == [2**31, 2**31 + 128, 2**31]
    seeds = []

    def recording(env_id, num_envs, seed, *more, **named):
        seeds.append(seed)
        return make_vec(env_id, num_envs, seed, *more, **named)

    monkeypatch.setattr(loop, "make_vec", recording)
    run = dataclasses.replace(PRESETS["debug"]("ToyKeyDoor-v0"), steps=65, seed=3, eval_episodes=4)
    out = RunDir(tmp_path)
    out.open(dataclasses.asdict(run), resume=False)
    loop.train(run, out)
    assert seeds == [3 * run.envs, 2**31 + 3 * 128]


def test_the_paper_presets_gradients_are_algorithm_1s():
    """L_M's target is detached and its query is not; L_W reaches Q and V, never the generator."""
    memory = PRESETS["paper"]("MiniGrid-DoorKey-16x16-v0").bonus.memory
    assert memory.m_trains_surprise and memory.attach_read and memory.train_q
    assert memory.project_back
    assert not PRESETS["default"]("MiniGrid-DoorKey-16x16-v0").bonus.memory.m_trains_surprise


def test_released_code_weighs_l_m_against_l_sg_as_means_of_squares():
    """Its loss for the generator is mse(u) + 0.01 mse(read - query): ours is 512 times that."""
    config = PRESETS["released-code"]("ToyKeyDoor-v0").bonus
    bonus = Bonus("rnd+sm", (7,), 2, config)
    chunk = fakes.chunk_of(torch.randn(9, 2, 7, generator=torch.Generator().manual_seed(0)))
    _, trace, _ = bonus(chunk, bonus.start())
    rows = torch.arange(4, 18)
    losses = bonus.losses(trace, rows)
    weights = list(bonus.model.surprise.predictor.parameters())
    got = torch.autograd.grad(losses["surprise"] + losses["m"], weights, retain_graph=True)
    x = bonus.model.obs_norm(chunk.next_obs).flatten(0, 1)[rows]
    u = bonus.model.surprise.predictor(x) - bonus.model.surprise.target(x)
    k = u @ bonus.model.memory.m.Q
    M, used = trace.log.windows(rows)
    read = attend(k, M, used, "softmax")
    loss = u.square().mean() + 0.01 * (read - k.detach()).square().mean()
    alone = torch.autograd.grad(losses["surprise"], weights, retain_graph=True, allow_unused=True)
    for mine, theirs, only in zip(got, torch.autograd.grad(loss, weights), alone, strict=True):
        torch.testing.assert_close(mine, 512 * theirs, rtol=1e-3, atol=1e-4)
        assert only is None or not torch.allclose(mine, only, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("ext_coef", "reaches"), [(0.0, False), (2.0, True)])
def test_without_its_weight_the_tasks_reward_never_reaches_the_agent(ext_coef, reaches):
    def weights_after(task_reward):
        torch.manual_seed(0)
        agent = PPO(
            (3,),
            spaces.Discrete(2),
            PPOConfig(hidden=8, minibatches=2, epochs=2, ext_coef=ext_coef),
            True,
        )
        chunk = fakes.chunk_of(torch.randn(6, 4, 3))
        for t in range(6):
            action, extras, _ = agent.act(chunk.obs[t], chunk.first[t], {}, "explore")
            chunk.action[t] = action
            for name, note in extras.items():
                chunk.extras.setdefault(name, torch.zeros(6, 4))[t] = note
        chunk.terminated[2] = True
        chunk.reward[:] = task_reward * torch.rand(6, 4)
        agent.update(chunk, torch.rand(6, 4))
        return torch.cat([p.flatten() for p in agent.policy.parameters()]).detach()

    assert torch.equal(weights_after(0.0), weights_after(5.0)) != reaches
