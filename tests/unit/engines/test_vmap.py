"""Many networks in one batched computation: what Loop does, up to rounding, and never at a neighbour's cost."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import esgd
from esgd import Loop, Policy, Vmap
from esgd._algorithm.initialization import prepare, scored
from esgd.engines.batched import trace
from esgd.engines.batched.network import BatchedNetwork
from esgd.engines.batched.trace import Traced
from esgd.engines.computing import Computing
from esgd.errors import EngineError, RecipeError, TaskError
from esgd.operators import Averaged, BestOfLooks, CarriedByMate, Gaussian, Never, PerEpoch, PerGeneration, RandomStart
from esgd.population import Birth, Population
from esgd.protocols import Session, Setup, Step, Trained, Trajectory
from esgd.schedules import Cosine
from esgd.testing.evidence import contents, difference
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, dropout_mlp, mlp, random_data
from tests.unit.engines.compilers import needs_compiler

LOOP = Loop(threads=1)
CLOSE = 1e-4
SGD = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9})
STEP = Step(k=1, epochs=2, backoff=Never(), total=4)
RECIPE = esgd.Recipe(population=4, offspring=6, generations=2, sgd_epochs=1)


@contextmanager
def at_work(engine: Any, task: Any, size: int, **rules: Any) -> Iterator[tuple[Session, Population, Setup]]:
    """An engine, and a population that Loop has scored: the same for every engine."""
    made = replace(prepare(task, RECIPE, 0), **rules)
    with LOOP.open(made, lambda *tick: None) as loop:
        start = scored(loop, RandomStart()(made.task, made.genome, loop, size, made.seeds.at("init")))
    with engine.open(made, lambda *tick: None) as shop:
        yield shop, start, made


def train(engine: Any, task: Any, policies: list[Policy], step: Step = STEP, **rules: Any) -> Trained:
    with at_work(engine, task, len(policies), **rules) as (shop, start, _):
        return shop.train(start, policies, step)


def outcome(trained: Trained) -> list[Any]:
    return [contents(trained.population), trained.moved, trained.refused, trained.diverged, contents(trained.ends)]


def equals_loop(task: Any, policies: list[Policy], step: Step = STEP, *, chunk: int = 3, **rules: Any) -> Trained:
    """What Vmap trains is what Loop trains; returns it."""
    ours = train(Vmap(chunk=chunk, threads=1), task, policies, step, **rules)
    loops = train(LOOP, task, policies, step, **rules)
    assert difference(outcome(ours), outcome(loops), tolerance=CLOSE) == ""
    return ours


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )


# Memory


class Spacious(torch.optim.SGD):
    """There is memory for two of them at a time."""

    alive: ClassVar[weakref.WeakSet[Spacious]] = weakref.WeakSet()
    refused: ClassVar[list[int]] = []

    def __init__(self, *given: Any, **hyper: Any) -> None:
        if len(Spacious.alive) == 2:
            Spacious.refused.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory")
        super().__init__(*given, **hyper)
        Spacious.alive.add(self)


def test_a_chunk_is_halved_if_there_is_no_memory_for_its_optimizers() -> None:
    Spacious.refused.clear()
    policy = Policy(optimizer=f"{Spacious.__module__}:Spacious", hyper={"lr": 0.1, "momentum": 0.9})
    equals_loop(classify(), [policy] * 4, chunk=4)
    assert len(Spacious.refused) == 1, "two rows have room: the first attempt keeps no memory"


# Optimizers


@pytest.mark.slow
@pytest.mark.parametrize("baggage", [CarriedByMate()], ids=str)
def test_optimizers_of_all_sorts_train_side_by_side_as_in_loop(baggage: Any) -> None:
    policies = [
        Policy(optimizer="rmsprop", hyper={"lr": 0.01, "momentum": 0.5}, schedule=Cosine()),
        SGD,
        Policy(optimizer="adagrad", hyper={"lr": 0.05}),
        Policy(optimizer="adam", hyper={"lr": 0.01, "amsgrad": True}),
        Policy(optimizer="sgd", hyper={"lr": 1e-3, "maximize": True}),
        Policy(optimizer="adamw", hyper={"lr": 0.01}, schedule=Cosine()),
    ]
    equals_loop(classify(), policies, chunk=6, baggage=baggage)
    equals_loop(classify(), policies, replace(STEP, backoff=PerEpoch(), keep_ends=True), chunk=4, baggage=baggage)


def test_lbfgs_which_evaluates_the_loss_itself_works() -> None:
    equals_loop(classify(), [Policy(optimizer="lbfgs", hyper={"lr": 0.1, "max_iter": 3}), SGD, SGD])


def test_carried_optimizer_state_goes_on_as_in_loop() -> None:
    policies = [SGD, Policy(optimizer="adam", hyper={"lr": 0.01}), Policy(optimizer="rmsprop", hyper={"lr": 0.01})]
    found = []
    for engine in (Vmap(chunk=3, threads=1), LOOP):
        with at_work(engine, classify(), 3, baggage=CarriedByMate()) as (shop, start, _):
            once = shop.train(start, policies, STEP).population
            found.append(contents(shop.train(once, policies, replace(STEP, k=2)).population))
    assert difference(*found, tolerance=CLOSE) == ""


def test_gradients_are_clipped_for_each_row_by_itself() -> None:
    clipped = [replace(SGD, clip_norm=norm) for norm in (1e-3, None, 0.5, 1e6)]
    ours = equals_loop(classify(), clipped, chunk=4)
    with at_work(LOOP, classify(), 4) as (_, start, _):
        moved = (ours.population.rows - start.rows).norm(dim=1)
    assert moved[0] < 0.1 * moved[1]


def test_a_parameter_that_the_loss_never_uses_is_left_alone() -> None:
    """torch.optim skips what has no gradient, weight decay and all."""

    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(INPUTS, CLASSES), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    policies = [
        Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
        Policy(optimizer="adamw", hyper={"lr": 0.01, "weight_decay": 0.1}),
    ]
    equals_loop(classify(Spare), policies)


# Layers


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [batchnorm_mlp, conv_net], ids=lambda made: made.__name__)
def test_batchnorm_trains_and_keeps_the_statistics_that_loop_keeps(make_model: Any) -> None:
    for buffers in (RECIPE.buffers, Averaged()):  # re-estimated before a fitness, or what training has left
        ours = equals_loop(classify(make_model), [SGD] * 3, buffers=buffers)
        names = {name.rpartition(".")[2] for name in ours.population.buffers}
        assert names == {"running_mean", "running_var", "num_batches_tracked"}


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], *, normalised: bool = False) -> None:
        super().__init__()
        self.cell = kind(2, 5, batch_first=True)
        self.head = nn.Sequential(nn.BatchNorm1d(5) if normalised else nn.Identity(), nn.Linear(5, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x.view(-1, 3, 2))[0][:, -1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch scores it row by row
@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "with BatchNorm"])
def test_an_lstm_is_trained_and_scored(normalised: bool) -> None:
    task = classify(lambda: Recurrent(nn.LSTM, normalised=normalised))
    equals_loop(task, [SGD] * 3)
    *_, last = esgd.evolve(task, RECIPE, seed=0, engine=Vmap(chunk=3, threads=1))
    assert last.guarantee == "held"


@pytest.mark.slow
def test_a_gru_is_trained_as_in_loop_or_refused_by_name() -> None:
    task = classify(lambda: Recurrent(nn.GRU))
    try:
        equals_loop(task, [SGD] * 3)
    except EngineError as error:
        assert "'cell' (GRU)" in str(error)  # noqa: PT017  # which of the two is torch's affair


class Peeking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if float(x.sum()) > 0 else x


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize("layer", [Peeking, Branching])
def test_a_layer_that_cannot_be_batched_is_named_with_the_engine_that_can(layer: type[nn.Module]) -> None:
    task = classify(lambda: nn.Sequential(nn.Linear(INPUTS, 5), layer(), nn.Linear(5, CLASSES)))
    with pytest.raises(EngineError, match=rf"layer '1' \({layer.__name__}\).*Use engine='loop', or Pool\(inner=Loop"):
        next(esgd.evolve(task, RECIPE, seed=0, engine=Vmap()))
    assert next(esgd.evolve(task, RECIPE, seed=0, engine=LOOP))


def test_a_loss_that_cannot_be_batched_is_named() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target) * (1 + 0 * output.sum().item())

    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70))
    with pytest.raises(EngineError, match="Vmap cannot run the loss for many networks at once"):
        next(esgd.evolve(task, RECIPE, seed=0, engine=Vmap()))


def test_a_loss_that_is_detached_is_refused_as_by_loop() -> None:
    task = esgd.Supervised(
        mlp,
        lambda output, target: F.cross_entropy(output.detach(), target),
        train=random_data(48),
        fitness=random_data(70),
    )
    told = []
    for engine in (LOOP, Vmap(chunk=2)):
        with pytest.raises(
            TaskError, match="requires_grad=False.*Check that the loss uses the network's output"
        ) as error:
            next(esgd.evolve(task, RECIPE, seed=0, engine=engine))
        told.append(str(error.value))
    assert told[0] == told[1]


def test_a_loss_that_is_detached_from_the_second_batch_on_is_refused_too() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output if len(output) == 16 else output.detach(), target)

    task = esgd.Supervised(mlp, loss, train=random_data(40), fitness=random_data(70), batch_size=16)
    with pytest.raises(TaskError, match="requires_grad=False"):
        train(Vmap(chunk=2, threads=1), task, [SGD, SGD])


class TwoPasses(esgd.Supervised):
    """A task whose steps take every sample through the network twice."""

    def repeats(self, settings: Any) -> int:
        return 2

    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        return (super().loss(module, batch) + super().loss(module, batch)) / 2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [2, 3, 4])
def test_the_ledger_of_a_task_that_passes_its_batches_twice_is_that_of_loop(chunk: int) -> None:
    task = TwoPasses(mlp, F.cross_entropy, train=random_data(48), fitness=random_data(70), batch_size=16)
    ours, loops = (
        [each.record()["ledger"] for each in esgd.evolve(task, RECIPE, seed=0, engine=engine)]
        for engine in (Vmap(chunk=chunk, threads=1), LOOP)
    )
    assert ours == loops
    assert loops[0]["sgd_forward"] == loops[0]["sgd_backward"] == 2 * 48 * RECIPE.population


def test_sparse_embeddings_are_refused() -> None:
    def make_model() -> nn.Module:
        return nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(4 * INPUTS, CLASSES))

    x, y = torch.randint(9, (48, INPUTS)), random_data(48)[1]
    task = esgd.Supervised(make_model, F.cross_entropy, train=(x, y), fitness=(x, y))
    with pytest.raises(EngineError, match="sparse=True.*Use engine='loop'"):
        next(esgd.evolve(task, RECIPE, seed=0, engine=Vmap()))


def test_tied_weights_frozen_parameters_and_constants_are_as_in_loop() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.one, self.two = (nn.Linear(INPUTS, INPUTS) for _ in range(3))
            self.frozen.requires_grad_(False)
            self.two.weight = self.one.weight
            self.head = nn.Linear(INPUTS, CLASSES)
            self.register_buffer("scale", torch.tensor(1.5), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.two(torch.tanh(self.one(self.frozen(x) * self.scale)))))

    ours = equals_loop(classify(Odd), [SGD, Policy(optimizer="adam", hyper={"lr": 0.01}), SGD])
    network = ours.population.best.module()
    assert network.two.weight is network.one.weight
    assert not ours.population.buffers


def test_a_fitness_of_ones_own_that_makes_a_number_is_taken_one_by_one() -> None:
    x, y = random_data(70, seed=1)

    def fitness(network: nn.Module) -> float:
        return float(F.cross_entropy(network(x), y))

    task = classify(fitness=fitness)
    equals_loop(task, [SGD] * 3)
    ours, loops = (
        [contents(each.population) for each in esgd.evolve(task, RECIPE, seed=0, engine=engine)]
        for engine in (Vmap(chunk=3, threads=1), LOOP)
    )
    assert difference(ours, loops, tolerance=CLOSE) == ""


# Groups


def test_rows_with_the_same_settings_train_together_and_others_do_not() -> None:
    def policy(name: str, **settings: Any) -> Policy:
        return Policy(optimizer=name, hyper={"lr": 0.1}, settings=settings)

    policies = [
        policy("adam", batch_size=8),
        policy("sgd", batch_size=16),
        policy("sgd", batch_size=8),
        policy("sgd", batch_size=8, dropout=0.5),
        policy("sgd", dropout=0.5, batch_size=8),
        policy("lbfgs", batch_size=8),
        policy("adam", batch_size=8),
        policy("sgd", batch_size=8),
    ]
    groups = Vmap(chunk=3).groups(policies)
    assert sorted(j for group in groups for j in group) == list(range(len(policies)))
    assert max(map(len, groups)) <= 3
    assert [5] in groups
    assert sorted(groups[next(i for i, group in enumerate(groups) if 3 in group)]) == [3, 4]
    assert all(len({repr(sorted(policies[j].settings.items())) for j in group}) == 1 for group in groups)


@pytest.mark.slow
def test_mixed_batch_sizes_and_dropout_settings_are_trained_as_in_loop() -> None:
    """Dropout of 0 and of 1 draws no numbers that matter, so even these can be compared."""
    settings = [{"batch_size": 8}, {"batch_size": 16, "dropout": 0.0}, {"batch_size": 48, "dropout": 1.0}]
    policies = [replace(SGD, settings={"dropout": 0.0, **settings[j % 3]}) for j in range(6)]
    equals_loop(classify(dropout_mlp), policies, chunk=2)


class Freezing(esgd.Supervised):
    """A setting of the policy says whether the first layer is trained."""

    def prepare(self, module: nn.Module, settings: Any) -> None:
        module.get_submodule("0").requires_grad_(not settings.get("frozen", False))
        super().prepare(module, {name: value for name, value in settings.items() if name != "frozen"})


def test_layers_that_a_setting_freezes_are_left_alone_as_in_loop() -> None:
    data = random_data(48)
    task = Freezing(mlp, F.cross_entropy, train=data, fitness=data)
    policies = [replace(SGD, settings=settings) for settings in ({}, {}, {"frozen": True}, {"frozen": True})]
    ours = equals_loop(task, policies, chunk=2)
    first = ours.population.rows[:, :INPUTS]
    with at_work(LOOP, task, 4) as (_, start, _):
        assert torch.equal(first[2:], start.rows[2:, :INPUTS])
        assert not torch.equal(first[:2], start.rows[:2, :INPUTS])


# Divergence


def test_a_diverging_row_does_not_hurt_the_others() -> None:
    policies = [SGD, Policy(optimizer="sgd", hyper={"lr": 1e38}), SGD]
    ours = equals_loop(classify(), policies, replace(STEP, backoff=PerGeneration()))
    assert ours.diverged.tolist() == [False, True, False]


class Spectral(nn.Linear):
    """LAPACK refuses matrices that are not finite: the whole batch of them, if there is one."""

    def forward(self, x: Tensor) -> Tensor:
        largest = torch.linalg.eigvalsh(self.weight.detach() @ self.weight.detach().T)[..., -1]
        return super().forward(x) / (1 + largest)


def spectral_task() -> esgd.Supervised:
    return classify(lambda: nn.Sequential(Spectral(INPUTS, 7), nn.ReLU(), nn.Linear(7, CLASSES)))


def test_a_row_that_makes_the_whole_batch_raise_does_not_hurt_the_others() -> None:
    policies = [SGD, Policy(optimizer="sgd", hyper={"lr": 1e38}), SGD]
    ours = equals_loop(spectral_task(), policies, replace(STEP, backoff=PerGeneration()))
    assert ours.diverged.tolist() == [False, True, False]


def test_a_network_that_raises_beside_others_does_not_change_their_fitness() -> None:
    with at_work(Vmap(chunk=3, threads=1), spectral_task(), 3) as (shop, start, _):
        lost = replace(start, rows=start.rows.clone())
        lost.rows[1] = torch.nan
        births = [Birth(f"1.1.{j}", mates=(j,)) for j in range(3)]
        good, beside = shop.evaluate(start, births).fitness, shop.evaluate(lost, births).fitness
    assert beside[1] == torch.inf
    assert torch.equal(beside[[0, 2]], good[[0, 2]])


# Data


class Pairs(Dataset[Any]):
    """Augments with torch's global generator."""

    def __init__(self) -> None:
        self.x, self.y = random_data(48)

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index] + 0.1 * torch.randn(INPUTS), self.y[index]


def drawn_as_it_goes() -> Iterator[Any]:
    x, y = random_data(48)
    for _ in range(3):
        chosen = torch.randperm(48)[:16]
        yield x[chosen], y[chosen]


def drawn_at_once() -> list[Any]:
    x, y = random_data(48)
    return [(x[chosen], y[chosen]) for chosen in torch.randperm(48).split(16)]


SOURCES = {
    "a dataset": Pairs(),
    "a generator that shuffles": drawn_as_it_goes,
    "a function that shuffles": drawn_at_once,
    "a DataLoader": lambda: DataLoader(Pairs(), batch_size=16, shuffle=True),
    "a generator that shuffles with random": lambda: iter(random.sample(drawn_in_order(), 3)),
}


def drawn_in_order() -> list[Any]:
    x, y = random_data(48)
    return [(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 32)]


@pytest.mark.slow
@pytest.mark.parametrize("train", SOURCES.values(), ids=SOURCES)
def test_datasets_and_streams_are_dealt_out_as_in_loop(train: Any) -> None:
    equals_loop(classify(train=train), [SGD] * 3)


@pytest.mark.slow
def test_batches_that_differ_in_shape_between_rows_are_trained_one_by_one() -> None:
    def ragged() -> Iterator[Any]:
        x, y = random_data(48)
        n = int(torch.randint(2, 30, ()))
        yield x[:n], y[:n]

    equals_loop(classify(train=ragged), [SGD] * 3)


def test_batches_of_something_else_than_tensors_are_refused() -> None:
    class Wordy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor, word: str) -> Tensor:
            return self.inner(x)

    x, y = random_data(48)
    task = esgd.Supervised(Wordy, F.cross_entropy, train=lambda: [(x, "word", y)], fitness=lambda: [(x, "word", y)])
    with pytest.raises(EngineError, match="cannot stack the batches.*Use engine='loop'"):
        next(esgd.evolve(task, RECIPE, seed=0, engine=Vmap()))


def test_data_that_give_no_batches_are_explained() -> None:
    with pytest.raises(TaskError, match="the training data gave no batches in epoch 1"):
        train(Vmap(chunk=3), classify(train=lambda: iter(())), [SGD] * 3)


# Recording


CALLS: list[float] = []


class StochasticDepth(nn.Module):
    """Leaves a layer out, as Python's `random` decides; `CALLS` has what it drew."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(INPUTS, INPUTS), nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CALLS.append(random.random())
            x = torch.tanh(self.one(x)) if CALLS[-1] < 0.5 else x
        return self.two(x)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(1, 5))
def test_a_network_that_draws_from_pythons_random_draws_anew_at_every_step(k: int) -> None:
    epochs = 4
    with at_work(Vmap(chunk=2, threads=1), classify(StochasticDepth), 2) as (shop, start, _):
        CALLS.clear()
        shop.train(start, [SGD] * 2, replace(STEP, k=k, epochs=epochs))
    assert len(CALLS) >= epochs * 3, "a step was played back instead of drawn"


@pytest.mark.slow
def test_training_twice_gives_the_same_bits_whatever_was_recorded_meanwhile() -> None:
    """Or a resumed run would be another run."""
    for make_model in (StochasticDepth, dropout_mlp, batchnorm_mlp, conv_net):
        with at_work(Vmap(chunk=2, threads=1), classify(make_model), 2) as (shop, start, _):
            for k in range(1, 4):
                step = replace(STEP, k=k, epochs=3)
                once, again = (outcome(shop.train(start, [SGD] * 2, step)) for _ in range(2))
                assert difference(again, once) == "", make_model.__name__


def test_a_recorded_function_says_what_the_function_says() -> None:
    calls = []

    def function(x: Tensor, batch: tuple[Tensor, float]) -> Tensor:
        calls.append(1)
        return x.view(2, 2).expand(2, 2) * batch[0] + batch[1]

    traced, x = Traced(function, nn.Identity(), Computing()), torch.randn(4)
    for n in range(6):
        batch = (torch.randn(2, 2), float(n % 2))
        assert torch.equal(traced("key", x, batch), x.view(2, 2) * batch[0] + batch[1])
    before = len(calls)
    traced("key", x, (torch.randn(2, 2), 0.0))
    assert len(calls) == before, "it was played back"
    assert traced("key", x, (torch.randn(1, 2), 0.0)).shape == (2, 2)
    assert len(calls) == before + 1, "another shape is another function"


@pytest.mark.parametrize("compile_", [False, True])
def test_a_function_of_a_batch_with_a_value_that_has_no_hash_is_called_as_it_is(compile_: bool) -> None:
    traced, x = Traced(lambda x, batch: x * len(batch[1]), nn.Identity(), Computing(compile=compile_)), torch.randn(4)
    for _ in range(3):
        assert torch.equal(traced("key", x, (x, np.array(["cat", "dog"]))), 2 * x)


def test_a_type_error_of_the_function_itself_is_raised() -> None:
    def function(x: Tensor) -> Tensor:
        raise TypeError("the function's own")

    with pytest.raises(TypeError, match="the function's own"):
        Traced(function, nn.Identity(), Computing())("key", torch.randn(4))


def test_fitness_parts_with_an_array_of_names_are_scored_as_by_loop() -> None:
    x, y = random_data(70, seed=1)
    parts = [(x[some], {"y": y[some], "names": np.array(["cat"] * 35)}) for some in (slice(35), slice(35, 70))]

    def loss(output: Tensor, target: Any) -> Tensor:
        return F.cross_entropy(output, target["y"] if isinstance(target, dict) else target)

    equals_loop(esgd.Supervised(mlp, loss, train=random_data(48), fitness=lambda: parts, batch_size=16), [SGD] * 3)


@dataclass(frozen=True, eq=False)
class Watched:
    """Writes down where the rows are after every epoch."""

    seen: list[Tensor] = field(default_factory=list)
    certain: bool = False

    def checks(self, epochs: int) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: int) -> Tensor:
        self.seen.append(trajectory.rows)
        for _ in range(epochs):
            trajectory.epoch()
            self.seen.append(trajectory.rows)
        trajectory.measure()
        return torch.zeros(len(trajectory.fitness), dtype=torch.int64)


def test_dropout_masks_differ_between_rows_and_between_steps_also_when_played_back() -> None:
    """One weight per input, a loss that is linear: a step of plain SGD shows which inputs were dropped."""
    ones = torch.ones(1, 64), torch.ones(1, 1)
    task = esgd.Supervised(
        lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 1, bias=False)),
        lambda output, target: (output * target).mean(),
        train=ones,
        fitness=ones,
        nonnegative=False,
    )
    watched = Watched()
    train(
        Vmap(chunk=3), task, [Policy(optimizer="sgd", hyper={"lr": 1.0})] * 3, replace(STEP, epochs=6, backoff=watched)
    )
    masks = [
        tuple((before[i] - after[i] > 1).tolist())
        for before, after in zip(watched.seen, watched.seen[1:], strict=False)
        for i in range(3)
    ]
    assert len(set(masks)) == len(masks) == 18
    assert all(10 < sum(mask) < 54 for mask in masks)


# Fitness


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp, conv_net], ids=lambda made: made.__name__)
def test_a_fitness_does_not_depend_on_who_is_scored_beside_it(make_model: Any) -> None:
    with at_work(Vmap(chunk=4, threads=1), classify(make_model), 7) as (shop, start, _):
        births = [Birth(f"1.1.{j}", mates=(j, (j + 1) % 7), sigma=0.1) for j in range(7)]
        together = shop.evaluate(start, births).fitness
        alone = torch.cat([shop.evaluate(start, [birth]).fitness for birth in births])
        backwards = shop.evaluate(start, births[::-1]).fitness.flip(0)
        united = shop.unite(start, births, shop.evaluate(start, births), [7, 9, 11]).fitness
    assert torch.equal(together, alone)
    assert torch.equal(together, backwards)
    assert torch.equal(united, together[[0, 2, 4]])


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp, conv_net], ids=lambda made: made.__name__)
def test_the_fitness_after_training_is_the_fitness_it_has_whenever_it_is_scored(make_model: Any) -> None:
    """One who trains alone, because its settings are its own, is scored by the same arithmetic as everybody."""
    policies = [replace(SGD, settings={"batch_size": size}) for size in (16, 16, 16, 24)]
    task = classify(make_model, fitness=random_data(500, seed=1))
    with at_work(Vmap(chunk=4, threads=1), task, 4) as (shop, start, _):
        trained = shop.train(start, policies, STEP).population
        again = shop.evaluate(trained, [Birth(f"1.1.{j}", mates=(j,)) for j in range(4)]).fitness
    assert torch.equal(trained.fitness, again)


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [batchnorm_mlp, dropout_mlp], ids=lambda made: made.__name__)
def test_the_guarantee_is_held_in_a_run_and_early_abort_changes_nothing(make_model: Any) -> None:
    task = classify(make_model, fitness=random_data(500, seed=1))
    recipe = esgd.Recipe(
        population=5, offspring=11, elites=2, generations=2, sgd_epochs=1, mutation=Gaussian(sigma=0.5)
    )
    runs, saved = [], []
    for abort in (True, False):
        generations = list(
            esgd.evolve(task, replace(recipe, early_abort=abort), seed=0, engine=Vmap(chunk=3, threads=1))
        )
        assert [each.guarantee for each in generations] == ["held", "held"]
        runs.append([contents(each.population) for each in generations])
        saved.append(sum(each.work.fitness_saved for each in generations))
    assert difference(*runs) == ""
    assert saved[0] > 0 == saved[1], "nothing was aborted, so nothing was compared"


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_bits() -> None:
    """What was recorded is gone, and the last bits are there all the same."""
    task = classify(lambda: nn.Sequential(batchnorm_mlp(), nn.Dropout(0.2)))
    first, straight = esgd.evolve(task, RECIPE, seed=0, engine=Vmap(chunk=2, threads=1))
    (resumed,) = esgd.evolve(task, RECIPE, seed=0, engine=Vmap(chunk=2, threads=1), resume=first.state)
    assert difference(contents(resumed.population), contents(straight.population)) == ""


# Settings


@pytest.mark.parametrize("chunk", [0, -2, True, 1.5, "four"])
def test_a_chunk_that_cannot_be_is_refused(chunk: Any) -> None:
    with pytest.raises(RecipeError, match=f"chunk={chunk!r} is not 1 or more"):
        Vmap(chunk=chunk)


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_networks_give_the_same_up_to_rounding() -> None:
    def make_model() -> nn.Module:
        return nn.Linear(INPUTS, CLASSES)  # a second layer doubles what there is to compile, four times

    data: dict[str, Callable[..., Any] | Any] = {"fitness": random_data(48, seed=1)}
    data["batch_size"] = 6  # eight steps, in two calls
    compiled = train(Vmap(chunk=2, threads=1, compile=True), classify(make_model, **data), [SGD] * 2)
    plain = train(LOOP, classify(make_model, **data), [SGD] * 2)
    assert difference(outcome(compiled), outcome(plain), tolerance=CLOSE) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "backoff",
    [
        pytest.param(Never(), id="to the end"),
        pytest.param(BestOfLooks(looks=(0.3,)), id="with a look on the way"),
        pytest.param(BestOfLooks(looks=(0.3,), ema=1.0), id="with an average, which sees every step"),
    ],
)
def test_several_steps_in_a_compiled_call_are_the_steps_of_loop(backoff: Any) -> None:
    """An epoch has 19 batches and a shorter one: four calls of four, then steps alone. Nothing is really compiled."""
    task = classify(lambda: nn.Linear(INPUTS, CLASSES), train=random_data(78), batch_size=4)
    policies = [
        replace(SGD, schedule=Cosine()),
        Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.5, "dampening": 0.3}, clip_norm=0.1),
    ]
    step = replace(STEP, epochs=1.5, backoff=backoff)
    with torch.compiler.set_stance("force_eager"):
        together = train(Vmap(chunk=2, threads=1, compile=True), task, policies, step)
    assert difference(outcome(together), outcome(train(LOOP, task, policies, step)), tolerance=CLOSE) == ""
    adam = [Policy(optimizer="adamw", hyper={"lr": 0.01}, schedule=Cosine())] * 2
    with torch.compiler.set_stance("force_eager"):
        together = train(Vmap(chunk=2, threads=1, compile=True), task, adam, step)
    assert difference(outcome(together), outcome(train(LOOP, task, adam, step)), tolerance=CLOSE) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_several_steps_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plain = list[int](), BatchedNetwork.steps

    def counted(self: BatchedNetwork, stacks: Any, buffers: Any, batches: Any, *rest: Any, **named: Any) -> None:
        calls.append(len(batches))
        plain(self, stacks, buffers, batches, *rest, **named)

    monkeypatch.setattr(BatchedNetwork, "steps", counted)
    task = classify(lambda: nn.Linear(INPUTS, CLASSES), train=random_data(78), batch_size=4)
    with torch.compiler.set_stance("force_eager"):
        train(Vmap(chunk=2, threads=1, compile=True), task, [SGD] * 2, replace(STEP, epochs=1))
    assert calls == [4, 4, 4, 4, 1, 1, 1, 1]


@pytest.mark.slow
def test_a_step_of_two_families_of_optimizers_is_recorded() -> None:
    """After two calls its Python is not run again: 60 steps call the loss only for what is recorded of the fitness."""
    called = 0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        nonlocal called
        called += 1
        return F.cross_entropy(output, target)

    data: dict[str, Any] = {"train": random_data(48), "fitness": random_data(70, seed=1), "batch_size": 16}
    task = esgd.Supervised(mlp, loss, **data)
    policies = [SGD, Policy(optimizer="adam", hyper={"lr": 0.01})]
    with at_work(Vmap(chunk=2, threads=1), task, 2) as (shop, start, _):
        shop.train(start, policies, replace(STEP, epochs=1))
        before = called
        shop.train(start, policies, replace(STEP, epochs=20))
        assert called - before < 10
    equals_loop(task, policies)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_compiler_refuses_is_not_compiled_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import InductorError

    def broken(*arguments: Any) -> Any:
        raise InductorError(RuntimeError("no such instruction"), None)

    monkeypatch.setattr(torch, "compile", lambda function, **options: broken)
    with pytest.warns(RuntimeWarning, match="the compiler failed, .*no such instruction"):
        ours = train(Vmap(chunk=2, threads=1, compile=True), classify(), [SGD] * 2, replace(STEP, backoff=PerEpoch()))
    loops = train(LOOP, classify(), [SGD] * 2, replace(STEP, backoff=PerEpoch()))
    assert difference(outcome(ours), outcome(loops), tolerance=CLOSE) == ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_error_of_the_network_is_not_taken_for_one_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise RuntimeError("my own")

    monkeypatch.setattr(torch, "compile", lambda function, **options: fails)
    with pytest.raises(RuntimeError, match="my own"):
        train(Vmap(chunk=2, threads=1, compile=True), classify(), [SGD] * 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_only_what_is_run_is_compiled_each_while_no_other_process_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, locked = list[str](), list[str]()

    @contextmanager
    def noted(code: str) -> Iterator[None]:
        locked.append(code)
        yield

    monkeypatch.setattr(torch, "compile", lambda function, **options: compiled.append(function.code) or function)
    monkeypatch.setattr(trace, "compiling", noted)
    with at_work(Vmap(chunk=2, threads=1, compile=True), classify(), 2) as (shop, start, _):
        assert compiled == [], "nothing for the look before the run"
        shop.train(start, [SGD] * 2, STEP)
    assert locked == compiled
    assert len(set(locked)) == len(locked) > 0
    assert all(locked), "each has a lock of its own"
