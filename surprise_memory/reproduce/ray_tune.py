"""The same cells on a Ray cluster: each is a trial of Ray Tune, retried when its machine goes away.

The directory must be one that every machine sees, such as a network disk. A trial that is started
again continues from its run's own checkpoint. So nothing is made twice, and the results are those
of the local engine.
"""

from pathlib import Path
from typing import Any

from surprise_memory.errors import need
from surprise_memory.reproduce.cells import Cell, make, prepare
from surprise_memory.training.config import RunConfig

RETRIES = 3  # of one cell


def run_ray(cells: list[Cell], root: Path) -> dict[str, str]:
    """Make all cells that are not finished. Returns name -> reason of those that failed.

    They run on the cluster that RAY_ADDRESS names, or on this machine.
    """
    ray = need("ray", extra="ray")
    tune = need("ray.tune", extra="ray")
    todo = [cell for cell in cells if not cell.finished]
    paths = []
    for cell in todo:
        prepare(cell)
        paths.append(str(cell.path.resolve()))
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    tuner = tune.Tuner(
        tune.with_resources(trial, resources(todo[0].run)),
        param_space={"path": tune.grid_search(paths)},
        tune_config=tune.TuneConfig(max_concurrent_trials=None),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=str(root.resolve()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    )
    errors = errors_by_path(tuner.fit())
    failed = {}
    for cell, path in zip(todo, paths, strict=True):
        if not cell.finished:
            failed[cell.name] = errors.get(path, "it did not finish")
    return failed


def resources(run: RunConfig) -> dict[str, int]:
    """What Ray has to keep free for each cell; all have the same."""
    needed = {"cpu": run.threads}
    if run.device == "cuda":
        needed["gpu"] = 1
    return needed


def errors_by_path(results: Any) -> dict[str, str]:
    """The error of each trial that had one, by its cell's directory.

    Ray's text is a whole traceback, whose last line is the error.
    """
    errors = {}
    for result in results:
        if result.error is not None and result.config:
            lines = str(result.error).strip().splitlines() or ["it did not say why"]
            errors[result.config["path"]] = lines[-1]
    return errors


def trial(config: dict[str, str]) -> None:
    """One cell, wherever Tune puts it."""
    from ray import tune

    make(Path(config["path"]))
    tune.report({"finished": True})
