"""MLflow: a tracking server, or a local store. The one file that imports mlflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esgd.errors import MissingExtraError, TrackerError
from esgd.integrations.curves import curves, settings
from esgd.progress.tracking import Record, Tracked

if TYPE_CHECKING:
    from mlflow import MlflowClient

TAG, STEP = "esgd.run", "generation"
BATCH = 100  # parameters that MLflow takes at a time
LONGEST = 500  # characters of a parameter's value that every version takes
MANNERS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # standard output is for results
}


@dataclass(frozen=True)
class MLflow:
    """Curves, recipe and final network in an experiment of a tracking server, "http://127.0.0.1:5000", or in a local
    store, "sqlite:///mlflow.db". Without an address, the value of $MLFLOW_TRACKING_URI.

    A resumed run continues in its own MLflow run, which it finds by a tag. A server that does not answer is given up
    after seconds, not after minutes as MLflow does, unless MLflow's environment variables say otherwise.
    """

    uri: str | None = None
    experiment: str = "esgd"

    def __post_init__(self) -> None:
        _package()

    def open(self, run: Tracked) -> MLflowLog:
        """The run of this id in the experiment; a new one if there is none."""
        with _well_mannered():
            try:
                return _found(_package().MlflowClient(tracking_uri=self.uri), self.experiment, run)
            except _package().exceptions.MlflowException as error:
                said = str(error).splitlines()[0][:300]
                place = self.uri or os.environ.get("MLFLOW_TRACKING_URI", "its default place")
                raise TrackerError(
                    f"MLflow at {place} cannot be used: {said} Nothing was trained yet. Is the server running, and the "
                    f"address the one that its page has in a browser?"
                ) from error


class MLflowLog:
    """One run of an experiment."""

    def __init__(self, client: MlflowClient, run: Any) -> None:
        self._client, self._id = client, run.info.run_id
        self.where = f"{client.tracking_uri}, experiment {run.info.experiment_id}, run {run.info.run_name}"
        self.done = int(run.data.metrics.get(STEP, 0))

    def write(self, record: Record) -> None:
        """All curves in one request, so that a generation is there or is not."""
        from mlflow.entities import Metric

        k, now = record["k"], int(time.time() * 1000)
        values = {**curves(record), STEP: float(k)}
        with _well_mannered():
            self._client.log_batch(self._id, [Metric(_allowed(name), value, now, k) for name, value in values.items()])

    def close(self, model: Path | None) -> None:
        """Hand the network on as an artifact, and say how the run ended."""
        with _well_mannered():
            if model is not None:
                self._client.log_artifact(self._id, str(model))
            self._client.set_terminated(self._id, "FINISHED" if model is not None else "KILLED")


def _allowed(name: str) -> str:
    """A metric's name as MLflow takes it: letters, digits, and a few signs."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _package() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtraError("mlflow", "mlflow", "Tracking with MLflow") from error
    return mlflow


def _found(client: MlflowClient, experiment: str, run: Tracked) -> MLflowLog:
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    there = client.search_runs([place], f"tags.`{TAG}` = '{run.id}'", max_results=1)
    if there:
        client.update_run(there[0].info.run_id, status="RUNNING")
        return MLflowLog(client, there[0])
    created = client.create_run(place, run_name=run.name, tags={TAG: run.id})
    _describe(client, created.info.run_id, run)
    return MLflowLog(client, created)


def _describe(client: MlflowClient, id_: str, run: Tracked) -> None:
    from mlflow.entities import Param

    chosen = [Param(name, str(value)[:LONGEST]) for name, value in settings(run.manifest).items()]
    for first in range(0, len(chosen), BATCH):
        client.log_batch(id_, params=chosen[first : first + BATCH])


@contextmanager
def _well_mannered() -> Iterator[None]:
    """MLflow reads its patience and its silence from the environment; what the user has set there stays."""
    lent = [name for name in MANNERS if name not in os.environ]
    os.environ.update({name: MANNERS[name] for name in lent})
    try:
        yield
    finally:
        for name in lent:
            os.environ.pop(name, None)
