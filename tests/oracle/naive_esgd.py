"""Algorithm 1 in plain torch, on one page, and without the library: lists of ordinary modules, nothing clever.

It knows only two things about the library that the paper does not say: by which words each random number is addressed,
and in which pieces the fitness set is read. Everything else is the paper.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Data = tuple[Tensor, Tensor]


@dataclass
class Individual:
    module: nn.Module
    name: str
    fitness: float = float("nan")
    policy: dict | None = None
    parents: tuple[str, ...] = ()

    @property
    def row(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])


@dataclass
class Naive:
    make_model: Callable[[], nn.Module]
    train: Data
    fitness: Data
    seed: int
    mu: int = 16
    mates: tuple[int, ...] = (2,)
    generations: int = 10
    sgd_epochs: int = 3
    evolution_steps: int = 1
    per_epoch: bool = False
    batch_size: int = 32
    drawn: list[dict] = field(default_factory=list)
    refused: int = 0

    def number(self, *address: str | int) -> int:
        return int.from_bytes(blake2b(repr((self.seed, *address)).encode(), digest_size=8).digest(), "big") >> 1

    def random(self, *address: str | int) -> torch.Generator:
        return torch.Generator().manual_seed(self.number(*address))

    def uniform(self, low: float, high: float, *address: str | int) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.random(*address), dtype=torch.float64))

    def run(self) -> Iterator[list[Individual]]:
        population = [self.founder(j) for j in range(self.mu)]
        for k in range(1, self.generations + 1):
            self.drawn, self.refused = [self.pick(k, j) for j in range(self.mu)], 0
            for j, individual in enumerate(population):
                self.sgd(k, j, individual)
            for v in range(1, self.evolution_steps + 1):
                population = self.evolve(k, v, population)
            yield population

    def founder(self, j: int) -> Individual:
        with torch.random.fork_rng():
            torch.manual_seed(self.number("init", j))
            newborn = Individual(self.make_model(), f"0.0.{j}")
        newborn.fitness = self.score(newborn.module)
        return newborn

    def pick(self, k: int, j: int) -> dict:
        at = ("policy", k, j)
        gamma = 0.05 ** (1 / self.generations)
        adam = int(torch.multinomial(torch.ones(2, dtype=torch.float64), 1, generator=self.random(*at, "species")))
        if adam:
            return {"optimizer": "adam", "lr": gamma**k * self.uniform(3e-4, 1e-2, *at, "lr")}
        moves = self.uniform(0, 1, *at, "use momentum") < 0.8
        nesterov = moves and self.uniform(0, 1, *at, "use nesterov") < 0.5
        momentum = self.uniform(0.1, 0.9, *at, "momentum") if moves else 0.0
        lr = gamma**k * self.uniform(0.01, 0.5, *at, "lr")
        return {"optimizer": "sgd", "lr": lr, "momentum": momentum, "nesterov": nesterov}

    def sgd(self, k: int, j: int, individual: Individual) -> None:
        policy, module = self.drawn[j], individual.module
        cls, always = (
            (torch.optim.Adam, {"betas": (0.9, 0.999)}) if "adam" in policy.values() else (torch.optim.SGD, {})
        )
        drawn = {name: value for name, value in policy.items() if name != "optimizer"}
        optimizer = cls(module.parameters(), **drawn, **always, fused=True)
        begun, before = copy.deepcopy((module.state_dict(), optimizer.state_dict())), individual.fitness
        for s in range(self.sgd_epochs):
            self.epoch(k, j, s, module, optimizer)
            if not self.per_epoch and s + 1 < self.sgd_epochs:
                continue
            after = self.score(module)
            if after <= before and after < float("inf"):
                individual.fitness, individual.policy = after, policy
                begun, before = copy.deepcopy((module.state_dict(), optimizer.state_dict())), after
            else:
                module.load_state_dict(begun[0])
                optimizer.load_state_dict(copy.deepcopy(begun[1]))
                self.refused += 1

    def epoch(self, k: int, j: int, s: int, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        module.train()
        x, y = self.train
        order = torch.randperm(len(y), generator=self.random("sgd", k, j, "data", s, "order"))
        with torch.random.fork_rng():
            torch.manual_seed(self.number("sgd", k, j, "globals", s))
            for batch in order.split(self.batch_size):
                optimizer.zero_grad()
                F.cross_entropy(module(x[batch]), y[batch]).backward()
                optimizer.step()

    def evolve(self, k: int, v: int, parents: list[Individual]) -> list[Individual]:
        everyone = parents + [self.offspring(k, v, i, parents) for i in range(4 * self.mu)]
        order = sorted(range(len(everyone)), key=lambda i: everyone[i].fitness)
        elites = order[: max(1, round(0.6 * self.mu))]
        shuffled = torch.randperm(len(everyone), generator=self.random("rest", k, v)).tolist()
        rest = [i for i in shuffled if i not in elites][: self.mu - len(elites)]
        return [copy.deepcopy(everyone[i]) for i in elites + rest]

    def offspring(self, k: int, v: int, i: int, parents: list[Individual]) -> Individual:
        sizes = torch.ones(len(self.mates), dtype=torch.float64)
        rho = self.mates[int(torch.multinomial(sizes, 1, generator=self.random("breed", k, v, i, "rho")))]
        f = torch.tensor([parent.fitness for parent in parents], dtype=torch.float64)
        wheel = f.max() - f + 0.01 * (f.max() - f.min()) if f.max() > f.min() else torch.ones_like(f)
        drawn = torch.multinomial(wheel, rho, generator=self.random("breed", k, v, i, "mates")).tolist()
        mates = [parents[j] for j in sorted(drawn, key=lambda j: (parents[j].fitness, j))]
        child = Individual(copy.deepcopy(mates[0].module), f"{k}.{v}.{i}", policy=mates[0].policy)
        child.parents = tuple(mate.name for mate in mates)
        row = torch.stack([mate.row for mate in mates]).mean(dim=0)
        noise = torch.randn(len(row), generator=self.random("noise", child.name))
        torch.nn.utils.vector_to_parameters(row + 0.01 / k * noise, child.module.parameters())
        for own, *theirs in zip(child.module.buffers(), *(mate.module.buffers() for mate in mates), strict=True):
            own.copy_(torch.stack(theirs).mean(dim=0) if own.is_floating_point() else theirs[0])
        child.fitness = self.score(child.module)
        return child

    @torch.no_grad()
    def score(self, module: nn.Module) -> float:
        norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d)]
        module.eval()
        for layer in norms:  # statistics afresh: the mean over equal pieces of the first 1,024 training samples
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        first = self.train[0][:1024]
        for x in first.split(ceil(len(first) / ceil(len(first) / 256))) if norms else []:
            module(x)
        module.eval()
        total = 0.0
        for x, y in pieces(self.fitness):
            total += float(F.cross_entropy(module(x), y).double() * len(y))
        return total / len(self.fitness[1]) if total / len(self.fitness[1]) < float("inf") else float("inf")


def pieces(data: Data) -> Iterator[Data]:
    """The data in about eight fixed pieces of 64 to 1024."""
    x, y = data
    size = min(1024, max(64, ceil(len(y) / 8)))
    return zip(x.split(size), y.split(size), strict=True)
