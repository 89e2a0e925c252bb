"""The paper's equations and its small print, one by one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import esgd
from esgd.engines.sgd import build_optimizer
from esgd.operators import (
    Elitist,
    Gaussian,
    Inverse,
    Never,
    PerEpoch,
    PerGeneration,
    Perturbed,
    Rank,
    Roulette,
    Softmax,
)
from esgd.population import Birth
from esgd.protocols import Role
from esgd.randomness import Seeds
from esgd.schedules import Steps
from esgd.species import Adam, Fixed, Mixture, Once, Optimizer, Sgd, Uniform
from tests.small import (
    RECORDING_SGD,
    RecordingSgd,
    ask,
    classify,
    mlp,
    random_data,
    session,
    true_fitness,
)

LOSSES = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
FITNESS = random_data(70, seed=1)
STILL = {"species": Sgd(lr=0.0), "sgd_epochs": 1}  # an SGD step that leaves everybody where they are


# Definition 1: the m-elitist average fitness


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.data())
def test_the_elite_mean_is_the_average_of_the_m_best(losses: list[float], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(losses)))
    assert of_fitness(losses).elite_mean(m) == pytest.approx(fmean(sorted(losses)[:m]))


def test_the_elite_mean_spans_from_the_best_to_the_whole_population() -> None:
    population = of_fitness([3.0, 1.0, 8.0, 2.0])
    assert population.elite_mean(1) == population.best.fitness == 1.0
    assert population.elite_mean(3) == 2.0
    assert population.elite_mean(4) == 3.5


def test_ranking_is_ascending_and_the_earlier_wins_a_tie() -> None:
    assert of_fitness([3.0, 1.0, 8.0, 1.0]).order == [1, 3, 0, 2]


# Eq. 12: θ_i = (1/ρ) Σ θ_j + ε_i, ε_i ~ N(0, σ_k²)


@pytest.mark.slow
def test_an_offspring_is_the_mean_of_its_mates_plus_gaussian_noise() -> None:
    task = classify()
    recipe = esgd.Recipe(population=40, offspring=400, elites=1, mates=2, generations=2, **STILL)
    before = None
    for generation in esgd.evolve(task, recipe, seed=0):
        if before is not None:
            noise = noise_of_newborn(generation, before, mates=2)
            assert noise.numel() > 1500
            sigma = 0.01 / generation.k
            standard = noise / sigma
            assert abs(float(standard.mean())) < 0.08
            assert float(standard.std()) == pytest.approx(1, abs=0.05)
            assert float(standard.pow(3).mean()) == pytest.approx(0, abs=0.2)
            assert float(standard.pow(4).mean()) == pytest.approx(3, abs=0.5)
            correlation = torch.corrcoef(standard) - torch.eye(len(standard))
            assert float(correlation.abs().mean()) < 0.15, "offspring share their noise"
        before = generation.population


def test_without_mutation_an_offspring_is_exactly_the_mean_of_its_mates() -> None:
    recipe = esgd.Recipe(
        population=8, offspring=64, elites=1, mates=3, generations=2, mutation=Gaussian(sigma=0), **STILL
    )
    first, second = esgd.evolve(classify(), recipe, seed=0)
    assert torch.equal(
        noise_of_newborn(second, first.population, mates=3),
        torch.zeros_like(noise_of_newborn(second, first.population, mates=3)),
    )


def noise_of_newborn(generation: esgd.Generation, before: esgd.Population, mates: int) -> Tensor:
    """What is left of the offspring of a generation once the mean of their mates is taken away. Shape (n, d)."""
    rows = {birth.id: row for birth, row in zip(before.births, before.rows, strict=True)}
    left = []
    for birth, row in zip(generation.population.births, generation.population.rows, strict=True):
        if birth.generation == generation.k:
            assert len(birth.parents) == len(set(birth.parents)) == mates
            left.append(row - torch.stack([rows[parent] for parent in birth.parents]).mean(dim=0))
    return torch.stack(left)


def test_mutation_strength_is_sigma_0_over_k() -> None:
    recipe = esgd.Recipe(population=4, offspring=40, elites=1, generations=5, mutation=Gaussian(sigma=0.03), **STILL)
    for generation in esgd.evolve(classify(), recipe, seed=0):
        strengths = {b.sigma for b in generation.population.births if b.generation == generation.k}
        assert strengths == {0.03 / generation.k}


@given(k=st.integers(1, 15), seed=st.integers(0, 1000))
def test_a_range_of_strengths_is_drawn_per_offspring_and_annealed(k: int, seed: int) -> None:
    """Penn Treebank: σ_0 in [0.01, 0.15]."""
    drawn = [Gaussian(sigma=(0.01, 0.15)).strength(k, Seeds(seed)("sigma", i)) for i in range(5)]
    assert all(0.01 / k <= sigma <= 0.15 / k for sigma in drawn)
    assert len(set(drawn)) == 5


# §3.3, item 2: roulette wheel


def test_roulette_weights_have_their_closed_form() -> None:
    assert Roulette().weights(LOSSES).tolist() == pytest.approx([2.02, 1.02, 0.02])
    assert Roulette(floor=0.5).weights(LOSSES).tolist() == pytest.approx([3.0, 2.0, 1.0])
    assert Inverse().weights(LOSSES).tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert Rank().weights(LOSSES).tolist() == [3, 2, 1]
    spread = (2 / 3) ** 0.5
    weights = torch.exp(torch.tensor([0, -1 / spread, -2 / spread], dtype=torch.float64))
    assert Softmax().weights(LOSSES).tolist() == pytest.approx(weights.tolist())
    assert Softmax(temperature=2).weights(LOSSES).tolist() == pytest.approx(weights.sqrt().tolist())


def test_the_wheel_turns_in_proportion_to_the_weights() -> None:
    """2.02 : 1.02 : 0.02, over 4,000 fixed seeds."""
    seeds = Seeds(0)
    drawn = Counter(Roulette()(LOSSES, 1, seeds("mates", i))[0] for i in range(4000))
    assert drawn[0] / 4000 == pytest.approx(2.02 / 3.06, abs=0.03)
    assert drawn[1] / 4000 == pytest.approx(1.02 / 3.06, abs=0.03)
    assert 0 < drawn[2] / 4000 < 0.015


def test_fitness_smoothing_is_an_exponent_on_the_weights() -> None:
    """Penn Treebank's "fitness smoothing 0.5" flattens the wheel: √2.02 : √1.02 : √0.02."""
    seeds = Seeds(0)
    drawn = Counter(Roulette(smoothing=0.5)(LOSSES, 1, seeds("mates", i))[0] for i in range(4000))
    total = 2.02**0.5 + 1.02**0.5 + 0.02**0.5
    assert [drawn[i] / 4000 for i in range(3)] == pytest.approx(
        [2.02**0.5 / total, 1.02**0.5 / total, 0.02**0.5 / total], abs=0.03
    )


# Supplement B: hyper-parameters


@given(
    k=st.integers(1, 15),
    low=st.floats(1e-6, 1),
    width=st.floats(0, 60),
    gamma=st.floats(0.1, 1),
    seed=st.integers(0, 10**6),
    adam=st.booleans(),
)
def test_a_learning_rate_is_always_inside_its_annealed_range(
    k: int, low: float, width: float, gamma: float, seed: int, adam: bool
) -> None:
    """[a_k, b_k] = [γ^k a_0, γ^k b_0], k from 1."""
    pool = (Adam if adam else Sgd)(lr=(low, low + width), gamma=gamma)
    lr = pool(ask(k, seed=seed)).hyper["lr"]
    assert gamma**k * low <= lr <= gamma**k * (low + width)


def test_learning_rates_fill_their_range_evenly() -> None:
    pool = Sgd(lr=(1e-4, 2e-3), gamma=0.9)
    share = sorted((pool(ask(3, j)).hyper["lr"] / 0.9**3 - 1e-4) / 1.9e-3 for j in range(1000))
    assert share[0] < 0.01
    assert share[-1] > 0.99
    assert max(abs(value - i / 1000) for i, value in enumerate(share)) < 0.05, "not uniform (Kolmogorov–Smirnov)"


def test_sgd_uses_momentum_in_80_percent_and_then_nesterov_in_50() -> None:
    drawn = [Sgd(lr=0.1)(ask(1, j)).hyper for j in range(3000)]
    moving = [hyper for hyper in drawn if hyper["momentum"] > 0]
    assert len(moving) / len(drawn) == pytest.approx(0.8, abs=0.03)
    assert fmean(hyper["nesterov"] for hyper in moving) == pytest.approx(0.5, abs=0.04)
    assert not any(hyper["nesterov"] for hyper in drawn if hyper["momentum"] == 0)
    assert all(0.1 <= hyper["momentum"] <= 0.9 for hyper in moving)
    assert fmean(hyper["momentum"] for hyper in moving) == pytest.approx(0.5, abs=0.02)
    assert min(hyper["momentum"] for hyper in moving) < 0.11
    assert max(hyper["momentum"] for hyper in moving) > 0.89


def test_adam_randomizes_the_learning_rate_only() -> None:
    """ "β_1 = 0.9 and β_2 = 0.999 are fixed": as the optimizer that is really built has them."""
    policies = [Adam(lr=(1e-4, 1e-3), gamma=1.0)(ask(1, j)) for j in range(20)]
    groups = [build_optimizer(list(mlp().parameters()), policy).param_groups[0] for policy in policies]
    assert {group["betas"] for group in groups} == {(0.9, 0.999)}
    assert len({group["lr"] for group in groups}) == 20
    rest = [{name: value for name, value in group.items() if name not in ("lr", "params")} for group in groups]
    assert all(each == rest[0] for each in rest)


def test_species_have_equal_weight_unless_given() -> None:
    pools = (Sgd(lr=0.1), Adam(lr=0.1))
    even = [Mixture(species=pools)(ask(1, j)).optimizer for j in range(2000)]
    assert even.count("sgd") / 2000 == pytest.approx(0.5, abs=0.04)
    uneven = [Mixture(species=pools, weights=(0.8, 0.2))(ask(1, j)).optimizer for j in range(2000)]
    assert uneven.count("sgd") / 2000 == pytest.approx(0.8, abs=0.04)


def test_what_is_drawn_is_what_is_applied() -> None:
    RecordingSgd.steps.clear()
    species = Optimizer(
        name=RECORDING_SGD,
        lr=(0.001, 0.1),
        hyper={"momentum": Uniform(0.1, 0.9), "nesterov": True, "weight_decay": Uniform(0, 1.2e-5)},
    )
    recipe = esgd.Recipe(population=3, generations=2, sgd_epochs=2, species=species)
    drawn = [policy for generation in esgd.evolve(classify(), recipe, seed=0) for policy in generation.policies]
    steps = 2 * 3  # two epochs of three batches
    assert RecordingSgd.steps == [dict(policy.hyper) for policy in drawn for _ in range(steps)]


# Supplement C: CIFAR-10


def test_the_cifar_schedule_drops_on_the_global_epoch() -> None:
    """Base 0.1, 0.01 after 80 epochs, 0.001 after 121, times one number in [0.9, 1.1] per individual and generation.

    8 generations of 20 epochs: the first drop is where generation 5 begins, the second one epoch into generation 7.
    """
    RecordingSgd.steps.clear()
    species = Optimizer(
        name=RECORDING_SGD,
        lr=(0.09, 0.11),
        gamma=1.0,
        hyper={"momentum": 0.9, "nesterov": True},
        schedule=Steps(after=(80, 121)),
    )
    recipe = esgd.Recipe(population=2, offspring=2, generations=8, sgd_epochs=20, species=species)
    generations = list(esgd.evolve(classify(batch_size=64), recipe, seed=0))  # one step an epoch
    assert len(RecordingSgd.steps) == 8 * 2 * 20
    applied = iter(RecordingSgd.steps)
    for generation in generations:
        factors = [policy.hyper["lr"] / 0.1 for policy in generation.policies]
        assert all(0.9 <= factor <= 1.1 for factor in factors)
        assert factors[0] != factors[1]
        for factor in factors:
            for epoch in range(20 * generation.k - 20, 20 * generation.k):
                base = 0.1 if epoch < 80 else 0.01 if epoch < 121 else 0.001
                step = next(applied)
                assert step["lr"] == pytest.approx(base * factor)
                assert (step["momentum"], step["nesterov"]) == (0.9, True)


# §4: the population baseline


def test_the_population_baseline_draws_once_and_anneals() -> None:
    recipe = esgd.Recipe(
        population=4,
        generations=4,
        sgd_epochs=1,
        evolution_steps=0,
        backoff=Never(),
        species=Once(species=Mixture(species=(Sgd(lr=(0.01, 0.5), gamma=0.9), Adam(lr=(1e-4, 1e-2), gamma=0.9)))),
    )
    generations = list(esgd.evolve(classify(), recipe, seed=3))
    for before, after in pairwise(generations):
        for old, new in zip(before.policies, after.policies, strict=True):
            assert new.optimizer == old.optimizer
            assert new.hyper["lr"] == pytest.approx(0.9 * old.hyper["lr"])
            assert {**new.hyper, "lr": 0} == {**old.hyper, "lr": 0}
    assert len({str(policy) for policy in generations[0].policies}) == 4


def test_the_first_generation_of_the_population_baseline_is_that_of_esgd() -> None:
    """Paired arms: the same seed draws the same policies in generation 1."""
    pool = Sgd(lr=(0.01, 0.5))
    assert Once(species=pool)(ask(1, 5)) == pool(ask(1, 5))
    assert Once(species=pool)(ask(2, 5)) != pool(ask(2, 5))


# §3.3, item 4, and §4: m-elitist survival


@pytest.mark.parametrize(
    ("mu", "m"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 5), (10, 6), (16, 10), (100, 60), (128, 77)]
)
def test_sixty_percent_are_elite_and_at_least_one(mu: int, m: int) -> None:
    assert esgd.Recipe(population=mu, mates=1).elite_count == m


@given(
    losses=st.lists(st.floats(0, 10) | st.just(float("inf")), min_size=6, max_size=20),
    size=st.integers(1, 6),
    data=st.data(),
    seed=st.integers(0, 10**6),
)
def test_the_m_best_survive_and_the_rest_is_drawn_without_replacement(
    losses: list[float], size: int, data: st.DataObject, seed: int
) -> None:
    m = data.draw(st.integers(1, size))
    fitness, roles = torch.tensor(losses, dtype=torch.float64), [Role.HELD] * 3 + [Role.OFFSPRING] * (len(losses) - 3)
    chosen = Elitist()(fitness, roles, size=size, elites=m, generator=Seeds(seed)())
    assert len(chosen) == len(set(chosen)) == size
    assert [losses[i] for i in chosen[:m]] == sorted(losses)[:m]


def test_the_rest_is_drawn_evenly_from_parents_and_offspring() -> None:
    """Without looking at fitness: each of the 8 others has 3 chances in 8."""
    fitness = torch.arange(10, dtype=torch.float64)
    roles = [Role.MOVED] * 5 + [Role.OFFSPRING] * 5
    seeds, counts = Seeds(0), Counter[int]()
    for i in range(2000):
        counts.update(Elitist()(fitness, roles, size=5, elites=2, generator=seeds("rest", i))[2:])
    assert set(counts) == set(range(2, 10))
    assert all(count / 2000 == pytest.approx(3 / 8, abs=0.04) for count in counts.values())


def test_a_tie_goes_to_the_parent() -> None:
    """Clones of the fittest parent (ρ = 1, σ = 0) are exactly as fit as it is, and must not take its place."""
    recipe = esgd.Recipe(population=5, elites=1, mates=1, mutation=Gaussian(sigma=0), generations=2, **STILL)
    for generation in esgd.evolve(classify(), recipe, seed=0):
        assert generation.best.birth.generation == 0
        assert generation.offspring_among_elites == 0
    fitness, roles = torch.tensor([2.0, 1.0, 1.0, 1.0]), [Role.MOVED, Role.HELD, Role.OFFSPRING, Role.OFFSPRING]
    assert Elitist()(fitness, roles, size=2, elites=2, generator=Seeds(0)()) == [1, 2]


def test_the_share_of_offspring_among_the_elites_counts_this_generations_births() -> None:
    recipe = esgd.Recipe(population=5, elites=3, generations=3, sgd_epochs=1)
    for generation in esgd.evolve(classify(), recipe, seed=0):
        elites = generation.population.ranked[:3]
        born = [birth.id for birth in elites.births if birth.id.startswith(f"{generation.k}.")]
        assert generation.offspring_among_elites == len(born) / 3


# K_v > 1


def test_a_second_evolution_step_breeds_the_population_that_the_first_one_left() -> None:
    recipe = esgd.Recipe(population=5, elites=1, generations=1, evolution_steps=2, sgd_epochs=1)
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    second = [birth for birth in generation.population.births if birth.id.startswith("1.2.")]
    assert any(parent.startswith("1.1.") for birth in second for parent in birth.parents)
    assert {birth.sigma for birth in second} == {0.01}


def test_every_evolution_step_draws_its_own_mates() -> None:
    recipe, population = esgd.Recipe(population=6, offspring=30), of_fitness([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    drawn = {(k, v): [birth.mates for birth in bred(recipe, population, k, v)] for k in (1, 2) for v in (1, 2)}
    assert len({tuple(mates) for mates in drawn.values()}) == 4


# §4.1: fine-tuning


def test_fine_tuning_trains_everybody_breeds_nobody_and_backs_off() -> None:
    RecordingSgd.steps.clear()
    tuning = esgd.FineTuning(lr=1e-3, species=Fixed(policy=esgd.Policy(optimizer=RECORDING_SGD, hyper={"lr": 1e-3})))
    recipe = esgd.Recipe(population=4, generations=2, sgd_epochs=1, fine_tuning=tuning, backoff=PerEpoch())
    *_, before, last = esgd.evolve(classify(), recipe, seed=0)
    assert (last.k, last.stage) == (3, "fine-tuning")
    assert {step["lr"] for step in RecordingSgd.steps} == {1e-3}
    assert len(RecordingSgd.steps) == 4 * 5 * 3  # individuals, epochs, batches
    assert [birth.id for birth in last.population.births] == [birth.id for birth in before.population.births]
    assert last.guarantee == "held"
    assert all(new <= old for new, old in zip(last.population.fitness, before.population.fitness, strict=True))


def test_fine_tuning_is_plain_sgd_with_a_small_fixed_rate_unless_told_otherwise() -> None:
    recipe = esgd.Recipe(population=2, generations=1, sgd_epochs=1, fine_tuning=esgd.FineTuning(lr=1e-4))
    *_, last = esgd.evolve(classify(), recipe, seed=0)
    assert last.policies == (esgd.Policy(optimizer="sgd", hyper={"lr": 1e-4}),) * 2
    assert recipe.total_epochs == 1 + 5


# §4.3: the baseline that is added to every generation


def trained(epochs: int = 40) -> torch.nn.Module:
    """A well-trained network: the single baseline."""
    torch.manual_seed(5)
    network, (x, y) = mlp(), FITNESS
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network


@pytest.mark.slow
def test_the_best_is_never_worse_than_the_immigrant_even_with_relaxed_back_off() -> None:
    baseline = trained()
    bound = true_fitness(baseline, FITNESS)
    shared = {"population": 4, "offspring": 4, "elites": 1, "generations": 5, "sgd_epochs": 1}
    wild = {"species": Sgd(lr=10.0, gamma=1.0), "backoff": PerGeneration(probability=0.3)}
    for seed in range(3):
        with_it = list(esgd.evolve(classify(), esgd.Recipe(**shared, **wild, immigrants=(baseline,)), seed=seed))
        without = list(esgd.evolve(classify(), esgd.Recipe(**shared, **wild), seed=seed))
        assert all(generation.best.fitness <= bound * (1 + 1e-6) for generation in with_it)
        assert all(len(generation.population) == 4 for generation in with_it)
        assert any(generation.best.fitness > bound for generation in without)


def test_an_immigrant_is_never_trained() -> None:
    """It comes back in every generation exactly as it was given, also after its copy in the population was trained."""
    baseline = trained()
    row = torch.nn.utils.parameters_to_vector(baseline.parameters()).detach().clone()
    recipe = esgd.Recipe(
        population=3,
        offspring=3,
        elites=1,
        generations=4,
        sgd_epochs=1,
        backoff=Never(),
        species=Sgd(lr=10.0, gamma=1.0),
        immigrants=(baseline,),
    )
    for generation in esgd.evolve(classify(), recipe, seed=0):
        assert generation.best.birth.id == "0.1.0"
        assert torch.equal(generation.best.row, row)
    assert torch.equal(torch.nn.utils.parameters_to_vector(baseline.parameters()), row), "the user's own was changed"


def test_an_immigrant_may_be_a_mate() -> None:
    recipe = esgd.Recipe(population=4, offspring=30, generations=1, sgd_epochs=1, elites=1, immigrants=(trained(),))
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    assert any("0.1.0" in birth.parents for birth in generation.population.births)


def test_immigrants_compete_where_nobody_is_bred() -> None:
    recipe = esgd.Recipe(population=3, offspring=0, generations=1, sgd_epochs=1, immigrants=(trained(),))
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    assert generation.best.birth.id == "0.1.0"


# §3.3: the initial population


def test_a_random_start_initialises_every_individual_anew_and_a_perturbed_one_shares_its_origin() -> None:
    task = classify()
    recipe = esgd.Recipe(population=30, sgd_epochs=1)
    with session(task, recipe) as open_:
        setup = open_.setup
        random = recipe.start(task, setup.genome, open_, 30, setup.seeds.at("init"))
        common = Perturbed(sigma=0.02)(task, setup.genome, open_, 30, setup.seeds.at("init"))
    assert len({tuple(row.tolist()) for row in random.rows}) == 30
    assert torch.equal(common.rows[0], random.rows[0]), "both begin with the same network"
    noise = common.rows[1:] - common.rows[0]
    assert float(noise.std()) == pytest.approx(0.02, rel=0.1)


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 2**62))
def test_arms_of_a_seed_start_from_the_same_population(seed: int) -> None:
    """Only what differs between two recipes may make a difference."""
    shared = {"population": 3, "generations": 1, "sgd_epochs": 1}
    plain, ablation = (
        next(esgd.evolve(classify(), esgd.Recipe(**shared, evolution_steps=steps), seed=seed)) for steps in (1, 0)
    )
    assert plain.before == ablation.before
    assert plain.policies == ablation.policies
    assert plain.after == ablation.after


def bred(recipe: esgd.Recipe, population: esgd.Population, k: int, v: int) -> list[Birth]:
    """The births of an evolution step."""
    stage, state = list(recipe.stages())[k - 1], esgd.State(k - 1, population, population.champion)
    with session(classify(), recipe) as open_:
        roles = [Role.HELD] * len(population)
        return recipe.breed(population, roles, stage, state, v=v, session=open_, seeds=Seeds(0))


def of_fitness(losses: list[float]) -> esgd.Population:
    """A population with this fitness."""
    n = len(losses)
    with session(classify(), esgd.Recipe()) as open_:
        genome = open_.setup.genome
    blank = esgd.Population.founders(genome, torch.zeros(n, genome.size), {})
    return esgd.Population(
        genome=genome,
        rows=blank.rows,
        buffers={},
        fitness=torch.tensor(losses, dtype=torch.float64),
        births=blank.births,
        policies=blank.policies,
        optimizer_states=blank.optimizer_states,
    )
