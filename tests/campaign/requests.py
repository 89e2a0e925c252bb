"""Requests that no reader sends: what the live page must refuse, or answer, without harm."""

from __future__ import annotations

REQUESTS = {
    "another site's name": b"GET /api/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "another site's name and our port": b"GET / HTTP/1.1\r\nHost: evil.example:8642\r\n\r\n",
    "a name that begins like ours": b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n",
    "a user before the name": b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n",
    "an empty name": b"GET /api/runs HTTP/1.1\r\nHost:\r\n\r\n",
    "no name": b"GET /api/runs HTTP/1.1\r\n\r\n",
    "two names": b"GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n",
    "a name that is none": b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    "no request": b"\r\n\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "zeros": bytes(100_000),
    "an old version": b"GET /secret.txt\r\n",
    "a strange version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a negative length": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "an endless length": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n",
    "chunks": b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nabc",
    "a long line": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "a header that never ends": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b" folded\r\n" * 10_000 + b"\r\n",
}
HARMLESS = ("a negative length", "an endless length", "chunks", "a header that never ends", "a strange version")
"""Those that may be answered as if they were in order."""

PATHS = (
    *("/secret.txt", "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/mine/secret.txt", "//secret.txt"),
    *("/runs/mine/manifest.json", "/mine/history.jsonl", "/....//secret.txt", "/..\\secret.txt", "/secret.txt%00"),
    *("/api/run?id=../mine", "/api/run?id=mine/secret.txt", "/api/run?id=", "/api/run?after=1", "/api/run?id[]=1"),
    *("/api/run?id=%00", "/api/run?id=" + "a" * 50_000, "/api/../secret.txt", "/api/runs/../../secret.txt"),
    *("http://evil.example/secret.txt", "file:///etc/passwd", "*", "?", "#", "/%", "/%zz", "/\x7f", "//[", "/é"),
)
METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "get", "X" * 1000)
AFTERS = ("1e999", "NaN", "9" * 5000, "0x10", "1;2", "-" * 100)
A_RUN = b"(a run)"  # stands for the id of one

WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SENDS = {
    "nothing": b"",
    "half a line": WHOLE[:10],
    "all but the end": WHOLE[:-2],
    "a request": WHOLE,
    "fifty requests": WHOLE * 50,
}
"""What clients send that never read an answer."""
