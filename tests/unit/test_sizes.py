"""Sizes that change from generation to generation: what a run of them does, and that the guarantee holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import esgd
from esgd._serialization import read_toml
from esgd.errors import FitnessError, RecipeError, TaskError
from esgd.guarantee import check
from esgd.ledger import passes
from esgd.operators import (
    Anchor,
    BestOfLooks,
    Cloned,
    Elitist,
    Gaussian,
    GreedySoup,
    MeanOfElites,
    Never,
    Replacement,
    Uninterrupted,
    anyone,
    parents_only,
    trajectories,
)
from esgd.operators.kinds import Union
from esgd.policies import Policy
from esgd.protocols import Draw, Role
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.sizes import Each, Earned, Funnel, Shared, Spending
from esgd.species import Adam, Fixed, Inherited, Mixture, Sgd
from esgd.testing.evidence import contents, difference
from esgd.work import Costs, expected_work, spending
from tests.funnel import FUNNEL
from tests.small import mlp, random_data


def task() -> esgd.Supervised:
    return esgd.Supervised(mlp, F.cross_entropy, train=random_data(128), fitness=random_data(70, seed=1))


def run(recipe: Recipe, **more: Any) -> list[esgd.Generation]:
    return list(esgd.evolve(task(), recipe, seed=3, **{"engine": "loop", **more}))


def test_a_funnel_trains_fewer_individuals_for_longer() -> None:
    generations = run(FUNNEL)
    assert [len(each.before) for each in generations] == [6, 4, 3, 2]
    assert [len(each.population) for each in generations] == [4, 3, 2, 2]
    assert [each.elites for each in generations] == [1, 1, 1, 1]
    samples = [each.work.sgd_forward for each in generations]
    assert samples == [6 * 128] * 4, "every generation has the same SGD work"
    assert {each.guarantee for each in generations} == {"held"}
    best = [each.best.fitness for each in generations]
    assert best == sorted(best, reverse=True)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", ["pool:workers=2", "vmap"])
def test_a_funnel_is_the_same_on_other_engines(engine: str) -> None:
    ours, expected = run(FUNNEL, engine=engine), run(FUNNEL)
    if engine == "vmap":
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one.population.fitness, other.population.fitness, rtol=1e-3, atol=1e-4)
            assert one.record()["births"] == other.record()["births"]
    else:
        assert not difference(
            [contents(each.population) for each in ours], [contents(each.population) for each in expected]
        )


@pytest.mark.slow
def test_a_funnel_continues_from_every_generation(tmp_path: Path) -> None:
    whole = run(FUNNEL)
    for each in whole[:-1]:
        rest = run(FUNNEL, resume=each.state)
        assert not difference(contents(rest[-1].population), contents(whole[-1].population))
    kept: dict[str, Any] = {"seed": 3, "run": tmp_path / "r", "engine": "loop", "progress": False, "report": False}
    short = esgd.fit(task(), replace(FUNNEL, generations=4), **kept)
    assert not difference(contents(short.population), contents(whole[-1].population))
    again = esgd.fit(task(), FUNNEL, **kept)
    assert not difference(contents(again.population), contents(whole[-1].population))


def test_a_funnel_can_be_written_down_and_read_back() -> None:
    assert Recipe.from_dict(FUNNEL.to_dict()) == FUNNEL
    table = read_toml("""
        generations = 6
        population = { kind = "funnel", first = 24, last = 4 }
        offspring = { kind = "per_individual", ratio = 1 }
        sgd_epochs = { kind = "shared", epochs = 24 }
        elites = 0.25
        backoff = { kind = "best_of_looks" }
        baggage = { kind = "uninterrupted" }
    """)
    recipe = Recipe.from_dict(table)
    assert [recipe.population_of(k) for k in range(1, 8)] == [24, 17, 12, 8, 6, 4, 4]
    assert [recipe.elites_of(k) for k in range(1, 7)] == [4, 3, 2, 2, 1, 1]
    assert [recipe.offspring_of(k) for k in range(1, 7)] == [24, 17, 12, 8, 6, 4]
    assert recipe.total_epochs == pytest.approx(1 + 24 / 17 + 2 + 3 + 4 + 6)


def test_a_number_is_the_same_in_every_generation() -> None:
    recipe = Recipe(population=10, generations=3, sgd_epochs=2)
    for stage in recipe.stages():
        assert (stage.population, stage.survivors, stage.elites, stage.sgd_epochs) == (10, 10, 6, 2)
    assert recipe.offspring_of(2) == 40
    assert not recipe.is_scheduled


def test_a_population_can_grow_where_offspring_fill_it() -> None:
    generations = run(Recipe(population=Each((2, 4, 6)), offspring=4, generations=3, sgd_epochs=1, elites=1))
    assert [len(each.before) for each in generations] == [2, 4, 6]
    assert {each.guarantee for each in generations} == {"held"}


def test_individuals_can_be_selected_without_offspring() -> None:
    generations = run(Recipe(population=Each((4, 2, 1)), offspring=0, elites=1.0, mates=1, generations=3, sgd_epochs=1))
    assert [len(each.population) for each in generations] == [2, 1, 1]
    for each in generations:
        kept = sorted(each.after)[: len(each.population)]
        assert sorted(each.population.fitness.tolist()) == kept, "the best survive"
    assert [each.work.fitness_evolution for each in generations[1:]] == [0, 0]


def test_a_part_of_an_epoch_is_a_part_of_its_batches() -> None:
    (generation,) = run(Recipe(population=2, generations=1, sgd_epochs=0.5, evolution_steps=0))
    assert generation.work.sgd_forward == 2 * 64, "of four batches of 32, two"


def test_a_trajectory_that_pauses_goes_on_as_if_it_had_not() -> None:
    plain = Recipe(population=2, generations=1, sgd_epochs=2, evolution_steps=0, backoff=BestOfLooks(looks=(), mean=0))
    paused = replace(plain, backoff=BestOfLooks(looks=(0.17, 0.5, 0.9), mean=0))
    ends = [run(replace(each, backoff=Ending(each.backoff)))[0].population.rows for each in (plain, paused)]
    assert torch.equal(*ends)


class Ending:
    """Goes through a strategy's looks, and keeps the end."""

    certain = False

    def __init__(self, looking: BestOfLooks) -> None:
        self.looking = looking

    def checks(self, epochs: float) -> int:
        return 0

    def __call__(self, trajectory: Any, epochs: float) -> Any:
        for fraction in (*self.looking.looks, 1.0):
            trajectory.train(fraction * epochs)
            trajectory.measure()
        return torch.zeros(len(trajectory.fitness), dtype=torch.int64)


@dataclass(frozen=True)
class Own:
    """A kind of a user's own."""

    union: Any = Union(mates=(0,))
    share: float | None = 1.0
    name: str = "own"

    def tries(self, population: int, *, last: bool) -> int:
        return 0

    def __call__(self, candidates: Any, seeds: Any) -> Any:
        return self.union


def test_a_kind_whose_tries_are_a_number_as_they_were_once_is_refused() -> None:
    class Old(Own):
        tries = 0  # type: ignore[assignment]

    with pytest.raises(RecipeError, match="kinds=.* is not a list of kinds"):
        Recipe(kinds=(Old(),))


def test_a_kind_of_ones_own_is_bred_and_named() -> None:
    recipe = Recipe(population=3, offspring=2, generations=1, sgd_epochs=1, elites=2, kinds=(Own(),))
    (generation,) = run(replace(recipe, survival=Replacement()))
    assert [birth.kind for birth in generation.population.births if birth.generation == 1] == ["own"]


@pytest.mark.parametrize(
    "union", [Union(mates=()), Union(mates=(9,)), Union(mates=(-1,)), Union(mates=(0, 1), weights=(1.0,)), (0, 1)]
)
def test_what_no_offspring_can_be_built_of_is_refused(union: Any) -> None:
    recipe = Recipe(population=3, offspring=2, generations=1, sgd_epochs=1, kinds=(Own(union),))
    with pytest.raises(RecipeError, match="returned .* for 3 candidates"):
        run(recipe)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"population": Funnel(8, 2), "evolution_steps": 0}, "evolution_steps=0 keeps every individual"),
        ({"population": Each((2, 9)), "offspring": 4}, "grows from 2 to 9 after generation 1"),
        ({"population": Each((2, 0)), "generations": 2}, "is 0 in generation 1 or the next, below 1"),
        ({"population": Funnel(8, 2), "generations": 10**6}, "too many for sizes that change"),
        ({"sgd_epochs": -0.5}, r"sgd_epochs=-0.5 is not in \(0, "),
        ({"population": Shared(24)}, "ZeroDivisionError.*says so for generation 1"),
        ({"population": lambda situation: None}, "population=None is not a number"),
        ({"population": Each((8.7, 4.2))}, "population=8.7 is not a whole number"),
        ({"sgd_epochs": lambda situation: float("nan")}, "sgd_epochs=nan is not in"),
        ({"kinds": ()}, "is not a list of kinds of offspring"),
        ({"kinds": (Own(share=float("nan")), Own())}, r"kinds\[0\].share=nan is not a finite number"),
        ({"kinds": (Own(share=0.0),)}, r"kinds\[0\].share=0.0 is not above 0"),
        ({"elites": Each((0.5, 0))}, r"elites=Each\(values=\(0.5, 0\)\) is 0 in generation 2. The best always"),
        ({"elites": Each((2.7,))}, "is 2.7 in generation 1. The best always survives"),
        ({"population": "many"}, "population='many' is not a whole number"),
        ({"population": lambda: 3}, "cannot be called with"),
    ],
)
def test_sizes_that_no_run_can_have_are_refused(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Recipe(**{"mates": 1, **inputs})


def test_offspring_are_more_after_a_generation_in_which_they_became_elites() -> None:
    recipe = Recipe(population=4, offspring=Earned(1, 8), generations=6, sgd_epochs=1)
    size, looks = 1, []
    for generation in run(recipe):
        looks.append((generation.work.fitness_evolution + generation.work.fitness_saved) // 70)
        if generation.k > 1:
            assert looks[-1] == size
        size = min(8, 2 * size) if generation.offspring_among_elites else max(1, size // 2)
    assert len(set(looks[1:])) > 1, "it changed"


fitnesses = st.lists(st.floats(0, 10), min_size=1, max_size=8)


survivals = st.builds(Elitist, rest=st.sampled_from([anyone, parents_only, trajectories]), ranked=st.booleans())


@pytest.mark.slow
@given(before=fitnesses, others=fitnesses, elites=st.integers(1, 8), after=st.integers(1, 10), survival=survivals)
@settings(max_examples=300, deadline=None)
def test_no_rank_among_the_elites_rises_when_sizes_change(
    before: list[float], others: list[float], elites: int, after: int, survival: Elitist
) -> None:
    """The theorem for sizes that change."""
    size = min(after, len(before) + len(others))
    m = min(elites, size)
    everyone = torch.tensor(before + others, dtype=torch.float64)
    roles = [Role.HELD] * len(before) + [Role.OFFSPRING] * len(others)
    survivors = everyone[survival(everyone, roles, size=size, elites=m, generator=torch.Generator())]
    check(torch.tensor(before, dtype=torch.float64), survivors, m, k=1)
    for fewer in range(1, min(m, len(before)) + 1):
        assert sum(sorted(survivors.tolist())[:fewer]) <= sum(sorted(before)[:fewer]) + 1e-12


def test_a_survivor_that_is_missing_among_the_elites_is_noticed() -> None:
    with pytest.raises(FitnessError, match="rank 2 rose from 2 to 3"):
        check(torch.tensor([1.0, 2.0, 5.0, 6.0]), torch.tensor([1.0, 3.0]), 2, k=4)


def test_the_bound_is_sharp_the_first_rank_below_the_elites_can_rise() -> None:
    before = torch.tensor([1.0, 2.0, 5.0, 6.0], dtype=torch.float64)
    second = set[float]()
    for seed in range(20):
        kept = Elitist()(before, [Role.HELD] * 4, size=2, elites=1, generator=torch.Generator().manual_seed(seed))
        check(before, before[kept], 1, k=1)
        second.add(float(before[kept].max()))
    assert max(second) > 2.0


def test_an_epoch_ends_where_the_data_end_also_after_a_part_of_one() -> None:
    recipe = Recipe(population=1, mates=1, generations=2, sgd_epochs=1.5, evolution_steps=0, backoff=TwoEpochs())
    assert [each.work.sgd_forward for each in run(recipe)] == [2 * 128] * 2


class TwoEpochs:
    """A strategy of a user's own that knows nothing of parts of an epoch."""

    certain = False

    def checks(self, epochs: float) -> int:
        return 0

    def __call__(self, trajectory: Any, epochs: float) -> Any:
        for _ in range(2):
            trajectory.epoch()
        return (trajectory.measure() * 0).long()


@pytest.mark.slow
def test_parts_of_an_epoch_are_the_same_after_every_resume() -> None:
    recipe = Recipe(
        population=1,
        mates=1,
        generations=12,
        sgd_epochs=0.7,
        evolution_steps=0,
        backoff=Never(),
        species=Fixed(policy=Policy(optimizer="sgd", hyper={"lr": 0.1})),
    )
    whole = run(recipe)
    for each in whole[:-1]:
        rest = run(recipe, resume=each.state)
        assert [later.work.sgd_forward for later in rest] == [later.work.sgd_forward for later in whole[each.k :]]
        assert torch.equal(rest[-1].population.rows, whole[-1].population.rows)


def test_no_offspring_takes_the_place_of_a_fitter_trajectory() -> None:
    for each in run(FUNNEL):
        kept = {
            birth.id: fitness for birth, fitness in zip(each.population.births, each.population.fitness, strict=True)
        }
        lost = [after for (id_, _), after in zip(each.before, each.after, strict=True) if id_ not in kept]
        born = [float(fitness) for id_, fitness in kept.items() if id_.startswith(f"{each.k}.")]
        assert not lost or not born or max(born) <= min(lost)


def test_no_epochs_are_no_steps_also_after_a_part_of_one() -> None:
    recipe = Recipe(population=2, generations=3, sgd_epochs=Each((1.5, 0, 1)), offspring=2, elites=1)
    assert [each.work.sgd_forward // 2 for each in run(recipe)] == [192, 0, 128]


def test_a_population_that_cannot_grow_as_planned_is_refused() -> None:
    recipe = Recipe(
        population=Each((2, 4)), offspring=4, elites=1, generations=2, sgd_epochs=1, kinds=(MeanOfElites(),)
    )
    with pytest.raises(RecipeError, match="leaves . individuals, and 4 are to be trained next"):
        run(recipe)


def test_a_diverged_individual_is_no_anchor() -> None:
    def species(request: Draw) -> Policy:
        return Policy(optimizer="sgd", hyper={"lr": 1e30 if request.j == 0 and request.k == 1 else 0.01})

    recipe = Recipe(
        population=3,
        generations=2,
        sgd_epochs=1,
        evolution_steps=0,
        backoff=Never(),
        species=species,
        anchor=Anchor(after=0, every=1),
    )
    last = run(recipe)[-1].population
    assert last.fitness[0] == torch.inf
    assert last.fitness[1:].isfinite().all()


def test_the_leader_is_named_with_the_policy_that_led_there() -> None:
    def species(request: Draw) -> Policy:
        return Policy(optimizer="sgd", hyper={"lr": 0.05 if request.k == 1 else 50.0})

    recipe = Recipe(
        population=1, mates=1, generations=2, sgd_epochs=2, evolution_steps=0, baggage=Uninterrupted(), species=species
    )
    own = esgd.Supervised(mlp, F.cross_entropy, train=random_data(128), fitness=random_data(128))
    first, second = esgd.evolve(own, recipe, seed=3, engine="loop")
    assert first.accepted == (True,)
    assert second.accepted == (False,)
    assert second.record()["leader"]["lr"] == 0.05


def test_who_survives_keeps_its_policy_whatever_its_species_would_draw() -> None:
    species = Inherited(
        species=Mixture(species=(Sgd(lr=0.1, gamma=0.5), Adam(lr=0.01, gamma=1.0))), offspring_only=True
    )
    known = Policy(optimizer="adadelta", hyper={"rho": 0.8})
    for k in range(2, 6):
        request = Draw(k=k, j=0, generations=6, stream=Seeds(0, ("policy",)), inherited=known)
        assert species(request) == known


def test_data_without_a_length_cannot_be_trained_in_parts() -> None:
    x, y = random_data(64)
    endless = esgd.Supervised(mlp, F.cross_entropy, train=lambda: [(x, y)], fitness=(x, y))
    with pytest.raises(RecipeError, match="does not know how many batches an epoch has"):
        esgd.rules.halving(endless, 1e5)
    for backoff, said in (
        (BestOfLooks(), "epochs cannot be trained"),
        (BestOfLooks(looks=(), mean=0, ema=1), "forgets"),
    ):
        with pytest.raises(TaskError, match=said):
            list(esgd.evolve(endless, Recipe(population=2, sgd_epochs=1, backoff=backoff), seed=0, engine="loop"))


def test_a_soup_is_not_cooked_where_it_has_no_place() -> None:
    kinds = (MeanOfElites(), GreedySoup(), Cloned())
    recipe = Recipe(population=4, offspring=1, elites=2, generations=2, sgd_epochs=1, kinds=kinds)
    last = run(recipe)[-1]
    assert last.work.fitness_evolution + last.work.fitness_saved == 70


def test_work_that_was_left_is_trained_with_and_a_resumed_run_decides_as_before() -> None:
    hopeless = Gaussian(sigma=50.0)
    sizes = {"population": 4, "offspring": Earned(1, 15), "generations": 4, "sgd_epochs": Each((0.5, 1.0, 1.0, 2.0))}
    planned_recipe = Recipe(**sizes, mutation=hopeless, species=Sgd(lr=0.1))
    recipe = spending(Costs.of(task(), planned_recipe), planned_recipe)
    planned = expected_work(Costs.of(task(), recipe), recipe)
    generations = run(recipe)
    assert sum(passes(each.work.samples) for each in generations) == pytest.approx(planned, rel=0.02)
    epochs = [each.work.sgd_forward / 128 / 4 for each in generations]
    assert epochs[0] == 0.5
    assert epochs[3] > 2.0, "offspring that were planned were not born"
    again = run(recipe, resume=generations[1].state)
    assert not difference(contents(again[-1].population), contents(generations[-1].population))


def test_a_size_is_quoted_only_where_it_is_wrong() -> None:
    """A recipe with thousands of generations asks each of them: to write all of its numbers each time takes long."""

    class Quoted:
        times = 0

        def __call__(self, situation: Any) -> int:
            return 2

        def __repr__(self) -> str:
            Quoted.times += 1
            return "quoted"

    Recipe(population=Quoted(), mates=1, generations=50)
    assert Quoted.times < 10


def test_learning_rates_are_annealed_by_the_plan_whatever_was_left() -> None:
    plan = Spending(epochs=(1.0, 3.0), sgd=(100.0, 300.0), rest=(10.0,))
    nothing = {"sgd_forward": 0, "sgd_backward": 0, "fitness_sgd": 0, "fitness_evolution": 0}
    first, second = plan.turn(1, 2), plan.turn(2, 2, [{"k": 1, "ledger": nothing}])
    assert (first.before, first.epochs, first.total) == (0.0, 1.0, 4.0)
    assert second.epochs == pytest.approx(3.0 + 120 / 100), "what one generation did not look at, the next will not"
    assert second.before / second.total == 0.25
    assert (second.before + second.epochs) / second.total == pytest.approx(1.0)


def test_offspring_of_a_funnel_do_not_widen_again_in_an_extended_run() -> None:
    longer = Recipe(offspring=Funnel(40, 8), generations=5).extended(10)
    assert [longer.offspring_of(k) for k in (1, 5, 6, 10)] == [40, 8, 8, 8]
