"""One run: build, warm up, then loop { collect, learn, log, save }."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from surprise_memory.agents import AGENTS, Agent, Mode
from surprise_memory.envs import VecEnv, make_vec
from surprise_memory.errors import UserError
from surprise_memory.files import write_json
from surprise_memory.nn import ranks
from surprise_memory.nn.at_once import using_threads
from surprise_memory.training.checkpoint import Parts, save_checkpoint
from surprise_memory.training.clock import Clock
from surprise_memory.training.collect import Episode, RunnerState, collect
from surprise_memory.training.compiled import compile_losses
from surprise_memory.training.config import RunConfig
from surprise_memory.training.evaluate import evaluate, summary
from surprise_memory.training.metrics import check_losses, rollout_metrics
from surprise_memory.training.plan import check_plan
from surprise_memory.training.processes import check_processes, learn_at_once, share
from surprise_memory.training.rundir import RunDir
from surprise_memory.training.seeds import EVAL_ENVS, eval_seed, training_seed
from surprise_memory.training.start import At, read_saved, resumed_at, start, what_is_kept
from surprise_memory.training.stop import Stop
from surprise_memory.training.warmup import check_finite
from surprise_memory.types import Chunk

Report = Callable[[dict[str, Any]], None]


def build(run: RunConfig, resumed_at: int = 0) -> tuple[VecEnv, Agent, Any]:
    """The environments, the agent and the bonus of a run; no bonus is None.

    `resumed_at`: the step from which environments that cannot save their state begin anew.
    Over many processes, the environments are this one's share.
    """
    own = share(run.envs)
    seed = training_seed(run.seed, run.envs, resumed_at)
    env = make_vec(run.env, own.number, seed + own.start, run.threads, fixed_seed=run.fixed_seed)
    if run.same_layouts:
        env.share_layouts(seed)
    env.limit_time(run.step_seconds)
    agent = AGENTS[run.backbone].make(env, run, run.method != "none")
    bonus = None
    if run.method != "none":
        bonus = agent.trainer(
            run.method,
            env.obs_shape,
            env.num_envs,
            run.bonus,
            run.seed,
            env.action_space,
            device=run.device,
            precision=run.precision,
        )
    return env, agent, bonus


def train(
    run: RunConfig, out: RunDir, report: Report | None = None, at: At | None = None
) -> RunnerState:
    """Train until `run.steps`, continuing from the checkpoint if there is one.

    `report` gets every row of metrics. `at` is told where a run continues, and of the warm-up.
    Of many processes, only rank 0 writes into `out`.
    """
    check_plan(run)
    check_processes(run)
    try:
        return _train(run, out, report, at or ignore)
    except ranks.Lost as error:
        raise UserError(f"{error} {what_is_kept(out)}") from error


def ignore(step: int, doing: str) -> None:
    """For callers who need not know."""


def _train(run: RunConfig, out: RunDir, report: Report | None, at: At) -> RunnerState:
    with using_threads(run.threads, learn_at_once(run)), Stop() as stop:
        saved = read_saved(out)
        env, agent, bonus = build(run, resumed_at(saved))
        if run.compile:
            compile_losses(agent, bonus)
        parts = Parts(run, out, env, agent, bonus)
        state = start(parts, saved, stop, at)
        del saved  # the parts have copies
        if state.steps < run.steps and ranks.first():
            out.eval.unlink(missing_ok=True)  # of a shorter run, which goes on here
        T = agent.rollout_length(run.rollout)
        clock = Clock(state.steps)
        while state.steps < run.steps and not ranks.anyones(stop.asked):
            chunk, episodes = collect_or_save(parts, state, T)
            r_int, metrics, state.bonus_carry = agent.learn(chunk, bonus, state.bonus_carry)
            metrics |= rollout_metrics(chunk, r_int, episodes, state)
            check_losses(metrics, out, run.backbone)
            row = {"step": state.steps, "charts/SPS": clock.speed(state.steps)} | metrics
            out.log(row)
            if report:
                report(row)
            if ranks.from_first(clock.save_due(run.save_minutes)):
                save_checkpoint(parts, state, final=False)
        save_checkpoint(parts, state, final=True)
        env.close()
        if state.steps < run.steps:
            raise KeyboardInterrupt(
                f"Stopped and saved at step {state.steps:,}. Add --resume to continue."
            )
        if run.eval_episodes and ranks.first():
            stop.at_once("Training is complete and saved. Add --resume to evaluate it.")
            write_eval(run, out, agent, bonus)
        out.finish()
    return state


def collect_or_save(parts: Parts, state: RunnerState, T: int) -> tuple[Chunk, list[Episode]]:
    """T steps. Where an environment fails in them, what was learnt before is saved."""
    steps = state.steps
    total = state.task_reward_total
    failure = None
    try:
        chunk, episodes = collect(parts.env, parts.agent, state, T, parts.bonus)
        check_finite(chunk)
    except UserError as error:
        failure = error
    if ranks.anyones(failure is not None):
        # One that saves its state could not go on from the midst of a rollout.
        if not parts.env.saves_state or ranks.world() > 1:
            state.steps = steps
            state.task_reward_total = total
            save_checkpoint(parts, state, final=True)
        raise failure or UserError("The environment failed in another process: see there.")
    return chunk, episodes


def write_eval(
    run: RunConfig,
    out: RunDir,
    agent: Agent,
    bonus: Any,
    episodes: int | None = None,
    greedy: bool = False,
    eval_steps: int | None = None,
) -> Path:
    """Evaluate on layouts that training did not see.

    eval.json is the run's own score; what is done in another way has another file.
    """
    wanted = episodes or run.eval_episodes
    longest = run.eval_steps if eval_steps is None else eval_steps
    mode: Mode = "greedy" if greedy else "sample"
    envs = min(wanted, EVAL_ENVS)
    seed = eval_seed(run.seed)
    env = make_vec(run.env, envs, seed, run.threads, fixed_seed=run.fixed_seed)
    env.limit_time(run.step_seconds)
    result = summary(evaluate(agent, env, wanted, mode, bonus, longest))
    env.close()
    name = f"eval-{wanted}"
    if longest != run.eval_steps:
        name += f"-{longest}-steps"
    if greedy:
        name += "-greedy"
    if name == f"eval-{run.eval_episodes}":
        name = "eval"
    path = out.path / f"{name}.json"
    write_json(path, result, indent=None)
    return path
