"""The page over HTTP. Two questions are answered: what runs there are, and what is new in one of them."""

from __future__ import annotations

import errno
import gzip
import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET6, gaierror
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from esgd.errors import RunError
from esgd.report.templates import render
from esgd.report.views import embed
from esgd.watch.runs import Runs

COMPRESSED = 4_096  # bytes from which on an answer is


@dataclass(frozen=True)
class ServerAddress:
    """Where the page is served. A client on another machine needs the token."""

    host: str = "127.0.0.1"
    port: int = 8642
    token: str = ""

    @staticmethod
    def at(host: str, port: int) -> ServerAddress:
        """With a token unless only this machine can reach it."""
        return ServerAddress(host, port, "" if _loopback(host) else secrets.token_urlsafe(18))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


class Server(ThreadingHTTPServer):
    """Serves one set of runs."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # with Python's own 5, every sixth of many that come at once waits a second

    def __init__(self, runs: Runs, address: ServerAddress) -> None:
        self.runs = runs
        if ":" in address.host:
            self.address_family = AF_INET6
        super().__init__((address.host, address.port), PageRequest)
        self.address = ServerAddress(address.host, self.server_address[1], address.token)
        views = embed({"live": True, "token": address.token}, connect=True)
        self.page = render("watch.html.j2", package="esgd.watch", views=views).encode()
        self.policy = views.policy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is not reported; a client that asks again gets an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def open_server(runs: Runs, address: ServerAddress) -> Server:
    """A server that listens; `serve_forever()` answers until it is interrupted."""
    try:
        return Server(runs, address)
    except OSError as error:
        why = {
            errno.EADDRINUSE: f"port {address.port} is in use by another program",
            errno.EACCES: f"port {address.port} is reserved for the administrator",
        }.get(error.errno or 0, error.strerror or str(error))
        advice = (
            "Check --host."
            if isinstance(error, gaierror) or error.errno == errno.EADDRNOTAVAIL
            else "Choose another one with --port, or --port 0 for any that is free."
        )
        raise RunError(f"The page cannot be served at {address.host}:{address.port}: {why}. {advice}") from error
    except OverflowError as error:
        raise RunError(f"{address.port} is no port: they go from 0 to 65535. Choose one with --port.") from error


class PageRequest(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "esgd"
    sys_version = ""

    timeout = 60

    def do_GET(self) -> None:
        try:
            self._answer(urlsplit(self.path))
        except ValueError:
            self._say(HTTPStatus.BAD_REQUEST, "This cannot be read as an address.")

    do_HEAD = do_GET  # noqa: N815  # the name that http.server looks for

    def _answer(self, asked: SplitResult) -> None:
        query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        if not self._at_home():
            self._say(HTTPStatus.FORBIDDEN, "This page answers to its own address only.")
        elif not compare_digest(query.get("token", "").encode(), self.server.address.token.encode()):
            self._say(HTTPStatus.FORBIDDEN, "The address lacks its token. Use the one that `esgd watch` printed.")
        elif asked.path == "/":
            self._send(self.server.page, "text/html")
        elif asked.path == "/api/runs":
            self._send_json(self.server.runs.listed())
        elif asked.path == "/api/run":
            self._send_run(query)
        else:
            self._say(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def log_message(self, *_: object) -> None:
        """A page that asks every second would fill the terminal."""

    def _at_home(self) -> bool:
        """Whether a page on loopback was asked for as such: a foreign name that leads here is refused."""
        if not _loopback(self.server.address.host):
            return True
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        return _loopback(name)

    def _send_run(self, query: Mapping[str, str]) -> None:
        try:
            followed, after = self.server.runs[query["id"]], int(query.get("after", "0"))
        except (KeyError, ValueError):
            self._say(HTTPStatus.NOT_FOUND, "There is no such run.")
            return
        self._send_json({"id": query["id"], **followed.after(after)})

    def _send_json(self, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        self._send(text.encode("utf-8", "replace"), "application/json")

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        self._send(sentence.encode(), "text/plain", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        packed = len(body) >= COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, compresslevel=1) if packed else body
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": self.server.policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            **({"Content-Encoding": "gzip"} if packed else {}),
        }
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # the client has gone


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
