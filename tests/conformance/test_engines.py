"""Every built-in engine equals `Loop`, and every sentence of `check_engine` is earned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import pytest
import torch

from esgd import Loop, Pool, Ray, Vmap, engines
from esgd._algorithm.initialization import prepare, scored
from esgd.operators import RandomStart
from esgd.protocols import Scores
from esgd.testing import check_engine
from esgd.testing.miniature import RECIPE, births, miniature, perceptron

EXACT = [Loop(), Pool(workers=2), Ray(workers=2)]  # Loop(threads=1) is inside the one around another
ROUNDED = [
    Vmap(chunk=1),
    Vmap(chunk=2, threads=1),
    Vmap(chunk=8),
    Pool(inner=Vmap(chunk=3), workers=2),
]
pytestmark = pytest.mark.usefixtures("warm_workers")


def each(engines: list[Any]) -> list[Any]:
    return [pytest.param(one, id=str(one), marks=pytest.mark.slow if isinstance(one, Ray) else ()) for one in engines]


@pytest.fixture(autouse=True)
def shared(request: pytest.FixtureRequest) -> None:
    """Give the engines that need a cluster the same one."""
    if isinstance(getattr(request.node, "callspec", None) and request.node.callspec.params.get("engine"), Ray):
        request.getfixturevalue("cluster")


@pytest.fixture(scope="module")
def cluster(warm_ray_workers: None) -> Iterator[None]:
    """A check opens its engine several times: they share a Ray."""
    from esgd.engines.cluster.connection import connected
    from esgd.engines.cluster.resources import WorkerResources

    with connected(None, WorkerResources(cpus=1, gpus=0), 3):
        yield


def test_no_engine_is_left_out() -> None:
    exported = {name for name in engines.__all__ if is_dataclass(getattr(engines, name))}
    assert {type(one).__name__ for one in (*EXACT, *ROUNDED)} == exported


@pytest.mark.slow
@pytest.mark.parametrize("engine", each(EXACT))
def test_engines_that_work_one_by_one_have_the_bits_of_loop(engine: Any) -> None:
    check_engine(engine)


@pytest.mark.slow
@pytest.mark.parametrize("engine", each(ROUNDED))
def test_engines_that_work_in_batches_equal_loop_up_to_rounding(engine: Any) -> None:
    check_engine(engine, tolerance=1e-4)


def test_the_miniature_gives_early_abort_something_to_do() -> None:
    setup = prepare(miniature(perceptron), RECIPE, 7)
    with Loop(threads=1).open(setup, lambda *tick: None) as loop:
        start = scored(loop, RandomStart()(setup.task, setup.genome, loop, 5, setup.seeds.at("init")))
        complete = loop.evaluate(start, births(start, loop, setup.seeds), elites=3).complete
    assert complete.any()
    assert not complete.all()


class Around:
    """A session that executor everything on to another; each broken one differs in one thing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def train(self, population: Any, policies: Any, step: Any) -> Any:
        return self.inner.train(population, policies, step)

    def evaluate(self, parents: Any, births: Any, elites: int | None = None) -> Any:
        return self.inner.evaluate(parents, births, elites)

    def unite(self, parents: Any, births: Any, scores: Any, chosen: Any) -> Any:
        return self.inner.unite(parents, births, scores, chosen)

    def spent(self) -> Any:
        return self.inner.spent()


@dataclass(frozen=True)
class Wrapped:
    session: Any
    quiet: bool = False

    @contextmanager
    def open(self, setup: Any, tick: Any) -> Iterator[Any]:
        with Loop(threads=1).open(setup, (lambda *tick: None) if self.quiet else tick) as inner:
            yield self.session(inner)


def test_an_engine_around_another_conforms() -> None:
    check_engine(Wrapped(Around))


class Imprecise(Around):
    def train(self, population: Any, policies: Any, step: Any) -> Any:
        trained = super().train(population, policies, step)
        return replace(trained, population=replace(trained.population, rows=trained.population.rows + 1e-6))


class TrainsInPlace(Around):
    def train(self, population: Any, policies: Any, step: Any) -> Any:
        trained = super().train(population, policies, step)
        population.rows.copy_(trained.population.rows)
        return trained


class ForgetsPolicies(Around):
    def train(self, population: Any, policies: Any, step: Any) -> Any:
        trained = super().train(population, policies, step)
        return replace(trained, population=replace(trained.population, policies=population.policies))


class ForgetsBaggage(Around):
    def train(self, population: Any, policies: Any, step: Any) -> Any:
        trained = super().train(population, policies, step)
        return replace(trained, population=replace(trained.population, optimizer_states=population.optimizer_states))


class DrawsGlobally(Around):
    def train(self, population: Any, policies: Any, step: Any) -> Any:
        torch.rand(1)
        return super().train(population, policies, step)


class AbortsUnasked(Around):
    def evaluate(self, parents: Any, births: Any, elites: int | None = None) -> Any:
        return super().evaluate(parents, births, 1)


class AbortsElites(Around):
    def evaluate(self, parents: Any, births: Any, elites: int | None = None) -> Any:
        scores = super().evaluate(parents, births, elites)
        if elites is None or not births:
            return scores
        lucky = int(scores.fitness.argmin())
        return Scores(
            fitness=scores.fitness.index_fill(0, torch.tensor(lucky), torch.inf),
            complete=scores.complete.index_fill(0, torch.tensor(lucky), False),
        )


class PartialSums(Around):
    def evaluate(self, parents: Any, births: Any, elites: int | None = None) -> Any:
        scores = super().evaluate(parents, births, elites)
        return replace(scores, fitness=torch.where(scores.complete, scores.fitness, 9.0))


class ReportsNaN(Around):
    def evaluate(self, parents: Any, births: Any, elites: int | None = None) -> Any:
        scores = super().evaluate(parents, births, elites)
        lost = scores.fitness.isinf() & scores.complete
        return replace(scores, fitness=torch.where(lost, torch.nan, scores.fitness))


class Reorders(Around):
    def unite(self, parents: Any, births: Any, scores: Any, chosen: Any) -> Any:
        return super().unite(parents, births, scores, sorted(chosen))


class NeverFinishes(Around):
    def unite(self, parents: Any, births: Any, scores: Any, chosen: Any) -> Any:
        done = Scores(fitness=scores.fitness, complete=torch.ones_like(scores.complete))
        return super().unite(parents, births, done, chosen)


class TouchesParents(Around):
    def unite(self, parents: Any, births: Any, scores: Any, chosen: Any) -> Any:
        united = super().unite(parents, births, scores, chosen)
        parents.fitness.zero_()
        return united


class AddsUpForEver(Around):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.total = inner.spent()

    def spent(self) -> Any:
        self.total += self.inner.spent()
        return self.total


class CountsNothing(Around):
    def spent(self) -> Any:
        return type(self.inner.spent())()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Imprecise, r"train .* is not what it must be: 0.rows differs by up to"),
        (TrainsInPlace, "train changed the population it was given"),
        (ForgetsPolicies, "policies"),
        (ForgetsBaggage, "baggage"),
        (DrawsGlobally, "moved the global random generator of torch"),
        (AbortsUnasked, "left an evaluation incomplete"),
        (AbortsElites, "Only one that cannot be elite may be aborted"),
        (PartialSums, "a fitness other than"),
        (ReportsNaN, r"instead of \[inf\]"),
        (Reorders, "unite on a perceptron is not what it must be"),
        (NeverFinishes, "unite on a perceptron is not what it must be: fitness differs by up to inf"),
        (TouchesParents, "unite changed the population it was given"),
        (AddsUpForEver, "Count every sample"),
        (CountsNothing, "Count every sample"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_broken_engine_is_caught(broken: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_engine(Wrapped(broken))


@pytest.mark.slow
def test_an_engine_that_shows_no_progress_is_caught() -> None:
    with pytest.raises(AssertionError, match="progress does not end at"):
        check_engine(Wrapped(Around, quiet=True))


@pytest.mark.slow
def test_a_tolerance_forgives_rounding_and_nothing_more() -> None:
    check_engine(Wrapped(Imprecise), tolerance=1e-4)
    with pytest.raises(AssertionError, match="differs by up to"):
        check_engine(Wrapped(Imprecise), tolerance=1e-7)
