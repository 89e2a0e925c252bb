"""From the value of --track to a tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from esgd._names.trust import imported
from esgd.errors import RecipeError, TrackerError, did_you_mean
from esgd.integrations.mlflow import MLflow
from esgd.integrations.tensorboard import TensorBoard
from esgd.integrations.wandb import WeightsAndBiases
from esgd.progress.tracking import Tracker, check_trackers

KINDS: Mapping[str, Callable[..., Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def choose_tracker(text: str) -> Tracker:
    """The tracker for `tensorboard:DIR`, `mlflow:URI` or `wandb:PROJECT`, each with or without the part after the
    colon, or for your own, `package.module:tracker`."""
    kind, _, place = text.partition(":")
    if kind in KINDS:
        return KINDS[kind](place) if place else KINDS[kind]()
    if not place:
        raise TrackerError(
            f"{text!r} is not a tracker. {did_you_mean(kind, KINDS)} One of your own is named 'package.module:tracker'."
        )
    try:
        found = imported(text)
    except RecipeError as error:
        raise TrackerError(f"{error} {did_you_mean(kind, KINDS)}") from error
    check_trackers([found])
    return found  # type: ignore[no-any-return]
