"""Agent and bonus learn at the same time, if torch may use two threads."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from surprise_memory.agents import base
from surprise_memory.nn import ranks
from surprise_memory.nn.at_once import at_once, with_threads
from surprise_memory.training.collect import RunnerState, collect
from surprise_memory.training.loop import build
from surprise_memory.training.presets import PRESETS


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def meet(barrier, value):
    """A job that ends only if another one runs meanwhile."""
    barrier.wait(timeout=10)
    return value


def test_both_jobs_run_at_the_same_time_with_half_of_the_threads_each():
    torch.set_num_threads(4)
    barrier = threading.Barrier(2)

    def job():
        return meet(barrier, (torch.get_num_threads(), threading.current_thread()))

    (aside, other), (here, mine) = at_once(job, job)
    assert (aside, here) == (2, 2)
    assert mine is threading.main_thread() and other is not mine
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("why", ["one thread", "many processes"])
def test_otherwise_they_run_one_after_the_other_and_aside_is_first(monkeypatch, why):
    if why == "one thread":
        torch.set_num_threads(1)
    else:
        monkeypatch.setattr(ranks, "world", lambda: 2)
    order = []

    def job(name):
        order.append((name, threading.current_thread()))
        return name

    assert at_once(lambda: job("aside"), lambda: job("here")) == ("aside", "here")
    assert order == [("aside", threading.main_thread()), ("here", threading.main_thread())]


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
    with pytest.raises(ValueError, match="broken"):
        at_once(*jobs)
    assert ended == [True]
    assert torch.get_num_threads() == 2


def in_turn(aside, here):
    """As at_once, without the other thread."""
    answers = with_threads(1, aside), with_threads(1, here)
    torch.set_num_threads(2)
    return answers


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_learning_at_once_gives_the_numbers_of_learning_in_turn(monkeypatch, precision):
    run = replace(PRESETS["default"]("ToyKeyDoor-v0"), envs=4, rollout=32, precision=precision)
    found = []
    for way in (at_once, in_turn):
        monkeypatch.setattr(base, "at_once", way)
        env, agent, bonus = build(run)
        state = RunnerState.reset(env, bonus)
        for _ in range(3):
            chunk, _ = collect(env, agent, state, 32, bonus)
            r_int, metrics, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
        found.append((r_int, metrics, agent.state_dict(), bonus.state_dict()))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0, equal_nan=True)
