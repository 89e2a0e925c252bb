"""The offspring that corrects how confident the fittest network is: its line search, and whole runs with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.errors import RecipeError
from esgd.operators import Cloned, Gaussian, Rescaled, Roulette, Uninterrupted, breed, trajectories
from esgd.operators.rescaling import lowest
from esgd.population import Birth
from esgd.protocols import Scores
from esgd.randomness import Seeds
from esgd.work import Costs, expected_evaluations, expected_looks
from tests.small import CLASSES, INPUTS, random_data


@given(bottom=st.floats(-2.0, 2.0), most=st.integers(2, 12))
def test_the_search_ends_no_higher_than_it_began_and_takes_no_more_values_than_it_may(bottom: float, most: int) -> None:
    taken = list[float]()

    def parabola(x: float) -> float:
        taken.append(x)
        return (x - bottom) ** 2

    found = lowest(parabola, bottom**2, step=0.1, most=most)
    assert (found - bottom) ** 2 <= bottom**2
    assert len(taken) <= most
    assert len(set(taken)) == len(taken)
    if most >= 8:
        assert found == pytest.approx(bottom, abs=1e-6)


@pytest.mark.parametrize("beyond", [inf, torch.nan])
def test_a_side_that_diverges_is_left(beyond: float) -> None:
    assert lowest(lambda x: beyond if x > 0 else (x + 0.3) ** 2, 0.09, step=0.1, most=8) == pytest.approx(-0.3)
    assert lowest(lambda x: beyond, 0.09, step=0.1, most=8) == 0.0


def noisy(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of the first inputs; four of ten labels are drawn again."""
    x, y = clean(samples, seed)
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, CLASSES, (samples,), generator=stream)
    return x, torch.where(torch.rand(samples, generator=stream) < 0.4, drawn, y)


def clean(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = random_data(samples, seed=seed)
    return x, x[:, :CLASSES].argmax(dim=1)


def task() -> esgd.Supervised:
    return esgd.Supervised(
        lambda: nn.Sequential(nn.Linear(INPUTS, 16, bias=False), nn.ReLU(), nn.Linear(16, CLASSES, bias=False)),
        F.cross_entropy,
        train=noisy(400, 0),
        fitness=clean(200, 1),
        test=clean(400, 2),
    )


RECIPE = esgd.Recipe(
    population=2,
    offspring=2,
    elites=1.0,
    generations=4,
    sgd_epochs=3,
    kinds=(Rescaled(samples=10**6), Cloned()),
    mates_from=trajectories,
    mutation=Gaussian(sigma=0.0),
    baggage=Uninterrupted(),
)


@pytest.mark.parametrize("engine", ["loop:threads=1", "vmap:chunk=2,threads=1"])
def test_a_network_of_noisy_labels_becomes_surer_in_the_last_generation_only(engine: str) -> None:
    generations = list(esgd.evolve(task(), RECIPE, seed=0, engine=engine))
    survived = [[birth.kind for birth in each.population.births] for each in generations]
    assert [kinds.count("rescaled") for kinds in survived] == [0, 0, 0, 1]
    last = generations[-1]
    (birth,) = (each for each in last.population.births if each.kind == "rescaled")
    assert birth.weights[0] > 1.05
    assert last.guarantee == "held"
    best = last.population.fitness.argmin()
    assert last.population.births[best] is birth

    x, y = clean(200, 1)
    with torch.no_grad():
        outputs = last.best.module()(x)
    by_factor = [float(F.cross_entropy(outputs * exp(step / 50), y)) for step in range(-150, 150)]
    assert last.best.fitness == pytest.approx(by_factor[150], rel=1e-5)
    assert last.best.fitness <= 1.01 * min(by_factor), "there is no much better factor"


def rescaled(kind: Rescaled, scores: Callable[[Sequence[Birth]], Scores]) -> Birth:
    """The offspring of three candidates; the second is the fittest."""
    (birth,) = breed(
        [Birth("0.0.0", founder=0), Birth("0.0.1", founder=1), Birth("0.0.2", founder=2)],
        torch.tensor([1.0, log(2) ** 2, 1.5], dtype=torch.float64),
        possible=[0, 2],
        kinds=(kind,),
        k=3,
        v=1,
        last=True,
        offspring=4,
        elites=1,
        mates={1: 1.0},
        mating=Roulette(),
        mutation=Gaussian(),
        score=scores,
        seeds=Seeds(0),
    )
    return birth


def test_few_samples_do_not_make_a_network_certain() -> None:
    """Where all samples are right, the larger the factor, the lower the loss."""

    def scores(births: Sequence[Birth]) -> Scores:
        found = [log(2) ** 2 * exp(-3 * log(birth.weights[0])) for birth in births]
        return Scores(fitness=torch.tensor(found), complete=torch.ones(len(births), dtype=torch.bool))

    few, more, many = (rescaled(Rescaled(samples=n), scores).weights[0] for n in (15, 150, 10**6))
    assert 1 < few < 1.3 < more < 2 < 5 < many


def test_it_rescales_the_fittest_of_all_and_not_only_of_those_that_may_be_mates() -> None:
    def scores(births: Sequence[Birth]) -> Scores:
        """Candidate i is best when it is multiplied by i + 1."""
        found = [(log(birth.weights[0]) - log(birth.mates[0] + 1)) ** 2 for birth in births]
        return Scores(fitness=torch.tensor(found), complete=torch.ones(len(births), dtype=torch.bool))

    birth = rescaled(Rescaled(samples=10**9), scores)
    assert (birth.kind, birth.mates, birth.parents, birth.founder) == ("rescaled", (1,), ("0.0.1",), 1)
    assert birth.weights == pytest.approx((2.0,))


def test_its_tries_are_part_of_the_planned_work_of_the_last_generation() -> None:
    without = esgd.Recipe(population=2, offspring=2, generations=4, kinds=(Cloned(),))
    with_it = esgd.Recipe(population=2, offspring=2, generations=4, kinds=(Rescaled(most=5), Cloned()))
    costs = Costs.of(task(), with_it)
    assert expected_looks(costs, with_it) == expected_looks(costs, without) + 5 * costs.look
    assert [expected_evaluations(with_it, stage) for stage in with_it.stages()] == [2, 2, 2, 7]


@pytest.mark.parametrize("wrong", [{"step": 0.0}, {"step": 2.0}, {"most": 1}, {"most": 2.5}, {"samples": 0}])
def test_what_is_no_search_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match=next(iter(wrong))):
        Rescaled(**wrong)  # type: ignore[arg-type]
