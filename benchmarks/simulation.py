"""Where would ten thousand workers wait? A simulation: python -m benchmarks.simulation

Measured are the driver's time for an individual and the cost of a lost node (`benchmarks.cluster`). Assumed are the
network, how unequal workers are, and how often a node is lost: no cluster was there to measure them on. Events are
drawn, so each line is the median of several generations.

A generation: individuals are sent to workers and trained; parents go to the nodes; births are evaluated; survivors come
back. What a cause costs is the difference to the same simulation without it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from math import ceil, exp
from random import Random
from statistics import median
from typing import Literal

DRIVER, LOST_NODE = 1.33e-3, 6.2
"""Measured: seconds of the driver for an individual with its four births, and until a lost node's work begins again."""
BIRTHS = 4  # of an individual


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What there is, and what is trained: as many individuals as workers. Seconds are means of one worker."""

    workers: int
    per_node: int = 16
    gigabits: float = 10.0
    training: float = 60.0
    fitness: float = 1.0
    row: float = 10e6  # bytes
    spread: float = 0.1  # of the logarithm of a duration
    slowed: float = 0.01  # the share of jobs that take five times as long
    node_days: float = 1.0  # until a node is lost, on average
    driver: float = DRIVER

    @property
    def nodes(self) -> int:
        return ceil(self.workers / self.per_node)

    def seconds(self, rows: float) -> float:
        """To send so many rows through one connection."""
        return 8 * rows * self.row / (self.gigabits * 1e9)


@dataclass(frozen=True, kw_only=True)
class Design:
    """How work travels. The defaults are what `Ray` does today."""

    parents: Literal["driver", "tree", "peers"] = "driver"
    individuals_per_message: int = 1
    slow: float = 3.0  # a job that takes so many times the usual is started again elsewhere
    barrier: bool = True


TODAY = Design()
DESIGNS = {
    "today": TODAY,
    "+ a tree of nodes passes parents on": Design(parents="tree"),
    "+ nodes fetch the mates they need": Design(parents="peers"),
    "+ a message for the 16 individuals of a node": Design(parents="peers", individuals_per_message=16),
    "+ a slow job is started again after 1.5 times": Design(parents="peers", individuals_per_message=16, slow=1.5),
    "+ survival as individuals finish": Design(parents="peers", individuals_per_message=16, barrier=False),
}


def generation(cluster: Cluster, design: Design, random: Random) -> float:
    """Seconds of one generation."""
    sent = cluster.driver / design.individuals_per_message
    births = BIRTHS * cluster.workers
    if not design.barrier:  # nothing waits for the slowest: the work, or the driver, or a node's connection
        usual = (1 + 4 * cluster.slowed) * exp(cluster.spread**2 / 2)  # the mean of what is drawn
        work = (cluster.training + BIRTHS * cluster.fitness) * usual
        return max(work, cluster.workers * sent, transfer(cluster, design))
    trained = phase(cluster, design, cluster.workers, cluster.training, sent, random)
    return trained + transfer(cluster, design) + phase(cluster, design, births, cluster.fitness, 0.0, random)


def transfer(cluster: Cluster, design: Design) -> float:
    """Seconds in which rows move: individuals out and back, parents to every node, survivors back."""
    mu, births_on_node = cluster.workers, BIRTHS * cluster.per_node
    if design.parents == "driver":
        return cluster.seconds(3 * mu + cluster.nodes * mu)
    if design.parents == "tree":
        return cluster.seconds(3 * mu + mu)
    return cluster.seconds(3 * cluster.per_node + min(mu, 2 * births_on_node))  # rows stay on nodes; two mates a birth


def phase(cluster: Cluster, design: Design, jobs: int, seconds: float, sent: float, random: Random) -> float:
    """Seconds until the last of so many jobs is done. The driver sends one after another to a free worker."""
    free = [(0.0, worker) for worker in range(cluster.workers)]
    heapify(free)
    lost = [random.expovariate(1 / (cluster.node_days * 86_400)) for _ in range(cluster.nodes)]
    last = 0.0
    for job in range(jobs):
        begin, worker = max(free[0][0], job * sent), free[0][1]
        took = seconds * _drawn(cluster, random)
        if took > design.slow * seconds:
            took = min(took, seconds * (design.slow + _drawn(cluster, random)))
        if begin < lost[worker // cluster.per_node] <= begin + took:
            took = lost[worker // cluster.per_node] - begin + LOST_NODE + seconds * _drawn(cluster, random)
        heapreplace(free, (begin + took, worker))
        last = max(last, begin + took)
    return last


def _drawn(cluster: Cluster, random: Random) -> float:
    """How long a job takes, relative to the usual."""
    slow = 5.0 if random.random() < cluster.slowed else 1.0
    return slow * exp(random.gauss(0.0, cluster.spread))


def told(cluster: Cluster, design: Design, repeats: int = 5) -> float:
    return median(generation(cluster, design, Random(number)) for number in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=float, default=60.0, help="seconds of an individual's SGD step [60]")
    parser.add_argument("--row", type=float, default=10e6, help="bytes of an individual [10e6]")
    parser.add_argument("--most", type=int, default=10_000, help="workers, at most [10000]")
    options = parser.parse_args()
    sizes = [n for n in (10, 100, 1_000, 10_000) if n <= options.most]
    clusters = [Cluster(workers=n, training=options.training, row=options.row) for n in sizes]
    print(
        "| workers | seconds of a generation | busy | driver | network | unequal workers | lost nodes |\n"
        + "|---:" * 7
        + "|"
    )
    for one in clusters:
        seconds, work = told(one, TODAY), one.training + BIRTHS * one.fitness
        even = replace(one, spread=0.0, slowed=0.0)
        causes = (replace(one, driver=0.0), replace(one, gigabits=1e9), even, replace(one, node_days=1e9))
        costs = [seconds - told(cause, TODAY) for cause in causes]
        print(
            f"| {one.workers:,} | {seconds:.0f} | {work / seconds:.0%} | "
            + " | ".join(f"{c:.1f}" for c in costs)
            + " |"
        )
    print("\n| design | " + " | ".join(f"{n:,} workers" for n in sizes) + " |\n|---|" + "---:|" * len(sizes))
    for name, design in DESIGNS.items():
        print(f"| {name} | " + " | ".join(f"{told(one, design):.0f}" for one in clusters) + " |")


if __name__ == "__main__":
    main()
