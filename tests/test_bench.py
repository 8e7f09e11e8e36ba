"""The benchmark at tiny size: its structure and its arithmetic, on a machine of any speed."""

import dataclasses
import json
import math
import time

import fakes  # noqa: F401 (registers Picture-v0)
import pytest
import torch
from torch import nn

from surprise_memory.agents import DQN, PPO
from surprise_memory.agents.replay import Replay
from surprise_memory.bonus import ReplayTrainer, RolloutTrainer
from surprise_memory.bonus.methods import backbone, methods
from surprise_memory.cli import main
from surprise_memory.envs import TOY, VecEnv
from surprise_memory.envs.toy import Toy
from surprise_memory.errors import UserError
from surprise_memory.memory.episodic import KeyLog
from surprise_memory.nn import returns
from surprise_memory.tools import bench
from surprise_memory.tools.bench import (
    matmul_floor,
    offpolicy,
    peers,
    plain_loop,
    summary,
    timing,
)
from surprise_memory.tools.bench.timing import PARTS
from surprise_memory.training.loop import build
from surprise_memory.training.presets import PRESETS


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def result(told):
    return bench.bench(
        PRESETS["debug"](TOY),
        rollouts=2,
        on_progress=lambda what, share: told.append((what, share)),
    )


def jobs_of(method, preset="debug"):
    run = PRESETS[preset](TOY)
    run = dataclasses.replace(run, method=method)
    _, agent, bonus = build(run)
    return matmul_floor.jobs(run, agent.policy, bonus)


def test_the_result_is_plain_json(result):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert (result["env"], result["preset"], result["rollouts"], result["threads"]) == (
        TOY,
        "debug",
        2,
        1,
    )
    assert (result["clock"], result["envs"], result["rollout"]) == ("CPU", 4, 16)
    assert result["agent_updates"] == [2, 32]  # 1 epoch of 2 minibatches, 4 x 16 / 2 rows each
    assert result["bonus_updates"] == [2, 8]  # a quarter of the 64 rows in 2 minibatches


def test_every_method_is_measured_in_all_its_parts(result):
    assert list(result["methods"]) == ["none", "rnd", "rnd+sm"]
    for name, method in result["methods"].items():
        assert list(method["seconds"]) == ["env", "act", "bonus ask", "bonus learn", "agent learn"]
        assert all(seconds >= 0 for seconds in method["seconds"].values())
        assert name != "none" or method["seconds"]["bonus ask"] == 0
        assert method["matmul_seconds"] > 0 and method["matmul_ratio"] > 0
        assert 0 <= method["env_share"] <= 1
        assert math.isclose(method["steps_per_second"] * method["total_seconds"], 64)
    low, high = result["sm_cost_range"]
    assert low <= result["sm_cost"] <= high


def test_progress_is_told_in_turns(told, result):
    assert [what for what, _ in told] == ["none", "rnd", "rnd+sm"] * 2  # the methods take turns
    assert [share for _, share in told] == pytest.approx([i / 6 for i in range(6)])


def test_bytes_of_the_key_log_by_hand(result):
    # debug: T 16, B 4, N 12, d 4. The log is 28 x 4 x 4 floats, `filled` and `written` are 16 x 4
    # int64, and a snapshot is 4 x 12 x 4 floats.
    assert result["memory"] == {
        "key_log_bytes": 1792 + 2 * 512,
        "snapshot_bytes": 16 * 768,
        "share": 2816 / 12288,
    }
    # The paper's setting: T 128, B 64, N 128, d 16; a MiB and 128 KiB against 64 MiB.
    counts = torch.zeros(128, 64, dtype=torch.int64)
    paper = summary.memory_bytes(KeyLog(torch.zeros(256, 64, 16), counts, counts))
    assert paper == {
        "key_log_bytes": 1_179_648,
        "snapshot_bytes": 67_108_864,
        "share": 1_179_648 / 67_108_864,
    }
    assert paper["share"] < 0.02


def test_multiplications_by_hand():
    # Toy: 13 numbers, 4 actions, hidden 16. Policy 13-16-16-16, heads 4 and 2.
    first, rest = 13 * 16, 16 * 16 + 16 * 16 + 16 * 4 + 16 * 2
    acting, learning = 17 * 4 * (first + rest), 2 * 32 * (2 * first + 3 * rest)
    assert [job.multiply_adds for job in jobs_of("none")] == [acting, learning]
    # RND 13-16-16-8, twice; 64 rows are asked about, 2 updates of 8 rows.
    first, rest = 13 * 16, 16 * 16 + 16 * 8
    asking, learning = 64 * 2 * (first + rest), 2 * 8 * (2 * first + 3 * rest)
    assert [job.multiply_adds for job in jobs_of("rnd")[2:]] == [asking, 0, learning]
    # Q 8-4 (no gradient to u), V 4-8, W 16-8-16 (its input holds u^e, which learns).
    Q, V, W = 8 * 4, 4 * 8, 16 * 8 + 8 * 16
    assert [job.multiply_adds for job in jobs_of("rnd+sm")[2:]] == [
        asking,
        64 * (Q + V + W),
        learning + 16 * (2 * Q + 3 * V + 3 * W),
    ]


@pytest.mark.parametrize("method", ["ngu", "rnd+expect", "rnd+counts", "icm"])
def test_methods_with_other_networks_have_no_floor(method):
    assert jobs_of(method) == []


def test_what_is_not_trained_is_not_counted():
    # The authors' code: Q stays random, there is no V, and nothing flows from W into the read-out.
    q, *w = matmul_floor.memory_layers(
        build(dataclasses.replace(PRESETS["released-code"](TOY), method="rnd+sm"))[2].model.memory
    )
    assert q == matmul_floor.Layer(512, 16, False, True)
    assert w == [matmul_floor.Layer(528, 32, True, False), matmul_floor.Layer(32, 528, True, True)]


def test_multiplications_have_the_shapes_of_training():
    layers = matmul_floor.layers(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    shapes = [
        (tuple(a.shape), tuple(b.shape), tuple(out.shape))
        for a, b, out in matmul_floor.matmuls(matmul_floor.Job(1, 7, layers, True))
    ]
    forward = [((7, 3), (3, 5), (7, 5)), ((7, 5), (5, 2), (7, 2))]
    assert shapes[:2] == forward
    assert shapes[2:] == [
        ((7, 2), (2, 5), (7, 5)),
        ((2, 7), (7, 5), (2, 5)),
        ((5, 7), (7, 3), (5, 3)),
    ]
    assert len(matmul_floor.matmuls(matmul_floor.Job(1, 7, layers, False))) == 2


def test_the_tables_print(result):
    console = pytest.importorskip("rich.console").Console(record=True, width=200)
    bench.print_bench(result, console)
    text = console.export_text()
    for word in (
        TOY,
        "none",
        "rnd+sm",
        "bonus learn",
        "bare multiplications",
        "cost of SM over RND",
        "2,816 of 12,288 bytes",
    ):
        assert word in text
    assert "≤" not in text  # the reach is for the paper's setting
    bench.print_bench(result | {"preset": "paper"}, console)
    assert "≤ 12 %" in console.export_text()


def test_refuses(capsys):
    with pytest.raises(UserError, match="rollouts = 0"):
        bench.bench(PRESETS["debug"](TOY), rollouts=0)
    for words, says in (
        (["--threads", "0"], "threads = 0"),
        (["--envs", "-1"], "envs = -1"),
        (["--envs", "0"], "envs = 0"),
        (["--rollouts", "0"], "rollouts = 0"),
        (["--agent", "dqn", "--peers"], "--agent dqn and --peers are different measurements"),
        (["--agent", "dqn", "--bf16"], "--agent dqn and --bf16 are different measurements"),
        (["--agent", "dqn", "--all"], "--agent dqn and --all are different measurements"),
        (["--peers", "--all"], "--peers and --all are different measurements"),
    ):
        assert main(["bench", "--env", TOY, "--preset", "debug", *words]) == 2
        assert says in capsys.readouterr().err


def test_all_methods_and_sizes_are_compared_with_plain_ppo_and_with_their_generator():
    seconds = {
        "none": [1.0, 2.0],
        "rnd": [3.0, 4.0],
        "rnd+sm": [6.0, 6.0],
        "rnd+sm 1024-64": [9.0, 8.0],
    }
    run = PRESETS["debug"](TOY)  # 64 steps a rollout
    parts = {
        name: [dict.fromkeys(PARTS, x / len(PARTS)) for x in them] for name, them in seconds.items()
    }
    found = summary.relative(run, parts)
    assert found["none"] == pytest.approx({"steps_per_second": 64 / 1.5, "over_none": 1})
    assert found["rnd+sm"] == pytest.approx(
        {"steps_per_second": 64 / 6, "over_none": 4.5, "over_generator": 1.75}
    )
    assert found["rnd+sm 1024-64"]["over_generator"] == pytest.approx(2.5)


def test_bench_all_measures_every_method():
    console = pytest.importorskip("rich.console").Console(record=True, width=200)
    result = bench.bench_all(PRESETS["debug"](TOY), rollouts=1)
    assert list(result["methods"]) == [
        *(m for m in methods() if backbone(m) == "ppo"),
        "rnd+sm 32-4",
        "rnd+sm 128-16",
        "rnd+sm 1024-64",
    ]
    assert result["key_log_bytes"]["rnd+sm 1024-64"] == (1024 + 16) * 4 * 64 * 4 + 2 * 16 * 4 * 8
    assert set(result["key_log_bytes"]) == {
        m for m in result["methods"] if m.partition(" ")[0].endswith(("+sm", "+m"))
    }
    bench.print_all(result, console)
    text = console.export_text()
    for word in ("disagreement", "ngu+counts", "1024-64", "time / none"):
        assert word in text


class Ticks:
    """A clock that moves only inside the methods that were slowed down."""

    now = 0.0

    def __call__(self):
        return self.now

    def slow_down(self, monkeypatch, kind, method, seconds):
        inner = getattr(kind, method)

        def slow(*args, **words):
            self.now += seconds
            return inner(*args, **words)

        monkeypatch.setattr(kind, method, slow)


def test_every_second_of_ppo_is_charged_to_its_part(monkeypatch):
    clock = Ticks()
    for kind, method, seconds in (
        (Toy, "step", 1),
        (PPO, "act", 10),
        (RolloutTrainer, "forward", 100),
        (RolloutTrainer, "_train", 1_000),
        (PPO, "update", 10_000),
        (PPO, "learn", 100_000),
    ):
        clock.slow_down(monkeypatch, kind, method, seconds)
    timed = timing.TimedPPO(PRESETS["debug"](TOY), clock)  # rollouts of 16 steps, rnd+sm
    timed.lap()  # the first one asks twice
    began = clock()
    lap = timed.lap()
    assert {part: lap[part] for part in PARTS} == {
        "env": 16,
        "act": 160,
        "bonus ask": 100,
        "bonus learn": 101_000,  # and what neither of the two does
        "agent learn": 10_000,
    }
    assert sum(lap[part] for part in PARTS) == clock() - began
    assert lap["matmul"] == 0 and timed.clock_name == "wall"


def test_without_a_bonus_all_learning_is_the_agents(monkeypatch):
    clock = Ticks()
    clock.slow_down(monkeypatch, PPO, "update", 10)
    clock.slow_down(monkeypatch, PPO, "learn", 100)
    timed = timing.TimedPPO(dataclasses.replace(PRESETS["debug"](TOY), method="none"), clock)
    lap = timed.lap()
    assert (lap["bonus ask"], lap["bonus learn"], lap["agent learn"]) == (0, 0, 110)


def test_every_second_of_the_recurrent_dqn_is_charged_to_its_part(monkeypatch):
    clock = Ticks()
    for kind, method, seconds in (
        (Toy, "step", 1),
        (DQN, "act", 10),
        (ReplayTrainer, "forward", 100),
        (Replay, "add", 16_000),
        (ReplayTrainer, "update_stats", 32),
        (Replay, "sample", 5),
        (Replay, "pairs", 7),
        (ReplayTrainer, "train_on", 2_000),
        (ReplayTrainer, "update_encoder", 3_000),
        (DQN, "update_on", 40_000),
        (DQN, "update_once", 500_000),
    ):
        clock.slow_down(monkeypatch, kind, method, seconds)
    run = dataclasses.replace(PRESETS["debug"](TOY), method="lwm+sm", agent="dqn")
    assert (run.dqn.unroll, run.dqn.updates) == (16, 0.25)
    timed = offpolicy.TimedDQN(run, clock)
    timed.lap()
    began = clock()
    lap = timed.lap()
    # Per vector step: a sixteenth of what a block takes, a quarter of what an update takes.
    assert lap == {
        "env": 1,
        "act": 10,
        "bonus: while acting": 100,
        "replay: storing": 1_000,
        "replay: drawing": 12 / 4,
        "bonus: learning": 32 / 16 + (2_000 + 100 + 3_000) / 4,
        "agent: learning": (40_000 + 500_000) / 4,
    }
    assert list(lap) == list(offpolicy.PARTS)
    block = 16 * (1 + 10 + 100) + 16_000 + 32
    updates = offpolicy.UPDATES * (12 + 5_100 + 540_000)
    assert clock() - began == block + updates
    assert sum(lap.values()) == block / 16 + updates / offpolicy.UPDATES / 4


@pytest.mark.parametrize(
    ("threads", "in_processes", "clock"),
    [
        (1, False, time.process_time),
        (2, False, time.perf_counter),
        (1, True, time.perf_counter),
    ],
)
def test_cpu_time_counts_only_where_one_thread_of_one_process_does_it_all(
    threads, in_processes, clock
):
    env = VecEnv()
    env.in_processes = in_processes
    assert timing.clock_for(env, threads) is clock


def test_the_recurrent_dqn_is_measured_part_by_part():
    result = bench.bench_dqn(PRESETS["debug"](TOY), rollouts=1)
    assert (
        list(result["methods"]) == ["none", "lwm", "lwm+sm"]
        and json.loads(json.dumps(result)) == result
    )
    for name, method in result["methods"].items():
        assert all(ms >= 0 for ms in method["ms"].values())
        assert (method["ms"]["bonus: while acting"] == 0) == (name == "none")
        assert math.isclose(
            method["steps_per_second"], 4e3 / sum(method["ms"].values()), rel_tol=1e-6
        )
    assert result["batch"] == [4, 4 + 16 + 3]
    # 13 floats; action and reward, and both of the step before (8 + 4 + 8 + 4 bytes); 4 flags;
    # 16 floats of state per 16 steps: 52 + 24 + 4 + 4.
    assert result["replay_bytes"] == 84 * 2_000


# --- peers ---------------------------------------------------------------------------------------


def test_peers_take_turns_with_ours_and_are_compared_with_what_does_the_same():
    console = pytest.importorskip("rich.console").Console(record=True, width=200)
    result = bench.bench_peers(PRESETS["debug"](TOY), rollouts=1)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    names = ["none", "rnd", "rnd+sm", "rnd+sm+trust+recognise", "plain loop", "plain loop with RND"]
    assert [name for name in result["peers"] if name != peers.SB3] == names
    assert (peers.SB3 in result["peers"]) == (peers.SB3 not in result["missing"])
    for name in ("none", "rnd", "rnd+sm"):
        assert result["peers"][name]["over_ours"] == 1
    bench.print_peers(result, console)
    text = console.export_text()
    assert "plain loop with RND" in text
    assert "time / ours" in text
    with pytest.raises(UserError, match="Picture-v0 shows images"):
        bench.bench_peers(PRESETS["debug"]("Picture-v0"), rollouts=1)


def test_the_plain_loop_has_our_advantages_and_learns():
    """Its GAE against ours; and its policy moves, RND's predictor with it, the target not."""
    torch.manual_seed(0)
    reward, value = torch.randn(2, 7, 3)
    ends = torch.rand(7, 3) < 0.3
    last, never = torch.randn(3), torch.zeros(3)
    done = torch.cat([never[None], ends.float()])
    wanted = returns.gae(reward, value, last, ends, torch.ones_like(ends), 0.9, 0.8)
    torch.testing.assert_close(plain_loop.gae(reward, value, last, done, 0.9, 0.8), wanted)
    loop = plain_loop.PlainLoop(PRESETS["debug"](TOY), time.process_time, with_rnd=True)
    before = {name: x.clone() for name, x in loop.rnd.state_dict().items()}
    policy = [x.clone() for x in loop.policy.parameters()]
    assert loop.lap()["whole"] > 0
    assert not any(torch.equal(a, b) for a, b in zip(policy, loop.policy.parameters(), strict=True))
    for name, x in loop.rnd.state_dict().items():
        assert torch.equal(x, before[name]) == name.startswith("target"), name


def test_bfloat16_is_compared_with_float32():
    console = pytest.importorskip("rich.console").Console(record=True, width=200)
    result = bench.bench_bf16(PRESETS["debug"](TOY), rollouts=1)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert list(result["methods"]) == ["rnd", "rnd bf16", "rnd+sm", "rnd+sm bf16"]
    assert list(result["sm_cost"]) == ["rnd+sm", "rnd+sm bf16"]
    assert result["methods"]["rnd"]["over_float32"] == 1
    assert result["methods"]["rnd bf16"]["over_float32"] != 1
    bench.print_bf16(result, console)
    assert "rnd+sm bf16" in console.export_text()
