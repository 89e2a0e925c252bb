"""Weights & Biases, online or offline. The one file that imports wandb."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esgd.errors import MissingExtraError, TrackerError
from esgd.integrations.curves import curves
from esgd.progress.tracking import Record, Tracked
from esgd.run.files import read_words, replace_words

if TYPE_CHECKING:
    from wandb import Run

REACHED = "esgd-generation"  # in an offline run's folder: the last generation in it


@dataclass(frozen=True)
class WeightsAndBiases:
    """Curves, recipe and final network in a project of Weights & Biases.

    A resumed run continues in its own run there. With `offline=True`, or WANDB_MODE=offline, everything stays in
    `folder`/wandb until `wandb sync` sends it; a resumed run continues in a second folder there, with the same id.
    """

    project: str = "esgd"
    offline: bool | None = None
    folder: str | Path = "."

    def __post_init__(self) -> None:
        _package()

    def open(self, run: Tracked) -> WeightsAndBiasesLog:
        """The run of this id in the project; a new one if there is none."""
        package = _package()
        offline = os.environ.get("WANDB_MODE") == "offline" if self.offline is None else self.offline
        try:
            begun = package.init(
                project=self.project,
                id=run.id,
                name=run.name,
                config=dict(run.manifest),
                resume=None if offline else "allow",
                mode="offline" if offline else os.environ.get("WANDB_MODE", "online"),
                dir=str(self.folder),
                settings=package.Settings(silent=True, console="off"),  # our own lines say where it is
            )
        except (package.Error, OSError) as error:
            raise TrackerError(
                f"Weights & Biases cannot open the project {self.project!r}: {error} Nothing was trained yet. Use "
                f"`wandb login`, or offline=True (WANDB_MODE=offline) to keep everything here for the moment."
            ) from error
        return WeightsAndBiasesLog(package, begun)


class WeightsAndBiasesLog:
    """One run of a project."""

    def __init__(self, package: Any, run: Run) -> None:
        self._package, self._run = package, run
        self._here = Path(run.dir).parent if run.offline else None
        self.where = str(run.url) if self._here is None else f"{self._here} (wandb sync sends it)"
        self.done = max(0, run.starting_step - 1) if self._here is None else _reached(self._here, run.id)

    def write(self, record: Record) -> None:
        """All curves of a generation as one step."""
        self._run.log({**curves(record), "generation": record["k"]}, step=record["k"], commit=True)
        if self._here is not None:
            replace_words(self._here / REACHED, str(record["k"]))

    def close(self, model: Path | None) -> None:
        """Hand the network on as an artifact, and say how the run ended."""
        if model is not None:
            artifact = self._package.Artifact(f"model-{self._run.id}", type="model")
            artifact.add_file(str(model))
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=0 if model is not None else 1)


def _package() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "wandb", "Tracking with Weights & Biases") from error
    return wandb


def _reached(here: Path, id_: str) -> int:
    """How far the offline folders of this run go."""
    found = [read_words(path) for path in here.parent.glob(f"offline-run-*-{id_}/{REACHED}")]
    return max((int(words) for words in found), default=0)
