"""evolve(): whole runs on every odd kind of network, data and recipe. Each works, or says what, why and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import esgd
from esgd import Recipe, Supervised
from esgd.errors import EsgdError, FitnessError, RecipeError, TaskError
from esgd.generation import Generation
from esgd.operators import (
    BestOf,
    CarriedByMate,
    Elitist,
    Gaussian,
    Never,
    PerEpoch,
    Perturbed,
    Reestimated,
    trajectories,
)
from esgd.policies import Policy
from esgd.species import Adam, Choice, Fixed, Inherited, Mixture, Sgd, Uniform
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, dropout_mlp, mlp, random_data, true_fitness

SMALL = Recipe(population=4, offspring=6, generations=3, sgd_epochs=1)
FITNESS = random_data(70, seed=1)


def run(task: Any, recipe: Recipe = SMALL, *, seed: int = 0, **options: Any) -> list[Generation]:
    return list(esgd.evolve(task, recipe, seed=seed, engine=esgd.Loop(threads=1), **options))


def same(one: Generation, other: Generation) -> bool:
    a, b = one.population, other.population
    return (
        torch.equal(a.rows, b.rows)
        and torch.equal(a.fitness, b.fitness)
        and all(torch.equal(stacked, b.buffers[name]) for name, stacked in a.buffers.items())
        and (a.births, a.policies) == (b.births, b.policies)
    )


def history(generation: Generation) -> list[dict[str, Any]]:
    """The history without what a clock and a second start put into it."""
    return [{**line, "seconds": None, "ledger": None} for line in generation.state.history]


def assert_guaranteed(generations: list[Generation], elites: int) -> None:
    """Theorem 1, taken without the library's own check: the i-th best never rises, i ≤ m."""
    assert {each.guarantee for each in generations} == {"held"}
    for earlier, later in pairwise(generations):
        best = [sorted(each.population.fitness.tolist())[:elites] for each in (earlier, later)]
        assert all(new <= old for old, new in zip(*best, strict=True))


# Sizes of Algorithm 1


SIZES: dict[str, dict[str, Any]] = {
    "no offspring": {"offspring": 0},
    "one offspring": {"offspring": 1},
    "everybody elite": {"elites": 4},
    "one elite": {"elites": 1},
    "one individual": {"population": 1, "mates": 1},
    "everybody mates": {"mates": 4},
    "one mate or two": {"mates": {1, 2}},
    "no evolution": {"evolution_steps": 0},
    "two evolution steps": {"evolution_steps": 2},
    "no SGD": {"sgd_epochs": 0},
    "back-off per epoch": {"backoff": PerEpoch(), "sgd_epochs": 2},
    "the best of the walk": {"backoff": BestOf(average=2), "sgd_epochs": 2},
    "trajectories": {"survival": Elitist(rest=trajectories)},
    "no mutation": {"mutation": Gaussian(sigma=0)},
    "clones at the start": {"start": Perturbed(sigma=0.0)},
    "fine-tuning": {"fine_tuning": esgd.FineTuning(lr=0.01, epochs=1)},
}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp])
def test_every_size_of_the_inputs_runs_and_keeps_the_guarantee(size: str, make_model: Any) -> None:
    recipe = replace(SMALL, **SIZES[size])
    generations = run(classify(make_model), recipe)
    assert_guaranteed(generations, recipe.elite_count)
    for each in generations:
        assert len(each.population) == recipe.population
        assert each.best.fitness == pytest.approx(true_fitness(each.best.module(), FITNESS), rel=1e-6)


def test_a_network_that_stays_the_best_is_tested_once() -> None:
    task, tested = classify(test=random_data(30, seed=2)), list[nn.Module]()
    measure = task.test
    task.test = lambda network: tested.append(network) or measure(network)  # type: ignore[method-assign]
    still = Fixed(policy=Policy(optimizer="sgd", hyper={"lr": 0.0}))
    recipe = replace(SMALL, generations=4, species=still, evolution_steps=0)
    generations = list(esgd.evolve(task, recipe, seed=0, engine="loop"))
    assert len(tested) == 1
    assert [each.test for each in generations] == [generations[0].test] * 4
    assert measure(generations[-1].state.archive.best.module()) == generations[-1].test


def test_more_mates_than_parents_are_refused() -> None:
    with pytest.raises(RecipeError, match="mates=5 does not fit population=4"):
        replace(SMALL, mates=5)


def test_without_offspring_nobody_is_born() -> None:
    assert {each.offspring_among_elites for each in run(classify(), replace(SMALL, offspring=0))} == {0.0}


# The same seed, the same bits


@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp, dropout_mlp])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(make_model: Any) -> None:
    first = run(classify(make_model))
    torch.rand(7)
    assert all(same(a, b) for a, b in zip(first, run(classify(make_model)), strict=True))
    assert not same(first[-1], run(classify(make_model), seed=1)[-1])


POOLS = Mixture(species=(Sgd(lr=(0.01, 0.5)), Adam(lr=(1e-3, 1e-2))))
ROADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "carried state": {"baggage": CarriedByMate()},
    "inherited policies": {"species": Inherited(species=POOLS)},
    "trajectories": {"survival": Elitist(rest=trajectories)},
    "relaxed back-off": {"backoff": PerEpoch(probability=0.7), "sgd_epochs": 2},
    "fine-tuning": {"fine_tuning": esgd.FineTuning(lr=0.01, epochs=1)},
    "drawn settings": {"species": Sgd(lr=0.1, settings={"batch_size": Choice((8, 16)), "dropout": Uniform(0.0, 0.5)})},
}


@pytest.mark.parametrize("road", ROADS)
def test_a_run_goes_on_from_any_generation_as_if_it_had_not_stopped(road: str) -> None:
    recipe = replace(SMALL, **ROADS[road])
    whole = run(classify(dropout_mlp), recipe)
    for stop in range(len(whole)):
        rest = run(classify(dropout_mlp), recipe, resume=whole[stop].state)
        assert [each.k for each in rest] == [each.k for each in whole[stop + 1 :]]
        assert all(same(a, b) for a, b in zip(whole[stop + 1 :], rest, strict=True))
        last = rest[-1] if rest else whole[stop]
        assert history(last) == history(whole[-1])


def test_the_ledger_of_a_resumed_generation_is_that_of_the_uninterrupted_one() -> None:
    whole = run(classify())
    (*_, last) = run(classify(), resume=whole[0].state)
    assert [line["ledger"] for line in last.state.history] == [line["ledger"] for line in whole[-1].state.history]


def test_a_finished_run_has_nothing_to_go_on_with() -> None:
    assert run(classify(), resume=run(classify())[-1].state) == []


# Starts of one's own


def test_a_population_may_be_the_start_of_another_run() -> None:
    task = classify(batchnorm_mlp)
    before = run(task)[-1].population
    after = run(task, replace(SMALL, sgd_epochs=2), seed=5, resume=before)
    assert [fitness for _, fitness in after[0].before] == before.fitness.tolist()
    assert_guaranteed(after, SMALL.elite_count)
    assert after[0].best.fitness <= float(before.fitness.min())


def test_a_start_of_another_size_is_refused() -> None:
    population = run(classify())[-1].population
    with pytest.raises(RecipeError, match="the start has 3 individuals, but generation 1 of this recipe trains 4"):
        run(classify(), resume=population[:3])


def test_a_start_of_another_size_is_refused_before_it_is_scored() -> None:
    population, samples = run(classify())[-1].population, list[int]()

    def loss(output: Tensor, y: Tensor) -> Tensor:
        samples.append(len(y))
        return F.cross_entropy(output, y)

    task = Supervised(mlp, loss, train=random_data(48), fitness=FITNESS, batch_size=16)
    samples.clear()
    with pytest.raises(RecipeError, match="the start has 3 individuals"):
        run(task, resume=population[:3])
    assert not samples


def frozen_base() -> nn.Module:
    network = mlp()
    network[0].requires_grad_(False)
    return network


def test_the_best_of_a_run_that_starts_from_a_population_scores_what_it_says() -> None:
    before = run(classify(frozen_base), seed=0)[-1].population
    after = run(classify(frozen_base), seed=1, resume=before)[-1]
    assert after.best.fitness == pytest.approx(true_fitness(after.best.module(), FITNESS), rel=1e-6)


def test_a_start_of_another_architecture_is_refused() -> None:
    before = run(classify(mlp))[-1].population
    with pytest.raises(EsgdError):
        run(classify(batchnorm_mlp), resume=before)


def test_nobody_of_an_earlier_run_counts_as_born_in_this_one() -> None:
    before = run(classify(), replace(SMALL, generations=1, start=Perturbed()))[-1]
    assert before.offspring_among_elites > 0
    (after,) = run(classify(), replace(SMALL, generations=1, offspring=0), resume=before.population)
    assert after.offspring_among_elites == 0


def test_a_start_that_is_none_is_refused() -> None:
    with pytest.raises(RecipeError, match="start"):
        run(classify(), resume=[mlp()])


@pytest.mark.parametrize("seed", [True, "0", 1.0, None])
def test_a_seed_that_is_no_whole_number_is_refused(seed: Any) -> None:
    with pytest.raises(RecipeError, match=f"seed={seed!r} is not a whole number"):
        run(classify(), seed=seed)


# Divergence


@pytest.mark.slow
@pytest.mark.parametrize("backoff", [PerEpoch(), BestOf(average=2), replace(SMALL).backoff], ids=str)
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp])
def test_a_run_survives_learning_rates_that_explode(backoff: Any, make_model: Any) -> None:
    species = Mixture(species=(Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 1e38})), Sgd(lr=1e6)))
    generations = run(classify(make_model), replace(SMALL, sgd_epochs=2, backoff=backoff, species=species))
    assert_guaranteed(generations, SMALL.elite_count)
    assert sum(each.diverged for each in generations) > 0
    assert sum(each.backed_off for each in generations) >= sum(each.diverged for each in generations)
    assert all(each.population.rows.isfinite().all() for each in generations)


def test_a_run_in_which_everybody_diverges_says_so() -> None:
    species = Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 1e38}))
    first = run(classify(), replace(SMALL, offspring=0, species=species))[0]
    assert first.diverged == 4
    assert "diverged" in {note.kind for note in first.notes}
    assert first.best.policy is None


def test_without_back_off_even_a_lost_population_runs_to_the_end_and_keeps_its_best() -> None:
    species = Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 1e38}))
    last = run(classify(), replace(SMALL, backoff=Never(), offspring=0, species=species))[-1]
    assert last.population.fitness.isinf().all()
    assert last.record()["best"] is None
    assert true_fitness(last.state.archive.best.module(), FITNESS) == pytest.approx(last.state.archive.best.fitness)


def probabilities() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.ReLU(), nn.Linear(7, 1), nn.Sigmoid(), nn.Flatten(0))


def test_a_loss_that_refuses_nan_does_not_stop_the_run() -> None:
    data = (FITNESS[0], (FITNESS[1] > 0).float())
    task = Supervised(probabilities, F.binary_cross_entropy, train=data, fitness=data)
    species = Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 1e38}))
    generations = run(task, replace(SMALL, species=species))
    assert [each.backed_off for each in generations] == [4] * len(generations), "everybody got worse"
    # Not always all four: a saturated sigmoid gives a loss of up to 100, which torch clamps; that is worse, yet finite.
    assert all(each.diverged >= 3 for each in generations)


# Fitness


def test_a_noisy_fitness_is_explained_before_generation_1_and_the_guarantee_waived() -> None:
    noise = count()
    task = classify(fitness=lambda network: true_fitness(network, FITNESS) + 1e-6 * next(noise))
    generations = run(task)
    assert {each.guarantee for each in generations} == {"waived"}
    assert generations[0].notes[0].kind == "noisy"
    assert "the fitness is noisy: one individual scored" in generations[0].waiver
    assert [note.kind for each in generations[1:] for note in each.notes].count("noisy") == 0


class LeavesDropoutOn(nn.Sequential):
    def train(self, mode: bool = True) -> LeavesDropoutOn:
        return super().train(True)


def test_dropout_that_is_left_on_is_found() -> None:
    task = classify(lambda: LeavesDropoutOn(nn.Linear(INPUTS, 7), nn.Dropout(0.5), nn.Linear(7, CLASSES)))
    assert "dropout" in run(task, replace(SMALL, generations=1))[0].waiver


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_fitness_that_is_not_finite_for_anybody_is_refused(value: float) -> None:
    with pytest.raises(FitnessError, match="all 4 individuals.*NaN or inf.*scoring one freshly built network by hand"):
        run(classify(fitness=lambda network: value))


def test_a_fitness_of_ones_own_may_be_negative_and_is_minimised() -> None:
    def minus_accuracy(network: nn.Module) -> Tensor:
        return -(network(FITNESS[0]).argmax(dim=1) == FITNESS[1]).double().mean()

    generations = run(classify(fitness=minus_accuracy, train=FITNESS), replace(SMALL, sgd_epochs=5))
    assert_guaranteed(generations, SMALL.elite_count)
    assert generations[-1].best.fitness < -1 / CLASSES
    assert generations[-1].best.fitness == float(minus_accuracy(generations[-1].best.module()))


def test_the_fitness_of_a_batchnorm_network_is_that_of_its_handed_out_copy_bit_for_bit() -> None:
    for buffers in (Reestimated(samples=16), Reestimated()):
        for each in run(classify(batchnorm_mlp), replace(SMALL, buffers=buffers)):
            network = each.best.module()
            with torch.no_grad():
                sums = [
                    float(F.cross_entropy(network(x), y).double() * len(y))
                    for x, y in zip(FITNESS[0].split(64), FITNESS[1].split(64), strict=True)
                ]
            assert each.best.fitness == sum(sums) / 70


# Networks


class LanguageModel(nn.Module):
    """Tied embedding, LSTM, dropout: a miniature of the paper's Penn Treebank model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 5)
        self.lstm = nn.LSTM(5, 5, num_layers=2, batch_first=True, dropout=0.2)
        self.output = nn.Linear(5, 9)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(tokens))[0]).transpose(1, 2)


def test_a_language_model_with_tied_weights_learns() -> None:
    text = (torch.arange(30 * 8).view(30, 8) * 7) % 9
    data = (text[:, :-1], text[:, 1:])
    task = Supervised(LanguageModel, F.cross_entropy, train=data, fitness=data, batch_size=10)
    recipe = replace(SMALL, sgd_epochs=3, species=Adam(lr=0.01, clip_norm=1.0))
    generations = run(task, recipe)
    assert_guaranteed(generations, SMALL.elite_count)
    network = generations[-1].best.module()
    assert network.output.weight is network.embedding.weight
    with torch.no_grad():
        assert generations[-1].best.fitness == pytest.approx(
            float(F.cross_entropy(network(data[0]), data[1])), rel=1e-5
        )
    assert generations[-1].best.fitness < generations[0].before[0][1] - 0.05


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_networks_of_other_precision_work(dtype: torch.dtype) -> None:
    def cast(data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return data[0].to(dtype), data[1]

    task = classify(lambda: batchnorm_mlp().to(dtype), train=cast(random_data(48)), fitness=cast(FITNESS))
    generations = run(task)
    assert_guaranteed(generations, SMALL.elite_count)
    assert generations[-1].population.rows.dtype == dtype
    assert generations[-1].population.fitness.dtype == torch.float64


def test_a_population_of_adapters_holds_one_base() -> None:
    last = run(classify(frozen_base))[-1]
    head = 7 * CLASSES + CLASSES
    assert last.population.rows.shape == (4, head)
    networks = [last.population[j].best.module() for j in range(4)]
    assert len({network[0].weight.data_ptr() for network in networks}) == 1
    assert len({network[2].weight.data_ptr() for network in networks}) == 4
    assert last.best.fitness == pytest.approx(true_fitness(last.best.module(), FITNESS), rel=1e-6)


def test_a_random_start_never_holds_more_than_a_few_whole_networks() -> None:
    alive: WeakSet[nn.Module] = WeakSet()
    most = 0

    def make() -> nn.Module:
        nonlocal most
        network = frozen_base()
        alive.add(network)
        most = max(most, len(alive))
        return network

    run(classify(make), replace(SMALL, population=12, generations=1))
    assert most <= 4


def test_a_user_may_cast_the_best_network_while_the_run_goes_on() -> None:
    for each in esgd.evolve(classify(frozen_base), SMALL, seed=0):
        each.best.module().double()


class Counting(nn.Module):
    """Buffers that training changes: an integer, a running mean; and a random constant that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(INPUTS))
        self.register_buffer("constant", torch.rand(INPUTS), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += len(x)
            self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=0)
        return self.layer((x - self.mean) * self.constant)


def test_buffers_of_every_kind_belong_to_the_individual_or_to_everybody() -> None:
    recipe = replace(SMALL, offspring=0, generations=2, species=Sgd(lr=0.01))
    last = run(classify(Counting, fitness=random_data(48)), recipe)[-1]
    accepted = {int(seen) // 48 for seen in last.population.buffers["seen"]}
    assert accepted <= {0, 1, 2}
    assert max(accepted) > 0
    constants = [last.population[j].best.module().constant for j in range(4)]
    assert all(torch.equal(constant, constants[0]) for constant in constants)
    assert last.best.fitness == pytest.approx(true_fitness(last.best.module(), random_data(48)), rel=1e-6)


def test_make_model_must_return_the_same_layers_each_time() -> None:
    widths = count(3)
    with pytest.raises(TaskError, match="no trainable parameter '0.weight' of shape"):
        run(classify(lambda: nn.Sequential(nn.Linear(INPUTS, w := next(widths)), nn.Linear(w, CLASSES))))


# Data


@pytest.mark.parametrize("samples", [2, 5, 17, 33])
def test_a_remainder_of_one_sample_does_not_trouble_batchnorm(samples: int) -> None:
    generations = run(classify(batchnorm_mlp, train=random_data(samples), batch_size=16))
    assert_guaranteed(generations, SMALL.elite_count)
    assert generations[0].work.sgd_forward == 4 * samples


@pytest.mark.parametrize(
    "changes", [{"train": random_data(1)}, {"batch_size": 1}], ids=["one sample", "batches of one"]
)
def test_batchnorm_with_batches_of_one_sample_is_explained(changes: dict[str, Any]) -> None:
    with pytest.raises(EsgdError, match="BatchNorm"):
        run(classify(batchnorm_mlp, **changes))


class Broken(Dataset[Any]):
    """A dataset in which a sample is NaN: nobody can look for that beforehand."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = random_data(48)
        return (x[index] * torch.nan if index == 3 else x[index]), y[index]


def test_nan_in_a_training_dataset_is_divergence_and_said_so() -> None:
    first = run(classify(train=Broken()))[0]
    assert first.diverged == 4
    assert "look for NaN in the training data" in " ".join(str(note) for note in first.notes)


def test_nan_in_a_fitness_dataset_is_refused() -> None:
    with pytest.raises(FitnessError, match="Look for NaN in the fitness data"):
        run(classify(fitness=Broken()))


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = random_data(48)
        return x[index] + 0.1 * torch.randn(INPUTS), y[index]


@pytest.mark.slow
def test_a_run_does_not_depend_on_the_number_of_loader_processes() -> None:
    recipe = replace(SMALL, population=2, generations=1, offspring=2)
    alone, helped = (run(classify(train=Augmented(), workers=workers), recipe) for workers in (0, 2))
    assert same(alone[0], helped[0])


def test_a_stream_that_shuffles_with_the_global_generator_is_addressed() -> None:
    def task() -> Supervised:
        return classify(train=lambda: DataLoader(TensorDataset(*random_data(48)), 16, shuffle=True))

    torch.manual_seed(1)
    first = run(task())
    torch.manual_seed(2)
    assert all(same(a, b) for a, b in zip(first, run(task()), strict=True))


@pytest.mark.slow
def test_a_stream_that_shuffles_is_addressed_with_batchnorm_too() -> None:
    def task() -> Supervised:
        return classify(batchnorm_mlp, train=lambda: DataLoader(TensorDataset(*random_data(48)), 16, shuffle=True))

    recipe = replace(SMALL, buffers=Reestimated(samples=16))
    first = run(task(), recipe)
    assert first[0].guarantee == "held"
    assert same(first[-1], run(task(), recipe)[-1])


@pytest.mark.parametrize("split", ["train", "fitness", "test"])
@pytest.mark.parametrize("stream", [list, lambda: USED_UP], ids=["empty", "used up"])
def test_a_stream_that_gives_nothing_is_refused(split: str, stream: Callable[[], Any]) -> None:
    with pytest.raises(EsgdError):
        run(classify(**{split: lambda: stream()}))


USED_UP = iter(())


class Dicts(Dataset[Any]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x, y = random_data(48)
        return {"x": x[index], "y": y[index]}


class Unlabelled(Dicts):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["x"]


@pytest.mark.parametrize("split", ["train", "fitness", "test"])
@pytest.mark.parametrize("dataset", [Dicts(), Unlabelled()], ids=["dicts", "bare tensors"])
def test_a_batch_that_is_not_inputs_and_target_is_refused(split: str, dataset: Dataset[Any]) -> None:
    with pytest.raises(TaskError):
        run(classify(**{split: dataset}))


# Settings


def test_settings_are_drawn_for_each_individual_and_recorded() -> None:
    seen: set[float] = set()

    class Watched(nn.Dropout):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                seen.add(self.p)
            return super().forward(x)

    make = lambda: nn.Sequential(nn.Linear(INPUTS, 7), Watched(0.9), nn.Linear(7, CLASSES))  # noqa: E731
    settings = {"batch_size": Choice((8, 24)), "dropout": Uniform(0.0, 0.5)}
    generations = run(classify(make), replace(SMALL, species=Sgd(lr=0.1, settings=settings)))
    drawn = [policy.settings for each in generations for policy in each.policies]
    assert seen == {each["dropout"] for each in drawn}
    assert {each["batch_size"] for each in drawn} == {8, 24}
    assert len(seen) == len(drawn)
    assert generations[-1].best.module()[1].p == 0.9


def test_an_unknown_setting_stops_the_run_before_it_trains() -> None:
    with pytest.raises(TaskError, match="'batchsize' means nothing"):
        run(classify(), replace(SMALL, species=Sgd(lr=0.1, settings={"batchsize": 8})))


# Immigrants


@pytest.mark.slow
def test_an_immigrant_competes_in_every_generation_and_is_never_trained() -> None:
    champion = run(classify(), replace(SMALL, sgd_epochs=10, generations=4))[-1].best
    generations = run(classify(), replace(SMALL, offspring=0, immigrants=(champion.module(),), species=Sgd(lr=1e-6)))
    assert generations[0].best.birth.id == "0.1.0"
    assert generations[0].best.fitness == champion.fitness
    assert torch.equal(generations[0].best.row, champion.row)
    assert_guaranteed(generations, SMALL.elite_count)


def test_an_immigrant_of_another_architecture_is_refused() -> None:
    with pytest.raises(TaskError, match="no trainable parameter '0.weight'"):
        run(classify(), replace(SMALL, immigrants=(nn.Linear(3, 3),)))


# Progress


def test_progress_counts_individuals_of_each_phase() -> None:
    seen: list[tuple[str, int, int]] = []
    run(classify(), replace(SMALL, generations=1), tick=lambda *tick: seen.append(tick))
    assert [tick for tick in seen if tick[0] == "sgd"] == [("sgd", done, 4) for done in (1, 2, 3, 4)]
    assert seen[-6:] == [("evolution", done, 6) for done in range(1, 7)]
