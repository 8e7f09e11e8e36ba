"""Where a run has two threads, agent and bonus learn at the same time."""

import threading
import time
from dataclasses import asdict, replace

import pytest
import torch

from surprise_memory.bonus import RolloutTrainer
from surprise_memory.nn import ranks
from surprise_memory.nn.at_once import at_once, each, using_threads
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import build, train
from surprise_memory.training.presets import PRESETS
from surprise_memory.training.processes import learn_at_once
from surprise_memory.training.rundir import RunDir

RUN = replace(PRESETS["default"]("ToyKeyDoor-v0"), envs=4, rollout=32)


def test_both_jobs_run_at_the_same_time_with_half_of_the_threads_each():
    barrier = threading.Barrier(2)

    def job():
        barrier.wait(timeout=10)  # passes only if both come here
        return torch.get_num_threads(), threading.current_thread()

    before = torch.get_num_threads()
    for number, half in ((4, 2), (2, 1), (7, 3)):
        with using_threads(number, two_jobs=True):
            (aside, other), (here, mine) = at_once(job, job)
        assert (aside, here) == (half, half)
        assert mine is threading.main_thread() and other is not mine
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(("number", "two_jobs"), [(1, True), (4, False), (None, None)])
def test_otherwise_they_run_one_after_the_other_and_aside_is_first(number, two_jobs):
    order = []

    def job(name):
        order.append((name, threading.current_thread(), torch.get_num_threads()))
        return name

    def both():
        assert at_once(lambda: job("aside"), lambda: job("here")) == ("aside", "here")

    if number is None:
        number = torch.get_num_threads()
        both()
    else:
        with using_threads(number, two_jobs):
            both()
    main = threading.main_thread()
    assert order == [("aside", main, number), ("here", main, number)]


@pytest.mark.parametrize("fails", ["aside", "here"])
def test_an_error_in_one_job_is_raised_when_the_other_has_ended(fails):
    started = threading.Event()
    ended = []

    def fail():
        started.wait(10)
        raise ValueError("broken")

    def work():
        started.set()
        time.sleep(0.2)  # the other one has failed by now
        ended.append(True)

    jobs = (fail, work) if fails == "aside" else (work, fail)
    with using_threads(2, two_jobs=True):
        with pytest.raises(ValueError, match="broken"):
            at_once(*jobs)
        assert ended == [True]
        assert at_once(threading.get_ident, threading.get_ident)[0] != threading.get_ident()


def test_jobs_inside_of_jobs_run_in_turn():
    def inner():
        return at_once(threading.get_ident, threading.get_ident)

    with using_threads(2, two_jobs=True):
        aside, here = at_once(inner, inner)
    assert aside[0] == aside[1] != here[0] == here[1]


@pytest.mark.parametrize("number", [1, 2])
def test_each_keeps_the_order_and_the_gradient_mode(number):
    def job(x):
        return x, torch.is_grad_enabled()

    with using_threads(number, two_jobs=True):
        for items in ([], [3], [3, 1, 2], [4, 3, 2, 1]):
            assert each(job, items) == [(x, True) for x in items]
            with torch.no_grad():
                assert each(job, items) == [(x, False) for x in items]


def test_a_bonus_and_ppo_learn_at_once_in_one_process():
    assert learn_at_once(RUN)
    assert not learn_at_once(replace(RUN, method="none"))
    assert not learn_at_once(replace(RUN, device="cuda:1"))
    assert not learn_at_once(replace(RUN, method="lwm+sm", agent="dqn"))


def test_many_processes_learn_in_turn(monkeypatch):
    monkeypatch.setattr(ranks, "world", lambda: 2)
    assert not learn_at_once(RUN)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_two_threads_give_the_numbers_of_one(monkeypatch, precision):
    monkeypatch.setattr("surprise_memory.nn.nets.PIECE", 40)  # so that there are several
    monkeypatch.setattr("surprise_memory.bonus.model.PIECE", 40)
    monkeypatch.setattr("surprise_memory.memory.episodic.BLOCK", 32)
    run = replace(RUN, precision=precision)
    found = []
    for threads in (1, 2):
        env, agent, bonus = build(run)
        state = RunnerState.reset(env, bonus)
        with using_threads(threads, learn_at_once(run)):
            for _ in range(3):
                chunk, _ = collect(env, agent, state, 32, bonus)
                r_int, metrics, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
        found.append((r_int, metrics, agent.state_dict(), bonus.state_dict()))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0, equal_nan=True)


def test_the_agent_learns_while_the_bonus_does(monkeypatch):
    env, agent, bonus = build(RUN)
    state = RunnerState.reset(env, bonus)
    barrier = threading.Barrier(2)
    for thing, method in ((agent, "update"), (bonus, "learn")):
        inner = getattr(thing, method)

        def meeting(*args, inner=inner):
            barrier.wait(timeout=10)
            return inner(*args)

        monkeypatch.setattr(thing, method, meeting)
    chunk, _ = collect(env, agent, state, 32, bonus)
    with using_threads(2, two_jobs=True):
        agent.learn(chunk, bonus, state.bonus_carry)
    assert int(bonus.updates) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_uses_its_threads(tmp_path, monkeypatch, threads):
    seen = set()

    def learn(bonus, payment, inner=RolloutTrainer.learn):
        seen.add(threading.current_thread() is threading.main_thread())
        return inner(bonus, payment)

    monkeypatch.setattr(RolloutTrainer, "learn", learn)
    run = replace(PRESETS["debug"]("ToyKeyDoor-v0"), threads=threads, warmup_rollouts=0)
    out = RunDir(tmp_path / "run")
    out.open(asdict(run), resume=False)
    train(run, out)
    assert seen == {threads == 1}
