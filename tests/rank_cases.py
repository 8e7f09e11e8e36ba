"""What one rank of two does, for test_ranks.py, which starts both and compares what they save.

The same functions make the reference: one process that has both ranks' environments.
"""

import contextlib
import io
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path

import fakes
import gymnasium as gym
import torch
from gymnasium.spaces import Discrete
from torch import distributed as dist

from surprise_memory import Bonus, BonusConfig, RNDConfig, cli
from surprise_memory.agents import PPO, PPOConfig, ppo
from surprise_memory.bonus import rollout
from surprise_memory.errors import UserError
from surprise_memory.memory import MemoryConfig
from surprise_memory.nn import ranks
from surprise_memory.nn.moments import RunningMoments
from surprise_memory.nn.obs_norm import ObsWhitener
from surprise_memory.nn.reward_scale import RewardScaler
from surprise_memory.training.loop import train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.processes import check_same, share
from surprise_memory.training.rundir import NoRunDir, RunDir

T, MINE, NUMBER = 12, (3, 2), 2  # steps, environments of each rank, minibatches
B = sum(MINE)
ACTIONS = Discrete(3)
METHODS = ("rnd+sm+trust+recognise", "ngu", "icm+m+expect", "rnd+counts")
SMALL = BonusConfig(
    rnd=RNDConfig(n=16, hidden=32),
    memory=MemoryConfig(slots=8, width=4),
    minibatches=NUMBER,
    epochs=2,
    proportion=1.0,
)


def own(rank):
    """The slice of all environments that belongs to a rank; None is all of them."""
    if rank is None:
        return slice(None)
    start = sum(MINE[:rank])
    return slice(start, start + MINE[rank])


def part(chunk, rank):
    """A rank's environments of a chunk."""
    columns = {name: x[:, own(rank)] for name, x in chunk.columns().items()}
    extras = {name: x[:, own(rank)] for name, x in chunk.extras.items()}
    return replace(chunk, **columns, extras=extras)


def rollout_of_all(number, far=0.0):
    """Rollout `number` of all environments; some steps never happened, more of them on rank 1."""
    rng = torch.Generator().manual_seed(number)
    x = torch.randn(T + 1, B, 3, generator=rng) * torch.arange(1, B + 1)[:, None]  # unlike ranks
    x[..., 2] += far
    no = torch.zeros(T, B, dtype=torch.bool)
    valid, first = ~no, no.clone()
    for t, b in ((4, 0), (9, 1), (3, 3), (5, 4), (7, 3), (8, 4)):
        valid[t, b], first[t, b], first[t + 1, b] = False, True, True
    first[0] = number == 0
    chunk = fakes.chunk_of(x[1:], first=first, valid=valid, done=~valid.roll(-1, 0))
    reward = torch.randn(T, B, generator=rng)
    return replace(chunk, obs=x[:-1], reward=reward, action=torch.randint(3, (T, B), generator=rng))


class Orders:
    """In place of `shuffled`: minibatches of one process that are those of both ranks together."""

    def __init__(self, valid, rank):
        self.valid, self.rank, self.calls = valid, rank, 0

    def __call__(self, rows, rng):
        self.calls += 1
        if self.rank is not None:
            return rows[self.order(self.rank, len(rows))]
        parts = []
        for rank in range(2):
            places = torch.arange(T * B).view(T, B)[:, own(rank)].flatten()
            mine = places[self.valid[:, own(rank)].flatten()]
            parts.append(mine[self.order(rank, len(mine))].tensor_split(NUMBER))
        return torch.cat([torch.cat(batch) for batch in zip(*parts, strict=True)])

    def order(self, rank, rows):
        rng = torch.Generator().manual_seed(10 * self.calls + rank)
        return torch.randperm(rows, generator=rng)


# --- what is the same with one process and with two; `rank` None is one ---


def statistics(rank):
    """Merged, with parts of different sizes, one of them empty."""
    found = {}
    for momentum in (None, 0.9):
        moments, whitener = RunningMoments((2,), momentum), ObsWhitener((2,))
        scalers = [RewardScaler(len(range(B)[own(rank)]), 0.9, momentum, f) for f in (True, False)]
        parts = []
        for number in range(4):
            rng = torch.Generator().manual_seed(number)
            x = torch.randn(30, 2, generator=rng) * torch.linspace(1, 9, 30)[:, None] + number
            x[:, 1] += 5000  # far: starts from the first batch
            cut = (20, 0, 7, 30)[number]
            mine = x if rank is None else (x[:cut], x[cut:])[rank]
            moments.update(mine)
            parts.append(mine[:, 0].double())
            whitener.update(mine)
            chunk = part(rollout_of_all(number), rank)
            for scaler in scalers:
                scaler.update(chunk.reward.abs() + number, chunk.valid, warmup=number == 0)
        for i, (size, mean, var) in enumerate(ranks.moments_of_each(parts)):
            found[f"part {i}"] = torch.tensor([size, mean, var], dtype=torch.float64)
        for name, module in {"moments": moments, "whitener": whitener}.items():
            found |= {f"{name} {momentum} {k}": x for k, x in module.state_dict().items()}
        for i, scaler in enumerate(scalers):
            found |= {f"scaler {i} {momentum} {k}": x for k, x in scaler.state_dict().items()}
    return found


def bonus_learns(method, rank):
    """Three rollouts, the first as a warm-up."""
    seed = 5 if rank is None else 5 + rank
    bonus = Bonus(method, (3,), len(range(B)[own(rank)]), SMALL, seed, ACTIONS)
    if rank is not None:
        bonus.synchronise()
    carry = bonus.start()
    reports, paid = [], []
    for number in range(3):
        chunk = rollout_of_all(number, far=5000.0)
        rollout.shuffled = Orders(chunk.valid, rank)
        r_int, report, carry = bonus.train_on(part(chunk, rank), carry, warmup=number == 0)
        reports.append(report)
        paid.append(torch.where(part(chunk, rank).valid, r_int, 0.0))
    return {"state": bonus.state_dict(), "reports": reports, "paid": torch.stack(paid)}


def ppo_learns(rank):
    """Two updates, whose advantages are of another size on each rank."""
    seed = 5 if rank is None else 5 + rank
    agent = PPO((3,), ACTIONS, PPOConfig(hidden=16, minibatches=NUMBER, epochs=2), True, seed)
    if rank is not None:
        agent.synchronise()
    reports = []
    for number in range(2):
        chunk = rollout_of_all(number)
        head, v_ext, v_int = agent.policy(chunk.obs.flatten(0, 1))
        log_prob, _ = agent.policy.log_prob(head, chunk.action.flatten())
        columns = {"log_prob": log_prob, "v_ext": v_ext, "v_int": v_int}
        extras = {name: x.detach().unflatten(0, (T, B)) for name, x in columns.items()}
        chunk = replace(chunk, extras=extras, reward=chunk.reward + 1)  # a task that mostly pays
        chunk = part(chunk, rank)
        ppo.shuffled = Orders(rollout_of_all(number).valid, rank)
        with counted_calls() as calls:
            reports.append(agent.update(chunk, chunk.reward.abs()))
    return {"state": agent.state_dict(), "reports": reports, "calls": calls}


@contextlib.contextmanager
def counted_calls():
    """The names of the calls to the other rank, in their order."""
    names, call = [], ranks._call

    def noted(collective, *args):
        names.append(collective.__name__)
        call(collective, *args)

    ranks._call = noted
    try:
        yield names
    finally:
        ranks._call = call


# --- what only ranks do ---


def refusals(rank):
    """Each of these is said on both ranks, and neither waits for the other."""
    found = {}
    bonus = Bonus("rnd", (3,), 2, SMALL)
    bonus.synchronise()
    for _ in range(3 + rank):
        bonus.step(torch.randn(2, 3), [0, 0], torch.randn(2, 3), [False, False])
    calls = {
        "lengths": bonus.update,
        "same": lambda: check_same({"a": torch.ones(2), "own.rng": torch.tensor(rank)}),
        "other": lambda: check_same({"a": {"b": torch.tensor(rank)}}),
    }
    for name, call in calls.items():
        found[name] = ""
        try:
            with ranks.together():
                call()
        except UserError as error:
            found[name] = str(error)
    return found


def rsl_rl_learns(rank):
    """Its own runner, on gloo instead of nccl."""
    import test_adapter_rsl_rl as adapter
    from rsl_rl.runners import OnPolicyRunner

    def configure(runner):
        runner.gpu_world_size, runner.gpu_global_rank, runner.is_distributed = 2, rank, True
        runner.cfg["multi_gpu"] = {"global_rank": rank, "local_rank": rank, "world_size": 2}

    OnPolicyRunner._configure_multi_gpu = configure
    runner = adapter.make(adapter.Walk(), {"seed": rank, "config": adapter.SMALL})
    before = runner.alg.bonus.state_dict()["model.surprise.target.0.weight"].clone()
    torch.manual_seed(rank)  # other actions on each rank
    with contextlib.redirect_stdout(None):
        runner.learn(3)
    return {"before": before, "state": runner.alg.bonus.state_dict()}


def run_of(path, **options):
    """A short run of the whole loop."""
    run = replace(PRESETS["debug"]("NoisyTV:channels=2/ToyKeyDoor-v0"), envs=5, eval_episodes=2)
    return replace(run, **{"method": "rnd+sm+recognise"} | options), path


class Moody(fakes.Counter):
    """Fails in its 40th step, on rank 1 alone."""

    def step(self, action):
        if self.total == 39 and os.environ["RANK"] == "1":
            raise RuntimeError("the wheel came off")
        return super().step(action)


gym.register("Moody-v0", Moody, disable_env_checker=True)


def stop_rank_0(row):
    """A report that is followed by a signal."""
    if os.environ["RANK"] == "0":
        os.kill(os.getpid(), signal.SIGTERM)


def trains(path, report=None, **options):
    """One run over both ranks, from a checkpoint if there is one; what it knows, or says."""
    try:
        return trained(path, report, **options)
    except (KeyboardInterrupt, UserError) as error:
        return str(error)


def trained(path, report, **options):
    run, path = run_of(path, **options)
    out = RunDir(path)
    if ranks.first():
        out.open({f.name: None for f in fields(run)}, resume=path.exists())
    else:
        out = NoRunDir(path)
    state = train(run, out, report)
    out.close()
    return {"steps": state.steps, "recent": list(state.recent), "envs": share(run.envs).number}


def command(path):
    """`train` as torchrun starts it; returns the words that a test can resume it with."""
    words = ["train", "ToyKeyDoor-v0", "--preset", "debug", "--eval-episodes", "0"]
    return [*words, "--run-dir", str(path)]


def loses_a_rank(folder):
    """Rank 1 is killed at its third row of metrics; returns rank 0's exit code and sentence."""
    rows = []

    def log(out, row):
        rows.append(row)
        if len(rows) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    NoRunDir.log = log
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()) as said:
        code = cli.main([*command(folder / "lost"), "--steps", "10k", "--save-minutes", "0"])
    return {"code": code, "said": said.getvalue()}


def main(folder, port):
    """All of it, in one process of two; `port` is for the second time that they meet."""
    rank = int(os.environ["RANK"])
    folder = Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {method: bonus_learns(method, rank) for method in METHODS}
    found["refusals"] = refusals(rank)
    found["streams"] = []
    with ranks.together():
        found["statistics"] = statistics(rank)
        found["ppo"] = ppo_learns(rank)
        for _ in range(2):
            rng = torch.Generator().manual_seed(0)
            ranks.own_stream(rng)
            found["streams"].append(rng.get_state())
    from surprise_memory.nn.devices import shuffled

    rollout.shuffled = ppo.shuffled = shuffled
    with ranks.together():
        found["began with two"] = trains(folder / "two", steps=400)
        found["began with one"] = trains(folder / "one", steps=600)
        found["stopped"] = trains(folder / "stopped", stop_rank_0, steps=400)
        found["failed"] = trains(folder / "failed", env="Moody-v0", envs=4, steps=400)
    with contextlib.suppress(ImportError):
        found["rsl_rl"] = rsl_rl_learns(rank)
    torch.save(found, folder / f"rank{rank}.pt")
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = port
    found["lost"] = loses_a_rank(folder)
    torch.save(found, folder / f"rank{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
