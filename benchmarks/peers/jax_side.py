"""JAX with optax: the population in one compiled program.

    python -m benchmarks.peers.jax_side WORKLOAD vmap|scan|step [--quick]      (a child; `speed.py` starts it)

Every individual has its own weights, learning rate, momentum and batches. Three ways to write it, because none is the
best for every network; a comparison is with the best of them:

- vmap: `jit(vmap(train))`, a `lax.scan` over the steps, all individuals at once;
- scan: `jit(lax.map(train))`, the same scan, one individual after another;
- step: `jit(step)`, called from Python for every individual and step, with donated buffers. XLA's CPU convolutions
  are slower inside a loop of its own.

Kind to it: data are on the device, orders are drawn outside the clock, compilation is in the one-off cost, and there
is no fitness at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

from benchmarks.children import Answer, serve
from benchmarks.peers.jax_networks import NETWORKS, Network, Tree, as_jax
from benchmarks.workloads import Workload, asked_for

Carry = tuple[Tree, Tree, Tree]


def updated(network: Network, x: jax.Array, y: jax.Array, hyper: jax.Array, carry: Carry, rows: jax.Array) -> Carry:
    """One step of SGD with momentum."""
    parameters, statistics, state = carry
    gradients, statistics = jax.grad(network.loss, has_aux=True)(parameters, statistics, x[rows], y[rows])
    updates, state = optax.sgd(hyper[0], momentum=hyper[1]).update(gradients, state)
    return optax.apply_updates(parameters, updates), statistics, state


def fresh(parameters: Tree, hyper: jax.Array) -> Tree:
    return optax.sgd(hyper[0], momentum=hyper[1]).init(parameters)


class Jax:
    def __init__(self, workload: Workload, variant: str) -> None:
        self.workload, self.variant, self.rng = workload, variant, np.random.default_rng(0)
        (x, y), _ = workload.data()
        self.x, self.y = as_jax(x.numpy(), y.numpy())
        self.network = NETWORKS[workload.name]()
        created = [self.network.create(self.rng) for _ in range(workload.individuals)]
        self.population = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *created))
        self.hyper = jnp.asarray(workload.hyper(), jnp.float32)

    def open(self) -> None:
        """Define; compilation happens in the first round."""
        whole = {"vmap": jax.vmap, "scan": lambda train: partial(lax.map, lambda each: train(*each))}
        if self.variant in whole:
            many = whole[self.variant](self._train)
            self.train: Callable[..., Any] = jax.jit(many if self.variant == "vmap" else lambda *stacked: many(stacked))
        else:
            step = jax.jit(partial(updated, self.network), donate_argnums=3)
            self.train = partial(self._one_step_at_a_time, step)

    def _train(self, individual: tuple[Tree, Tree], hyper: jax.Array, orders: jax.Array) -> Tree:
        parameters, statistics = individual
        carry = parameters, statistics, fresh(parameters, hyper)
        step = partial(updated, self.network, self.x, self.y, hyper)
        return lax.scan(lambda carry, rows: (step(carry, rows), None), carry, orders)[0]

    def _one_step_at_a_time(self, step: Callable[..., Carry], population: Tree, hyper: Any, orders: Any) -> list[Carry]:
        ends = []
        for j in range(self.workload.individuals):
            parameters, statistics = jax.tree.map(lambda leaf, j=j: leaf[j], population)
            carry = parameters, statistics, fresh(parameters, hyper[j])
            for rows in orders[j]:
                carry = step(self.x, self.y, hyper[j], carry, rows)
            ends.append(carry)
        return ends

    def round(self) -> Answer:
        load, each = self.workload, self.workload.samples // self.workload.batch
        orders = [[self.rng.permutation(load.samples) for _ in range(load.epochs)] for _ in range(load.individuals)]
        stacked = np.asarray(orders, np.int32).reshape(load.individuals, load.epochs * each, load.batch)
        rows = jax.block_until_ready(jnp.asarray(stacked)) if self.variant != "step" else stacked
        begun = perf_counter()
        jax.block_until_ready(self.train(self.population, self.hyper, rows))
        return {"seconds": perf_counter() - begun}


if __name__ == "__main__":
    serve(lambda: Jax(asked_for(), sys.argv[2]))
