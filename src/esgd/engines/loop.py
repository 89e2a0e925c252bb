"""`Loop`: one individual after another in plain PyTorch. This engine is the specification of all others."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from math import inf

import torch
from torch import Tensor

from esgd.engines.bench import Bench, samples_in
from esgd.engines.walk import Mark, SingleWalk, packed
from esgd.errors import RecipeError
from esgd.genome import Row
from esgd.ledger import Work
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import Rules, Scores, Step, Tick, Trained, Workshop


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Train and evaluate in this process, one individual at a time, on one device.

    `threads` are torch's threads while it works; None leaves torch's own choice. The bits of a large matrix product may
    depend on it, so a run that is resumed keeps it.
    """

    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise RecipeError(
                f"device={self.device!r} cannot be used here: {str(error).splitlines()[0]} Use device='cpu', or a "
                f"device that this PyTorch build and this machine have."
            ) from error

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        yield LoopWorkshop(Bench(rules, torch.device(self.device)), tick, self.threads)


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Set torch's threads for a while; the caller's choice comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class LoopWorkshop:
    """`Loop` at work."""

    def __init__(self, bench: Bench, tick: Tick, threads: int | None = None) -> None:
        self.bench, self.tick, self.threads, self.work = bench, tick, threads, Work()

    def spent(self) -> Work:
        spent, self.work = self.work, Work()
        return spent

    def train(self, population: Population, policies: Sequence[Policy], step: Step) -> Trained:
        rules, n = self.bench.rules, len(population)
        self.bench.forget_order()
        rows, fitness = population.rows.clone(), population.fitness.clone()
        buffers = {name: stacked.clone() for name, stacked in population.buffers.items()}
        accepted, baggage = list(population.policies), list(population.baggage)
        moved, diverged = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        refused, ends = torch.zeros(n, dtype=torch.int64), list[Population]()
        for j, policy in enumerate(policies):
            seeds = rules.seeds.at("sgd", step.k, j)
            with torch_threads(self.threads):
                walk = SingleWalk(self.bench, population[j], policy=policy, step=step, seeds=seeds, row=rows[j])
                refused[j] = step.backoff(walk, step.epochs)[0]
            rows[j] = self.bench.row()
            for name, value in self.bench.buffers().items():
                buffers[name][j] = value
            fitness[j], moved[j], diverged[j] = walk.fitness[0], walk.moved, walk.diverged
            accepted[j] = policy if walk.moved else accepted[j]
            if walk.moved or not rules.baggage.keeps:
                baggage[j] = packed(policy, walk.optimizer.state_dict()) if rules.baggage.keeps else None
            if walk.end is not None and not walk.moved and walk.end.fitness < inf:
                ends.append(self._end(population[j], policy, walk.end, step.k))
            self.work += walk.work
            self.tick("sgd", j + 1, n)
        trained = replace(
            population,
            rows=rows,
            buffers=buffers,
            fitness=fitness,
            policies=tuple(accepted),
            baggage=tuple(baggage),
        )
        left = reduce(Population.join, ends, trained[[]])
        return Trained(population=trained, moved=moved, refused=refused, diverged=diverged, ends=left)

    def _end(self, start: Population, policy: Policy, end: Mark, k: int) -> Population:
        """Where an individual that backed off would have gone on from: somebody else from here on."""
        birth = start.births[0]
        return replace(
            start,
            births=(replace(birth, id=f"{birth.id}@{k}", parents=(birth.id,)),),
            rows=end.row[None],
            buffers={name: value[None] for name, value in end.buffers.items()},
            fitness=torch.tensor([end.fitness], dtype=torch.float64),
            policies=(policy,),
            baggage=(packed(policy, end.optimizer) if self.bench.rules.baggage.keeps else None,),
        )

    def evaluate(self, parents: Population, births: Sequence[Birth], elites: int | None = None) -> Scores:
        fitness = torch.full((len(births),), inf, dtype=torch.float64)
        complete, begun = torch.ones(len(births), dtype=torch.bool), {}
        best = sorted(parents.fitness.tolist())
        self.bench.forget_order()
        for i, birth in enumerate(births):
            with self.work.clock("evolution"):
                self.bench.seat(*self.bench.conceive(parents, birth))
            cutoff = best[elites - 1] if elites is not None and elites <= len(best) else inf
            with self.work.clock("fitness"), torch_threads(self.threads):
                score = self.bench.score(cutoff)
            fitness[i], complete[i] = score.fitness, score.complete
            if not score.complete:
                begun[i] = score.parts
            insort(best, score.fitness)
            self.work.fitness_evolution += score.samples
            self.work.fitness_saved += score.saved
            self.tick("evolution", i + 1, len(births))
        return Scores(fitness=fitness, complete=complete, begun=begun)

    def unite(self, parents: Population, births: Sequence[Birth], scores: Scores, chosen: Sequence[int]) -> Population:
        n, mu = len(parents), len(chosen)
        rows = torch.empty(mu, parents.genome.size, dtype=parents.genome.dtype)
        buffers = {name: stacked.new_empty(mu, *stacked.shape[1:]) for name, stacked in parents.buffers.items()}
        fitness = torch.empty(mu, dtype=torch.float64)
        for place, index in enumerate(chosen):
            if index < n:
                rows[place], fitness[place] = parents.rows[index], parents.fitness[index]
                own = {name: stacked[index] for name, stacked in parents.buffers.items()}
            else:
                rows[place], fitness[place], own = self._born(parents, births[index - n], scores, index - n)
            for name, value in own.items():
                buffers[name][place] = value
        origins = [index if index < n else births[index - n].mates[0] for index in chosen]
        born = {place: births[index - n] for place, index in enumerate(chosen) if index >= n}
        inherit = self.bench.rules.baggage.inherit
        return Population(
            genome=parents.genome,
            rows=rows,
            buffers=buffers,
            fitness=fitness,
            births=tuple(born.get(place, parents.births[origin]) for place, origin in enumerate(origins)),
            policies=tuple(parents.policies[origin] for origin in origins),
            baggage=tuple(
                inherit([parents.baggage[mate] for mate in born[place].mates])
                if place in born
                else parents.baggage[origin]
                for place, origin in enumerate(origins)
            ),
        )

    def _born(
        self, parents: Population, birth: Birth, scores: Scores, number: int
    ) -> tuple[Row, float, dict[str, Tensor]]:
        """Build a surviving offspring again, and finish its evaluation if that was aborted."""
        with self.work.clock("evolution"):
            row, buffers = self.bench.conceive(parents, birth)
            self.bench.seat(row, buffers)
        with self.work.clock("fitness"), torch_threads(self.threads):
            if scores.complete[number]:
                self.work.fitness_evolution += self.bench.calibrate()
                return row, float(scores.fitness[number]), self.bench.buffers()
            begun = scores.begun.get(number, {})
            score = self.bench.score(begun=begun)
            self.work.fitness_evolution += score.samples
            self.work.fitness_saved -= samples_in(score.parts) - samples_in(begun) if begun else 0  # needed after all
            return row, score.fitness, self.bench.buffers()
