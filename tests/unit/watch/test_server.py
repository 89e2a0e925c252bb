"""The page over real HTTP on loopback: what is asked for is answered, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any

import pytest

from esgd.errors import RunError
from esgd.watch import Runs, ServerAddress, open_server
from tests.unit.watch.histories import write_run


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    write_run(tmp_path / "mine", generations=3)
    with open_server(Runs([tmp_path]), ServerAddress.at("127.0.0.1", 0)) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def ask(server: Any, path: str, **headers: str) -> tuple[int, bytes, Any]:
    connection = HTTPConnection("127.0.0.1", server.address.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"127.0.0.1:{server.address.port}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_a_run_is_listed_and_told(served: Any) -> None:
    status, body, _ = ask(served, "/api/runs")
    (run,) = json.loads(body)["runs"]
    assert (status, run["name"], run["k"]) == (200, "mine", 3)
    _, body, _ = ask(served, f"/api/run?id={run['id']}&after=1")
    assert [line["k"] for line in json.loads(body)["lines"]] == [2, 3]


def test_the_page_is_whole_and_may_be_compressed(served: Any) -> None:
    _, plain, headers = ask(served, "/")
    assert b'id="views"' in plain
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    _, packed, headers = ask(served, "/", **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/mine/manifest.json", "/api/run?id=../mine", "/api/run", "/api/"]
)
def test_files_cannot_be_asked_for(served: Any, path: str) -> None:
    assert ask(served, path)[0] == 404


def test_a_number_that_is_none_is_no_run(served: Any) -> None:
    id_ = json.loads(ask(served, "/api/runs")[1])["runs"][0]["id"]
    assert ask(served, f"/api/run?id={id_}&after=x")[0] == 404


def test_a_foreign_name_that_leads_here_is_refused(served: Any) -> None:
    assert ask(served, "/api/runs", Host="evil.example")[0] == 403


def test_nothing_can_be_written(served: Any) -> None:
    connection = HTTPConnection("127.0.0.1", served.address.port, timeout=30)
    connection.request("POST", "/api/runs", body=b"{}")
    assert connection.getresponse().status == 501
    connection.close()


def test_many_that_come_at_once_do_not_wait(tmp_path: Path) -> None:
    with open_server(Runs([tmp_path]), ServerAddress.at("127.0.0.1", 0)) as server, ExitStack() as readers:
        for _ in range(50):  # nobody is answered yet, and still nobody is turned away
            readers.enter_context(create_connection(("127.0.0.1", server.address.port), timeout=5))


def test_elsewhere_than_on_loopback_a_token_is_needed(tmp_path: Path) -> None:
    address = ServerAddress.at("0.0.0.0", 0)
    assert len(address.token) >= 20
    assert not ServerAddress.at("127.0.0.1", 0).token
    assert not ServerAddress.at("localhost", 0).token
    with open_server(Runs([tmp_path]), ServerAddress("127.0.0.1", 0, "secret")) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        assert ask(server, "/api/runs")[0] == 403
        assert ask(server, "/api/runs?token=wrong")[0] == 403
        assert ask(server, "/api/runs?token=secret")[0] == 200
        server.shutdown()


def test_a_port_in_use_is_said_so(served: Any, tmp_path: Path) -> None:
    port = served.address.port
    with pytest.raises(RunError, match=f"port {port} is in use by another program. Choose another one with --port"):
        open_server(Runs([tmp_path]), ServerAddress("127.0.0.1", port))


def test_what_is_no_port_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="70000 is no port"):
        open_server(Runs([tmp_path]), ServerAddress("127.0.0.1", 70000))


@pytest.mark.parametrize("host", ["[", "[::1", ""])
def test_a_host_that_cannot_be_read_is_refused(served: Any, host: str) -> None:
    assert ask(served, "/api/runs", Host=host)[0] in (400, 403)


def test_a_head_has_no_body(served: Any) -> None:
    connection = HTTPConnection("127.0.0.1", served.address.port, timeout=30)
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


def test_a_host_that_is_none_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Check --host"):
        open_server(Runs([tmp_path]), ServerAddress("no-such-host.invalid", 0))
