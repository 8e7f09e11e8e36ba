"""The loggers that come with the package: TensorBoard, W&B, MLflow and trackio.

The last three remember in the run's directory which run of theirs it is, so that `--resume` goes on
in the same one. Projects, servers and keys are set by their own environment variables.
"""

import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surprise_memory.errors import need
from surprise_memory.files import write_atomically

PROJECT = "surprise-memory"


class TensorBoardLogger:
    """Event files in the run's directory."""

    rewinds = True
    rewound: int | None = None

    def __init__(self, run_dir: Path, config: dict[str, Any]) -> None:
        module = need("torch.utils.tensorboard", extra="cli", package="TensorBoard")
        self.make = module.SummaryWriter
        self.run_dir = run_dir
        self.writer: Any = None

    def log(self, row: dict[str, Any]) -> None:
        """One row. What a killed process wrote after its last checkpoint is forgotten."""
        if self.writer is None:
            purge = None  # an evaluation alone takes nothing back
            if self.rewound is not None:
                purge = self.rewound + 1
            self.writer = self.make(str(self.run_dir), purge_step=purge)
        for name, value in numbers(row).items():
            self.writer.add_scalar(name, value, row["step"])

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """A picture beside the curves."""
        self.writer = self.writer or self.make(str(self.run_dir))
        self.writer.add_image(name, pixels(figure), step, dataformats="HWC")

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()


class WandbLogger:
    """Weights & Biases: WANDB_PROJECT, WANDB_MODE=offline and so on."""

    def __init__(self, run_dir: Path, config: dict[str, Any]) -> None:
        self.wandb = need("wandb", extra="wandb")
        self.run = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=identity(run_dir, "wandb"),
            name=title(run_dir),
            dir=run_dir,
            config=config,
            resume="allow",
        )
        self.run.define_metric("*", step_metric="step")  # its own counter refuses to go back

    def log(self, row: dict[str, Any]) -> None:
        """One row; "step" in it is the axis."""
        self.run.log(row)

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """A picture beside the curves."""
        self.run.log({"step": step, name: self.wandb.Image(figure)})

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


class MLflowLogger:
    """MLflow: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, run_dir: Path, config: dict[str, Any]) -> None:
        self.mlflow = need("mlflow", extra="mlflow")
        known = run_dir / "mlflow.id"
        if known.exists():
            self.mlflow.start_run(run_id=known.read_text().strip())
            return
        self.mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        begun = self.mlflow.start_run(run_name=title(run_dir))
        self.mlflow.log_params(config)  # once: MLflow refuses to change them
        write_atomically(known, lambda file: file.write(begun.info.run_id.encode()))

    def log(self, row: dict[str, Any]) -> None:
        """One row."""
        self.mlflow.log_metrics(numbers(row), step=row["step"])

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """An artifact of the run."""
        self.mlflow.log_figure(figure, f"{name}-{step}.png")

    def close(self) -> None:
        """Mark the run as ended."""
        self.mlflow.end_run()


class TrackioLogger:
    """trackio: TRACKIO_PROJECT, TRACKIO_SPACE_ID, TRACKIO_DIR."""

    def __init__(self, run_dir: Path, config: dict[str, Any]) -> None:
        self.trackio = need("trackio", extra="trackio")
        self.run = self.trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{title(run_dir)}-{identity(run_dir, 'trackio')}",
            config=config,
            resume="allow",
        )

    def log(self, row: dict[str, Any]) -> None:
        """One row."""
        self.run.log(numbers(row), step=row["step"])

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """A picture beside the curves."""
        self.run.log({name: self.trackio.Image(pixels(figure))}, step=step)

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its step."""
    return {name: value for name, value in row.items() if name != "step"}


def pixels(figure: Any) -> NDArray[np.uint8]:
    """A figure of matplotlib as an image (H, W, 3)."""
    agg = need("matplotlib.backends.backend_agg", extra="report")
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def title(run_dir: Path) -> str:
    """What a run is called: the last two folders of its directory."""
    return "-".join(run_dir.resolve().parts[-2:])


def identity(run_dir: Path, service: str) -> str:
    """The run's id at a service, made at first use and kept in the run's directory."""
    path = run_dir / f"{service}.id"
    if not path.exists():
        made = uuid.uuid4().hex[:12]
        write_atomically(path, lambda file: file.write(made.encode()))
    return path.read_text().strip()
