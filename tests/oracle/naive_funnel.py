"""The rules that the paper does not have, in plain torch: sizes that shrink, looks and means inside the SGD step, SGD
that is not interrupted, ends of trajectories as mates and as survivors, means and greedy soups as offspring."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.oracle.naive_esgd import Naive, pieces


@dataclass
class Walker:
    """A place that competes, and where its SGD stands if that is elsewhere."""

    name: str
    row: Tensor
    fitness: float
    standing: Tensor | None = None
    optimizer: dict | None = None
    kind: str = ""
    role: str = "held"


@dataclass
class NaiveFunnel(Naive):
    sizes: tuple[int, ...] = (6, 4, 3, 2, 2)
    epochs: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0)
    uninterrupted: bool = True
    returns: bool = False  # to what is kept, if an SGD step has passed nothing fitter
    shrink: float = 0.0  # of the parameters, where SGD begins without state
    drawn_kinds: tuple[str, ...] = ("",)
    random_rest: bool = False  # from all candidates but ends, not the fittest ends
    memory: float | None = None  # of an exponential average, in epochs
    rescale: float = 0.0  # standard deviation of the logarithm of what outputs are multiplied by
    begun_smaller: int = 0
    rescaled: int = 0

    def run_funnel(self) -> Iterator[list[Walker]]:
        self.module, self.generations = self.make_model(), len(self.epochs)
        founders = [self.founder(j) for j in range(self.sizes[0])]
        walkers = [Walker(each.name, each.row, each.fitness) for each in founders]
        for k in range(1, self.generations + 1):
            self.drawn = [self.pick(k, j) for j in range(self.sizes[k - 1])]
            ends = [self.walk(k, j, walker) for j, walker in enumerate(walkers)]
            walkers = self.select(k, [*walkers, *(end for end in ends if end is not None)])
            yield walkers

    def at(self, row: Tensor) -> float:
        torch.nn.utils.vector_to_parameters(row.clone(), self.module.parameters())  # which are views of it
        return self.score(self.module)

    def walk(self, k: int, j: int, walker: Walker) -> Walker | None:
        """One SGD step; returns its end where another place was kept."""
        policy, before, epochs = self.drawn[j], sum(self.epochs[: k - 1]), self.epochs[k - 1]
        x, y = self.train
        per_epoch = len(torch.arange(len(y)).split(self.batch_size))
        drawn = {name: value for name, value in policy.items() if name != "optimizer"}
        start = walker.row if walker.standing is None else walker.standing
        if self.shrink and walker.optimizer is None and k > 1:
            lost = self.shrink * torch.rand((), generator=self.random("sgd", k, j, "shrink"), dtype=torch.float64)
            start, self.begun_smaller = walker.row * (1.0 - lost).to(walker.row.dtype), self.begun_smaller + 1
        torch.nn.utils.vector_to_parameters(start.clone(), self.module.parameters())
        adam = policy["optimizer"] == "adam"
        optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(self.module.parameters(), **drawn, fused=True)
        kind = "adam" if adam else "sgd momentum" if policy["momentum"] else "sgd"
        if walker.optimizer is not None and walker.kind == kind:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": copy.deepcopy(walker.optimizer)})
        half, whole = (
            round((before + until) * per_epoch) - round(before * per_epoch) for until in (epochs / 2, epochs)
        )
        places, mean, seen = [(walker.fitness, walker.row, walker.optimizer)], list[Tensor](), 0
        promises = [(walker.fitness, 0.0)]
        ema = list[Tensor]()
        for number in range(whole):
            s, i = divmod(number, per_epoch)
            order = torch.randperm(len(y), generator=self.random("sgd", k, j, "data", s, "order"))
            batch = order.split(self.batch_size)[i]
            self.module.train()
            optimizer.zero_grad()
            F.cross_entropy(self.module(x[batch]), y[batch]).backward()
            optimizer.step()
            if self.memory is not None and (number + 1) % 2 == 0:
                here = [parameter.detach().clone() for parameter in self.module.parameters()]
                weight = max(2 / (number + 1), 1.0 - exp(-2 * (1 / per_epoch) / self.memory))
                ema = [torch.lerp(m, n, weight) for m, n in zip(ema, here, strict=True)] if ema else here
            if number + 1 == half:
                places.append((self.score(self.module), self.row(), copy.deepcopy(optimizer.state_dict()["state"])))
                promises.append(self.promise())
            elif number + 1 > half:
                seen += 1
                if seen % 2 == 0:
                    now = [parameter.detach().clone() for parameter in self.module.parameters()]
                    mean = [torch.lerp(m, n, 2 / seen) for m, n in zip(mean, now, strict=True)] if mean else now
        end, state = self.row(), copy.deepcopy(optimizer.state_dict()["state"])
        places.append((self.score(self.module), end, state))
        promises.append(self.promise())
        for average in (ema, mean):
            if not average:
                continue
            averaged = torch.cat([tensor.reshape(-1) for tensor in average])
            places.append((self.at(averaged), averaged, state))
            promises.append(self.promise())
        if self.rescale:
            chosen = min(range(len(places)), key=lambda i: promises[i][0])
            places.append(self.multiplied(places[chosen], promises[chosen][1]))
        best = min(range(len(places)), key=lambda i: places[i][0])
        walker.fitness, walker.row, kept = places[best]
        at_end = best == 2
        walker.role = "held" if best == 0 else "moved" if at_end else "passed"
        if self.uninterrupted and self.returns and best == 0:
            walker.optimizer, walker.kind, walker.standing = None, "", None
        elif self.uninterrupted:
            walker.optimizer, walker.kind, walker.standing = state, kind, None if at_end else end
        elif best:
            walker.optimizer, walker.kind = kept, kind
        if at_end:
            return None
        return Walker(f"{walker.name}@{k}", end, places[2][0], None, state, kind, "end")

    def promise(self) -> tuple[float, float]:
        """What to expect of the module if its output is multiplied by the number that suits it best, and the logarithm
        of that."""
        outputs = [(self.module(x).detach(), y) for x, y in pieces(self.fitness)]
        found = dict[float, float]()
        for x in (0.0, 0.1, -0.1, 0.2, -0.2, 0.4, -0.4, 0.8, -0.8):
            total = sum(float(F.cross_entropy(output * exp(x), y).double() * len(y)) for output, y in outputs)
            found[x] = total / len(self.fitness[1])
        doubt = max(1.0, found[0.0]) / (2 * self.rescale**2 * len(self.fitness[1])) if self.rescale else 0.0
        best = min(found, key=lambda x: found[x] + doubt * x**2)
        return found[best], best

    def multiplied(
        self, place: tuple[float, Tensor, dict | None], logarithm: float
    ) -> tuple[float, Tensor, dict | None]:
        """A place with the parameters of its last layer multiplied."""
        _, row, state = place
        last = sum(parameter.numel() for parameter in self.module[-1].parameters())
        row = torch.cat([row[:-last], row[-last:] * exp(logarithm)])
        self.rescaled += logarithm != 0.0
        return self.at(row), row, state

    def row(self) -> Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.module.parameters()])

    def select(self, k: int, everyone: list[Walker]) -> list[Walker]:
        survivors = self.sizes[k]
        elites = max(1, round(0.25 * survivors))
        possible = [each for each in everyone if each.role in ("moved", "end")] or everyone
        born = self.children(k, possible, elites)
        crowd = [each for each in everyone if each.role != "end" or not self.uninterrupted] + born
        order = sorted(range(len(crowd)), key=lambda i: crowd[i].fitness)
        chosen = order[:elites]
        continuing = ("moved", "passed", "held") if self.uninterrupted else ("moved", "end")
        going = [i for i in order if crowd[i].role in continuing and i not in chosen]
        shuffled = torch.randperm(len(crowd), generator=self.random("rest", k, 1)).tolist()
        if self.random_rest:
            going = [i for i in shuffled if crowd[i].role != "end" and i not in chosen]
        others = [i for i in shuffled if i not in chosen and i not in going]
        return [replace(crowd[i], role="held") for i in (chosen + going + others)[:survivors]]

    def children(self, k: int, possible: list[Walker], elites: int) -> list[Walker]:
        """The mean of the fittest, a greedy soup, then mates from the wheel."""
        ranked = sorted(possible, key=lambda each: each.fitness)
        mixtures = list[tuple[Tensor, float]]()
        if len(ranked[:elites]) > 1:
            mixtures.append((mixed(ranked[:elites]), 0.0))
        soup, best = ranked[:1], ranked[0].fitness
        for each in ranked[1:8]:
            if (fitness := self.at(mixed([*soup, each]))) < best:
                soup, best = [*soup, each], fitness
        if len(soup) > 1:
            mixtures.append((mixed(soup), 0.0))
        for i in range(self.sizes[k - 1]):
            kind = self.drawn_kinds[0]
            if len(self.drawn_kinds) > 1:
                wheel = torch.ones(len(self.drawn_kinds), dtype=torch.float64)
                kind = self.drawn_kinds[
                    int(torch.multinomial(wheel, 1, generator=self.random("breed", k, 1, i, "kind")))
                ]
            mixtures.append((self.mated(k, i, possible, kind), 0.0 if kind else 0.01 / k))
        born = list[Walker]()
        for row, sigma in mixtures[: self.sizes[k - 1]]:
            name = f"{k}.1.{len(born)}"
            if sigma:
                row = row + sigma * torch.randn(len(row), generator=self.random("noise", name))
            born.append(Walker(name, row, self.at(row), role="offspring"))
        return born

    def mated(self, k: int, i: int, possible: list[Walker], kind: str) -> Tensor:
        sizes = torch.full((3,), 1 / 3, dtype=torch.float64)
        rho = (1, 2, 4)[int(torch.multinomial(sizes, 1, generator=self.random("breed", k, 1, i, "rho")))]
        f = torch.tensor([each.fitness for each in possible], dtype=torch.float64)
        wheel = f.max() - f + 0.01 * (f.max() - f.min()) if f.max() > f.min() else torch.ones_like(f)
        drawn = torch.multinomial(wheel, min(rho, len(f)), generator=self.random("breed", k, 1, i, "mates")).tolist()
        mates = sorted(drawn, key=lambda j: (possible[j].fitness, j))
        rows = torch.stack([possible[j].row for j in mates])
        if kind == "clone":
            return rows[0]
        if kind == "extrapolation":  # the fittest + 1.5 (mean − fittest)
            each = 1.5 / len(mates)
            return torch.tensor([each - 0.5, *[each] * (len(mates) - 1)]) @ rows
        return rows.mean(dim=0)


def mixed(walkers: list[Walker]) -> Tensor:
    weights = torch.tensor((1.0 / len(walkers),) * len(walkers))
    return weights @ torch.stack([each.row for each in walkers])
