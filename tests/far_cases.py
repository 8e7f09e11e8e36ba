"""Everything that ships, on a device that is not the CPU: exactly the CPU's numbers.

`test_far_device.py` runs this file in a process of its own.
"""

import copy
import json
from dataclasses import replace

import fakes
import far_device
import numpy as np
import pytest
import torch
from far_device import FarMode, counting
from gymnasium import spaces
from torch.utils._python_dispatch import _disable_current_modes

from surprise_memory import Bonus, torch_files
from surprise_memory.bonus.check.promises import equal
from surprise_memory.memory import MEMORIES
from surprise_memory.nn import devices
from surprise_memory.stages import STAGES
from surprise_memory.surprise import SURPRISES
from surprise_memory.training.loop import train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.rundir import RunDir
from surprise_memory.types import moved

T, B = 4, 3
VECTOR, IMAGE = (5,), (3, 12, 10)
DISCRETE, BOX = spaces.Discrete(4, start=1), spaces.Box(-2.0, 3.0, (2,), np.float32)
CONFIG = PRESETS["debug"]("ToyKeyDoor-v0").bonus
CONFIG = replace(CONFIG, recognise=replace(CONFIG.recognise, reservoir=16))


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """The device is there, and a bonus pays after its second update."""
    monkeypatch.setattr("surprise_memory.nn.reward_scale.LEVEL_STEPS", 1)
    with FarMode():
        yield


@pytest.fixture
def lacks_float64(monkeypatch):
    """As Apple's GPUs."""
    monkeypatch.setattr(devices, "WITHOUT_FLOAT64", {"far"})
    far_device.LACKS_FLOAT64[0] = True
    yield
    far_device.LACKS_FLOAT64[0] = False


# --- a bonus step by step -------------------------------------------------------------------------


def experience(shape, space, steps, seed=0):
    """(obs, action, next_obs, done, valid) of some vector steps, as arrays; few distinct states."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(9, *shape)).astype(np.float32)
    if len(shape) == 3:
        states = rng.integers(0, 256, size=(9, *shape)).astype(np.uint8)
    space.seed(seed)
    ended = np.zeros(B, bool)
    found = []
    for _ in range(steps):
        valid = ~ended
        ended = (rng.random(B) < 0.2) & valid
        actions = np.stack([space.sample() for _ in range(B)])
        before, after = rng.integers(0, 9, size=(2, B))
        found.append((states[before], actions, states[after], ended, valid))
    return found


def lived(bonus, steps, rollouts):
    """The rewards and metrics of a bonus that lives through some steps."""
    rewards, metrics = [], []
    for start in range(0, len(steps), len(steps) // rollouts):
        for row in steps[start : start + len(steps) // rollouts]:
            rewards.append(bonus.step(*row))
        metrics.append(bonus.update())
    return rewards, metrics


def same(method, shape, space, rollouts=3):
    """Compare a bonus on both devices, to the last bit."""
    steps = experience(shape, space, T * rollouts)
    near = Bonus(method, shape, B, CONFIG, 3, space)
    there = Bonus(method, shape, B, CONFIG, 3, space, device="far")
    with _disable_current_modes():  # only faster
        rewards, metrics = lived(near, steps, rollouts)
    far_rewards, far_metrics = lived(there, steps, rollouts)
    assert {x.device.type for x in far_rewards} == {"far"}
    assert torch.equal(torch.stack(far_rewards).cpu(), torch.stack(rewards))
    assert far_metrics == metrics
    assert equal(moved(there.state_dict(), "cpu"), near.state_dict())
    if method != "none" and rollouts > 2:  # it pays from the third on
        assert any(reward.any() for reward in rewards)
    return near, there


def methods():
    """Every generator with every memory, and every stage with every generator."""
    found = ["none"]
    for name, entry in SURPRISES.items():
        memories = MEMORIES if entry.takes_memory else {"": None}
        found += [f"{name}+{memory}".rstrip("+") for memory in memories]
        best = f"{name}+sm" if entry.takes_memory else name
        for stage in STAGES:
            asks = stage in ("gain", "gate", "trust") and not entry.takes_memory
            if stage not in entry.stages and not asks:
                found.append(f"{best}+{stage}")
    return found


@pytest.mark.parametrize("method", methods())
def test_vectors(method):
    same(method, VECTOR, DISCRETE)


@pytest.mark.parametrize("method", [*SURPRISES, "rnd+sm", "rnd+sm+expect+gate+trust+recognise"])
def test_images(method):
    same(method, IMAGE, DISCRETE, 2)


@pytest.mark.parametrize("method", ["icm+sm", "ngu", "disagreement", "lwm", "rnd+sm+expect"])
def test_box_actions(method):
    same(method, VECTOR, BOX, 2)


@pytest.mark.parametrize("method", ["rnd+sm", "rnd+counts", "ngu+sm", "rnd+sm+trust+recognise"])
def test_a_device_without_float64(method, lacks_float64):
    same(method, VECTOR, DISCRETE)


def test_observations_far_from_zero():
    """Where whitening needs float64."""
    for lacks in (set(), {"far"}):
        devices.WITHOUT_FLOAT64 = lacks
        near = Bonus("rnd+sm", VECTOR, B, CONFIG)
        there = Bonus("rnd+sm", VECTOR, B, CONFIG, device="far")
        steps = [
            (x + 1e6, a, y + 1e6, *ends) for x, a, y, *ends in experience(VECTOR, DISCRETE, 2 * T)
        ]
        assert lived(near, steps, 2)[1] == lived(there, steps, 2)[1]
    devices.WITHOUT_FLOAT64 = {"mps"}


# --- moving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ngu+counts", "lwm+sm+recognise"])
@pytest.mark.parametrize("way", ["state_dict", "to"])
@pytest.mark.parametrize("first", ["cpu", "far"])
def test_a_bonus_moves_in_the_midst_of_a_rollout(method, way, first):
    second = {"cpu": "far", "far": "cpu"}[first]
    steps = experience(VECTOR, DISCRETE, 4 * T)
    stays, moves = (
        Bonus(method, VECTOR, B, CONFIG, 3, DISCRETE, device=name) for name in ("cpu", first)
    )
    for bonus in (stays, moves):
        lived(bonus, steps[: 2 * T], 2)
        for row in steps[2 * T : 3 * T]:
            bonus.step(*row)
    if way == "to":
        moves = moves.to(second)
    else:
        state = copy.deepcopy(moves.state_dict())
        moves = Bonus(method, VECTOR, B, CONFIG, 4, DISCRETE, device=second)
        moves.load_state_dict(state)
    assert moves.device.type == second
    assert stays.update() == moves.update()
    rewards, metrics = lived(stays, steps[3 * T :], 1)
    found, found_metrics = lived(moves, steps[3 * T :], 1)
    assert found_metrics == metrics
    assert torch.equal(torch.stack(found).cpu(), torch.stack(rewards))
    assert equal(moved(moves.state_dict(), "cpu"), stays.state_dict())


def test_a_chunk_from_the_host_is_paid_and_learnt_from():
    steps = experience(VECTOR, DISCRETE, T)
    near, there = (
        Bonus("icm+sm", VECTOR, B, CONFIG, 3, DISCRETE, device=name) for name in ("cpu", "far")
    )
    for row in steps:
        near.step(*row)
    chunk = near.steps.chunk()
    reward, metrics, _ = near.train_on(chunk, near.start())
    far_reward, far_metrics, _ = there.train_on(chunk, there.start())
    assert far_metrics == metrics and torch.equal(far_reward.cpu(), reward)


def test_a_saved_file_knows_no_device(tmp_path):
    bonus = Bonus("rnd+sm", VECTOR, B, CONFIG, device="far")
    torch_files.save(bonus.state_dict(), tmp_path / "bonus.pt")
    other = Bonus("rnd+sm", VECTOR, B, CONFIG, seed=5)
    other.load_state_dict(torch_files.load(tmp_path / "bonus.pt"))
    assert equal(other.state_dict(), moved(bonus.state_dict(), "cpu"))


# --- what the host waits for ----------------------------------------------------------------------

# One is the check that the reward is a number. The others depend on numbers by their nature: the
# longest episode, which successors are not the next row's.
STEP_READS = {
    "rnd": 1, "rnd+sm": 1, "rnd+counts": 1, "icm+sm": 1, "ae+w": 1, "disagreement": 1,
    "rnd+sm+expect": 1, "rnd+sm+gate": 1, "rnd+sm+trust": 1, "ngu": 2, "ngu+sm": 2,
    "rnd+sm+recognise": 1, "lwm+sm": 3,
}  # fmt: skip
INPUTS = 4  # that are checked where they are: obs, next_obs, done, and actions or valid


@pytest.mark.parametrize(("method", "bound"), STEP_READS.items())
def test_what_a_step_makes_the_host_wait_for(method, bound):
    bonus = Bonus(method, VECTOR, B, CONFIG, 3, DISCRETE, device="far")
    steps = experience(VECTOR, DISCRETE, 3 * T)
    lived(bonus, steps[: 2 * T], 2)
    for row in steps[2 * T :]:
        with counting() as reads:
            bonus.step(*row)
        assert len(reads) <= bound, reads
    there = [torch.as_tensor(x).to("far") for x in steps[0][:4]]
    with counting() as reads:
        bonus.step(*there)
    assert len(reads) <= bound + INPUTS, reads


def test_a_stray_is_refused_and_a_read_is_seen():
    """The device itself: otherwise all of the above would show nothing."""
    x = torch.zeros(2, 3, device="far")
    for stray in (torch.zeros(3), torch.tensor(1.0)):
        with pytest.raises(RuntimeError, match="CPU tensor"):
            x + stray
    with pytest.raises(RuntimeError, match="CPU tensor"):
        x[torch.tensor([0, 1])]
    for read in (
        lambda: x.sum().item(),
        lambda: x.cpu(),
        lambda: bool(x.any()),
        lambda: x[x == 0],
        lambda: x.nonzero(),
        lambda: x.tolist(),
        lambda: torch.zeros(2, 3).copy_(x),
    ):
        with counting() as reads:
            read()
        assert len(reads) >= 1


# --- whole runs -----------------------------------------------------------------------------------


def run_of(env, agent, method, device, steps=64):
    run = PRESETS["debug"](env)
    dqn = replace(run.dqn, unroll=8, burn_in=2, n_step=2)
    run = replace(run, envs=2, rollout=8, dqn=dqn)
    run = replace(run, eval_episodes=2, eval_steps=8, bonus=CONFIG)
    return replace(run, method=method, agent=agent, device=device, steps=steps)


def trained(run, path):
    """Train; the rows of metrics, the evaluation and the checkpoint."""
    out = RunDir(path)
    out.path.mkdir(exist_ok=True)
    if run.device == "cpu":
        with _disable_current_modes():  # only faster
            train(run, out)
    else:
        train(run, out)
    rows = [row | {"charts/SPS": 0} for row in out.rows()]
    evaluation = json.loads(out.eval.read_text()) if run.eval_episodes else None
    return rows, evaluation, torch_files.load(out.checkpoint)


RUNS = {
    "ppo vector": ("ToyKeyDoor-v0", "ppo", "rnd+sm"),
    "ppo none": ("ToyKeyDoor-v0", "ppo", "none"),
    "ppo noisy tv": ("NoisyTV/ToyKeyDoor-v0", "ppo", "icm+sm+expect"),
    "ppo image": ("Picture-v0", "ppo", "ngu+sm"),
    "ppo box": ("Pendulum-v1", "ppo", "icm+sm"),
    "dqn vector": ("ToyKeyDoor-v0", "dqn", "lwm+sm"),
    "dqn none": ("ToyKeyDoor-v0", "dqn", "none"),
    "dqn image": ("Picture-v0", "dqn", "rnd+sm+recognise"),
    "dqn image, pairs": ("Picture-v0", "dqn", "lwm+counts"),
    "random": ("ToyKeyDoor-v0", "random", "rnd+sm"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run(name, tmp_path):
    env, agent, method = RUNS[name]
    near = trained(run_of(env, agent, method, "cpu"), tmp_path / "cpu")
    there = trained(run_of(env, agent, method, "far"), tmp_path / "far")
    assert there[0] == near[0] and len(near[0])
    assert agent == "random" or any(name.startswith("losses/") for name in near[0][-1])
    assert there[1] == near[1]
    assert equal(there[2], near[2])


def test_a_run_on_a_device_without_float64(tmp_path, lacks_float64):
    test_a_run("dqn image", tmp_path)


@pytest.mark.parametrize("ways", [("cpu", "far"), ("far", "cpu")])
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_a_run_resumes_on_another_device(agent, ways, tmp_path):
    first, second = ways
    method = {"ppo": "ngu+sm", "dqn": "lwm+sm"}[agent]
    short = replace(run_of("ToyKeyDoor-v0", agent, method, first), eval_episodes=0)
    trained(short, tmp_path / "moves")
    found = trained(replace(short, device=second, steps=96), tmp_path / "moves")
    want = trained(replace(short, device="cpu", steps=96), tmp_path / "stays")
    assert found[0] == want[0]
    assert equal(found[2], want[2])


# --- Stable-Baselines3 ----------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "method"), [("CartPole-v1", "icm+sm"), ("Pendulum-v1", "ngu")])
def test_the_sb3_adapter(env_id, method):
    pytest.importorskip("stable_baselines3", reason="pip install 'surprise-memory[sb3]'")
    from stable_baselines3.common.env_util import make_vec_env

    from surprise_memory.adapters.sb3 import SurpriseVecEnv

    near, there = (
        SurpriseVecEnv(make_vec_env(env_id, 2, seed=1), method, every=8, config=CONFIG, device=name)
        for name in ("cpu", "far")
    )
    for env in (near, there):
        env.reset()
        env.action_space.seed(0)
    for _ in range(20):
        action = np.stack([near.action_space.sample() for _ in range(2)])
        _, reward, _, _ = near.step(action)
        _, far_reward, _, _ = there.step(action)
        assert np.array_equal(reward, far_reward)
    assert near.metrics == there.metrics and near.metrics


def test_the_gymnasium_adapter():
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from surprise_memory.adapters.gymnasium import BonusVectorEnv

    paid = []
    for device in ("cpu", "far"):
        envs = SyncVectorEnv([fakes.Counter] * B, autoreset_mode=AutoresetMode.SAME_STEP)
        envs = BonusVectorEnv(envs, update_every=T, config=CONFIG, device=device)
        envs.reset(seed=0)
        paid.append([envs.step(np.ones(B, np.int64))[1] for _ in range(4 * T)])
        assert str(envs.bonus.device.type) == device
    assert np.array_equal(*paid) and np.any(paid[0])


def test_the_torchrl_adapter():
    pytest.importorskip("torchrl", reason="pip install 'surprise-memory[torchrl]'")
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper, SerialEnv

    from surprise_memory.adapters.torchrl import INTRINSIC, SurpriseModule

    env = SerialEnv(B, lambda: GymWrapper(fakes.Counter()))
    cpu, far = (SurpriseModule(env, "icm+sm", config=CONFIG, device=d) for d in ("cpu", "far"))
    for batch in Collector(env, None, frames_per_batch=T * B, total_frames=4 * T * B):
        paid = [module(batch.clone())[INTRINSIC] for module in (cpu, far)]
        assert torch.equal(*paid)
    assert paid[0].any()


def test_the_rsl_rl_adapter(monkeypatch):
    """rsl_rl's own runner: the environment is on the host, everything else on the far device."""
    pytest.importorskip("rsl_rl", reason="pip install 'surprise-memory[rsl-rl]'")
    from test_adapter_rsl_rl import Walk, make

    # TensorDict waits for a device after it has moved something, and PPO asks for its precisions.
    for name, answer in (("synchronize", None), ("get_amp_supported_dtype", [torch.bfloat16])):
        module = torch.get_device_module("far")
        monkeypatch.setattr(module, name, lambda answer=answer: answer, raising=False)
    # In inference mode, operations come to the far device before they are taken apart.
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.set_grad_enabled(not mode))
    rewards = []
    for device in ("cpu", "far"):
        runner = make(Walk(), {"method": "rnd+sm"}, device=device)
        runner.learn(3)
        rewards.append(runner.alg.storage.rewards.cpu())
        assert runner.alg.bonus.device.type == device
    assert torch.equal(*rewards) and (rewards[0] != 1).any()
