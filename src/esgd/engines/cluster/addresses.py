"""Addresses of clusters: whether one answers there, and whether two lead to the same."""

from __future__ import annotations

import socket
import subprocess
import sys

import ray

ANSWERS, JOINS = 10.0, 60.0
"""Seconds until somebody has to answer at an address, and until a cluster there has to be joined."""


def check_answers(address: str) -> None:
    """OSError if there is no cluster: Ray itself would try for many minutes, or for ever."""
    _knock(address)
    _rehearse(address)


def is_the_same(address: str, at: str) -> bool:
    """Whether an address is that of the cluster at another one, which is as Ray spells it."""
    host, _, port = address.rpartition(":")
    there, _, there_port = at.rpartition(":")
    return address == at or (port == there_port and there in {_resolved(name) for name in _names(host)})


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    for last, name in enumerate(names := _names(host), start=1) if port.isdigit() else ():
        try:
            socket.create_connection((name, int(port)), timeout=ANSWERS).close()
            break
        except OSError:
            if last == len(names):
                raise


def _rehearse(address: str) -> None:
    """Join in a process that can be given up on: where something else answers than Ray, `ray.init` never returns."""
    command = "import logging, sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"
    try:
        tried = subprocess.run(
            [sys.executable, "-P", "-c", command, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOINS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"what answers there does not let us join in {JOINS:g} s") from error
    if tried.returncode:
        raise OSError((tried.stderr.strip().splitlines() or ["Ray gave up without a word"])[-1])


def _names(host: str) -> list[str]:
    """What a host is called; this machine is called two things, and Ray uses the one that others can reach it by."""
    host = host.strip("[]")
    return [host] if host not in ("localhost", "127.0.0.1") else [ray.util.get_node_ip_address(), host]


def _resolved(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name
