"""A publisher on this machine: an HTTP server with byte ranges, which can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR


@dataclass
class Publisher:
    """What is published, and how badly. `requests` are the Range headers that came, "" for none."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    breaks_after: list[int] = field(default_factory=list)
    """For each request in turn: how many bytes are sent before the connection is cut; then none is cut any more."""
    content_type: str = "application/octet-stream"
    declares_length: bool = True
    requests: list[str] = field(default_factory=list)
    address: str = ""

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


@contextmanager
def publishing(files: dict[str, bytes]) -> Iterator[Publisher]:
    """Serve files on 127.0.0.1 until the block ends."""
    publisher = Publisher(dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            publisher.requests.append(wanted)
            content = publisher.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and publisher.ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", publisher.content_type)
            if publisher.declares_length:
                self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if publisher.breaks_after:
                self.wfile.write(content[start : start + publisher.breaks_after.pop(0)])
                self.wfile.flush()
                self.connection.shutdown(SHUT_RDWR)
            else:
                self.wfile.write(content[start:])

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    publisher.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
