"""A DataLoader as data: read again in an order that seeds decide, with everything else as its owner has it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

import esgd
from esgd import Supervised
from esgd.errors import TaskError
from esgd.randomness import Seeds
from esgd.tasks.datasets import Mapped
from esgd.tasks.reading import Reader
from esgd.testing import check_task

X, Y = torch.arange(20.0).view(10, 2), torch.arange(10) % 2
SEEDS = Seeds(0, ("data",))


class Named(Dataset[Any]):
    """Samples that are dicts, with noise."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index] + torch.rand(2), "labels": Y[index], "index": index}


def masked(samples: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    """A collator that is random, as those of masked language models are."""
    return torch.stack([each["x"] for each in samples]) * (torch.rand(2) < 0.5), torch.tensor(
        [each["index"] for each in samples]
    )


def source(loader: DataLoader[Any], name: str = "train") -> Any:
    return Reader().source(name, loader)


def indices(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


class Backwards:
    """A sampler that somebody wrote."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))

    def __len__(self) -> int:
        return 10


def test_a_shuffling_loader_is_shuffled_by_the_seeds_and_not_by_its_own_generator() -> None:
    loaders = [DataLoader(Named(), 4, shuffle=True, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    one, other = (indices(source(loader).epoch(SEEDS, 4)) for loader in loaders)
    assert one == other != indices(source(loaders[0]).epoch(SEEDS.at("later"), 4))
    assert sorted(chain(*one)) == list(range(10))
    assert [len(batch) for batch in one] == [4, 4, 2]


def test_drop_last_leaves_out_samples_of_an_epoch_and_none_of_the_fixed_parts() -> None:
    made = source(DataLoader(Named(), 4, shuffle=True, drop_last=True))
    assert [len(batch) for batch in indices(made.epoch(SEEDS, 4))] == [4, 4]
    assert made.steps(4) == 2
    assert list(chain(*indices(batch for _, batch in made.parts(4)))) == list(range(10))


def test_a_random_collate_fn_is_addressed_like_the_samples() -> None:
    made = source(DataLoader(Named(), 5, shuffle=True, collate_fn=masked))
    random.seed(1)
    torch.manual_seed(1)
    first = list(made.epoch(SEEDS, 5))
    torch.manual_seed(2)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, made.epoch(SEEDS, 5), strict=True))


def test_a_random_subset_means_these_samples_and_no_others() -> None:
    made = source(DataLoader(Named(), 2, sampler=SubsetRandomSampler([7, 1, 3])), "fitness")
    assert made.samples == 3
    assert sorted(chain(*indices(batch for _, batch in made.parts(2)))) == [1, 3, 7]
    assert made.notes == ()


@pytest.mark.parametrize(
    ("loader", "named"),
    [
        (DataLoader(Named(), 4, sampler=Backwards()), "Backwards"),
        (DataLoader(Named(), 4, sampler=WeightedRandomSampler(torch.ones(10), 8)), "WeightedRandomSampler"),
        (DataLoader(Named(), 4, sampler=RandomSampler(Named(), replacement=True)), "RandomSampler"),
        (DataLoader(Named(), batch_sampler=[[0, 1, 2], [9]]), "list"),
    ],
    ids=["a class of one's own", "weighted", "with replacement", "batches of one's own"],
)
def test_a_sampler_is_kept_and_named_and_repeats_itself_under_the_same_seeds(loader: Any, named: str) -> None:
    made = source(loader)
    assert indices(made.epoch(SEEDS, 4)) == indices(made.epoch(SEEDS, 4))
    ((kind, text),) = made.notes
    assert kind == "sampler"
    assert f"order of its {named}" in text
    assert made.steps(4) == len(indices(made.epoch(SEEDS, 4)))


def test_a_sampler_with_a_generator_is_lent_the_seeds_and_gets_its_state_back() -> None:
    own = torch.Generator().manual_seed(5)
    made = source(DataLoader(Named(), 4, sampler=WeightedRandomSampler(torch.ones(10), 8, generator=own)))
    before = own.get_state()
    first, later = indices(made.epoch(SEEDS, 4)), indices(made.epoch(SEEDS.at("later"), 4))
    assert torch.equal(own.get_state(), before)
    assert first != later


@pytest.mark.parametrize("batched", [False, True], ids=["a sampler", "in a batch sampler"])
def test_a_distributed_sampler_has_another_order_in_every_epoch(batched: bool) -> None:
    sampler: Any = DistributedSampler(Named(), num_replicas=1, rank=0, seed=3)
    sampler.set_epoch(7)
    given = (
        {"batch_sampler": BatchSampler(sampler, 4, drop_last=False)}
        if batched
        else {"sampler": sampler, "batch_size": 4}
    )
    made = source(DataLoader(Named(), **given))
    first, again, later = (indices(made.epoch(SEEDS.at(epoch), 4)) for epoch in (1, 1, 2))
    assert first == again
    assert first != later
    assert sampler.epoch == 7
    assert "seeds as the number of its epoch" in made.notes[0][1]
    assert "set_epoch" not in made.notes[0][1]


def test_a_set_epoch_that_is_not_called_is_said() -> None:
    class Curriculum(Backwards):
        def set_epoch(self, epoch: int) -> None:
            raise AssertionError("it was called")

    made = source(DataLoader(Named(), 4, sampler=Curriculum()))
    assert "Its set_epoch is not called" in made.notes[0][1]
    assert indices(made.epoch(SEEDS, 4))[0] == [9, 8, 7, 6]


class Harder(DistributedSampler[Any]):
    """Reads as many samples as its epoch allows."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(min(10, 4 + self.epoch)))

    def set_epoch(self, epoch: int) -> None:
        assert epoch < 10, "it has no such epoch"
        super().set_epoch(epoch)


@pytest.mark.parametrize("batched", [False, True], ids=["a sampler", "in a batch sampler"])
def test_set_epoch_of_a_subclass_of_a_distributed_sampler_is_not_called(batched: bool) -> None:
    sampler = Harder(Named(), num_replicas=1, rank=0)
    given: dict[str, Any] = (
        {"batch_sampler": BatchSampler(sampler, 4, drop_last=False)}
        if batched
        else {"sampler": sampler, "batch_size": 4}
    )
    made = source(DataLoader(Named(), **given))
    assert indices(made.epoch(SEEDS, 4)) == [[0, 1, 2, 3]]
    assert "Its set_epoch is not called" in made.notes[0][1]


def test_set_epoch_of_a_distributed_sampler_that_does_not_shuffle_is_not_called() -> None:
    sampler: Any = DistributedSampler(Named(), num_replicas=1, rank=0, shuffle=False)
    sampler.set_epoch = lambda epoch: pytest.fail("it was called")
    made = source(DataLoader(Named(), 4, sampler=sampler))
    assert indices(made.epoch(SEEDS, 4))[0] == [0, 1, 2, 3]
    assert "Its set_epoch is not called" in made.notes[0][1]


def test_a_distributed_sampler_that_has_a_share_of_the_samples_is_named() -> None:
    sampler: Any = DistributedSampler(Named(), num_replicas=4, rank=0)
    _, (kind, text) = source(DataLoader(Named(), 4, sampler=sampler)).notes
    assert (kind, text.split(",")[0]) == ("share", "train has one of 4 shares of the samples")


def test_notes_of_a_split_that_is_divided_stay_and_are_said_once() -> None:
    loader = DataLoader(Named(), 4, shuffle=True, generator=torch.Generator())
    task = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=Named(), fitness=loader, pick=0.4)
    assert sum("generator of the DataLoader of fitness" in text for _, text in task.look(task.model())) == 1


def test_a_generator_that_is_not_used_is_named() -> None:
    own = torch.Generator().manual_seed(5)
    (note,) = source(DataLoader(Named(), 4, shuffle=True, generator=own)).notes
    assert "The generator of the DataLoader of train is not used" in note[1]
    assert source(DataLoader(Named(), 4, shuffle=True)).notes == ()


class Cropped(Named):
    """A dataset whose attributes may be random generators."""

    def __init__(self, crop: Any = None, **more: Any) -> None:
        self.crop = crop
        vars(self).update(more)


@pytest.mark.parametrize(
    ("dataset", "where"),
    [
        (Cropped(np.random.default_rng(0)), "dataset.crop (numpy's Generator)"),
        (Cropped(random.Random(0)), "dataset.crop (random's Random)"),
        (Cropped([nn.Identity(), Cropped(torch.Generator())]), "dataset.crop[1].crop (torch's Generator)"),
        (Subset(Cropped(np.random.RandomState(0)), range(8)), "dataset.dataset.crop (numpy's RandomState)"),
    ],
    ids=["numpy", "random", "in a list", "in a subset"],
)
@pytest.mark.parametrize("loads", [True, False], ids=["loader", "dataset"])
def test_a_random_generator_that_a_dataset_keeps_is_named(dataset: Any, where: str, loads: bool) -> None:
    data = DataLoader(dataset, 4, shuffle=True) if loads else dataset
    task = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=data, fitness=(X, Y))
    notes = [text for kind, text in task.look(nn.Linear(2, 2)) if kind == "generator"]
    assert len(notes) == 1
    assert f"train has a random generator of its own, {where}" in notes[0]
    assert "a resumed run differs" in notes[0]


class Collator:
    """Keeps a generator, as collators that mask at random do."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def collate(self, samples: list[Any], rng: Any = None) -> Any:
        return masked(samples)


def collate_with(draw: Any, samples: list[Any]) -> Any:
    return masked(samples)


@pytest.mark.parametrize(
    ("collate", "where"),
    [
        (Collator().collate, "collate_fn.__self__.rng (numpy's Generator)"),
        (partial(Collator().collate), "collate_fn.func.__self__.rng (numpy's Generator)"),
        (partial(masked, rng=random.Random(0)), "collate_fn.keywords['rng'] (random's Random)"),
        (partial(collate_with, torch.Generator()), "collate_fn.args[0] (torch's Generator)"),
        (partial(collate_with, random.Random(0).random), "collate_fn.args[0].__self__ (random's Random)"),
    ],
    ids=["a method", "a partial method", "a keyword", "an argument", "a builtin method"],
)
def test_a_random_generator_that_a_collate_function_holds_is_named(collate: Any, where: str) -> None:
    made = source(DataLoader(Named(), 4, shuffle=True, collate_fn=collate))
    assert [where in text for kind, text in made.notes if kind == "generator"] == [True]


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("code of the user was run")


def odd(base: type = object, **members: Any) -> Any:
    return type("Odd", (base,), members)()


ODD = {
    "another class": odd(__class__=property(refuse)),
    "computed attributes": odd(__getattr__=refuse, __getattribute__=refuse),
    "a computed dict": odd(__dict__=property(refuse)),
    "no attributes": odd(__slots__=()),
    "a list": odd(list, __getitem__=refuse, __iter__=refuse, __len__=refuse),
    "a tuple": odd(tuple, __getitem__=refuse, __iter__=refuse, __len__=refuse),
    "a dict": odd(dict, items=refuse, __iter__=refuse, __len__=refuse),
    "a key": {odd(__repr__=refuse, __str__=refuse): 1},
    "equality": odd(__eq__=refuse, __hash__=refuse, __bool__=refuse),
}


@pytest.mark.parametrize("kind", ODD)
def test_the_search_for_generators_runs_no_code_of_the_user(kind: str) -> None:
    dataset = Cropped([ODD[kind], random.Random(0)], odd=ODD[kind])
    (note,) = source(DataLoader(dataset, 4, shuffle=True)).notes
    assert "of its own, dataset.crop[1] (random's Random)." in note[1]


def test_generators_that_have_the_seeds_of_the_run_are_not_named() -> None:
    functions = {"e": np.random.rand, "f": partial(random.random), "g": random.SystemRandom()}
    globals_ = {"a": torch.default_generator, "b": np.random.mtrand._rand, "c": random, "d": [3] * 10_000, **functions}
    assert source(DataLoader(Cropped(**globals_), 4, shuffle=True)).notes == ()


def test_a_dataset_is_not_asked_for_its_truth_value() -> None:
    class Truthless(Named):
        def __bool__(self) -> bool:
            raise AssertionError("it was asked")

    some = source(DataLoader(Truthless(), 4, shuffle=True)).some(torch.arange(6))
    assert sorted(chain(*indices(some.some(torch.arange(4)).epoch(SEEDS, 4)))) == [0, 1, 2, 3]


def test_a_training_loader_that_does_not_shuffle_keeps_its_order_and_says_so() -> None:
    made = source(DataLoader(Named(), 4))
    assert indices(made.epoch(SEEDS, 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert "does not shuffle" in made.notes[0][1]
    assert source(DataLoader(Named(), 4), "fitness").notes == ()


class Shuffling(IterableDataset[Any]):
    """Says itself in which order its samples come."""

    def __iter__(self) -> Iterator[Any]:
        return ({"x": X[i], "labels": Y[i], "index": i} for i in np.random.permutation(10).tolist())  # noqa: NPY002

    def __len__(self) -> int:
        return 10


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor, index: Tensor | None = None) -> Tensor:
        return self.layer(x / 20)


@pytest.mark.parametrize("data", [Shuffling(), DataLoader(Shuffling(), 4)], ids=["a dataset", "a loader"])
def test_an_iterable_dataset_is_cut_into_batches_and_its_own_shuffling_is_addressed(data: Any) -> None:
    task = Supervised(Net, F.cross_entropy, train=data, fitness=data, batch_size=4)
    check_task(task)
    assert task.steps({}) == 3


def test_the_tasks_batch_size_is_that_of_the_loader_and_a_policy_may_have_another() -> None:
    task = Supervised(Net, F.cross_entropy, train=DataLoader(Named(), 5, shuffle=True), fitness=Named())
    assert task.batch_size == 5
    assert [len(batch["x"]) for batch in task.batches(SEEDS, {"batch_size": 4})] == [4, 4, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 8}, "batch_size=8, but train is a DataLoader with batch_size=4"),
        ({"workers": 2}, "workers=2, but train is a DataLoader with num_workers=0"),
        ({"collate_fn": masked}, "collate_fn=.* but train is a DataLoader"),
        ({"train": DataLoader(list[Any](), 4)}, "empty dataset"),
    ],
)
def test_what_a_loader_says_is_not_said_again(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        Supervised(Net, F.cross_entropy, **{"train": DataLoader(Named(), 4), "fitness": Named(), **arguments})


def test_batches_of_ones_own_have_no_other_size() -> None:
    loader = DataLoader(Named(), batch_sampler=BatchSampler(SequentialSampler(X), 3, drop_last=False))
    task = Supervised(Net, F.cross_entropy, train=loader, fitness=Named())
    task.prepare(Net(), {})
    fixed = Supervised(Net, F.cross_entropy, train=DataLoader(Named(), batch_sampler=[[0, 1]]), fitness=Named())
    with pytest.raises(TaskError, match="batch_size=8 cannot be applied"):
        fixed.prepare(Net(), {"batch_size": 8})


def test_a_resumed_run_over_a_loader_is_bit_identical(tmp_path: Path) -> None:
    def task() -> Supervised:
        loader = DataLoader(Named(), 4, shuffle=True)
        return Supervised(Net, F.cross_entropy, train=loader, fitness=DataLoader(Named(), 4), nonnegative=True)

    recipe = esgd.Recipe(population=2, generations=2, sgd_epochs=1)
    whole = esgd.fit(task(), recipe, seed=0, engine="loop", progress=False)
    run = {"run": tmp_path, "seed": 0, "engine": "loop", "progress": False, "report": False}
    esgd.fit(task(), recipe, stop=lambda generation: "enough", **run)
    resumed = esgd.fit(task(), recipe, **run)
    assert torch.equal(resumed.state.population.rows, whole.state.population.rows)


class Tells(Dataset[Any]):
    """Which process reads a sample."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, int, float]:
        info = get_worker_info()
        return -1 if info is None else info.seed, index, random.random()


@pytest.mark.slow
def test_processes_live_from_epoch_to_epoch_and_change_nothing() -> None:
    made = source(DataLoader(Tells(), 2, shuffle=True, num_workers=2))
    alone = Mapped(Tells())
    for epoch in ("first", "second"):
        for a, b in zip(made.epoch(SEEDS.at(epoch), 2), alone.epoch(SEEDS.at(epoch), 2), strict=True):
            assert torch.equal(a[1], b[1])
            assert torch.equal(a[2], b[2])
    abandoned = made.epoch(SEEDS, 2)
    next(abandoned)
    del abandoned  # as early abort does
    processes = {int(seed) for epoch in "xyz" for batch in made.epoch(SEEDS.at(epoch), 2) for seed in batch[0]}
    assert len(processes) == 2


class Opened(Dataset[Any]):
    """Reads from what every process opens for itself, as a file or a database."""

    opened: Tensor | None = None

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        assert get_worker_info().dataset is self
        assert self.opened is not None, "this process has not opened it"
        return self.opened[index], Y[index]


def open_in_worker(worker: int) -> None:
    get_worker_info().dataset.opened = X


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_init_fn_prepares_the_dataset_before_anything_is_read(method: str) -> None:
    options = {"num_workers": 1, "worker_init_fn": open_in_worker, "multiprocessing_context": method}
    loader = DataLoader(Opened(), 4, shuffle=True, **options)
    task = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=loader, fitness=loader, test=loader, pick=0.4)
    recipe = esgd.Recipe(population=1, offspring=0, mates=1, elites=1, generations=1, sgd_epochs=1)
    result = esgd.fit(task, recipe, seed=0, engine="loop", progress=False)
    plain = Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=(X, Y), fitness=(X, Y), test=(X, Y))
    assert result.test["loss"] == pytest.approx(plain.test(result.model)["loss"])
    assert task.describe()["train"]["samples"] == 10


def test_a_list_of_batches_is_not_taken_for_samples() -> None:
    batches = [(X[:4], Y[:4]), (X[4:8], Y[4:8])]
    with pytest.raises(TaskError, match="these look like batches.*Write train=lambda: batches"):
        Reader().source("train", batches)
    with pytest.raises(TaskError, match="these look like batches"):
        Reader().source("train", [{"x": x, "labels": y} for x, y in batches])
    assert Reader().source("train", list(zip(X, Y, strict=True))).samples == 10
    text = {"input_ids": torch.arange(5), "attention_mask": torch.ones(5), "labels": torch.arange(5)}
    assert Reader().source("train", [text] * 3).samples == 3
    assert Reader(collate=torch.utils.data.default_collate).source("train", batches).samples == 2


def test_the_sizes_of_batches_are_known_without_reading_a_sample() -> None:
    class Unread(Dataset[Any]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("it was read")

    source = Mapped(Unread())
    assert source.lengths(32) == [32, 32, 32, 4]
    assert source.lengths(33) == [33, 33, 34]
    assert Mapped(Unread(), collate=list).lengths(32) is None, "such a function may make batches of any size"
