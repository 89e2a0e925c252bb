"""What a Ray starts for a worker in tests, in place of its own `setup_worker.py`: see `tests.warm.ray_workers`.

Ray's script imports ray and becomes a second Python, which imports ray again, and torch and esgd for an actor of ours.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.warm import Process

ITS_OWN = ("--serialized-runtime-env-context", "--language")  # what Ray says to the script, not to the worker
# What ray imports. Not ray itself: it reads RAY_… when it is imported, and each worker has its own.
USED_BY_RAY = ("google.protobuf.json_format", "jsonschema", "psutil", "requests", "yaml")

if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if not word.startswith(ITS_OWN)]
    # When a worker ends, Ray ends its process group.
    sys.exit(Process(*arguments, process_group=True, preload=USED_BY_RAY).wait())
