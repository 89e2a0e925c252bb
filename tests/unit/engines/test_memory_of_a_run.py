"""How many rows are alive at once: two populations, whatever the number of offspring (births are recipes)."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Vmap
from esgd._algorithm.initialization import rows_at_once
from esgd.engines.dispatch import Dispatcher
from esgd.genome import Genome
from esgd.operators import Elitist, Fresh, Uninterrupted, trajectories
from esgd.progress.text import Silent
from esgd.species import Fixed
from tests.small import random_data

MU, LAMBDA, TARGET = 20, 80, 2.2
RECIPE = esgd.Recipe(
    population=MU,
    offspring=LAMBDA,
    generations=2,
    sgd_epochs=1,
    species=Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 0.01})),
)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_workers")]
ENGINES = [Loop(threads=1), Vmap(chunk=2, threads=1), Pool(workers=1)]


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 500), nn.ReLU(), nn.Linear(500, 3))


SIZE = Genome.of(wide()).size


@pytest.fixture(autouse=True)
def only_what_is_new() -> None:
    """What is alive already is not looked at: that is a million objects, at every tick."""
    gc.collect()
    gc.freeze()


class Count:
    """Counts at every tick the memory of all tensors that hold a row or more, in rows."""

    def __init__(self) -> None:
        self.peak = 0.0
        gc.collect()
        self.before = rows_alive()

    def tick(self, phase: str, done: int, total: int) -> None:
        if total > 1 and done in (total // 2, total):
            self.peak = max(self.peak, rows_alive() - self.before)


def rows_alive() -> float:
    storages = dict[int, int]()
    for item in gc.get_objects():
        if not issubclass(type(item), Tensor) or isinstance(item, FakeTensor):  # a FakeTensor has no memory
            continue
        if item.device.type == "cpu" and item.layout is torch.strided and item.dtype is torch.float32:
            storages[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
    return sum(size for size in storages.values() if size >= 4 * SIZE) / (4 * SIZE)


def task() -> esgd.Supervised:
    return esgd.Supervised(wide, F.cross_entropy, train=random_data(32), fitness=random_data(64), batch_size=16)


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_evolve_keeps_two_populations_in_memory(engine: Any) -> None:
    count, ends = Count(), list[float]()
    for generation in esgd.evolve(task(), RECIPE, seed=0, engine=engine, tick=count.tick):
        del generation
        ends.append(rows_alive() - count.before)
    assert count.peak >= MU, "nothing was counted"
    assert count.peak <= TARGET * MU
    assert max(ends) <= (TARGET - 1) * MU, "between generations there is one population"


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_fit_keeps_two_populations_in_memory(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count()
    monkeypatch.setattr(Silent, "tick", lambda self, *tick: count.tick(*tick))
    result = esgd.fit(task(), RECIPE, seed=0, engine=engine, progress=False)
    assert MU <= count.peak <= TARGET * MU
    gc.collect()
    assert rows_alive() - count.before <= MU + 3, "a result is a population, its champion and the template"
    assert len(result.population) == MU


def test_the_number_of_offspring_takes_no_memory() -> None:
    peaks = []
    for offspring in (5, 80):
        recipe = esgd.Recipe(population=5, offspring=offspring, generations=1, sgd_epochs=1, species=RECIPE.species)
        count = Count()
        list(esgd.evolve(task(), recipe, seed=0, engine=Loop(threads=1), tick=count.tick))
        peaks.append(count.peak)
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=2, threads=1)], ids=str)
@pytest.mark.parametrize("baggage", [Uninterrupted(), Fresh()], ids=str)
def test_as_many_rows_are_alive_as_are_counted_where_ends_compete(
    engine: Any, baggage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(
        RECIPE,
        survival=Elitist(rest=trajectories),
        baggage=baggage,
        species=Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 50.0})),  # so that all are backed off
    )
    count, unite = Count(), Dispatcher.unite

    def counted(*given: Any) -> Any:
        united = unite(*given)
        count.peak = max(count.peak, rows_alive() - count.before)
        return united

    monkeypatch.setattr(Dispatcher, "unite", counted)
    for generation in esgd.evolve(task(), recipe, seed=0, engine=engine):
        assert generation.backed_off == MU
        del generation
    assert (rows_at_once(recipe) - 0.2) * MU <= count.peak <= (rows_at_once(recipe) + TARGET - 2) * MU
