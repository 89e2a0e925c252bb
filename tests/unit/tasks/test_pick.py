"""A second split picks what a run gives back; the fitness alone decides who survives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import esgd
from esgd.errors import TaskError
from esgd.ledger import passes
from esgd.population import Individual
from esgd.testing.evidence import contents, difference
from esgd.work import Costs, expected_work
from tests.small import mlp, random_data

RECIPE = esgd.Recipe(population=4, offspring=4, elites=2, generations=4, sgd_epochs=1, early_abort=False)
TRAIN, FITNESS, SECOND = random_data(64), random_data(40, seed=1), random_data(200, seed=2)


def task(pick: Any = None, fitness: Any = FITNESS) -> esgd.Supervised:
    return esgd.Supervised(mlp, F.cross_entropy, train=TRAIN, fitness=fitness, pick=pick)


def fit(pick: Any, run: Path | None = None) -> esgd.Result:
    return esgd.fit(task(pick), RECIPE, seed=3, run=run, engine="loop", progress=False, report=False)


def loss(network: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(network(data[0]).double(), data[1]))


def test_the_elite_with_the_lowest_loss_on_the_second_split_is_given_back() -> None:
    seen, generations = list[float](), list(esgd.evolve(task(SECOND), RECIPE, seed=3, engine="loop"))
    for each in generations:
        elites = [Individual(each.population, i).module() for i in each.population.order[: each.elites]]
        seen.extend(loss(elite, SECOND) for elite in elites)
        kept = each.state.archive.best.module()
        assert loss(kept, SECOND) == pytest.approx(min(seen))
        assert each.pick == pytest.approx(min(seen))
        assert each.record()["pick"] == {"loss": each.pick, "fitness": each.state.archive.best.fitness}
    fittest = generations[-1].best
    assert generations[-1].state.archive.best.fitness > fittest.fitness, "here the two splits disagree"


def test_the_population_does_not_know_the_second_split() -> None:
    alone, with_pick = fit(None), fit(SECOND)
    assert not difference(contents(alone.population), contents(with_pick.population))
    assert "pick" not in alone.history[-1]


def test_what_is_looked_at_is_paid_for_and_planned() -> None:
    looked = [sum(passes(line["ledger"]) for line in fit(pick).history) for pick in (None, SECOND)]
    assert looked[1] - looked[0] == 200 * RECIPE.elite_count * RECIPE.generations
    planned = [expected_work(Costs.of(task(pick), RECIPE), RECIPE) for pick in (None, SECOND)]
    assert planned[1] - planned[0] == looked[1] - looked[0]


def test_a_run_continues_with_what_it_had_picked(tmp_path: Path) -> None:
    whole = fit(SECOND, tmp_path / "run")
    generations = list(esgd.evolve(task(SECOND), RECIPE, seed=3, engine="loop"))
    rest = list(esgd.evolve(task(SECOND), RECIPE, seed=3, engine="loop", resume=generations[1].state))
    assert not difference(contents(rest[-1].state.archive), contents(whole.state.archive))
    again = fit(SECOND, tmp_path / "run")
    assert torch.equal(*(torch.cat([p.flatten() for p in each.model.parameters()]) for each in (whole, again)))


@pytest.mark.parametrize("fitness", [FITNESS, TensorDataset(*FITNESS), [*zip(*FITNESS, strict=True)]])
def test_a_share_divides_the_fitness_split_always_alike(fitness: Any) -> None:
    one, other = task(0.25, fitness), task(0.25, fitness)
    assert (one.describe()["fitness"]["samples"], one.describe()["pick"]["samples"]) == (30, 10)
    assert one.describe() == other.describe()
    assert repr(one) == "Supervised(train 64, fitness 30, pick 10, batch_size=32)"


@pytest.mark.parametrize(("share", "fitness"), [(0.0, FITNESS), (1.0, FITNESS), (0.3, lambda: iter([FITNESS]))])
def test_a_share_that_leaves_a_split_empty_is_refused(share: float, fitness: Any) -> None:
    with pytest.raises(TaskError, match=f"pick={share}"):
        task(share, fitness)


def test_a_network_that_diverges_on_the_second_split_is_never_picked() -> None:
    x, y = SECOND
    result = fit((torch.full_like(x, 1e38), y))
    assert result.history[-1]["pick"]["loss"] is None
    assert result.fitness < float("inf")


class Choosy(esgd.Supervised):
    """A task of one's own, which looks at some networks only."""

    looks: Any = None

    def pick_loss(self, module: nn.Module) -> Any:
        return self.looks(module)


def choosy(looks: Any) -> Choosy:
    made = Choosy(mlp, F.cross_entropy, train=TRAIN, fitness=FITNESS)
    made.looks = looks
    return made


class Remembering(nn.Module):
    """In evaluation it uses the weights that it had in its first evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.kept: dict[str, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            return self.inner(x)  # type: ignore[no-any-return]
        self.kept = self.kept or {name: each.detach().clone() for name, each in self.inner.named_parameters()}
        return functional_call(self.inner, self.kept, (x,))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(4))
def test_an_elite_is_looked_at_without_what_another_one_has_left_in_the_network(seed: int) -> None:
    recipe, data = replace(RECIPE, generations=1), {"train": TRAIN, "fitness": FITNESS, "pick": SECOND}
    task = esgd.Supervised(Remembering, F.cross_entropy, **data)
    (generation,) = esgd.evolve(task, recipe, seed=seed, engine="loop")
    elites = [Individual(generation.population, i).module() for i in generation.population.order[: generation.elites]]
    assert generation.pick == pytest.approx(min(loss(elite, SECOND) for elite in elites))


def test_elites_that_are_not_looked_at_are_not_picked() -> None:
    def looks(module: nn.Module) -> tuple[float, int] | None:
        value = float(next(module.parameters()).detach().sum())
        return (value, 1) if int(1e4 * abs(value)) % 2 else None

    seen = list[float]()
    for each in esgd.evolve(choosy(looks), RECIPE, seed=3, engine="loop"):
        elites = [Individual(each.population, i).module() for i in each.population.order[: each.elites]]
        seen.extend(look[0] for elite in elites if (look := looks(elite)) is not None)
        if seen:
            assert each.pick == min(seen)
            assert looks(each.state.archive.best.module()) == (min(seen), 1)
    assert seen


@pytest.mark.parametrize("look", [0.5, "a loss", (1,), torch.zeros(3)])
def test_a_look_that_is_no_loss_with_its_samples_is_refused(look: Any) -> None:
    with pytest.raises(TaskError, match="pick_loss returned"):
        next(esgd.evolve(choosy(lambda module: look), RECIPE, seed=3, engine="loop"))


def test_the_report_says_which_network_was_picked() -> None:
    pytest.importorskip("matplotlib")
    from esgd.report.sentences import run_headline

    history = fit(SECOND).history
    said = run_headline(history)
    best, kept = history[-1]["best"], history[-1]["pick"]["fitness"]
    assert f"{best:.4g}" in said[0]
    assert f"A second split picked one with a fitness of {kept:.4g}" in said[1]


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -0.5])
def test_a_share_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(TaskError, match="pick="):
        task(share)
