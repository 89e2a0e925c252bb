"""MLflow: a real server on this machine, asked afterwards what it knows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from esgd.errors import TrackerError
from esgd.integrations import MLflow, curves
from tests.unit.integrations.runs import fit, interrupted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """An MLflow server with its own store, which can be stopped and started again."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        store = ["--backend-store-uri", f"sqlite:///{self.home}/mlflow.db", "--artifacts-destination", f"{self.home}/a"]
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        command = [sys.executable, "-m", "mlflow", "server", *store, *place]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.home,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # processes that we give no work
            )
        for _ in range(1200):
            try:
                urlopen(f"{self.uri}/health", timeout=5).close()
            except (URLError, OSError):
                assert self.process.poll() is None, (self.home / "server.log").read_text()
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the server does not answer")

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # the group that was made for it: the server has children
        self.process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("mlflow"))
    yield server
    server.stop()


def client_of(uri: str) -> MlflowClient:
    from mlflow import MlflowClient  # takes seconds, which only this file need pay

    return MlflowClient(uri)


def only_run(server: Server, experiment: str) -> Run:
    client = client_of(server.uri)
    place = client.get_experiment_by_name(experiment)
    assert place is not None
    (run,) = client.search_runs([place.experiment_id])
    return run


def steps(server: Server, run: Run, curve: str = "fitness/best") -> list[int]:
    return [metric.step for metric in client_of(server.uri).get_metric_history(run.info.run_id, curve)]


def test_curves_recipe_and_model_arrive_at_the_server(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = fit(tmp_path / "mine", MLflow(server.uri, experiment="whole"))
    assert capfd.readouterr().out == "", "standard output is for results"
    run = only_run(server, "whole")
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "mine"
    assert run.data.params["population"] == "3"
    assert run.data.params["seed"] == "0"
    assert steps(server, run) == [1, 2, 3]
    last = curves(result.history[-1])
    assert {name: run.data.metrics[name] for name in last} == pytest.approx(last)
    copy = client_of(server.uri).download_artifacts(run.info.run_id, "model.safetensors", str(tmp_path))
    assert Path(copy).read_bytes() == (tmp_path / "mine" / "model.safetensors").read_bytes()


def test_a_resumed_run_goes_on_in_the_same_mlflow_run(server: Server, tmp_path: Path) -> None:
    tracker = MLflow(server.uri, experiment="resumed")
    interrupted(tmp_path / "mine", tracker, after=2)
    assert only_run(server, "resumed").info.status == "KILLED"
    fit(tmp_path / "mine", tracker)
    run = only_run(server, "resumed")
    assert run.info.status == "FINISHED"
    assert steps(server, run) == [1, 2, 3]


def test_an_address_where_nobody_answers_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="Is the server running"):
        fit(tmp_path / "mine", MLflow(f"http://127.0.0.1:{free_port()}"))
    assert not (tmp_path / "mine" / "history.jsonl").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between MLflow and SQLAlchemy
def test_a_store_in_a_file_does_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where MLflow puts artifacts of a local store
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    fit(tmp_path / "mine", MLflow(uri, experiment="local"))
    client = client_of(uri)
    place = client.get_experiment_by_name("local")
    assert place is not None
    (run,) = client.search_runs([place.experiment_id])
    assert run.data.metrics["generation"] == 3


def test_what_is_no_address_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="cannot be used"):
        fit(tmp_path / "mine", MLflow("gopher://nowhere"))


def test_a_server_that_goes_away_costs_curves_and_not_the_run(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = MLflow(server.uri, experiment="mortal")

    class StopServer:
        where, done = "here", 0

        def open(self, run: object) -> StopServer:
            return self

        def write(self, record: dict[str, int]) -> None:
            if record["k"] == 1:
                server.stop()

        def close(self, model: Path | None) -> None:
            pass

    result = fit(tmp_path / "mine", tracker, StopServer(), progress="plain")
    assert len(result.history) == 3
    said = capfd.readouterr().err
    assert said.count("MLflow failed") == 1
    assert "2 generations did not get there" in said

    server.start()
    fit(tmp_path / "mine", tracker)
    assert steps(server, only_run(server, "mortal")) == [1, 2, 3], "asked for again, the run tells what was missed"
