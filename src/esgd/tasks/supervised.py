"""Supervised learning: a network, a loss, and three splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain
from math import ceil, nan
from typing import Any

import torch
from torch import Tensor, nn

from esgd._tensors.batches import copied, to_device
from esgd._validation import is_count
from esgd.errors import TaskError, did_you_mean
from esgd.protocols import Average, Batch, Settings
from esgd.randomness import Seeds
from esgd.tasks.batch_forms import IN_DICTS, BatchForm
from esgd.tasks.inspection import concerns, search
from esgd.tasks.labels import check_labels_of_samples, check_labels_of_tensors
from esgd.tasks.losses import Loss, constant_loss, loss_on_device, never_negative, targets_of
from esgd.tasks.measuring import Measurement
from esgd.tasks.metrics import Accumulates, OfNetwork, OfOutputs, is_averaged, measured, scalar, sorted_metrics
from esgd.tasks.objectives import NoOutput, OfBatch, OfModel, OfOutput, checked_values, name_of, objective
from esgd.tasks.outputs import average_for
from esgd.tasks.reading import Reader, divided
from esgd.tasks.samples import some_samples
from esgd.tasks.selection import checked_selection, is_own_fitness
from esgd.tasks.soft_targets import SETTINGS, check_soft_targets, plain_target, soft_batches
from esgd.tasks.sources import Concern, CutsItself, HasNotes, KnowsLengths, Source, StackedSource, Tensors, cut_lengths
from esgd.tasks.trial import check_training
from esgd.tasks.weights import target_weights

BATCH_SIZE = 32  # where neither the task nor a loader says one
CALIBRATION_PIECE = 256  # samples


class Supervised:
    """Minimise a loss of a network on data: the empirical risk of Eq. 3.

    | argument      | meaning                                                                                        |
    |---------------|------------------------------------------------------------------------------------------------|
    | `make_model`  | builds a new network; called once per individual, so each has its own initialisation           |
    | `loss`        | of (output, target), or of (model, batch): a mean over the batch, or one value per sample. The |
    |               | word "model" is for networks that return their own loss. See `esgd.tasks.objectives`           |
    | `train`       | what SGD sees: tensors or arrays (x, y), a `DataLoader`, a `Dataset`, an iterable, a function  |
    |               | that returns batches, or a `Source` of your own. See `esgd.tasks.reading`                      |
    | `fitness`     | what selection sees, in the same forms; or your own fitness: a function of the network that    |
    |               | returns a number to minimise                                                                   |
    | `test`        | what neither SGD nor selection sees, in the same forms; `metrics` are measured on it           |
    | `pick`        | a second split for selection, in the same forms, or a share of the fitness split such as 0.3:  |
    |               | it picks the network that a run gives back among the elites. With many looks at a small        |
    |               | fitness split, the fittest are partly lucky; this split does not know their luck               |
    | `batch_size`  | of SGD [default: that of a `DataLoader`, otherwise 32]; a policy's setting replaces it         |
    | `metrics`     | name → function of (output, target), which is given the whole split, fitness and then test; or |
    |               | of the network. `esgd.tasks.metrics` has the kinds, and what each needs of memory              |
    | `select`      | the name of a metric that is the fitness instead of the loss, on the fitness split             |
    | `mode`        | of `select`: "min", or "max"; then the fitness is the negative of the metric                   |
    | `workers`     | processes that read datasets [default: those of a `DataLoader`, otherwise none]                |
    | `collate_fn`  | makes a batch of samples of a dataset; a `DataLoader` has its own                              |
    | `target`      | the name of the target in a batch that is a dict ["labels"] or an object ["y"]                 |
    | `batch_length`| a function of a batch: how many samples it has, where that cannot be seen                      |
    | `calibration` | data for BatchNorm statistics, e.g. without augmentation [default: the beginning of `train`]   |
    | `nonnegative` | whether the loss is never below 0: then early abort is possible. It is known for torch's       |
    |               | own losses, and False for others unless you say so                                             |

    A batch is (*inputs, target), and the network is called as network(*inputs); or a dict, or an object that moves
    itself with `.to(device)`: `esgd.tasks.batch_forms`. Settings that a policy may have: `batch_size`; `dropout`, the
    probability of every `nn.Dropout` layer; and, for the training loss alone, `label_smoothing` of a cross entropy and
    `mixup`, the α of Beta(α, α), from which the share of a sample is drawn.

    >>> from torch.nn import functional as F
    >>> x, y = torch.randn(20, 4), torch.randint(0, 2, (20,))
    >>> task = Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
    >>> task.steps({})
    1
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        loss: Loss | OfBatch | OfModel | str,
        *,
        train: Any,
        fitness: Any,
        test: Any = None,
        pick: Any = None,
        batch_size: int | None = None,
        metrics: Mapping[str, OfOutputs | Accumulates | OfNetwork] | None = None,
        select: str | None = None,
        mode: str = "min",
        workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        target: str | None = None,
        batch_length: Callable[[Batch], int] | None = None,
        calibration: Any = None,
        nonnegative: bool | None = None,
    ) -> None:
        _check_network(make_model)
        self.model: Callable[[], nn.Module] = make_model
        self._objective, self._form = objective(loss), BatchForm(target, batch_length)
        self._weights = target_weights(loss)
        self._own: Callable[[nn.Module], Any] | None = fitness if is_own_fitness(fitness) else None
        own = self._own is not None
        self._metrics = sorted_metrics(metrics or {})
        self.select = checked_selection(select, mode, self._metrics.of_split, own=own)
        known = never_negative(loss) if nonnegative is None else nonnegative
        self.nonnegative = not own and self.select is None and known
        given = None if batch_size is None else _checked_batch_size(batch_size)
        read = Reader(workers, collate_fn, given, target or IN_DICTS, targets_of(loss))
        self._train = read.source("train", train)
        self.batch_size = given or _own_batch_size(self._train) or BATCH_SIZE
        self._fitness: Source | None = None if own else read.source("fitness", fitness)
        self._pick: Source | None = None
        if isinstance(pick, float):
            self._fitness, self._pick = divided(self._fitness, pick)
        elif pick is not None:
            self._pick = read.source("pick", pick)
        self._test = None if test is None else read.source("test", test)
        self._calibration = self._train if calibration is None else read.source("calibration", calibration)
        self._tried = False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {split.samples or 'stream'}" for name, split in self._splits.items())
        return f"Supervised({sizes}, batch_size={self.batch_size})"

    @property
    def average(self) -> Average:
        """How an ensemble of networks averages their outputs: known for torch's own losses."""
        if isinstance(self._objective, OfModel):
            raise TaskError(
                "networks that return their own loss (loss='model') make no ensemble that has a loss: the mean of "
                "losses is not the loss of the mean. Use a loss of (model, batch), which takes it of the outputs."
            )
        return average_for(self._loss)

    @property
    def _loss(self) -> Any:
        return self._objective.loss

    @property
    def _splits(self) -> dict[str, Source]:
        splits = {"train": self._train, "fitness": self._fitness, "pick": self._pick, "test": self._test}
        return {name: split for name, split in splits.items() if split is not None}

    # Training

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        known = ("batch_size", "dropout", *SETTINGS)
        for name in settings:
            if name not in known:
                raise TaskError(
                    f"the setting {name!r} means nothing to Supervised. {did_you_mean(name, known)} Optimizer "
                    f"keywords such as weight_decay go into the species' `hyper`; for settings of your own write a "
                    "task."
                )
        self._batch_size(settings)
        check_soft_targets(settings, self._loss)
        if settings.get("mixup") and not isinstance(self._objective, OfOutput):
            raise TaskError(
                f"the setting mixup={settings['mixup']!r} cannot be applied: the loss {name_of(self._loss)} is given "
                f"the whole batch, and mixing needs the loss of each of two targets. Use a loss of (output, target)."
            )
        layers = [layer for layer in module.modules() if isinstance(layer, nn.modules.dropout._DropoutNd)]
        if "dropout" in settings and (not layers or not 0 <= settings["dropout"] <= 1):
            raise TaskError(
                f"the setting dropout={settings['dropout']!r} cannot be applied: it is the probability, from 0 to 1, "
                f"of every nn.Dropout layer, and {type(module).__name__} has {len(layers)} of them."
            )
        for layer in layers:
            # The engine's own copy of the network serves many policies: remember what make_model chose.
            default = layer.__dict__.setdefault("p_of_make_model", layer.p)
            layer.p = settings.get("dropout", default)

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        return soft_batches(self._train.epoch(seeds, self._batch_size(settings)), seeds, settings)

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        if not isinstance(self._train, StackedSource):
            return None
        return soft_batches(self._train.epochs(seeds, self._batch_size(settings)), seeds, settings)

    def batch_sizes(self, settings: Settings) -> list[int] | None:
        size, samples = self._batch_size(settings), self._train.samples
        if isinstance(self._train, KnowsLengths):
            return None if self._form.length else self._train.lengths(size)
        if isinstance(self._train, CutsItself):
            return None
        return None if samples is None else cut_lengths(samples, size)

    def fitness_samples(self) -> int | None:
        return None if self._fitness is None else self._fitness.samples

    def steps(self, settings: Settings) -> int | None:
        if isinstance(self._train, CutsItself):
            return self._train.steps(self._batch_size(settings))
        sizes = self.batch_sizes(settings)
        return None if sizes is None else len(sizes)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        try:
            values = self._values(module, batch)[0]
            return values.mean() if values.dim() else values
        except ValueError as error:
            if "more than 1 value per channel" in str(error):
                raise TaskError(
                    f"BatchNorm cannot be trained on a batch of one sample: it has no variance. {self._longer_batches}"
                ) from error
            raise

    @property
    def _longer_batches(self) -> str:
        """What to do so that no batch of train has one sample alone."""
        cut = isinstance(self._train, CutsItself) and not self._train.resizable
        if self._train.samples is not None and not cut:
            return "Use batch_size ≥ 2 and a training set of two samples or more."
        return (
            "The batches of train are cut where it is read, and the last one may be what is left over. Leave that one "
            "out (drop_last=True of a DataLoader; a function need not yield it), or use another batch size, so that "
            "the last batch has two samples or more."
        )

    # Fitness

    def parts(self, order: Sequence[int] | None = None) -> Iterable[tuple[int, Batch]]:
        if self._fitness is None or self._selects_by_whole:
            return [(0, None)]
        return self._fitness.parts(_part_size(self._fitness), order)

    def fitness(self, module: nn.Module, batch: Batch) -> Tensor:
        if self._own is not None:
            return scalar(self._own(module), "your fitness")
        if self.select is not None:
            return self._selected(module, batch, *self.select)
        return self._summed(self._values(module, batch)[0], batch)

    def output(self, module: nn.Module, batch: Batch) -> Any:
        own = self._own is not None or type(self).fitness is not Supervised.fitness
        if own or self.select is not None or not isinstance(self._objective, OfOutput):
            return None
        return self._objective.output(module, batch, self._form)

    def output_fitness(self, output: Tensor, batch: Batch) -> Tensor:
        assert isinstance(self._objective, OfOutput), "the fitness is not a function of the output"
        values = self._objective.of(output, batch, self._form)
        return self._summed(checked_values(values, self.size(batch)), batch)

    def size(self, batch: Batch) -> int:
        if batch is None:  # all of the fitness
            return 1 if self._fitness is None else self._fitness.samples or self._count(self._fitness)
        return self._form.size(batch)

    def divisor(self, batch: Batch) -> float:
        if batch is None:
            return 1
        return self.size(batch) if self.select else float(self._counts(batch))

    def _counts(self, batch: Batch) -> Tensor | int:
        """What a batch counts as in a mean over a split: its samples, or the weight of its targets."""
        if self._weights is None:
            return self.size(batch)
        target = plain_target(self._form.target(batch))
        if not isinstance(target, Tensor) or target.is_floating_point():
            return self.size(batch)
        return self._weights.total(target)

    def _count(self, split: Source) -> int:
        """The samples of a split that does not know how many it has."""
        return sum(self.size(batch) for _, batch in split.parts(_part_size(split)))

    @property
    def _selects_by_whole(self) -> bool:
        """Whether the fitness is a metric that is no mean over samples: then it has one part."""
        return self.select is not None and not is_averaged(self._metrics.of_split[self.select[0]])

    def _selected(self, module: nn.Module, batch: Batch, name: str, mode: str) -> Tensor:
        """The metric that is the fitness, summed over a part; lower is better."""
        measured, sign = Measurement({name: self._metrics.of_split[name]}), 1 if mode == "min" else -1
        for part in self._on_device(self._fitness, module) if batch is None and self._fitness else [batch]:
            self._measure(measured, self._objective.output(module, part, self._form), part)
        values = measured.values()
        if name not in values:
            raise TaskError(f"select={name!r} is not among what that metric returned. {did_you_mean(name, values)}")
        return sign * values[name] * (1 if batch is None else self.size(batch))

    def _summed(self, values: Tensor, batch: Batch) -> Tensor:
        """A loss, which is a mean or one value per sample, as a sum over the batch."""
        if values.dim():
            return values.double().sum()
        counts = self._counts(batch)
        whole = values.double() * counts
        return whole if isinstance(counts, int) else whole.where(counts > 0, 0.0)  # the mean of nothing is NaN

    def calibration(self, samples: int) -> Iterator[Batch]:
        wanted = min(samples, self._calibration.samples or samples)
        pieces, seen = ceil(wanted / CALIBRATION_PIECE), 0  # of equal size, because their statistics weigh the same
        for _, batch in self._calibration.parts(_own_batch_size(self._calibration) or ceil(wanted / pieces)):
            yield batch
            seen += self.size(batch)
            if seen >= samples:
                return

    # The other splits

    def pick_loss(self, module: nn.Module) -> tuple[float, int] | None:
        if self._pick is None:
            return None
        means, samples = self._means("pick", self._pick, module, {})
        return means["loss"], samples

    def fitness_metrics(self, module: nn.Module) -> dict[str, float]:
        if self._fitness is None or not self._metrics.of_split:
            return {}
        means, _ = self._means("fitness", self._fitness, module, self._metrics.of_split)
        return {name: value for name, value in means.items() if name != "loss"}

    @torch.no_grad()
    def test(self, module: nn.Module) -> dict[str, float]:
        if self._test is None:
            return {}
        means, _ = self._means("test", self._test, module, self._metrics.of_split)
        whole = {name: measured(name, metric, module) for name, metric in self._metrics.of_network.items()}
        return means | {name: float(scalar(value, f"the metric {name!r}")) for name, value in whole.items()}

    @torch.no_grad()
    def _means(
        self, name: str, split: Source, module: nn.Module, metrics: Mapping[str, OfOutputs | Accumulates]
    ) -> tuple[dict[str, float], int]:
        """The loss and the metrics of a network on a split, and how many samples it has."""
        module.eval()
        measured, total, counted, samples = Measurement(metrics, self._metrics.of_network), 0.0, 0.0, 0
        for batch in self._on_device(split, module):
            (values, output), n = self._values(module, batch), self.size(batch)
            counts = float(self._counts(batch)) if values.dim() == 0 else n
            total += float(values.double().mean()) * counts if counts else 0.0
            if metrics:
                self._measure(measured, output, batch)
            counted, samples = counted + counts, samples + n
        if samples == 0:
            raise TaskError(f"the {name} data have no samples. Give {name}= at least one, at every call, or None.")
        found = {metric: float(value) for metric, value in measured.values().items()}
        return {"loss": total / counted if counted else nan, **found}, samples

    def _measure(self, measured: Measurement, output: Any, batch: Batch) -> None:
        """Show metrics the output for a batch, and its target."""
        if isinstance(output, NoOutput):
            raise TaskError(
                f"metrics need the network's output, and the loss {name_of(self._loss)} returns none. Let it return "
                f"(loss, output), or give metrics of one argument, the network."
            )
        measured.add(output, self._form.target(batch), self.size(batch))

    def _on_device(self, split: Source, module: nn.Module) -> Iterator[Batch]:
        """The batches of a split where the network is; copies, because it may write into its input."""
        device = next(module.parameters()).device
        return (copied(to_device(batch, device)) for _, batch in split.parts(_part_size(split)))

    def data(self) -> list[Any]:
        return [split.data() for split in (*self._splits.values(), self._calibration)]

    def on_device(self, device: torch.device, most: int) -> Supervised:
        """The same task with the tensors of its loss on the device, and with the splits that engines read, if they are
        tensors and fit."""
        moved = copy(self)
        if isinstance(self._objective, OfOutput):
            moved._objective = replace(self._objective, loss=loss_on_device(self._objective.loss, device))
            moved._weights = target_weights(moved._objective.loss)
        used = {name: getattr(self, name) for name in ("_train", "_fitness", "_calibration")}
        held = {id(split): split for split in used.values() if isinstance(split, Tensors)}
        if sum(tensor.nbytes for split in held.values() for tensor in split.tensors) <= most:
            there = {key: split.on_device(device) for key, split in held.items()}
            vars(moved).update({name: there.get(id(split), split) for name, split in used.items()})
        return moved

    # What the data are like

    def try_training(self, network: nn.Module) -> None:
        if not self._tried:
            if self._computes_its_loss:
                check_labels_of_tensors(self._splits, self._loss, self._form, network)
            check_training(self._train, self._fitness, self.loss, network)
            self._tried = True

    def look(self, network: nn.Module) -> Iterator[Concern]:
        kept = (split.notes for split in self._splits.values() if isinstance(split, HasNotes))
        yield from dict.fromkeys(chain.from_iterable(kept))  # two parts of one split have the same
        known = {name: split for name, split in self._splits.items() if name != "pick"}
        found = [each for name, split in known.items() if (each := some_samples(name, split, self._form)) is not None]
        if self._computes_its_loss and not all(isinstance(split, Tensors) for split in known.values()):
            check_labels_of_samples(found, self._loss, self._form, network)
        yield from concerns(found, known, self._loss, network)

    @property
    def _computes_its_loss(self) -> bool:
        """Whether the targets of the splits go into the loss as they are: not where a subclass may change them."""
        own = ("loss", "batches", "parts", "fitness")
        plain = all(getattr(type(self), name) is getattr(Supervised, name) for name in own)
        return plain and isinstance(self._objective, OfOutput)

    def search(self) -> Iterator[Concern]:
        yield from search(self._train, self._form)

    def constant_fitness(self) -> float | None:
        return self._constant

    @cached_property
    def _constant(self) -> float | None:
        split = self._fitness
        if self.select or split is None or split.samples is None or not isinstance(self._objective, OfOutput):
            return None
        targets = [self._form.target(batch) for _, batch in split.parts(_part_size(split))]
        if not all(isinstance(each, Tensor) and each.shape[1:] == targets[0].shape[1:] for each in targets):
            return None
        return constant_loss(self._loss, torch.cat(targets))

    def describe(self) -> dict[str, Any]:
        described = {name: split.describe() for name, split in self._splits.items()}
        if self._own is not None:
            described["fitness"] = {"kind": name_of(self._own)}
        selects = {"select": list(self.select)} if self.select else {}
        plain = {"loss": name_of(self._loss), "batch_size": self.batch_size, **selects}
        return {**self._metrics.describe(), **plain, **described}

    def _batch_size(self, settings: Settings) -> int:
        size = _checked_batch_size(settings.get("batch_size", self.batch_size))
        if "batch_size" in settings and isinstance(self._train, CutsItself) and not self._train.resizable:
            raise TaskError(
                f"the setting batch_size={size} cannot be applied: train has batches of its own. Leave it out of the "
                f"species, or give train= as tensors, a Dataset or a plain DataLoader."
            )
        return size

    def _values(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
        """The loss as a scalar mean or one value per sample, and the network's output."""
        value, output = self._objective(module, batch, self._form)
        return checked_values(value, self.size(batch)), output


def _own_batch_size(split: Source) -> int | None:
    return split.batch_size if isinstance(split, CutsItself) else None


def _part_size(split: Source) -> int:
    """About eight parts, of 64 to 1024 samples: fine enough to stop early, coarse enough to be fast."""
    return _own_batch_size(split) or min(1024, max(64, ceil((split.samples or 0) / 8)))


def _checked_batch_size(batch_size: Any) -> int:
    if not is_count(batch_size):
        raise TaskError(
            f"batch_size={batch_size!r} is not a positive whole number. SGD needs at least 1 sample a step."
        )
    return batch_size


def _check_network(make_model: object) -> None:
    if isinstance(make_model, nn.Module):
        raise TaskError(
            f"make_model is a {type(make_model).__name__}, a network. Each individual of the population needs one of "
            f"its own, so pass a function that builds it: lambda: {type(make_model).__name__}(…)."
        )
    if not callable(make_model):
        raise TaskError(f"make_model={make_model!r} cannot be called. Pass a function that builds a network.")
