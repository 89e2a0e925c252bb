"""Other scales of an output: which networks have a layer for it, and what a fitness pass tells of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

import esgd
from esgd._algorithm.initialization import prepare
from esgd.engines import Loop, Vmap
from esgd.engines.computing import Computing
from esgd.engines.fitness import Scorer
from esgd.engines.network import Network
from esgd.engines.scaled_scores import score_scaled
from esgd.operators import BestOfLooks, Never, Uninterrupted
from esgd.operators.rescaling import SCALES, best_scales
from esgd.species import Sgd
from esgd.tasks import OfBatch
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, dropout_mlp, mlp, random_data, true_fitness

FITNESS = random_data(150, seed=1)


def found(task: esgd.Supervised) -> list[str]:
    """The names of the parameters that multiply the output."""
    setup = prepare(task, esgd.Recipe(), 0)
    return [setup.genome.names[place] for place in Network(setup, Computing(device="cpu")).output_layer]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(INPUTS, INPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.last(x)


class Tied(nn.Module):
    """The weights of the first layer are those of the last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, INPUTS, bias=False), nn.Linear(INPUTS, INPUTS, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer = nn.Linear(8, CLASSES)  # made first, used last
        self.lstm = nn.LSTM(1, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(self.lstm(x[:, :, None])[0][:, -1])


class WithTemperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.sharpness = nn.Linear(INPUTS, CLASSES), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.sharpness


def zeroed(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def frozen(network: nn.Sequential) -> nn.Module:
    network[-1].requires_grad_(requires_grad=False)
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "an MLP": (mlp, ["2.weight", "2.bias"]),
    "a last layer of zeros": (lambda: zeroed(nn.Linear(INPUTS, CLASSES)), ["weight", "bias"]),
    "a recurrent network": (Recurrent, ["answer.weight", "answer.bias"]),
    "a convolution at the end": (
        lambda: nn.Sequential(nn.Unflatten(1, (INPUTS, 1)), nn.Conv1d(INPUTS, CLASSES, 1), nn.Flatten()),
        ["1.weight", "1.bias"],
    ),
    "a ReLU at the end": (lambda: nn.Sequential(nn.Linear(INPUTS, CLASSES), nn.ReLU()), ["0.weight", "0.bias"]),
    "normalised weights": (
        lambda: nn.Sequential(weight_norm(nn.Linear(INPUTS, CLASSES))),
        ["0.bias", "0.parametrizations.weight.original0", "0.parametrizations.weight.original1"],
    ),
    "a temperature of its own": (WithTemperature, ["sharpness"]),
    "a softmax": (lambda: nn.Sequential(nn.Linear(INPUTS, CLASSES), nn.Softmax(dim=1)), []),
    "a tanh of zeros": (lambda: nn.Sequential(zeroed(nn.Linear(INPUTS, CLASSES)), nn.Tanh()), []),
    "a residual": (lambda: nn.Sequential(nn.Linear(INPUTS, INPUTS), Residual()), []),
    "tied weights": (Tied, []),
    "a frozen last layer": (lambda: frozen(nn.Sequential(nn.Linear(INPUTS, 7), nn.Linear(7, CLASSES))), []),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_parameters_that_multiply_the_output_are_found(name: str) -> None:
    make_model, expected = NETWORKS[name]
    assert found(classify(make_model)) == expected


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(lambda: classify(fitness=lambda network: 1.0), id="a fitness of one's own"),
        pytest.param(
            lambda: classify(
                metrics={"error": lambda output, target: (output.argmax(1) != target).float().mean()}, select="error"
            ),
            id="selection by a metric",
        ),
        pytest.param(
            lambda: esgd.Supervised(
                mlp,
                OfBatch(lambda network, batch: F.cross_entropy(network(batch[0]), batch[1])),
                train=random_data(48),
                fitness=random_data(70, seed=1),
            ),
            id="a loss of network and batch",
        ),
    ],
)
def test_a_fitness_that_is_no_function_of_the_output_has_none(task: Callable[[], esgd.Supervised]) -> None:
    assert found(task()) == []


def test_looking_for_the_layer_changes_nothing() -> None:
    setup = prepare(classify(batchnorm_mlp), esgd.Recipe(), 0)
    network = Network(setup, Computing(device="cpu"))
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    template = {name: value.clone() for name, value in setup.genome.template.state_dict().items()}
    assert network.output_layer
    for now, then in ((network.module, before), (setup.genome.template, template)):
        assert all(torch.equal(value, then[name]) for name, value in now.state_dict().items())


def generations(backoff: Any, make_model: Callable[[], nn.Module] = mlp, **changes: Any) -> list[esgd.Generation]:
    """Two uninterrupted SGD steps of three individuals."""
    recipe = esgd.Recipe(
        population=3,
        generations=2,
        sgd_epochs=2,
        evolution_steps=0,
        species=Sgd(lr=0.5, gamma=1.0),
        backoff=backoff,
        baggage=Uninterrupted(),
    )
    task = classify(make_model, fitness=FITNESS)
    return list(esgd.evolve(task, replace(recipe, **changes), seed=1, engine="loop:threads=1"))


@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp, dropout_mlp])
def test_the_fitness_of_a_rescaled_place_is_that_of_its_network(make_model: Callable[[], nn.Module]) -> None:
    last = generations(BestOfLooks(looks=(), rescale=0.5), make_model)[-1].population
    for i, fitness in enumerate(last.fitness.tolist()):
        assert true_fitness(last[i].best.module().eval(), FITNESS) == pytest.approx(fitness, rel=1e-5)


def test_a_rescaled_place_is_no_worse_and_costs_one_more_pass() -> None:
    plain, scaled = (generations(BestOfLooks(looks=(), mean=0.0, rescale=width))[0] for width in (0.0, 0.5))
    assert (scaled.population.fitness <= plain.population.fitness).all()
    assert (scaled.population.fitness < plain.population.fitness).any(), "nothing was rescaled"
    looks = plain.record()["ledger"]["fitness_sgd"]
    assert scaled.record()["ledger"]["fitness_sgd"] == looks + 3 * len(FITNESS[1])


@pytest.mark.parametrize("looks", [(), (0.5,)])
def test_uninterrupted_sgd_continues_from_parameters_that_are_not_rescaled(looks: tuple[float, ...]) -> None:
    def standing(backoff: Any) -> list[Tensor]:
        population = generations(backoff)[-1].population
        places = [state.place if state is not None else None for state in population.optimizer_states]
        return [population.rows[j] if place is None else place[0] for j, place in enumerate(places)]

    for here, there in zip(standing(BestOfLooks(looks=looks, rescale=0.5)), standing(Never()), strict=True):
        assert torch.equal(here, there)


def test_only_the_last_layer_of_a_rescaled_place_differs() -> None:
    plain, scaled = (generations(BestOfLooks(looks=(), mean=0.0, rescale=width))[0] for width in (0.0, 5.0))
    genome = plain.population.genome
    for one, other in zip(plain.population.rows, scaled.population.rows, strict=True):
        before, after = genome.views(one), genome.views(other)
        assert torch.equal(before["0.weight"], after["0.weight"])
        factors = after["2.weight"] / before["2.weight"]
        torch.testing.assert_close(factors, factors[:1, :1].expand_as(factors))
        assert any(float(factors[0, 0]) == pytest.approx(scale) for scale in (1.0, *SCALES))


def test_a_network_without_such_a_layer_is_looked_at_as_it_is() -> None:
    def make_model() -> nn.Module:
        return nn.Sequential(nn.Linear(INPUTS, 7), nn.Tanh(), nn.Linear(7, CLASSES), nn.Tanh())

    plain, scaled = (generations(BestOfLooks(rescale=width), make_model)[-1].population for width in (0.0, 0.5))
    assert torch.equal(plain.rows, scaled.rows)
    assert plain.fitness.tolist() == scaled.fitness.tolist()


def test_the_layer_is_found_although_the_network_has_diverged() -> None:
    """A worker may be given an individual first whose hidden layers are NaN."""
    setup = prepare(classify(), esgd.Recipe(), 0)
    network = Network(setup, Computing(device="cpu"))
    network.load(torch.full((setup.genome.size,), torch.nan), {})
    assert network.output_layer


@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=3, threads=1)])
def test_an_individual_that_diverges_is_not_rescaled(engine: Any) -> None:
    recipe = esgd.Recipe(
        population=3,
        generations=1,
        evolution_steps=0,
        species=Sgd(lr=1e30, gamma=1.0),
        backoff=BestOfLooks(rescale=0.5),
    )
    (generation,) = esgd.evolve(classify(), recipe, seed=0, engine=engine)
    assert generation.diverged == 3
    assert generation.population.fitness.isfinite().all()


# What an output promises may be wrong: what is kept is measured


class Offset(nn.Module):
    """The first input is added to the output; it is 0 in the first part of the fitness, where the layer is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x[:, :1]


class OwnPlaces(nn.Module):
    """Parameters of its own, as positions of a transformer are: they count as used last."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.head = nn.Parameter(torch.zeros(INPUTS)), nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.places)


class Rate(nn.Module):
    """Refuses parameters that give a rate below 0, as random ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)
        nn.init.constant_(self.layer.bias, 50.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.distributions.Poisson(self.layer(x), validate_args=True).mean


def counted_from_one(output: Tensor, target: Tensor) -> Tensor:
    target -= 1  # in place
    return F.cross_entropy(output, target.clamp(0, CLASSES - 1))


class Penalised(esgd.Supervised):
    def fitness(self, module: nn.Module, batch: Any) -> Tensor:
        weights = sum(parameter.abs().mean() for parameter in module.parameters())
        return super().fitness(module, batch) + self.size(batch) * weights


def late_offset() -> tuple[Tensor, Tensor]:
    x, y = random_data(400, seed=1)
    x[:, 0] = torch.where(torch.arange(400) < 200, 0.0, 3.0)
    return x, y


def mean_fitness(task: esgd.Supervised, module: nn.Module) -> float:
    with torch.no_grad():
        parts = [batch for _, batch in task.parts()]
        scores = [float(task.fitness(module.eval(), tuple(each.clone() for each in batch))) for batch in parts]
    return sum(scores) / sum(task.size(batch) for batch in parts)


WRONG: dict[str, Callable[[], esgd.Supervised]] = {
    "an offset that the first part does not have": lambda: classify(Offset, fitness=late_offset()),
    "an activation that is linear for large values": lambda: classify(
        lambda: nn.Sequential(nn.Linear(INPUTS, CLASSES), nn.Hardtanh(-50.0, 50.0))
    ),
    "random parameters are refused": lambda: classify(Rate),
    "scaled outputs are refused": lambda: esgd.Supervised(
        lambda: nn.Sequential(nn.Linear(INPUTS, 1), nn.Hardtanh(0.0, 1.0)),
        F.binary_cross_entropy,
        train=(random_data(48)[0], torch.ones(48, 1)),
        fitness=(random_data(70, seed=1)[0], torch.ones(70, 1)),
    ),
    "a loss that writes into its target": lambda: esgd.Supervised(
        mlp,
        counted_from_one,
        train=(random_data(48)[0], random_data(48)[1] + 1),
        fitness=(random_data(70, seed=1)[0], random_data(70, seed=1)[1] + 1),
    ),
    "a fitness that a subclass has changed": lambda: Penalised(
        mlp, F.cross_entropy, train=random_data(48), fitness=random_data(70, seed=1)
    ),
    "half precision": lambda: classify(
        lambda: mlp().half(),
        train=(random_data(48)[0].half(), random_data(48)[1]),
        fitness=(random_data(70, seed=1)[0].half(), random_data(70, seed=1)[1]),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_fitness_that_is_kept_is_that_of_the_network_whatever_the_output_promises(name: str) -> None:
    task = WRONG[name]()
    recipe = esgd.Recipe(
        population=2, generations=2, sgd_epochs=2, offspring=2, backoff=BestOfLooks(looks=(), rescale=5.0)
    )
    for generation in esgd.evolve(task, recipe, seed=1, engine="loop:threads=1"):
        for i, fitness in enumerate(generation.population.fitness.tolist()):
            assert mean_fitness(task, generation.population[i].best.module()) == pytest.approx(fitness, rel=1e-6)


def test_a_head_is_found_behind_parameters_that_the_network_itself_has() -> None:
    assert found(classify(OwnPlaces)) == ["head.weight", "head.bias"]


def test_the_layer_is_found_in_a_lower_precision() -> None:
    setup = prepare(classify(), esgd.Recipe(), 0)
    assert Network(setup, Computing(device="cpu", precision="bf16")).output_layer


class OfAnOutput:
    """A task of one's own: what `Supervised` is, with another fitness of an output."""

    def __init__(self, output_fitness: Callable[[Tensor, Any], Any]) -> None:
        self._task, self.output_fitness = classify(), output_fitness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


@pytest.mark.parametrize(
    ("output_fitness", "words"),
    [
        (lambda output, batch: F.cross_entropy(output, batch[1]), "but output_fitness of the network's output is"),
        (lambda output, batch: 1.0, "output_fitness returned 1.0. It must return a scalar tensor"),
        (lambda output, batch: output.sum(dim=1), "output_fitness returned tensor"),
    ],
)
def test_a_task_of_ones_own_whose_fitness_of_an_output_is_wrong_is_refused(
    output_fitness: Callable[..., Any], words: str
) -> None:
    task: Any = OfAnOutput(output_fitness)
    with pytest.raises(esgd.errors.TaskError, match=words):
        list(esgd.evolve(task, esgd.Recipe(backoff=BestOfLooks(rescale=0.5)), seed=0, engine="loop:threads=1"))


def test_a_task_of_ones_own_is_rescaled_as_supervised_is() -> None:
    own: Any = OfAnOutput(classify().output_fitness)
    recipe = esgd.Recipe(population=2, generations=2, backoff=BestOfLooks(rescale=0.5))
    ours, theirs = (
        [generation.population.rows for generation in esgd.evolve(task, recipe, seed=0, engine="loop:threads=1")]
        for task in (own, classify())
    )
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "error",
    [
        esgd.errors.TaskError("the output is no tensor"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80 bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_none_of_the_scaled_output_is_raised(error: Exception) -> None:
    raised: list[Exception] = []

    def output_fitness(output: Tensor, batch: Any) -> Tensor:
        for each in raised:
            raise each
        return classify().output_fitness(output, batch)

    own: Any = OfAnOutput(output_fitness)
    network = Network(prepare(own, esgd.Recipe(), 0), Computing(device="cpu"))
    assert network.output_layer
    raised.append(error)
    with pytest.raises(type(error), match=str(error)):
        score_scaled(Scorer(own), network, (0.5,))


def test_an_output_that_is_refused_when_it_is_scaled_leaves_the_score_of_the_network() -> None:
    def output_fitness(output: Tensor, batch: Any) -> Tensor:
        if network and not torch.equal(output, network[0].module(batch[0])):
            raise ValueError("an output that no network has")
        return classify().output_fitness(output, batch)

    own: Any = OfAnOutput(output_fitness)
    network = list[Network]()
    made = Network(prepare(own, esgd.Recipe(), 0), Computing(device="cpu"))
    assert made.output_layer
    network.append(made)
    ((score,),) = score_scaled(Scorer(own), made, (0.5,))
    assert score.fitness == pytest.approx(mean_fitness(classify(), made.module))


# The choice of a scale


def by_scale(best: float) -> Tensor:
    """The fitness at each of `SCALES`: a parabola in the logarithm, 0.2 at its lowest."""
    return 0.2 + 0.1 * (torch.tensor(SCALES, dtype=torch.float64).log() - best)[:, None] ** 2


def test_the_lowest_fitness_is_chosen_if_there_are_many_samples() -> None:
    scales, fitness = best_scales(torch.tensor([0.216]).double(), by_scale(0.4), samples=10**6, width=0.25)
    assert float(scales) == pytest.approx(exp(0.4))
    assert float(fitness) == pytest.approx(0.2)


def test_few_samples_are_not_trusted() -> None:
    plain = torch.tensor([0.216]).double()
    assert float(best_scales(plain, by_scale(0.4), samples=5, width=0.25)[0]) == 1.0
    assert float(best_scales(plain, by_scale(0.4), samples=60, width=0.25)[0]) == pytest.approx(exp(0.2))


def test_a_fitness_above_one_may_have_any_unit() -> None:
    for samples in (1, 10, 100, 1000):
        chosen = {
            float(best_scales(unit * torch.tensor([2.16]), unit * 10 * by_scale(0.4), samples=samples, width=0.25)[0])
            for unit in (1.0, 1000.0)
        }
        assert len(chosen) == 1


@pytest.mark.parametrize("nothing", [inf, torch.nan])
def test_what_is_not_finite_is_not_chosen(nothing: float) -> None:
    plain, scaled = torch.tensor([0.5, inf]).double(), torch.full((len(SCALES), 2), nothing).double()
    scales, fitness = best_scales(plain, scaled, samples=100, width=0.25)
    assert scales.tolist() == [1.0, 1.0]
    assert fitness.tolist() == [0.5, inf]


@pytest.mark.parametrize("rescale", [-0.1, inf, torch.nan, 1e200, "wide"])
def test_a_width_that_is_none_is_refused(rescale: Any) -> None:
    with pytest.raises(esgd.errors.RecipeError, match="rescale="):
        BestOfLooks(rescale=rescale)
