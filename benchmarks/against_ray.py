"""A whole run of ours against Ray Tune's population-based training of as many networks for as many epochs.

    python -m benchmarks.against_ray [--only W1] [--repeats 2] [--quick]

Unlike `speed.py` this compares methods with everything they do between the epochs: ours with the fitness of λ = 4 μ
offspring, breeding and a checkpoint on disk in every generation, theirs with scheduling and the checkpoints of
trials. The ratio that has a target is that of total times. Another one is shown beside it: net of start-up on both
sides, with Ray's time scaled down to the iterations asked for, since PBT repeats some when it exploits.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.children import Answer, Child, SideError
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from benchmarks.workloads import GENERATION_EPOCHS, GENERATIONS, WORKLOADS

REPEATS, PATIENCE = 3, 300.0
TARGETS = {"W1": 5.0, "W2": 2.0}
"""Of the total times."""


def net(answer: Answer, individuals: int) -> float:
    """Seconds of Ray's training for the iterations that were asked for."""
    return float(answer["net"]) * min(1.0, individuals * GENERATIONS / answer["iterations"])


def main() -> None:
    given = arguments(__doc__)
    quick, repeats = ["--quick"] if given.quick else [], given.repeats or (1 if given.quick else REPEATS)
    if not Path(given.peers).is_file():
        print("The peers' environment is missing; `make bench` creates it. Without it there is nothing to compare.")
        return
    for name in given.only or TARGETS:
        ours = Child(sys.executable, "benchmarks.sides.whole", [name, "auto", *quick], patience=PATIENCE)
        theirs = Child(given.peers, "benchmarks.peers.ray_side", [name, *quick], patience=PATIENCE)
        try:
            ours.answer(), theirs.answer()
            ours.ask("open"), theirs.ask("open")
            quiet, pairs = Quiet(), []
            for _ in range(repeats):
                quiet.look()
                pairs.append((ours.ask("round"), theirs.ask("round")))
        except SideError as error:
            print(f"{name}: {error}")
            continue
        finally:
            ours.close(), theirs.close()
        workload = WORKLOADS[name].tiny() if given.quick else WORKLOADS[name]
        nets = [net(ray, workload.individuals) / us["net"] for us, ray in pairs]
        totals = [ray["seconds"] / us["seconds"] for us, ray in pairs]
        save(
            given.out,
            "ray",
            name,
            [
                spread("auto, a whole run, against Ray Tune PBT, net of start-up", nets),
                spread("auto, a whole run, against Ray Tune PBT, in total", totals, target=TARGETS.get(name)),
            ],
            about=f"{workload.about}, {GENERATIONS} generations of {GENERATION_EPOCHS} epochs",
            busy=quiet.worst,
            ours=[us for us, _ in pairs],
            ray=[ray for _, ray in pairs],
        )


if __name__ == "__main__":
    main()
