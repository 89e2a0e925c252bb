"""What comes back from a run: one model, the best networks, an ensemble and a soup of them."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Ensemble, Result
from esgd.errors import RecipeError, TaskError
from esgd.operators import Gaussian, Never, Perturbed
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, mlp, random_data, true_fitness

RECIPE = esgd.Recipe(population=5, offspring=4, generations=2, sgd_epochs=2)
FITNESS = random_data(70, seed=1)


def fit(task: Any = None, recipe: esgd.Recipe = RECIPE, **options: Any) -> Result:
    return esgd.fit(task or classify(), recipe, seed=0, engine=esgd.Loop(threads=1), progress=False, **options)


@pytest.fixture(scope="module")
def result() -> Result:
    return fit()


def bits(module: nn.Module) -> bytes:
    return b"".join(value.numpy().tobytes() for value in module.state_dict().values())


# One model


def test_the_model_is_one_module_so_that_what_is_done_to_it_stays_done() -> None:
    result = fit()
    optimizer = torch.optim.SGD(result.model.parameters(), lr=1.0)
    before = bits(result.model)
    F.cross_entropy(result.model(FITNESS[0]), FITNESS[1]).backward()
    optimizer.step()
    assert bits(result.model) != before
    assert bits(result.top(1)[0]) == before, "the population stays as the run left it"
    result.model.half()
    assert next(result.model.parameters()).dtype == torch.float16
    assert result.population.rows.dtype == torch.float32


def test_a_result_is_pickled_and_copied_without_its_data(result: Result) -> None:
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert bits(again.model) == bits(result.model)
        assert again.history == result.history
        assert again.task is None


# The best networks


def test_top_has_the_model_first_and_then_the_others_by_fitness(result: Result) -> None:
    networks = result.top(5)
    assert bits(networks[0]) == bits(result.model)
    found = [true_fitness(network, FITNESS) for network in networks]
    assert found == pytest.approx(sorted(result.population.fitness.tolist()), rel=1e-6)


def test_the_kept_network_is_among_the_top_also_where_the_population_has_lost_it() -> None:
    result = fit(recipe=replace(RECIPE, backoff=Never(), evolution_steps=0, generations=3))
    best = float(result.population.fitness.min())
    state = replace(result.state, archive=replace(result.state.archive, rows=result.state.archive.rows + 1))
    lost = Result(state, result.history)
    assert len(lost.top(6)) == 6
    assert bits(lost.top(2)[0]) == bits(lost.model)
    assert true_fitness(lost.top(2)[1], FITNESS) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("k", [0, 6, 1.5, True])
def test_a_number_of_networks_that_the_run_has_not_is_refused(result: Result, k: Any) -> None:
    with pytest.raises(RecipeError, match="this run has 5"):
        result.top(k)


# Ensembles


def test_an_ensemble_of_classifiers_gives_the_logarithm_of_the_mean_probabilities(result: Result) -> None:
    networks, x = result.top(3), FITNESS[0]
    mean = torch.stack([network(x).softmax(dim=1) for network in networks]).mean(dim=0)
    torch.testing.assert_close(Ensemble(networks, average="softmax")(x), mean.log())


def test_an_ensemble_of_yes_and_no_gives_the_logit_of_the_mean_probability() -> None:
    networks, x = [nn.Linear(INPUTS, 2) for _ in range(3)], FITNESS[0]
    mean = torch.stack([network(x).sigmoid() for network in networks]).mean(dim=0)
    torch.testing.assert_close(Ensemble(networks, average="sigmoid")(x), mean.logit())


def test_probabilities_that_no_float_can_hold_are_averaged_as_well() -> None:
    class Sure(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([[0.0, 400.0]])

    for average in ("softmax", "sigmoid"):
        output = Ensemble([Sure(), Sure()], average=average)(None)
        assert output.isfinite().all()
        assert float(output[0, 1] - output[0, 0]) == pytest.approx(400)


def test_other_outputs_are_averaged_as_they_are_in_any_structure() -> None:
    class Pair(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = value

        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"mean": x * self.value, "steps": 7}

    output = Ensemble([Pair(1.0), Pair(3.0)])(torch.ones(2))
    assert output["mean"].tolist() == [2.0, 2.0]
    assert output["steps"] == 7
    with pytest.raises(TaskError, match="return a dict, and average='softmax' is for one tensor"):
        Ensemble([Pair(1.0)], average="softmax")(torch.ones(2))


@pytest.mark.parametrize(
    ("loss", "average"),
    [
        (F.cross_entropy, "softmax"),
        (partial(F.cross_entropy, label_smoothing=0.1), "softmax"),
        (nn.NLLLoss(), "softmax"),
        (F.binary_cross_entropy_with_logits, "sigmoid"),
        (F.mse_loss, "outputs"),
        (lambda output, target: F.cross_entropy(output, target), "outputs"),
    ],
)
def test_a_supervised_task_knows_from_its_loss_how_outputs_are_averaged(loss: Any, average: str) -> None:
    data = random_data(4)
    assert esgd.Supervised(mlp, loss, train=data, fitness=data).average == average


def test_an_ensemble_is_chosen_greedily_on_the_fitness_split(result: Result) -> None:
    ensemble = result.ensemble(3)
    assert ensemble.average == "softmax"
    assert bits(ensemble.networks[0]) == bits(result.model)
    assert ensemble.fitness == pytest.approx(true_fitness(ensemble, FITNESS), rel=1e-6)
    assert ensemble.fitness <= result.fitness
    pairs = [Ensemble([result.model, other], average="softmax") for other in result.top(5)[1:]]
    best = min(pairs, key=lambda pair: true_fitness(pair, FITNESS))
    assert bits(ensemble.networks[1]) == bits(best.networks[1])
    assert not ensemble.training


def test_an_ensemble_ends_where_no_network_makes_it_better() -> None:
    clones = fit(recipe=replace(RECIPE, start=Perturbed(sigma=0.0), mutation=Gaussian(sigma=0.0), sgd_epochs=0))
    alone = clones.ensemble(5)
    assert len(alone) == 1
    assert alone.fitness == clones.fitness


def test_the_choice_takes_each_network_over_the_fitness_split_once_for_every_member(result: Result) -> None:
    seen = Counter[str]()

    def counted() -> nn.Module:
        network = mlp()
        network.register_forward_hook(lambda *_: seen.update(passes=1))
        return network

    task = classify(counted)
    counted_result = fit(task)
    seen.clear()  # what follows takes the first network over both parts, then every network
    members, parts, individuals = len(counted_result.ensemble(2)), 2, 5
    assert members == 2
    assert seen["passes"] == parts * (1 + individuals)


def test_an_ensemble_is_chosen_by_a_fitness_of_your_own_too() -> None:
    task = classify(fitness=lambda network: F.cross_entropy(network(FITNESS[0]), FITNESS[1]))
    result = fit(task)
    ensemble = result.ensemble(3, average="softmax")
    assert ensemble.fitness == pytest.approx(true_fitness(ensemble, FITNESS), rel=1e-6)
    assert len(result.ensemble(3, average="outputs")) >= 1


def test_the_fitness_of_an_ensemble_is_weighted_as_that_of_a_network() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))
    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=FITNESS, batch_size=16)
    ensemble = fit(task).ensemble(3)
    with torch.no_grad():
        assert ensemble.fitness == pytest.approx(float(loss(ensemble(FITNESS[0]), FITNESS[1])), rel=1e-6)


def test_networks_that_write_into_their_input_can_be_an_ensemble() -> None:
    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.mul_(2.0))

    task = classify(Doubling)
    result = fit(task)
    x, y = FITNESS
    ensemble = result.ensemble(3)
    with torch.no_grad():
        mean = torch.stack([network(x.clone()).softmax(dim=1) for network in ensemble.networks]).mean(dim=0)
    assert ensemble.fitness == pytest.approx(float(F.nll_loss(mean.log(), y)), rel=1e-5)


@pytest.mark.parametrize("average", ["mean", ["softmax"]])
def test_an_unknown_way_to_average_is_refused(average: Any) -> None:
    with pytest.raises(TaskError, match="is no way to average outputs"):
        Ensemble([mlp()], average=average)


def test_an_ensemble_of_nothing_is_refused() -> None:
    with pytest.raises(TaskError, match="at least one"):
        Ensemble([])


# Soups


def linear() -> nn.Module:
    return nn.Linear(INPUTS, CLASSES)


def normalised() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(INPUTS, affine=False), linear())


@pytest.mark.parametrize("make_model", [linear, normalised])
def test_a_soup_averages_networks_on_two_sides_of_a_valley(make_model: Any) -> None:
    """The loss of a linear network is convex: half way between two networks it is below the mean of theirs."""
    result = fit(classify(make_model, train=FITNESS), replace(RECIPE, sgd_epochs=5))
    last, kept = result.population, result.state.archive
    away = torch.randn(kept.rows.shape[1], generator=torch.Generator().manual_seed(0))
    two = replace(last[[0, 1]], rows=torch.stack([kept.rows[0] + away, kept.rows[0] - away]))
    found = [
        true_fitness(two.genome.module(two.rows[i], {n: b[i] for n, b in two.buffers.items()}), FITNESS) for i in (0, 1)
    ]
    two = replace(two, fitness=torch.tensor(found, dtype=torch.float64))
    state = replace(result.state, population=two, archive=two.champion)
    soup = replace(result, state=state).soup()
    assert type(soup) is type(result.model)
    assert true_fitness(soup, FITNESS) < min(found)
    torch.testing.assert_close(two.genome.read(soup)[0], kept.rows[0])


@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp])
def test_a_soup_is_one_network_that_is_not_worse_than_the_model(make_model: Any) -> None:
    result = fit(classify(make_model))
    soup = result.soup()
    assert true_fitness(soup, FITNESS) <= true_fitness(result.model, FITNESS) * (1 + 1e-6)


def test_a_soup_that_nothing_improves_is_the_model_itself(result: Result) -> None:
    worse = replace(result.state.population, rows=result.state.population.rows + 100.0)
    alone = replace(result, state=replace(result.state, population=worse))
    assert bits(alone.soup()) == bits(result.model)


def test_what_the_task_picked_comes_first() -> None:
    result = fit(classify(pick=random_data(60, seed=2)))
    assert bits(result.top(1)[0]) == bits(result.model)
    assert bits(result.ensemble(1).networks[0]) == bits(result.model)
    assert true_fitness(result.soup(), FITNESS) <= true_fitness(result.model, FITNESS) * (1 + 1e-6)


def test_without_data_a_sentence_says_what_is_missing(result: Result) -> None:
    bare = Result(result.state, result.history)
    with pytest.raises(TaskError, match=r"has no data.*result.ensemble\(3, task=task\)"):
        bare.ensemble(3)
    with pytest.raises(TaskError, match=r"result.soup\(task=task\)"):
        bare.soup()
    assert bare.ensemble(3, task=classify()).fitness == result.ensemble(3).fitness
    assert bits(bare.soup(task=classify(), engine="loop")) == bits(result.soup())
