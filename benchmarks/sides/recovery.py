"""An SGD step in which the only worker's node is killed, beside one in which nothing happens.

    python -m benchmarks.sides.recovery [--quick]      (a child; `cluster.py` starts it)

The nodes are processes of this machine: a head that does no work, one for the worker, and one that is free.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import ray
from ray.cluster_utils import Cluster
from torch import Tensor
from torch.nn import functional as F

import esgd
from benchmarks.children import Answer, serve
from benchmarks.workloads import mlp, taught
from esgd._algorithm.initialization import prepare
from esgd.operators import Never, RandomStart
from esgd.protocols import Step

INDIVIDUALS, SAMPLES, BATCH = 4, 128, 32
SECONDS = 2.0
"""Of an individual's SGD step; half of them are lost with the node."""


class Recovery:
    def __init__(self, seconds: float, exits: ExitStack) -> None:
        self.seconds, self.exits = seconds, exits
        self.note = Path(exits.enter_context(tempfile.TemporaryDirectory())) / "node"
        train = taught(SAMPLES, shape=(4,), classes=2)
        loss = partial(slow_loss, pause=seconds * BATCH / SAMPLES, note=self.note)
        task = esgd.Supervised(partial(mlp, 4, 2), loss, train=train, fitness=train, batch_size=BATCH, nonnegative=True)
        self.setup = prepare(task, esgd.Recipe(population=INDIVIDUALS), 0)
        self.killer: threading.Timer | None = None

    def open(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.exits.callback(self.cluster.shutdown)
        self.cluster.add_node(num_cpus=1)
        self.cluster.add_node(num_cpus=1)
        engine = esgd.Ray(workers=1, address=self.cluster.address)
        self.session = self.exits.enter_context(engine.open(self.setup, self.tick))
        seeds = self.setup.seeds.at("init")
        self.start = RandomStart()(self.setup.task, self.setup.genome, self.session, INDIVIDUALS, seeds)

    def tick(self, phase: str, done: int, total: int) -> None:
        """After the first individual, in the middle of the second."""
        if self.killer is not None and phase == "sgd" and done == 1:
            self.killer.start()

    def kill(self) -> None:
        (node,) = [node for node in self.cluster.worker_nodes if node.node_id == self.note.read_text()]
        self.cluster.remove_node(node, allow_graceful=False)

    def train(self) -> float:
        begun = perf_counter()
        policies = [esgd.Policy(optimizer="sgd", hyper={"lr": 0.1})] * INDIVIDUALS
        self.session.train(self.start, policies, Step(k=1, epochs=1, backoff=Never()))
        return perf_counter() - begun

    def round(self) -> Answer:
        quiet = self.train()
        self.killer = threading.Timer(self.seconds / 2, self.kill)
        hurt = self.train()
        self.killer = None
        self.cluster.add_node(num_cpus=1)  # for the next time
        return {"seconds": hurt, "quiet": quiet, "lost": self.seconds / 2}


def slow_loss(output: Tensor, target: Tensor, *, pause: float, note: Path) -> Any:
    """Takes its time in training, and notes down where."""
    if output.requires_grad:
        note.write_text(ray.get_runtime_context().get_node_id())
        sleep(pause)
    return F.cross_entropy(output, target)


if __name__ == "__main__":
    with ExitStack() as exits:
        serve(lambda: Recovery(0.4 if "--quick" in sys.argv else SECONDS, exits))
