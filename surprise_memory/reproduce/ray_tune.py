"""The same cells on a Ray cluster: each is a trial of Ray Tune, which retries it elsewhere when a machine goes away.

The directory must be one that every machine sees, such as a network disk. A trial that is started again continues from its
run's own checkpoint, so nothing is made twice, and what comes out is what the local engine makes.
"""

from pathlib import Path
from typing import Any

from surprise_memory.errors import UserError
from surprise_memory.reproduce.cells import Cell, make, prepare

RETRIES = 3  # of one cell


def run_ray(cells: list[Cell], root: Path) -> dict[str, str]:
    """Make all cells that are not finished on the cluster that RAY_ADDRESS names, or on this machine; returns what failed."""
    try:
        import ray
        from ray import tune
    except ImportError as error:
        raise UserError("Ray is not installed: pip install 'surprise-memory[ray]'.") from error
    todo = {cell.path.name: cell for cell in cells if not cell.finished}
    for cell in todo.values():
        prepare(cell)
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    storage = root.resolve()
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={
            "path": tune.grid_search([str(cell.path.resolve()) for cell in todo.values()])
        },
        tune_config=tune.TuneConfig(max_concurrent_trials=None),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=str(storage),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    )
    results: Any = tuner.fit()
    why = {
        Path(r.config["path"]).name: str(r.error)
        for r in results
        if r.error is not None and r.config
    }
    return {
        cell.name: why.get(name, "it did not finish")
        for name, cell in todo.items()
        if not cell.finished
    }


def trial(config: dict[str, str]) -> None:
    """One cell, wherever Tune puts it; a trial that comes back finds its checkpoint in the cell's directory."""
    from ray import tune

    make(Path(config["path"]))
    tune.report({"finished": True})
