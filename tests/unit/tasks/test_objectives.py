"""Batches of every form, and losses of (output, target), of (model, batch), or by the model itself."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import DataLoader

import esgd
from esgd import Supervised
from esgd.errors import EngineError, TaskError
from esgd.tasks import OfBatch
from esgd.tasks.batch_forms import BatchForm
from esgd.testing import check_task
from tests.small import INPUTS, mlp, random_data

X, Y = random_data(48)
COLUMNS = {"x": X, "labels": Y}


class Names(nn.Module):
    """Takes its inputs by name, and returns a loss where there are labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.layers(x)
        return logits if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Graphs:
    """A batch that is an object, as those of graphs are."""

    def __init__(self, samples: list[dict[str, Tensor]]) -> None:
        self.x, self.y = (torch.stack([each[name] for each in samples]) for name in ("x", "labels"))
        self.num_graphs = len(samples)

    def to(self, device: torch.device) -> Graphs:
        self.x, self.y = self.x.to(device), self.y.to(device)
        return self


class OnGraphs(Names):
    def forward(self, graphs: Graphs) -> Any:  # type: ignore[override]
        return self.layers(graphs.x.mul_(1.0))  # it writes into its input


def of_batch(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    output = model(batch["x"])
    return F.cross_entropy(output, batch["labels"]), output


def alone(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["labels"])


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=1) == target).double().mean()


SAMPLES = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
FORMS: dict[str, dict[str, Any]] = {
    "a dict of tensors": {"data": COLUMNS},
    "a list of dicts": {"data": SAMPLES},
    "Hugging Face": {"data": datasets.Dataset.from_dict({"x": X.tolist(), "labels": Y.tolist()})},
    "batches of dicts": {"data": lambda: [{"x": X[:16], "labels": Y[:16]}, {"x": X[16:], "labels": Y[16:]}]},
    "the network's own loss": {"data": COLUMNS, "loss": "model"},
    "of model and batch": {"data": COLUMNS, "loss": of_batch},
    "graphs": {"data": SAMPLES, "collate_fn": Graphs, "make_model": OnGraphs},
    "another name of the target": {"data": {"x": X, "label": Y}, "target": "label"},
}


@pytest.mark.parametrize("form", FORMS)
def test_one_loss_is_the_same_whatever_form_the_data_have(form: str) -> None:
    given = {"make_model": Names, "loss": F.cross_entropy, **FORMS[form]}
    data = given.pop("data")
    shared = {"metrics": {"accuracy": accuracy}, "batch_size": 16, **given}
    make_model, loss = shared.pop("make_model"), shared.pop("loss")
    task = Supervised(make_model, loss, train=data, fitness=data, test=data, **shared)
    check_task(task)
    network = task.model()
    plain = Supervised(mlp, F.cross_entropy, train=(X, Y), fitness=(X, Y), test=(X, Y), metrics={"accuracy": accuracy})
    expected = plain.test(network.layers)
    assert task.test(network) == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        parts = [(float(task.fitness(network, batch)), task.size(batch)) for _, batch in task.parts()]
    assert sum(total for total, _ in parts) / sum(n for _, n in parts) == pytest.approx(expected["loss"], rel=1e-6)


def test_a_population_is_trained_on_dicts_by_every_kernel_and_on_graphs_by_name_not_by_vmap() -> None:
    recipe = esgd.Recipe(population=2, generations=1, sgd_epochs=1)
    task = Supervised(Names, F.cross_entropy, train=COLUMNS, fitness=COLUMNS)
    loop, vmap = (esgd.fit(task, recipe, seed=0, engine=engine, progress=False).fitness for engine in ("loop", "vmap"))
    assert loop == pytest.approx(vmap, rel=1e-5)
    graphs = Supervised(OnGraphs, F.cross_entropy, train=SAMPLES, fitness=SAMPLES, collate_fn=Graphs)
    with pytest.raises(EngineError, match="Vmap cannot stack the batches"):
        esgd.fit(graphs, recipe, seed=0, engine="vmap", progress=False)


def test_an_ensemble_of_networks_that_take_names_is_scored_by_its_mean() -> None:
    task = Supervised(Names, F.cross_entropy, train=COLUMNS, fitness=COLUMNS)
    result = esgd.fit(
        task, esgd.Recipe(population=3, generations=1, sgd_epochs=1), seed=0, engine="loop", progress=False
    )
    ensemble = result.ensemble(2)
    with torch.no_grad():
        expected = F.cross_entropy(ensemble(x=X), Y)
    assert ensemble.fitness == pytest.approx(float(expected), rel=1e-5)
    own = Supervised(Names, "model", train=COLUMNS, fitness=COLUMNS)
    with pytest.raises(TaskError, match="not the loss of the mean"):
        _ = own.average


class Told(SimpleNamespace):
    """An object whose len() is the number of its attributes, as that of a graph is."""

    def __len__(self) -> int:
        return len(self.__dict__)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ((torch.zeros(3, 2), torch.zeros(3)), 3),
        ([torch.zeros(3, 2), [torch.zeros(3), torch.zeros(3)]], 3),
        (([torch.zeros(2), torch.zeros(5)], [{"boxes": 1}, {"boxes": 2}]), 2),
        ((pad_sequence([torch.zeros(2), torch.zeros(5)]), pack_sequence([torch.zeros(5), torch.zeros(2)])), 2),
        ({"id": ["a", "b"], "x": torch.zeros(2, 5)}, 2),
        ({"scale": torch.tensor(1.0), "text": ["a", "b", "c"]}, 3),
        (torch.zeros(4, 2), 4),
        ({"nodes": torch.zeros(9, 2), "edges": torch.zeros(2, 20), "labels": torch.zeros(3)}, 3),
        ({"nodes": torch.zeros(9, 2), "labels": torch.zeros(9), "num_graphs": 4}, 4),
        ((torch.zeros(9, 2), {"boxes": torch.zeros(7, 4), "labels": torch.zeros(3)}), 3),
        (Told(x=torch.zeros(9, 2), y=torch.zeros(3)), 3),
        (Told(x=torch.zeros(9, 2), y=torch.zeros(9), batch_size=3), 3),
    ],
    ids=[
        *("a pair", "two targets", "images of any size", "packed", "a dict", "text", "inputs"),
        *("graphs in a dict", "nodes in a dict", "a dict as target", "an object", "an object that says it"),
    ],
)
def test_the_samples_of_a_batch_are_counted_in_every_form(batch: Any, samples: int) -> None:
    assert BatchForm().size(batch) == samples


@pytest.mark.parametrize(
    "target",
    [
        torch.zeros(3),
        np.zeros(3),
        {"boxes": torch.zeros(7, 4), "labels": torch.zeros(3)},
        {"boxes": torch.zeros(7, 4), "batch_size": 3},
        [{"boxes": torch.zeros(n, 4)} for n in range(3)],
        pack_sequence([torch.zeros(2), torch.zeros(1), torch.zeros(1)]),
    ],
    ids=["a tensor", "an array", "a dict", "a dict that says it", "a list", "packed"],
)
def test_the_samples_of_a_dict_and_of_an_object_are_those_of_a_target_of_any_kind(target: Any) -> None:
    form, parts = BatchForm(target_name="y"), {"x": torch.zeros(9, 2), "y": target}
    assert form.size(parts) == form.size(Told(**parts)) == 3


@pytest.mark.parametrize("target", [torch.tensor(1), np.array(1), "text", None], ids=["0-d", "0-d array", "text", "no"])
def test_an_object_whose_target_has_no_length_has_its_own(target: Any) -> None:
    assert BatchForm().size(Told(x=torch.zeros(9, 2), y=target)) == 2


def test_samples_that_cannot_be_counted_are_refused_unless_a_function_counts_them() -> None:
    class Opaque:
        def to(self, device: torch.device) -> Opaque:
            return self

    with pytest.raises(TaskError, match="how many samples a Opaque has.*batch_length"):
        BatchForm().size(Opaque())
    assert BatchForm(length=lambda batch: 7).size(Opaque()) == 7
    with pytest.raises(TaskError, match="batch_length returned 0.5"):
        BatchForm(length=lambda batch: 0.5).size(Opaque())  # type: ignore[arg-type, return-value]


def test_tensors_of_different_lengths_without_a_target_are_refused_with_their_lengths() -> None:
    batch = {"nodes": torch.zeros(9, 2), "edges": torch.zeros(2, 20), "y": torch.zeros(3)}
    with pytest.raises(TaskError, match=r"'y' has: the lengths are nodes 9, edges 2, y 3\. Give batch_length="):
        BatchForm().size(batch)
    assert BatchForm(target_name="y").size(batch) == 3


def test_the_fitness_of_graphs_in_dicts_is_a_mean_over_graphs() -> None:
    sizes = [2, 3, 1, 4, 2, 5]

    def joined(graphs: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        nodes, labels = zip(*graphs, strict=True)
        number = torch.repeat_interleave(torch.arange(len(nodes)), torch.tensor([len(each) for each in nodes]))
        return {"nodes": torch.cat(nodes), "graph": number, "labels": torch.stack(labels)}

    class Pooled(nn.Linear):
        def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:  # type: ignore[override]
            return torch.zeros(int(graph.max()) + 1, 2).index_add(0, graph, super().forward(nodes))

    generator = torch.Generator().manual_seed(0)
    graphs = [(torch.randn(size, 3, generator=generator), torch.tensor(size % 2)) for size in sizes]
    loader = DataLoader(graphs, batch_size=4, shuffle=True, collate_fn=joined)  # type: ignore[arg-type]
    own = lambda output, target: F.cross_entropy(output, target)  # noqa: E731  # whose weights are not known
    task = Supervised(partial(Pooled, 3, 2), own, train=loader, fitness=loader)
    network = task.model()
    with torch.no_grad():
        found = sum(float(task.fitness(network, batch)) for _, batch in task.parts())
        whole = joined(graphs)
        expected = F.cross_entropy(network(whole["nodes"], whole["graph"]), whole["labels"], reduction="sum")
    assert found == pytest.approx(float(expected), rel=1e-5)
    assert not [kind for kind, _ in task.look(network) if kind == "length"]


def test_a_batch_that_counts_as_other_than_its_samples_is_noted() -> None:
    def by_time(samples: list[Any]) -> tuple[Tensor, Tensor]:
        x, y = zip(*samples, strict=True)
        return torch.stack(x, dim=1), torch.stack(y, dim=1)

    series = [(torch.zeros(7, 3), torch.zeros(7, 2)) for _ in range(12)]
    given = {"train": series, "fitness": series, "collate_fn": by_time}
    task, told = (
        Supervised(lambda: nn.Linear(3, 2), F.mse_loss, **given, batch_length=length)
        for length in (None, lambda batch: batch[0].shape[1])
    )
    notes = [text for kind, text in task.look(task.model()) if kind == "length"]
    assert len(notes) == 1
    assert "batch of 12 samples of train counts as 7" in notes[0]
    assert "batch_length=" in notes[0]
    assert not [text for kind, text in told.look(told.model()) if kind == "length"]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda output, batch: output, r"takes \(output, batch\).*OfBatch"),
        (lambda model, target: model, r"takes \(model, target\)"),
        ("modle", "loss='modle' is not known. Did you mean 'model'?"),
    ],
)
def test_a_loss_that_could_be_of_two_kinds_is_refused_at_construction(loss: Any, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        Supervised(mlp, loss, train=COLUMNS, fitness=COLUMNS)


def test_a_function_with_other_names_is_a_loss_of_the_batch_if_one_says_so() -> None:
    task = Supervised(Names, OfBatch(lambda m, b: alone(m, b)), train=COLUMNS, fitness=COLUMNS, test=COLUMNS)
    check_task(task)
    assert set(task.test(task.model())) == {"loss"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": alone, "metrics": {"accuracy": accuracy}}, "the loss alone returns none.*(loss, output)"),
        ({"target": "lables"}, "no target 'lables'. Did you mean 'labels'?"),
        ({"test": {**COLUMNS, "id": Y}}, "have 'id', and Names.forward has no argument of that name"),
        ({"loss": "model", "test": (X, Y)}, "a batch is a tuple.*by name"),
        ({"loss": "model", "test": {"x": X}}, "Names returned Tensor without a loss"),
    ],
    ids=["metrics without outputs", "a misspelt target", "a name too many", "no names", "no labels"],
)
def test_what_does_not_fit_a_batch_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    given = {"loss": F.cross_entropy, "train": COLUMNS, "fitness": COLUMNS, "test": COLUMNS, **changes}
    task = Supervised(Names, given.pop("loss"), **given)
    with pytest.raises(TaskError, match=words):
        task.test(task.model())


def test_samples_of_different_lengths_need_a_collate_fn_and_are_padded_by_one() -> None:
    samples = [(torch.ones(2 + n % 3), Y[n]) for n in range(12)]
    with pytest.raises(TaskError, match="cannot be stacked.*collate_fn"):
        list(Supervised(mlp, F.cross_entropy, train=samples, fitness=samples).parts())

    def padded(chosen: list[Any]) -> tuple[Tensor, Tensor]:
        x = pad_sequence([each for each, _ in chosen], batch_first=True)
        return F.pad(x, (0, INPUTS - x.shape[1])), torch.stack([label for _, label in chosen])

    check_task(Supervised(mlp, F.cross_entropy, train=samples, fitness=samples, collate_fn=padded))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X.double().numpy(), Y.to(torch.int16).numpy()),
        (pd.DataFrame(X.double().numpy()), pd.Series(Y.numpy(), dtype="uint8")),
    ],
    ids=["NumPy", "pandas"],
)
def test_arrays_become_the_tensors_that_networks_take_with_a_note(x: Any, y: Any) -> None:
    task = Supervised(mlp, F.cross_entropy, train=(x, y), fitness=(X, Y))
    ((_, batch),) = Supervised(mlp, F.cross_entropy, train=(X, Y), fitness=(x, y)).parts()
    assert (batch[0].dtype, batch[1].dtype) == (torch.float32, torch.int64)
    assert torch.equal(batch[0], X)
    text = dict(task.look(mlp()))["cast"]
    assert "train[0] from float64 to float32, train[1] from" in text


@pytest.mark.parametrize(
    ("loss", "y", "dtype"),
    [
        (F.cross_entropy, np.array([True, False]), torch.int64),
        (nn.CrossEntropyLoss(), np.array([1.0, 0.0]), torch.int64),
        (F.cross_entropy, np.array([[0.5, 0.5], [0.0, 1.0]]), torch.float32),
        (F.binary_cross_entropy_with_logits, np.array([[1, 0], [0, 1]]), torch.float32),
        (nn.BCEWithLogitsLoss(), np.array([[True, False], [False, True]]), torch.float32),
        (F.mse_loss, np.array([[1, 0], [0, 1]]), torch.int64),
    ],
    ids=["bool", "whole numbers", "probabilities", "binary", "binary bool", "regression"],
)
def test_targets_become_what_the_loss_takes_with_a_note(loss: Any, y: Any, dtype: torch.dtype) -> None:
    x = np.zeros((2, 3), dtype=np.float32)
    for data in ((x, y), {"input": x, "labels": y}):
        task = Supervised(lambda: nn.Linear(3, 2), loss, train=data, fitness=data)
        ((_, batch),) = task.parts()
        target = batch[-1] if isinstance(batch, tuple) else batch["labels"]
        assert target.dtype == dtype
        assert torch.isfinite(task.loss(task.model(), batch))
        changed = torch.from_numpy(y).dtype != dtype
        assert any(kind == "cast" for kind, _ in task.look(task.model())) == changed


def test_a_column_of_text_is_refused_by_its_name() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "city": ["Kyiv", "Lima"]})
    with pytest.raises(TaskError, match=r"train\[0\] has columns that are not numbers: 'city'"):
        Supervised(mlp, F.cross_entropy, train=(frame, np.arange(2)), fitness=(X, Y))


def test_the_class_of_a_loss_is_no_loss() -> None:
    with pytest.raises(
        TaskError, match=r"loss=CrossEntropyLoss is a class. Pass an instance of it: CrossEntropyLoss\(\)"
    ):
        esgd.Supervised(lambda: nn.Linear(2, 2), nn.CrossEntropyLoss, train=None, fitness=None)


@pytest.mark.parametrize("engine", [esgd.Loop(threads=1), esgd.Vmap()], ids=["loop", "vmap"])
@pytest.mark.parametrize("kind", ["output", "batch"])
def test_a_loss_that_raises_in_training_is_named_and_the_exception_keeps_its_type(kind: str, engine: Any) -> None:
    def of_output(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise KeyError("focal")
        return F.cross_entropy(output, target)

    def of_batch(model: nn.Module, batch: Any) -> Tensor:
        return of_output(model(batch[0]), batch[1])

    loss: Any = of_output if kind == "output" else of_batch
    task = Supervised(mlp, loss, train=(X, Y), fitness=(X, Y))
    with pytest.raises(KeyError, match="focal") as caught:
        esgd.fit(task, esgd.Recipe(population=2, generations=1), seed=0, engine=engine, progress=False)
    (note,) = (note for note in caught.value.__notes__ if note.startswith("Raised in the loss of the task, "))
    assert f"{loss.__name__}. Call it by hand" in note


def test_a_loss_that_raises_before_training_is_named_where_a_network_cannot_be_scored() -> None:
    def broken(output: Tensor, target: Tensor) -> Tensor:
        raise KeyError("focal")

    task = Supervised(mlp, broken, train=(X, Y), fitness=(X, Y))
    with pytest.raises(TaskError, match=r"cannot be scored: KeyError: 'focal'\. ") as caught:
        esgd.fit(task, esgd.Recipe(population=2), seed=0, engine="loop", progress=False)
    (note,) = (note for note in caught.value.__notes__ if note.startswith("Raised in the loss of the task, "))
    assert "broken" in note
