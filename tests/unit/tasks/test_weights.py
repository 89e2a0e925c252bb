"""Losses with class weights or ignored targets: the mean over a split does not depend on how the split is cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Supervised, Vmap
from esgd.errors import TaskError
from esgd.operators import Gaussian
from esgd.population import Individual
from tests.small import CLASSES, mlp, random_data

WEIGHT = torch.tensor([0.1, 1.0, 7.0])
X, Y = random_data(150, seed=1)
IGNORED = torch.where(torch.arange(150) < 70, 1, Y)  # class 1 is all of the first part
LOSSES: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "weight": (nn.CrossEntropyLoss(weight=WEIGHT), Y),
    "partial": (partial(F.cross_entropy, weight=WEIGHT), Y),
    "smoothed": (nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.2), Y),
    "ignored": (nn.CrossEntropyLoss(ignore_index=1), IGNORED),
    "both": (nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=1), IGNORED),
    "default ignored": (F.cross_entropy, torch.where(IGNORED == 1, -100, IGNORED)),
}


def cut(y: Tensor, *sizes: int) -> Callable[[], list[tuple[Tensor, Tensor]]]:
    """The samples in batches of these sizes."""
    return lambda: list(zip(X.split(list(sizes)), y.split(list(sizes)), strict=True))


def fitness_of(task: Supervised, network: nn.Module) -> float:
    parts = [(float(task.fitness(network, batch)), task.divisor(batch)) for _, batch in task.parts()]
    return sum(loss for loss, _ in parts) / sum(counts for _, counts in parts)


@torch.no_grad()
def mean_of(loss: Any, y: Tensor, network: nn.Module) -> float:
    """torch's own mean over all samples at once, in float64."""
    settings = loss.keywords if isinstance(loss, partial) else {**vars(loss), **getattr(loss, "_buffers", {})}
    known = {name: settings[name] for name in ("weight", "ignore_index", "label_smoothing") if name in settings}
    if isinstance(weight := known.get("weight"), Tensor):
        known["weight"] = weight.double()
    return float(F.cross_entropy(network(X).double(), y, **known))


def supervised(loss: Any, y: Tensor, **changes: Any) -> Supervised:
    return Supervised(mlp, loss, **{"train": (X, y), "fitness": (X, y), "test": (X, y), **changes})


@pytest.mark.parametrize("name", LOSSES)
@torch.no_grad()
def test_fitness_and_test_loss_are_torchs_own_mean_over_the_whole_split(name: str) -> None:
    (loss, y), network = LOSSES[name], mlp().eval()
    expected = mean_of(loss, y, network)
    for sizes in ((150,), (70, 80), (1, 99, 50), (64, 64, 22)):
        task = supervised(loss, y, fitness=cut(y, *sizes), test=cut(y, *sizes), pick=cut(y, *sizes))
        assert fitness_of(task, network) == pytest.approx(expected, rel=1e-6)
        assert task.test(network)["loss"] == pytest.approx(expected, rel=1e-6)
        picked = task.pick_loss(network)
        assert picked is not None
        assert picked[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=2, threads=1), Pool(workers=1)], ids=str)
@pytest.mark.parametrize("name", ["weight", "both"])
def test_every_engine_selects_by_that_mean(engine: Any, name: str) -> None:
    loss, y = LOSSES[name]
    recipe = esgd.Recipe(population=3, offspring=6, generations=2, sgd_epochs=1)
    result = esgd.fit(supervised(loss, y), recipe, seed=0, engine=engine, progress=False)
    for j, fitness in enumerate(result.population.fitness.tolist()):
        assert fitness == pytest.approx(mean_of(loss, y, Individual(result.population, j).module()), rel=1e-5)


def test_early_abort_is_exact_with_weights() -> None:
    runs = [
        esgd.fit(
            supervised(*LOSSES["weight"]),
            esgd.Recipe(
                population=3,
                offspring=12,
                generations=1,
                sgd_epochs=1,
                elites=2,
                mutation=Gaussian(sigma=1.0),
                early_abort=early_abort,
            ),
            seed=0,
            engine="loop:threads=1",
            progress=False,
        )
        for early_abort in (True, False)
    ]
    assert sum(line["ledger"]["fitness_saved"] for line in runs[0].history) > 0
    assert torch.equal(runs[0].population.rows, runs[1].population.rows)


@torch.no_grad()
def test_without_weights_and_ignored_targets_no_bit_changes() -> None:
    network = mlp().eval()
    task = supervised(F.cross_entropy, Y)
    for _, (x, y) in task.parts():
        assert task.divisor((x, y)) == len(y)
        assert float(task.fitness(network, (x, y))) == float(F.cross_entropy(network(x), y).double() * len(y))


@torch.no_grad()
def test_pixels_without_a_class_do_not_count() -> None:
    network, y = nn.Conv2d(1, CLASSES, 1).eval(), torch.randint(CLASSES, (12, 4, 5))
    x, loss = torch.randn(12, 1, 4, 5), nn.CrossEntropyLoss(ignore_index=255)
    y[:5] = 255
    task = Supervised(
        lambda: nn.Conv2d(1, CLASSES, 1),
        loss,
        train=(x, y),
        fitness=lambda: list(zip(x.split(5), y.split(5), strict=True)),
    )
    assert fitness_of(task, network) == pytest.approx(float(loss(network(x), y)), rel=1e-6)


def test_probabilities_as_targets_count_as_samples() -> None:
    batch = X, F.one_hot(Y, CLASSES).float()
    assert supervised(nn.CrossEntropyLoss(weight=WEIGHT), batch[1]).divisor(batch) == 150


def test_losses_of_others_count_samples() -> None:
    for loss in (
        nn.MSELoss(),
        nn.CrossEntropyLoss(weight=WEIGHT, reduction="none"),
        lambda output, target: output.sum(),
    ):
        assert supervised(loss, Y).divisor((X, Y)) == 150


def test_where_no_target_counts_there_is_no_mean() -> None:
    nothing = torch.full((150,), 1)
    task = supervised(nn.CrossEntropyLoss(ignore_index=1), nothing, train=(X, Y))
    with pytest.raises(TaskError, match="no target of the fitness data counts"):
        esgd.fit(task, esgd.Recipe(population=2, generations=1), seed=0, engine="loop", progress=False)
