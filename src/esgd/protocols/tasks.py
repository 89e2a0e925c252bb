"""What a task must be, and what it may also be: a run uses every ability that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from esgd.randomness import Seeds

Batch = Any


Settings = Mapping[str, Any]


@runtime_checkable
class Task(Protocol):
    """Data, loss and fitness. A task never sees an optimizer or a population.

    The fitness is a sum over fixed `parts` divided by the number of samples in them, or by what a `Weighted` task says,
    so that an engine can visit the parts in any order and stop early. A fitness that cannot be divided has one part.
    """

    @property
    def nonnegative(self) -> bool:
        """Whether no part's sum can be below zero: then a partial sum only grows, and early abort is exact."""
        ...

    def model(self) -> nn.Module:
        """Build a newly initialised network."""
        ...

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        """Apply `Policy.settings` to the network (dropout, …), or refuse an unknown one by name."""
        ...

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        """One epoch of training batches; all its randomness comes from `seeds`."""
        ...

    def steps(self, settings: Settings) -> int | None:
        """How many batches an epoch has, if that can be known."""
        ...

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The scalar to differentiate."""
        ...

    def parts(self, order: Sequence[int] | None = None) -> Iterable[tuple[int, Batch]]:
        """The fixed parts of the fitness with their numbers, visited in `order` where that is possible."""
        ...

    def fitness(self, module: nn.Module, batch: Batch) -> Tensor:
        """The fitness *summed* over the samples of a part (lower is better); module in eval mode, no gradients."""
        ...

    def size(self, batch: Batch) -> int:
        """How many samples a batch has."""
        ...

    def calibration(self, samples: int) -> Iterable[Batch]:
        """The first `samples` training samples, the same each time: BatchNorm statistics are estimated on them."""
        ...

    def test(self, module: nn.Module) -> dict[str, float]:
        """Metrics on a split that selection never sees; empty if there is none."""
        ...

    def describe(self) -> dict[str, Any]:
        """The data as the manifest describes them: names, sizes, fingerprints."""
        ...


@runtime_checkable
class DealsTogether(Protocol):
    """A task that can deal out the epochs of many individuals at once. Faster for tiny networks, never different."""

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        """As `batches` for each of the seeds, stacked along a new first dimension; None if these data cannot."""
        ...


@runtime_checkable
class HoldsData(Protocol):
    """A task that names its data. They are never written to, so all workers of a machine can read one copy. Of
    everything else in a task each worker has its own copy."""

    def data(self) -> Any:
        """The data: tensors, arrays, or objects that hold them."""
        ...


@runtime_checkable
class MovesData(Protocol):
    """A task whose data can be on the device of an engine: then no step waits for a batch to be copied there."""

    def on_device(self, device: torch.device, most: int) -> Task:
        """The same task with its data on the device, if they take no more than `most` bytes; else the task itself.

        Batches have the same values either way.
        """
        ...


@runtime_checkable
class Inspects(Protocol):
    """A task that can tell what its data are like, for the notes of a run."""

    def look(self, network: nn.Module) -> Iterable[tuple[str, str]]:
        """What is noteworthy before training: the kind and the text of each note.

        `network` is a new one, which stays as it is. No random numbers are used up.
        """
        ...

    def constant_fitness(self) -> float | None:
        """The fitness of the best constant answer, whatever the input; None if it is not known."""
        ...


@runtime_checkable
class SearchesData(Protocol):
    """A task that can look through its training data for what makes every individual diverge."""

    def search(self) -> Iterable[tuple[str, str]]:
        """What was found: the kind and the text of each note. It is called after all have diverged, once in a run."""
        ...


@runtime_checkable
class TriesTraining(Protocol):
    """A task that can try a training batch before anything is trained."""

    def try_training(self, network: nn.Module) -> None:
        """Raise `TaskError` if the network or the loss does not take the training data.

        `network` is a new one, which stays as it is. No random numbers are used up.
        """
        ...


@runtime_checkable
class Counts(Protocol):
    """A task that knows how many samples it has without going through the data, which may take minutes."""

    def batch_sizes(self, settings: Settings) -> Sequence[int] | None:
        """Of each batch of an epoch; None if it is not known."""
        ...

    def fitness_samples(self) -> int | None:
        """Of all parts of the fitness; None if it is not known."""
        ...


@runtime_checkable
class Repeats(Protocol):
    """A task whose steps may take every sample through the network more than once."""

    def repeats(self, settings: Settings) -> int:
        """How often, with these settings. The ledger counts it."""
        ...


@runtime_checkable
class Weighted(Protocol):
    """A task whose fitness is not divided by the number of samples: targets have weights, or some do not count."""

    def divisor(self, batch: Batch) -> float:
        """What the sum over a part counts as, in samples; it does not depend on the network. Also of a training batch,
        whose mean loss counts as so much where gradients are accumulated."""
        ...


@runtime_checkable
class Measures(Protocol):
    """A task with metrics of its fitness split. One of them may be what selection goes by, instead of the loss."""

    @property
    def select(self) -> tuple[str, str] | None:
        """The name of that metric, and "min" or "max"; the fitness is the metric, or for "max" its negative."""
        ...

    def fitness_metrics(self, module: nn.Module) -> dict[str, float]:
        """The metrics by name; empty if there are none."""
        ...


@runtime_checkable
class CopiesOne(Protocol):
    """A `make_model` whose networks are all copies of one, such as a pretrained one: with another, a run is another."""

    @property
    def original(self) -> nn.Module:
        """That network."""
        ...


@runtime_checkable
class Picks(Protocol):
    """A task with a second split: the fitness decides which individuals survive, this one which network is returned."""

    def pick_loss(self, module: nn.Module) -> tuple[float, int] | None:
        """The mean loss on it (lower is better) and its samples; None if there is no such split.

        All networks of a generation come in the same module: keep a copy if you need one.
        """
        ...


@runtime_checkable
class ScoresOutputs(Protocol):
    """A task whose fitness is a function of the network's output: changed outputs are scored without another pass."""

    def output(self, module: nn.Module, batch: Batch) -> Any:
        """What the network returns for a part of the fitness; None if the fitness is a function of something else."""
        ...

    def output_fitness(self, output: Tensor, batch: Batch) -> Tensor:
        """The fitness summed over the samples of a part, if that is the network's output."""
        ...


Average = Literal["softmax", "sigmoid", "outputs"]
"""How the outputs of several networks become one: by the mean of the probabilities that they mean, or as they are."""


@runtime_checkable
class Averages(Protocol):
    """A task that knows what the outputs of its networks are, so that an ensemble can average them."""

    @property
    def average(self) -> Average:
        """See `esgd.Ensemble`."""
        ...
