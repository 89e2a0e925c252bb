"""Where samples come from: every form of data, in an order that seeds decide, and what is refused by name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nested import nested_tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import esgd
from esgd import Supervised
from esgd.errors import TaskError
from esgd.randomness import Seeds, global_randomness
from esgd.tasks.datasets import Mapped
from esgd.tasks.reading import Reader
from esgd.tasks.sources import Source, Stream, Tensors, batches_of
from esgd.testing import check_task

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10)
SEEDS = Seeds(0, ("data",))


def read(data: Any, **settings: Any) -> Source:
    return Reader(**settings).source("train", data)


class Augmented(Dataset[Any]):
    """Adds noise from all three global generators, as augmentation libraries do."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.rand(2) + random.random() + np.random.rand()  # noqa: NPY002
        return X[index] + noise, index


class Own:
    """A source that somebody wrote: tensors, shown from behind."""

    samples = 10

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Any]:
        return ((-x, y) for x, y in Tensors((X, Y)).epoch(seeds, batch_size))

    def parts(self, batch_size: int, order: Any = None) -> Iterator[Any]:
        return ((part, (-x, y)) for part, (x, y) in Tensors((X, Y)).parts(batch_size, order))

    def describe(self) -> dict[str, Any]:
        return {"kind": "own"}

    def data(self) -> None:
        return None


class OwnStacked(Own):
    def epochs(self, seeds: Any, batch_size: int) -> Iterator[Any]:
        return ((-x, y) for x, y in Tensors((X, Y)).epochs(seeds, batch_size))


FORMS = {
    "a source of one's own": lambda: read(Own()),
    "tensors": lambda: read((X, Y)),
    "a list of two tensors": lambda: read([X, Y]),
    "a TensorDataset": lambda: read(TensorDataset(X, Y)),
    "a Dataset": lambda: read(Augmented()),
    "a list of samples": lambda: read(list(zip(X, Y.tolist(), strict=True))),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_has_every_sample_once_in_the_order_that_seeds_decide(form: str) -> None:
    def labels(seeds: Seeds) -> list[list[int]]:
        return [batch[-1].tolist() for batch in FORMS[form]().epoch(seeds, 4)]

    assert sorted(label for batch in labels(SEEDS) for label in batch) == list(range(10))
    assert [len(batch) for batch in labels(SEEDS)] == [4, 4, 2]
    assert labels(SEEDS) == labels(SEEDS)
    assert labels(SEEDS) != labels(SEEDS.at("another epoch"))


@pytest.mark.parametrize("form", FORMS)
def test_parts_are_fixed_and_keep_their_numbers_in_any_order(form: str) -> None:
    made = FORMS[form]()
    fixed = dict(made.parts(4))
    assert [batch[-1].tolist() for batch in fixed.values()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    visited = list(made.parts(4, [2, 0, 1]))
    assert [number for number, _ in visited] == [2, 0, 1]
    for number, batch in visited:
        assert all(torch.equal(a, b) for a, b in zip(batch, fixed[number], strict=True))


@given(st.integers(1, 200), st.integers(1, 40))
def test_batches_cover_everything_and_none_but_a_lone_one_has_a_single_sample(samples: int, batch_size: int) -> None:
    batches = batches_of(torch.arange(samples), batch_size)
    assert torch.equal(torch.cat(batches), torch.arange(samples))
    assert max(len(batch) for batch in batches) <= batch_size + 1
    assert batch_size == 1 or samples == 1 or min(len(batch) for batch in batches) > 1


def test_the_noise_of_a_sample_depends_on_epoch_and_sample_and_not_on_the_caller() -> None:
    made = Mapped(Augmented())
    torch.manual_seed(1)
    first = list(made.epoch(SEEDS, 4))
    torch.manual_seed(2)
    random.seed(3)
    again = list(made.epoch(SEEDS, 4))
    noise = {tuple((x - X[i]).tolist()) for batch in first for x, i in zip(*batch, strict=True)}
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert len(noise) == 10
    assert not torch.equal(next(made.epoch(SEEDS.at("later"), 10))[0], next(made.epoch(SEEDS, 10))[0])


def test_reading_a_dataset_leaves_the_callers_generators_alone() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    list(Mapped(Augmented()).epoch(SEEDS, 4))
    list(Mapped(Augmented()).parts(4))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


@pytest.mark.slow
def test_the_number_of_loader_processes_changes_nothing() -> None:
    alone, helped = (list(Mapped(Augmented(), workers=workers).epoch(SEEDS, 3)) for workers in (0, 2))
    assert len(alone) == len(helped) == 3
    assert all(
        torch.equal(a, b) for one, other in zip(alone, helped, strict=True) for a, b in zip(one, other, strict=True)
    )


class Flipping(TensorDataset):
    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return -x, y


def test_a_tensor_dataset_with_its_own_getitem_is_read_through_it() -> None:
    (_, (x, _)), *_ = read(Flipping(X, Y)).parts(4)
    assert torch.equal(x, -X[:4])


def test_a_stream_is_asked_again_for_every_epoch() -> None:
    made = read(lambda: DataLoader(TensorDataset(X, Y), 5, shuffle=True))
    assert made.samples is None

    def labels(seed: int) -> list[int]:
        with global_randomness(seed):
            return torch.cat([y for _, y in made.epoch(SEEDS, 99)]).tolist()

    assert labels(1) == labels(1) != labels(2)
    assert sorted(labels(1)) == list(range(10))


def test_the_parts_of_a_shuffling_stream_are_fixed_too() -> None:
    made = Stream(lambda: DataLoader(TensorDataset(X, Y), 5, shuffle=True))
    first, again = ([batch[-1].tolist() for _, batch in made.parts(5)] for _ in range(2))
    assert first == again


def test_the_parts_of_a_stream_leave_the_callers_generator_alone() -> None:
    before = torch.get_rng_state()
    list(Stream(lambda: DataLoader(TensorDataset(X, Y), 5)).parts(5))
    assert torch.equal(before, torch.get_rng_state())


def test_the_fingerprint_of_tensors_changes_with_one_bit() -> None:
    other = Y.clone()
    other[3] += 1
    fingerprints = {Tensors((X, y)).describe()["sha256"] for y in (Y, Y.clone(), other)}
    assert len(fingerprints) == 2
    assert Tensors((X, Y)).describe()["samples"] == 10
    assert Mapped(Augmented()).describe().items() >= {"kind": "Augmented", "samples": 10}.items()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_every_dtype_have_a_fingerprint(dtype: torch.dtype) -> None:
    assert len(Tensors((X.to(dtype), Y)).describe()["sha256"]) == 64


def not_finite(value: float) -> Tensor:
    x = X.clone()
    x[7, 1] = value
    return x


class Lines(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


class CountedLines(Lines):
    def __len__(self) -> int:
        return 10


JAGGED = nested_tensor(list(X), layout=torch.jagged)

REFUSED: dict[str, tuple[Any, list[str]]] = {
    "a generator": ((batch for batch in [(X, Y)]), ["train is a generator", "used up", "lambda: …"]),
    "text": ((np.array(["a", "b"]), np.arange(2)), ["train[0] has the dtype <U1", "encode text"]),
    "inputs without targets": ((X,), ["one tensor of shape (10, 2)", "(x, y)"]),
    "a lone tensor": (X, ["train is a Tensor"]),
    "nothing": (None, ["train is a NoneType"]),
    "an empty tuple": ((), ["a tuple of nothing"]),
    "a class": (Own, ["train is a type"]),
    "a name": ("digits", ["train is a str"]),
    "a DataLoader of nothing": (DataLoader(list[Any]()), ["train is a DataLoader of an empty dataset"]),
    "different lengths": ((X, Y[:9]), ["[10, 9] samples", "same length"]),
    "no samples": ((X[:0], Y[:0]), ["train is empty", "[0, 0]"]),
    "a scalar target": ((X, torch.tensor(1)), ["train is empty", "[10, 0]"]),
    "an empty dataset": (TensorDataset(X[:0], Y[:0]), ["train is empty"]),
    "an empty list": ([], ["train is an empty list"]),
    "NaN": ((not_finite(torch.nan), Y), ["train[0] has NaN or inf in 1 of 10", "index 7", "Remove or fill"]),
    "inf": ((X, not_finite(-torch.inf)), ["train[1] has NaN or inf", "index 7"]),
    "a sparse tensor": ((X.to_sparse(), Y), ["train[0] is a sparse tensor (sparse_coo)", "to_dense()"]),
    "a sparse column": ({"x": X.to_sparse(), "labels": Y}, ["train['x'] is a sparse tensor"]),
    "a nested tensor": (TensorDataset(JAGGED, Y), ["train[0] is a nested tensor", "to_padded_tensor(x, 0.0)"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_cannot_be_read_is_refused_by_name(name: str) -> None:
    data, words = REFUSED[name]
    with pytest.raises(TaskError) as error:
        read(data)
    assert [word for word in words if word not in str(error.value)] == []


def test_a_collate_fn_that_makes_sparse_batches_is_refused_before_training() -> None:
    def sparse(samples: list[Any]) -> tuple[Tensor, Tensor]:
        x, y = zip(*samples, strict=True)
        return torch.stack(x).to_sparse(), torch.stack(y)

    loader = DataLoader(TensorDataset(X, Y), 4, shuffle=True, collate_fn=sparse)
    task = Supervised(lambda: nn.Linear(2, 10), F.cross_entropy, train=loader, fitness=(X, Y))
    words = r"a tensor of a batch is a sparse tensor \(sparse_coo\).*identified by the bytes.*collate_fn.*to_dense"
    with pytest.raises(TaskError, match=words):
        esgd.fit(task, seed=0, engine="loop", progress=False)


class TakesSparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 10)

    def forward(self, x: Tensor) -> Tensor:
        assert x.is_sparse
        return torch.sparse.mm(x, self.layer.weight.t()) + self.layer.bias


def sparse_batches() -> list[tuple[Tensor, Tensor]]:
    return [(X[i : i + 5].to_sparse(), Y[i : i + 5]) for i in (0, 5)]


class SparseBatches(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(sparse_batches())


@pytest.mark.parametrize("data", [sparse_batches, DataLoader(SparseBatches(), None)], ids=["a function", "an iterable"])
def test_batches_from_a_function_or_an_iterable_may_have_sparse_tensors(data: Any) -> None:
    task = Supervised(TakesSparse, F.cross_entropy, train=data, fitness=data)
    recipe = esgd.Recipe(population=2, offspring=2, mates=1, elites=1, generations=1, sgd_epochs=1)
    assert esgd.fit(task, recipe, seed=0, engine="loop", progress=False).fitness < torch.inf


@pytest.mark.parametrize(
    "data",
    [X.numpy(), {"x": [1, 2]}, {}, "text", [X, "text"]],
    ids=["an array", "a dict of lists", "an empty dict", "text", "a tensor and text"],
)
def test_what_only_looks_like_a_dataset_is_refused_at_construction(data: Any) -> None:
    with pytest.raises(TaskError):
        read(data)


def test_a_source_of_ones_own_is_taken_as_it_is() -> None:
    for made in (Own(), OwnStacked()):
        assert read(made) is made
        task = Supervised(lambda: nn.Linear(2, 10), F.cross_entropy, train=made, fitness=made, test=made, batch_size=4)
        check_task(task)
        assert task.describe()["train"] == {"kind": "own"}
        assert repr(task) == "Supervised(train 10, fitness 10, test 10, batch_size=4)"
        assert all((x <= 0).all() for x, _ in task.batches(SEEDS, {}))


def test_only_a_source_that_can_deals_the_epochs_of_many_at_once() -> None:
    alone, stacked = (
        Supervised(lambda: nn.Linear(2, 10), F.cross_entropy, train=made, fitness=made, batch_size=4)
        for made in (Own(), OwnStacked())
    )
    seeds = [SEEDS.at(j) for j in range(3)]
    assert alone.batches_together(seeds, {}) is None
    together = list(stacked.batches_together(seeds, {}) or ())
    for j, each in enumerate(seeds):
        for (x, y), (row_x, row_y) in zip(together, alone.batches(each, {}), strict=True):
            assert torch.equal(x[j], row_x)
            assert torch.equal(y[j], row_y)


def test_integers_are_not_searched_for_nan() -> None:
    assert read((Y, Y)).samples == 10


class Broken(Dataset[Any]):
    """One of its samples cannot be read."""

    def __init__(self, error: Exception, at: int = 7) -> None:
        self.error, self.at = error, at

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == self.at:
            raise self.error
        return torch.ones(2), index % 2


@pytest.mark.parametrize("error", [OSError("cannot read img_7.png"), StopIteration("7"), IndexError("7")], ids=repr)
@pytest.mark.parametrize("norm", [nn.Identity, partial(nn.BatchNorm1d, 4)], ids=["plain", "batchnorm"])
@pytest.mark.parametrize("name", ["train", "fitness"])
def test_a_sample_that_cannot_be_read_is_named_with_its_split_and_index(name: str, norm: Any, error: Exception) -> None:
    splits = {
        "train": (torch.randn(40, 2), torch.arange(40) % 2),
        "fitness": (torch.randn(40, 2), torch.arange(40) % 2),
    }
    task = Supervised(
        lambda: nn.Sequential(nn.Linear(2, 4), norm(), nn.Linear(4, 2)),
        F.cross_entropy,
        **{**splits, name: Broken(error)},
    )
    recipe = esgd.Recipe(population=2, generations=1, sgd_epochs=1)
    with pytest.raises(TaskError, match=f"{name} cannot be read at index 7: {type(error).__name__}: ") as caught:
        esgd.fit(task, recipe, seed=0, engine="loop", progress=False)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("made", ["loader", "subset", "pick"])
def test_the_index_of_a_sample_that_cannot_be_read_is_that_of_the_users_dataset(made: str) -> None:
    data: Any = Broken(OSError("gone"), at=30)
    good = (torch.randn(40, 2), torch.arange(40) % 2)
    given: Any = {
        "loader": {"train": DataLoader(data, 8, shuffle=True), "fitness": good},
        "subset": {"train": Subset(data, range(10, 40)), "fitness": good},
        "pick": {"train": good, "fitness": data, "pick": 0.5},
    }[made]
    task = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, **given)
    index, name = (20 if made == "subset" else 30), "fitness" if made == "pick" else "train"
    with pytest.raises(TaskError, match=f"{name} cannot be read at index {index}: OSError: gone"):
        esgd.fit(task, esgd.Recipe(population=2, generations=1), seed=0, engine="loop", progress=False)


def test_processes_name_a_sample_that_cannot_be_read() -> None:
    source = Mapped(Broken(OSError("gone")), 1, name="train")
    with pytest.raises(TaskError, match="train cannot be read at index 7: OSError: gone"):
        list(source.epoch(SEEDS, 4))


class BrokenLines(IterableDataset[Any]):
    """It cannot be read beyond its first six samples."""

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield from ((torch.ones(2), index % 2) for index in range(6))
        raise OSError("gone")


def broken_batches() -> Iterator[Any]:
    yield torch.ones(4, 2), torch.zeros(4, dtype=torch.long)
    raise OSError("gone")


@pytest.mark.parametrize(
    "data", [broken_batches, BrokenLines(), DataLoader(BrokenLines(), 4)], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("name", ["train", "fitness"])
def test_batches_that_cannot_be_read_are_named_with_their_split(name: str, data: Any) -> None:
    """Of train the beginning is read for BatchNorm, before the fitness."""
    good = (torch.randn(40, 2), torch.arange(40) % 2)
    task = Supervised(
        lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)),
        F.cross_entropy,
        **{"train": good, "fitness": good, name: data},
        batch_size=None if isinstance(data, DataLoader) and name == "train" else 4,
    )
    part = 0 if isinstance(data, BrokenLines) else 1
    with pytest.raises(TaskError, match=f"{name} cannot be read at its batch {part}: OSError: ") as caught:
        esgd.fit(task, esgd.Recipe(population=2, generations=1), seed=0, engine="loop", progress=False)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("data", [broken_batches, BrokenLines()], ids=lambda x: type(x).__name__)
def test_batches_that_cannot_be_read_in_training_are_named_with_their_split(data: Any) -> None:
    good = (torch.randn(40, 2), torch.arange(40) % 2)
    task = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=data, fitness=good, batch_size=4)
    with pytest.raises(TaskError, match="train cannot be read at its batch [01]: OSError: gone"):
        esgd.fit(task, esgd.Recipe(population=2, generations=1), seed=0, engine="loop", progress=False)
