"""Metrics on whole splits, and selection by one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Supervised, Vmap
from esgd.errors import TaskError
from esgd.population import Individual
from esgd.report import sentences
from esgd.tasks import averaged, error_rate, measuring
from tests.small import CLASSES, mlp, random_data

X, Y = random_data(150, seed=1)
RECIPE = esgd.Recipe(population=4, offspring=8, generations=2, sgd_epochs=1)


def macro_f1(output: Tensor, target: Tensor) -> float:
    """No mean over samples."""
    guess = output.argmax(dim=1)
    scores = []
    for c in range(CLASSES):
        hits = int(((guess == c) & (target == c)).sum())
        scores.append(2 * hits / max(1, int((guess == c).sum() + (target == c).sum())))
    return sum(scores) / CLASSES


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=1) == target).double().mean()


class Accumulated:
    """As torchmetrics are written."""

    def reset(self) -> None:
        self.outputs, self.targets = list[Tensor](), list[Tensor]()

    def update(self, output: Tensor, target: Tensor) -> None:
        self.outputs.append(output)
        self.targets.append(target)

    def compute(self) -> float:
        return macro_f1(torch.cat(self.outputs), torch.cat(self.targets))


def supervised(**changes: Any) -> Supervised:
    given = {"train": random_data(48), "fitness": (X, Y), "test": (X, Y), "batch_size": 16, **changes}
    return Supervised(mlp, F.cross_entropy, **given)


def cut(*sizes: int) -> Any:
    return lambda: list(zip(X.split(list(sizes)), Y.split(list(sizes)), strict=True))


@pytest.mark.parametrize("metric", [macro_f1, Accumulated()], ids=["function", "accumulated"])
@torch.no_grad()
def test_a_metric_sees_the_whole_split_however_it_is_cut(metric: Any) -> None:
    network = mlp().eval()
    expected = macro_f1(network(X), Y)
    for sizes in ((150,), (64, 86), (1, 100, 49)):
        task = supervised(metrics={"f1": metric}, fitness=cut(*sizes), test=cut(*sizes))
        assert task.test(network)["f1"] == expected
        assert task.fitness_metrics(network) == {"f1": expected}


@torch.no_grad()
def test_a_mean_over_samples_is_taken_batch_by_batch_with_the_bits_it_had() -> None:
    network, sizes = mlp().eval(), list[int]()

    @averaged
    def counted(output: Tensor, target: Tensor) -> Tensor:
        sizes.append(len(output))
        return error_rate(output, target)

    found = supervised(metrics={"counted": counted, "error": error_rate}, test=cut(64, 64, 22)).test(network)
    assert sizes == [64, 64, 22]
    total = sum(float(error_rate(network(x), y)) * len(y) for x, y in cut(64, 64, 22)())
    assert found["error"] == found["counted"] == total / 150


def test_outputs_that_are_too_many_to_keep_are_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "KEPT_BYTES", 1000)
    with pytest.raises(TaskError, match=r"'f1' is given all outputs of a split at once.*averaged.*reset, update"):
        supervised(metrics={"f1": macro_f1}).test(mlp())
    assert supervised(metrics={"f1": averaged(accuracy), "g": Accumulated()}).test(mlp())


def test_outputs_that_cannot_be_joined_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Supervised(
        lambda: nn.Conv1d(1, 1, 1),
        lambda output, target: output.square().mean(),
        train=(X, Y),
        fitness=lambda: [(torch.ones(2, 1, n), torch.ones(2)) for n in (3, 4)],
        metrics={"mean": lambda output, target: output.mean()},
    )
    with pytest.raises(TaskError, match="cannot be joined"):
        task.fitness_metrics(task.model())


def test_metrics_are_in_the_history_the_progress_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    task = supervised(metrics={"f1": macro_f1, "error": error_rate})
    result = esgd.fit(task, RECIPE, seed=0, engine="loop:threads=1", progress="plain")
    last = result.history[-1]
    assert last["metrics"] == task.fitness_metrics(result.model) == result.metrics
    assert f"f1 {last['metrics']['f1']:.4g} (test {last['test']['f1']:.4g})" in capsys.readouterr().err
    assert any(
        sentence.startswith("On the fitness split it has f1 0.") for sentence in sentences.run_headline(result.history)
    )
    assert "metrics_f1" in result.frame().columns


@averaged
def mean_accuracy(output: Tensor, target: Tensor) -> Tensor:
    return accuracy(output, target)


LOOP, VMAP = Loop(threads=1), Vmap(chunk=2, threads=1)


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize(
    ("engine", "metric"),
    [
        *((LOOP, metric) for metric in (accuracy, mean_accuracy, macro_f1, Accumulated())),
        *((VMAP, metric) for metric in (accuracy, mean_accuracy, macro_f1, Accumulated())),
        (Pool(workers=1), macro_f1),
    ],
    ids=lambda value: type(value).__name__ if not hasattr(value, "__name__") else value.__name__,
)
def test_selection_by_a_metric_keeps_the_promise_for_it(engine: Any, metric: Any) -> None:
    task = supervised(metrics={"score": metric}, select="score", mode="max")
    result = esgd.fit(task, RECIPE, seed=0, engine=engine, progress=False)
    assert {line["guarantee"] for line in result.history} == {"held"}
    assert all(line["ledger"]["fitness_saved"] == 0 for line in result.history), "nothing is aborted early"
    for j, fitness in enumerate(result.population.fitness.tolist()):
        assert fitness == -task.fitness_metrics(Individual(result.population, j).module())["score"]
    best = [line["metrics"]["score"] for line in result.history]
    assert best == sorted(best)
    assert result.history[0]["select"] == {"metric": "score", "mode": "max"}
    assert sentences.guarantee([result.history]).startswith(
        "By Theorem 1 the mean score of the m best on the fitness split, by which they are selected, never falls: held"
    )


def test_the_ledger_counts_the_samples_that_a_metric_is_taken_on() -> None:
    recipe = esgd.Recipe(population=2, offspring=2, generations=1, sgd_epochs=1)
    for fitness in ((X, Y), cut(100, 50)):
        task = supervised(metrics={"f1": macro_f1}, select="f1", mode="max", fitness=fitness)
        (line,) = esgd.fit(task, recipe, seed=0, engine="loop:threads=1", progress=False).history
        assert line["ledger"]["fitness_sgd"] == 2 * 150


def test_progress_shows_the_metric_and_not_its_negative() -> None:
    task = supervised(metrics={"accuracy": accuracy}, select="accuracy", mode="max")
    first = next(esgd.evolve(task, RECIPE, seed=0, engine="loop:threads=1"))
    assert f"best accuracy {-first.best.fitness:.4g}  elites {-first.elite_mean:.4g}" in str(first)


def test_what_selects_belongs_to_the_identity_of_a_run() -> None:
    metrics = {"f1": macro_f1}
    assert supervised(metrics=metrics, select="f1", mode="max").describe()["select"] == ["f1", "max"]
    assert supervised(metrics=metrics).describe() == supervised().describe()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"select": "ff1"}, "select='ff1' is not among the metrics of outputs and targets. Did you mean 'f1'?"),
        ({"select": "f1", "mode": "high"}, "mode='high' is neither 'min' nor 'max'"),
        ({"mode": "max"}, "mode='max' is for select="),
        ({"select": "f1", "fitness": lambda network: 0.0}, "needs a fitness split"),
    ],
)
def test_what_cannot_select_is_refused(changes: Any, said: str) -> None:
    with pytest.raises(TaskError) as refused:
        supervised(metrics={"f1": macro_f1}, **changes)
    assert said in str(refused.value)


def test_the_best_constant_answer_is_known_for_a_loss_only() -> None:
    assert supervised().constant_fitness() is not None
    assert supervised(metrics={"accuracy": accuracy}, select="accuracy", mode="max").constant_fitness() is None
