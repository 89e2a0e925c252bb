"""Trackers: TensorBoard, MLflow, Weights & Biases, or your own in ten lines. See README.md."""

from esgd.integrations.choose import choose_tracker
from esgd.integrations.curves import curves, settings
from esgd.integrations.mlflow import MLflow
from esgd.integrations.tensorboard import TensorBoard
from esgd.integrations.tracked import tracked
from esgd.integrations.wandb import WeightsAndBiases
from esgd.progress.tracking import Logbook, Tracked, Tracker

__all__ = [
    "Logbook",
    "MLflow",
    "TensorBoard",
    "Tracked",
    "Tracker",
    "WeightsAndBiases",
    "choose_tracker",
    "curves",
    "settings",
    "tracked",
]
