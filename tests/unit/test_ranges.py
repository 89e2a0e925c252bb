"""Learning rates that are found: the search, and a run that draws from what it has found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import islice
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Recipe, Vmap, rules
from esgd._algorithm.initialization import prepare
from esgd.cli.overrides import overridden
from esgd.engines.cluster.job_queue import JobDurations
from esgd.engines.cluster.messages import run_sent_job, serialized_jobs, store_individuals
from esgd.engines.contract import NetworkState, Stack
from esgd.engines.range_test import RangeTest
from esgd.errors import RecipeError
from esgd.generation import Generation
from esgd.protocols import Setup, Tick
from esgd.ranges import FoundRange, rate_at, read_ranges, search
from esgd.recipe import FineTuning
from esgd.report import run_page
from esgd.run.line import line_fault
from esgd.species import Adam, AutoRate, Inherited, Mixture, Once, Optimizer, Sgd
from esgd.species.auto import found_tops
from esgd.studies import Study
from esgd.testing.evidence import contents, difference
from tests.small import CLASSES, INPUTS, RECORDING_SGD, RecordingSgd, ask, batchnorm_mlp, classify, mlp, random_data

SMALL: dict[str, Any] = {"population": 3, "generations": 2, "sgd_epochs": 1, "species": "auto"}


def linear() -> nn.Module:
    return nn.Linear(INPUTS, CLASSES, bias=False)


def learnable(scale: float = 1.0, make_model: Callable[[], nn.Module] = mlp) -> esgd.Supervised:
    """The class is the largest of the first inputs."""
    x, _ = random_data(160)
    y = x[:, :CLASSES].argmax(dim=1)
    data = x * scale, y
    return esgd.Supervised(make_model, F.cross_entropy, train=data, fitness=data, batch_size=16)


def run(task: esgd.Supervised, engine: Any = "loop", **changes: Any) -> list[Generation]:
    return list(esgd.evolve(task, Recipe(**SMALL | changes), seed=0, engine=engine))


@cache
def whole() -> list[Generation]:
    return run(learnable())


def tops(generation: Generation) -> dict[str, float]:
    return {each.optimizer: each.top for each in generation.ranges}


def test_pools_of_one_optimizer_have_a_range_each() -> None:
    """With a momentum of 0.99 a rate moves weights a hundred times as far: what suits the one is too high for the
    other."""
    plain, heavy = (Sgd(lr=AutoRate(breadth=2), momentum=m, momentum_probability=1.0) for m in (0.0, 0.99))
    recipe = Recipe(**SMALL | {"population": 8, "generations": 1, "species": Mixture(species=(plain, heavy, plain))})
    (generation,) = esgd.evolve(learnable(), recipe, seed=0, engine="loop")
    assert [each.name for each in generation.ranges] == ["sgd", "sgd 2"], "the third is the first again"
    found = {0.0: generation.ranges[0], 0.99: generation.ranges[1]}
    assert found[0.99].top < found[0.0].top
    drawn = {(p.hyper["momentum"], p.hyper["lr"] / p.annealing) for p in generation.policies}
    assert {momentum for momentum, _ in drawn} == {0.0, 0.99}
    assert all(found[momentum].low <= lr <= found[momentum].top for momentum, lr in drawn)
    line = generation.state.history[0]
    assert read_ranges([line]) == generation.ranges
    assert not line_fault(line, 1)


def test_a_run_that_began_with_one_range_for_an_optimizer_keeps_it() -> None:
    """As the earlier versions had it: what was drawn is drawn again."""
    species = Mixture(species=(Sgd(lr="auto", momentum=0.0), Sgd(lr="auto", momentum=0.99)))
    first = FoundRange(optimizer="sgd", top=0.032, basis="fastest", start=1.0, probes=(), low=0.001)
    assert found_tops(species, [first]) == {"sgd": 0.032}
    drawn = [pool(ask(tops={"sgd": 0.032})) for pool in species.species]
    assert all(policy.hyper["lr"] <= 0.032 for policy in drawn)
    begun = run(learnable(), species=species)[0].state
    older = replace(begun, ranges=begun.ranges[:1])
    (generation,) = esgd.evolve(
        learnable(), Recipe(**SMALL | {"species": species}), seed=0, engine="loop", resume=older
    )
    assert generation.ranges == ()


def descent(curvature: float, height: float = 1.0) -> Callable[[float, int], float]:
    """Gradient descent on a parabola, from 1."""
    return lambda rate, steps: height * curvature * abs(1 - rate * curvature) ** (2 * steps)


@pytest.mark.parametrize("halves", [-14, -6, 0, 5, 9])
def test_the_top_follows_the_curvature_of_the_loss(halves: int) -> None:
    found = search("sgd", 1 / rate_at(halves), descent(1 / rate_at(halves)))
    assert (found.top, found.basis) == (rate_at(halves), "fastest")
    assert found.steps <= 120


def test_a_loss_that_does_not_fall_gives_the_highest_rate_that_does_no_harm() -> None:
    found = search("adam", 1.0, lambda rate, steps: 1.0 if rate < 0.05 else 3.0)
    assert (found.top, found.basis) == (0.032, "stable")


@pytest.mark.parametrize(("start", "after"), [(nan, 1.0), (1.0, inf), (1.0, 5.0)])
def test_where_every_rate_diverges_the_range_is_the_usual_one(start: float, after: float) -> None:
    assert [search(name, start, lambda rate, steps: after).top for name in ("sgd", "adamw")] == [0.5, 0.01]


def test_a_negative_loss_can_fall_as_well() -> None:
    lower = descent(1.0)
    assert search("sgd", -1.0, lambda rate, steps: lower(rate, steps) - 2.0).top == 1.0


def test_what_was_found_is_drawn_from_and_stands_in_the_history() -> None:
    first, second = whole()
    assert set(tops(first)) == {"sgd", "adam"}
    assert not second.ranges
    assert "ranges" not in second.record()
    assert read_ranges(first.state.history) == first.ranges == second.state.ranges
    assert [(each.low, each.top, each.basis) for each in first.ranges] == [(0.01, 0.5, "near"), (3e-4, 0.01, "near")]
    ranges = {each.optimizer: (each.low, each.top) for each in first.ranges}
    for generation in (first, second):
        for policy in generation.policies:
            low, top = ranges[policy.optimizer]
            assert low <= policy.hyper["lr"] / policy.annealing <= top


def test_smaller_inputs_get_higher_rates() -> None:
    """Of a linear network: by the inverse square of the scale with SGD, by its inverse with ADAM."""
    plain, small = (tops(run(learnable(scale, linear), generations=1)[0]) for scale in (1.0, 0.01))
    assert small["sgd"] >= 1e3 * plain["sgd"]
    assert small["adam"] >= 30 * plain["adam"]


def test_finding_is_addressed_and_leaves_the_callers_generators_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(learnable(), generations=1)[0]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert run(learnable(), generations=1)[0].ranges == first.ranges
    fixed = run(learnable(), generations=1, species=Recipe().species)[0]
    assert fixed.before == first.before, "the initial population is the one that it would be without a test"


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_every_engine_finds_the_same() -> None:
    loop = run(learnable(), Loop(threads=1))
    for engine in (Vmap(threads=1), Pool(workers=2)):
        other = run(learnable(), engine)
        assert other[0].ranges == loop[0].ranges
        if isinstance(engine, Pool):
            assert not difference(contents(other[-1].population), contents(loop[-1].population))


def test_a_range_test_travels_to_a_cluster_and_gives_the_same() -> None:
    setup = prepare(learnable(), Recipe(**SMALL), 0)
    kernel, one = Loop(threads=1).kernel(setup), NetworkState(*setup.genome.read(setup.genome.template))
    job = RangeTest(start=one, policy=esgd.Policy(optimizer="sgd", hyper={"lr": 1.0}))
    (sent,) = serialized_jobs([job]).take()
    answer = run_sent_job(sent, kernel, Stack(one.row[None], {}))
    assert store_individuals(sent, answer).values == job.run(kernel).values
    durations = JobDurations()
    durations.note([job], 1.0)
    assert durations.usual([job]) == inf, "one job is too few to know"


def test_the_ledger_counts_the_test() -> None:
    auto, fixed = (run(learnable(), generations=1, species=each)[0] for each in ("auto", Recipe().species))
    steps = sum(each.steps for each in auto.ranges)
    assert 60 < steps < 250
    assert auto.work.sgd_backward == fixed.work.sgd_backward + 16 * steps
    assert auto.work.sgd_forward > fixed.work.sgd_forward + 16 * steps


def test_a_resumed_run_repeats_what_was_found_and_tests_nothing(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL | {"species": Optimizer(name=RECORDING_SGD, lr="auto"), "generations": 3})
    at_once = esgd.fit(learnable(), recipe, seed=0, engine="loop", progress=False)
    stop: Any = lambda generation: generation.k == 1  # noqa: E731
    esgd.fit(learnable(), recipe, seed=0, engine="loop", progress=False, run=tmp_path / "run", stop=stop)
    RecordingSgd.steps.clear()
    rest = esgd.fit(learnable(), recipe, seed=0, engine="loop", progress=False, run=tmp_path / "run")
    assert len(RecordingSgd.steps) == 2 * 3 * 10, "two generations of three individuals, and no step more"
    assert not difference(contents(rest.population), contents(at_once.population))
    assert rest.history[0]["ranges"] == at_once.history[0]["ranges"]
    assert [line["ledger"] for line in rest.history] == [line["ledger"] for line in at_once.history]


def test_a_run_that_goes_on_with_auto_tests_once_and_says_so() -> None:
    start = run(learnable(), species=Sgd(lr=0.1))[-1].state
    third, fourth = esgd.evolve(learnable(), Recipe(**SMALL | {"generations": 4}), seed=0, engine="loop", resume=start)
    assert set(tops(third)) == {"sgd", "adam"}
    assert not fourth.ranges
    again = islice(esgd.evolve(learnable(), Recipe(**SMALL | {"generations": 4}), seed=0, resume=third.state), 1)
    assert not difference(contents(next(again).population), contents(fourth.population))


def test_a_loss_that_nothing_lowers_gets_a_note_that_names_scaled() -> None:
    (first,) = run(learnable(1e-9, linear), generations=1)
    assert {each.basis for each in first.ranges} == {"stable"}
    assert "esgd.scaled" in {note.kind: note.text for note in first.notes}["ranges"]


def test_a_training_loss_that_is_not_finite_leaves_the_usual_ranges_and_a_note() -> None:
    class Poisoned(esgd.Supervised):
        def loss(self, module: nn.Module, batch: Any) -> torch.Tensor:
            return super().loss(module, batch) * nan

    x, y = random_data(64)
    first = run(Poisoned(mlp, F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=16), generations=1)[0]
    assert tops(first) == {"sgd": 0.5, "adam": 0.01}
    assert any(note.kind == "ranges" and "usual" in note.text for note in first.notes)
    assert first.record()["ranges"] == first.state.history[0]["ranges"]
    assert read_ranges(first.state.history) == first.ranges


class Plain:
    """An engine that somebody else has written: its sessions have the four verbs and no more."""

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Any]:
        with Loop(threads=1).open(setup, tick) as session:
            verbs = {name: getattr(session, name) for name in ("train", "evaluate", "unite", "spent")}
            yield SimpleNamespace(**verbs)


def test_an_engine_that_cannot_test_leaves_the_usual_ranges_and_a_note() -> None:
    (first,) = run(learnable(), Plain(), generations=1)
    assert tops(first) == {"sgd": 0.5, "adam": 0.01}
    assert any("This engine cannot test" in note.text for note in first.notes)


class Frozen(nn.Module):
    """A frozen first layer, BatchNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(INPUTS, INPUTS), batchnorm_mlp()
        self.first.requires_grad_(requires_grad=False)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.rest(self.drop(self.first(x)))
        return out


def test_frozen_layers_batchnorm_dropout_and_a_source_of_batches_are_tested_alike() -> None:
    x, y = random_data(60)
    batches = [(x[i : i + 20], y[i : i + 20]) for i in range(0, 60, 20)]
    task = esgd.Supervised(Frozen, F.cross_entropy, train=lambda: iter(batches), fitness=(x, y))
    (first,) = run(task, generations=1)
    assert all(each.probes and each.basis in ("near", "fastest") for each in first.ranges)
    assert first.guarantee == "held"


@pytest.mark.parametrize(
    ("species", "words"),
    [
        (torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]), "Pass the class: torch.optim.Adam."),
        (torch.optim.Optimizer, "does not train. Pass one of them"),
        (torch.optim.SparseAdam, "takes sparse gradients only"),
        ("sparseadam", "takes sparse gradients only"),
    ],
    ids=["instance", "abstract", "sparse", "sparse by name"],
)
def test_an_optimizer_that_cannot_train_a_network_is_refused(species: Any, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(species=species)
    assert words in str(caught.value)


def test_a_word_or_an_optimizer_class_is_a_species() -> None:
    assert Recipe(species=torch.optim.Adam) == Recipe(species="adam") == Recipe(species=Adam(lr="auto"))
    assert Recipe(species=torch.optim.RMSprop).species == Optimizer(name="rmsprop", lr=AutoRate())
    assert Recipe(species=RecordingSgd).species == Optimizer(name=RECORDING_SGD, lr="auto")
    auto = Recipe(species="auto", offspring=8)
    assert auto.species == Mixture(species=(Sgd(lr="auto"), Adam(lr="auto")))
    assert Recipe.from_dict(auto.to_dict()) == auto == Recipe.from_dict({"species": "auto", "offspring": 8})
    with pytest.raises(RecipeError, match="species='admaw' is neither 'auto' nor an optimizer.*'adamw'"):
        Recipe(species="admaw")
    with pytest.raises(RecipeError, match="lr='atuo' is not a number"):
        Sgd(lr="atuo")
    with pytest.raises(RecipeError, match="too high for one that is trained"):
        FineTuning(species=Once(species=Adam(lr="auto")))
    with pytest.raises(RecipeError, match="breadth=0.5"):
        AutoRate(breadth=0.5)


def test_the_command_line_takes_the_words() -> None:
    digits = Study(name="d", about="", task=lambda seed: learnable(), recipe=Recipe(), single=Sgd(lr=0.1))
    assert overridden(digits, ["species=auto"]).recipe.species == Recipe(species="auto").species
    assert overridden(digits, ["species=adamw"]).recipe.species == Recipe(species="adamw").species
    assert overridden(digits, ["species.species.1.lr=auto"]).recipe.species.species[1].lr == AutoRate()


def test_auto_is_found_inside_other_species_and_has_its_own_breadth() -> None:
    inner = Mixture(species=(Optimizer(name="adamw", lr=AutoRate(breadth=4)), Sgd(lr=0.1)))
    (first,) = run(learnable(), generations=1, species=Inherited(species=inner))
    (found,) = first.ranges
    assert found.optimizer == "adamw"
    assert found.low == pytest.approx(found.top / 4, rel=0.05)
    drawn = Optimizer(name="adamw", lr=AutoRate(breadth=4))(ask(tops={"adamw": 40.0}))
    assert 10 <= drawn.hyper["lr"] / drawn.annealing <= 40


def test_our_rules_find_their_rates_unless_the_test_would_be_too_much_of_the_work() -> None:
    def auto(recipe: Recipe) -> bool:
        return "auto_rate" in str(recipe.to_dict()["species"])

    task = classify(train=random_data(800))
    assert auto(rules.ours(task))
    assert auto(rules.ours(task, 1e6))
    assert not auto(rules.ours(task, 2e4))
    assert not auto(rules.ours(task, 1e6, rates=rules.RATES))
    assert not auto(rules.halving(task, 1e6))


def test_the_report_shows_the_range_test() -> None:
    generations = whole()
    lines = [each.record() for each in generations]
    page = run_page("mine", {}, lines)
    assert "Learning rates" in page
    assert "close to the usual one" in page
    assert "Learning rates" not in run_page("mine", {}, [replace(each, ranges=()).record() for each in generations])


@pytest.mark.parametrize(
    "damage", [{"top": 0}, {"top": "1"}, {"basis": "best"}, {"probes": [[1, 2]]}, {"optimizer": 3}]
)
def test_a_damaged_record_is_named(damage: dict[str, Any]) -> None:
    line = deepcopy(whole()[0].record())
    assert not line_fault(line, 1)
    line["ranges"][0] |= damage
    assert line_fault(line, 1).startswith("'ranges' is")
    if "top" in damage:
        with pytest.raises((ValueError, TypeError)):
            FoundRange.from_record(line["ranges"][0])


def test_without_a_test_a_draw_is_from_the_usual_range() -> None:
    drawn = Sgd(lr="auto", gamma=1.0)(ask())
    assert drawn == Sgd(lr=(0.01, 0.5), gamma=1.0)(ask())


@pytest.mark.parametrize(
    ("rate", "top", "settled"),
    [
        (AutoRate(), 3.2, (0.01, 0.5, "near")),
        (AutoRate(), 0.05, (0.01, 0.5, "near")),
        (AutoRate(), 0.032, (0.0011, 0.032, "fastest")),
        (AutoRate(), 32.0, (1.1, 32.0, "fastest")),
        (AutoRate(breadth=30), 1.0, (0.033, 1.0, "fastest")),
    ],
)
def test_the_usual_range_is_kept_unless_the_test_speaks_against_it(
    rate: AutoRate, top: float, settled: tuple[float, float, str]
) -> None:
    found = rate.settled(FoundRange(optimizer="sgd", top=top, basis="fastest", start=1.0, probes=()))
    assert (found.low, found.top, found.basis) == settled


@pytest.mark.parametrize(("low", "top"), [(0.0, 1e300), (-1.0, 0.1), (0.5, 0.1), (nan, 0.1), (0.0, 0.0)])
def test_a_range_that_cannot_be_is_not_read(low: float, top: float) -> None:
    record = search("sgd", 1.0, descent(1.0)).record() | {"low": low, "top": top}
    with pytest.raises(ValueError, match="no range of learning rates"):
        FoundRange.from_record(record)
