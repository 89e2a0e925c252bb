"""`esgd watch` under load: hostile requests, slow clients, many clients, folders that change under it.

Expected: every request is answered or its connection closed; nothing outside the page is told; meanwhile and afterwards
an ordinary reader is answered at once; memory stays bounded.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGINT

from tests.campaign import judge, reference
from tests.campaign.case import Case, Ground, Plan
from tests.campaign.requests import A_RUN, AFTERS, HARMLESS, METHODS, PATHS, REQUESTS, SENDS
from tests.campaign.victim import Process, start, wait_until
from tests.unit.watch.histories import line, write_run

PLAN = Plan(full=111, quick=20, suite=2, limit=120.0)

PATIENCE = 20.0
"""Seconds within which an ordinary reader is answered, on a machine that is busy."""
GROWTH = 200 << 10
"""Kilobytes by which the server may grow."""
SECRET = "what-no-reader-may-see"


@dataclass(frozen=True)
class Server:
    """`esgd watch` at work."""

    process: Process
    port: int
    began_with: int

    def ask(self, path: str = "/api/runs") -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def wrong(self) -> str | None:
        """What an ordinary reader would complain about."""
        for path in ("/", "/api/runs"):
            status, _ = self.ask(path)
            if status != 200:
                return f"{path} is answered with {status}"
        grown = memory(self.process.pid) - self.began_with
        return f"the server has grown by {grown} KB" if grown > GROWTH else None


@contextmanager
def served(ground: Ground, *words: str) -> Iterator[Server]:
    """A server of the folder `runs`, whose runs are not alone; it is interrupted in the end."""
    runs = ground.folder / "runs"
    shutil.copytree(reference.finished(ground.root), runs / "finished")
    write_run(runs / "mine", generations=3)
    for place in (ground.folder, runs, runs / "mine"):
        (place / "secret.txt").write_text(SECRET)
    process = start("watch", "runs", "--port", "0", *words, cwd=ground.folder)
    try:
        if not wait_until(lambda: "watching at" in process.output.read_text() or process.ended, seconds=60):
            raise TimeoutError("the server does not begin")
        found = re.search(r":(\d+)/", process.output.read_text())
        if found is None:
            raise RuntimeError(process.output.read_text())
        yield Server(process, int(found[1]), memory(process.pid))
    finally:
        process.signal(SIGINT)
        ended = process.wait()
    if ended.code not in (130, -SIGINT) or judge.unclean(ended):
        raise RuntimeError(str(ended))


def memory(pid: int) -> int:
    """Kilobytes that a process occupies."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Request:
    """Send some bytes, all at once or cut at random places, and read what comes."""

    name: str
    content: bytes
    refused: bool = True
    cuts: int = 0
    seed: int = 0

    def __repr__(self) -> str:
        return f"Request({self.name!r}, {self.content[:60]!r}…, cuts={self.cuts}, seed={self.seed})"

    def attack(self, ground: Ground) -> str | None:
        with served(ground) as server:
            answer = self._answer(server)
            if SECRET.encode() in answer or b"root:" in answer:
                return f"a file was told: {answer[:300]!r}"
            if b"access-control-allow" in answer.lower():
                return f"other sites are let in: {answer[:300]!r}"
            if self.refused and re.match(rb"HTTP/\S+ 2", answer):
                return f"it was not refused: {answer[:300]!r}"
            return server.wrong()

    def _answer(self, server: Server) -> bytes:
        drawn, (_, listed) = random.Random(self.seed), server.ask()
        content = self.content.replace(A_RUN, json.loads(listed)["runs"][0]["id"].encode())
        places = sorted(drawn.randrange(len(content)) for _ in range(self.cuts))
        with server.connect() as connection:
            answer = b""
            try:
                for begin, end in zip((0, *places), (*places, len(content)), strict=True):
                    connection.sendall(content[begin:end])
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    answer += piece
            except ConnectionError:
                pass  # it has heard enough
            return answer


@dataclass(frozen=True)
class Slow:
    """Many clients that send half a request, or nothing, or never read; others are answered meanwhile."""

    clients: int
    sends: str

    def attack(self, ground: Ground) -> str | None:
        with served(ground) as server, ExitStack() as connections:
            for _ in range(self.clients):
                connections.enter_context(server.connect()).sendall(SENDS[self.sends])
            return server.wrong()


@dataclass(frozen=True)
class Load:
    """Many readers at once, while a run goes on, is rewritten, vanishes and comes again."""

    readers: int
    requests: int
    seed: int

    def attack(self, ground: Ground) -> str | None:
        with served(ground) as server, ThreadPoolExecutor(self.readers) as readers:
            asked = [readers.submit(self._read, server) for _ in range(self.requests)]
            self._change(ground.folder / "runs" / "mine")
            for each in asked:
                if wrong := each.result():
                    return wrong
            return server.wrong()

    def _read(self, server: Server) -> str | None:
        status, body = server.ask()
        if status != 200:
            return f"the list is answered with {status}"
        for run in json.loads(body)["runs"]:
            status, _ = server.ask(f"/api/run?id={run['id']}")
            if status not in (200, 404):  # 404: it has gone
                return f"a run is answered with {status}"
        return None

    def _change(self, run: Path) -> None:
        drawn = random.Random(self.seed)
        for k in range(4, 60):
            match drawn.randrange(5):
                case 0:
                    shutil.rmtree(run)
                    write_run(run, generations=3)
                case 1:
                    (run / "history.jsonl").write_bytes(drawn.randbytes(5_000))
                case 2:
                    (run / "history.jsonl").write_text(json.dumps(line(1))[: drawn.randrange(200)])
                case _:
                    with (run / "history.jsonl").open("a") as file:
                        file.write(json.dumps(line(k)) + "\n")


def cases(seed: int) -> Iterator[Case]:
    """Requests of all kinds, slow clients and load, mixed."""
    drawn = random.Random(seed)
    found = [*_requests(drawn), *_slow(), *(Load(16, 100, drawn.randrange(1 << 32)) for _ in range(8))]
    drawn.shuffle(found)
    yield from found


def _requests(drawn: random.Random) -> Iterator[Case]:
    head = "HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"
    for name, content in REQUESTS.items():
        refused = name not in HARMLESS
        yield Request(name, content, refused=refused)
        yield Request(name, content, refused=refused, cuts=5, seed=drawn.randrange(1 << 32))
    for path in PATHS:
        yield Request("a path", f"GET {path} {head}".encode(), refused=path not in ("?", "#"))
    for method in METHODS:
        yield Request("a method", f"{method} /api/runs {head}".encode(), refused=method != "HEAD")
    for after in AFTERS:
        yield Request("a number", f"GET /api/run?id={A_RUN.decode()}&after={after} {head}".encode())


def _slow() -> Iterator[Case]:
    for clients in (1, 50, 400):
        for sends in SENDS:
            yield Slow(clients, sends)
