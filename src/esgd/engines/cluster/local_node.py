"""The processes of Ray that a driver cannot do without: the raylet of its machine, and the GCS of a Ray started here.

A driver that asks anything of a raylet which has died is ended by Ray at once, with exit code 1 and without a word. One
whose GCS has died works for another minute and is ended then. So both are looked at before anything is asked of them.
What is left is a raylet that dies while the driver reads from its object store or writes to it: Ray ends the driver.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from ray._private import ray_constants, worker

from esgd.errors import EngineError

NEEDED = {ray_constants.PROCESS_TYPE_RAYLET: "raylet", ray_constants.PROCESS_TYPE_GCS_SERVER: "GCS"}


class LocalNode:
    """Ray on this machine, as long as it is there."""

    def __init__(self) -> None:
        self._node: Any = vars(worker)["_global_node"]
        self._raylet = socket.socket(socket.AF_UNIX)
        with suppress(OSError):  # it is gone already: that is seen at the first look
            self._raylet.connect(self._node.raylet_socket_name)
        self._raylet.setblocking(False)

    @property
    def lost(self) -> str:
        """Which of the processes has died, or nothing. A connection to the raylet ends with it, also if another program
        started it."""
        if self._hung_up():
            return "raylet"
        dead = [NEEDED[kind] for kind, _ in self._node.dead_processes() if kind in NEEDED]
        return dead[0] if dead else ""

    def check(self) -> None:
        """Refuse to continue without them."""
        if lost := self.lost:
            raise EngineError(
                f"Ray's {lost} on this machine has died, and no driver can work without it. Most often the system "
                f"ended it because memory was short, or somebody ended Ray. Use fewer workers (Ray(workers=…)), or "
                f"engine='pool', which needs no Ray; what Ray wrote is in the logs of its session."
            )

    def close(self) -> None:
        self._raylet.close()

    def _hung_up(self) -> bool:
        try:
            return self._raylet.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False  # it is there, and has nothing to say
        except OSError:
            return True
