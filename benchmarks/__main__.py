"""Everything, one script after another, and then the table: `make bench`, or

    python -m benchmarks [--quick] [--out FOLDER] [--peers PYTHON]

Options go to every script. Each runs in a process of its own, so that none inherits the memory or threads of another.
"""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

from benchmarks.children import ROOT

SCRIPTS = (
    *("speed", "against_ray", "mishaps", "generation_cost", "joints", "loader"),
    *("memory", "growth", "thousand", "long_runs", "cluster", "table"),
)


def main() -> int:
    begun, failed = perf_counter(), []
    for script in SCRIPTS:
        print(f"== {script}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{script}", *sys.argv[1:]], cwd=ROOT)
        if done.returncode:
            failed.append(script)
    print(f"{(perf_counter() - begun) / 60:.1f} minutes" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
