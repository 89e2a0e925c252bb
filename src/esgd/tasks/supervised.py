"""Supervised learning: a network, a loss, and three splits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import ceil, nan
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd._batches import copied, to_device
from esgd._validation import is_count
from esgd.errors import TaskError, did_you_mean
from esgd.protocols import Average, Batch, Settings
from esgd.randomness import Seeds
from esgd.tasks.inspection import Concern, concerns
from esgd.tasks.losses import constant_loss
from esgd.tasks.measuring import Measurement
from esgd.tasks.metrics import Accumulates, OfNetwork, OfOutputs, is_averaged, scalar, sorted_metrics
from esgd.tasks.outputs import average_for
from esgd.tasks.samples import some_samples
from esgd.tasks.sources import Source, StackedSource, batches_of, divided, source
from esgd.tasks.weights import target_weights

Loss = Callable[[Any, Any], Tensor]
CALIBRATION_PIECE = 256  # samples

NEVER_NEGATIVE = {
    *(F.cross_entropy, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss),
    *(
        F.binary_cross_entropy,
        F.binary_cross_entropy_with_logits,
        F.multi_margin_loss,
        F.multilabel_margin_loss,
    ),
    *(nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss),
    *(nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiMarginLoss, nn.MultiLabelMarginLoss),
}


class Supervised:
    """Minimise `loss(network(x), y)`: the empirical risk of Eq. 3.

    | argument      | meaning                                                                                        |
    |---------------|------------------------------------------------------------------------------------------------|
    | `make_model`  | builds a new network; called once per individual, so each has its own initialisation           |
    | `loss`        | of (output, target): a mean over the batch, or one value per sample                            |
    | `train`       | what SGD sees: (x, y) tensors, a map-style `Dataset`, a function that returns batches, or a    |
    |               | `Source` of your own                                                                           |
    | `fitness`     | what selection sees, in the same forms; or your own fitness: a function of the network that    |
    |               | returns a number to minimise                                                                   |
    | `test`        | what neither SGD nor selection sees, in the same forms; `metrics` are measured on it           |
    | `pick`        | a second split for selection, in the same forms, or a share of the fitness split such as 0.3:  |
    |               | it picks the network that a run gives back among the elites. With many looks at a small        |
    |               | fitness split, the fittest are partly lucky; this split does not know their luck               |
    | `batch_size`  | of SGD; a policy's setting `batch_size` replaces it                                            |
    | `metrics`     | name → function of (output, target), which is given the whole split, fitness and then test; or |
    |               | of the network. `esgd.tasks.metrics` has the kinds, and what each needs of memory              |
    | `select`      | the name of a metric that is the fitness instead of the loss, on the fitness split             |
    | `mode`        | of `select`: "min", or "max"; then the fitness is the negative of the metric                   |
    | `workers`     | DataLoader processes, for datasets                                                             |
    | `calibration` | data for BatchNorm statistics, e.g. without augmentation [default: the beginning of `train`]   |
    | `nonnegative` | whether the loss is never below 0: then early abort is possible. It is known for torch's       |
    |               | own losses, and False for others unless you say so                                             |

    A batch is (*inputs, target), and the network is called as network(*inputs). Settings that a policy may have:
    `batch_size`, and `dropout`, the probability of every `nn.Dropout` layer.

    >>> x, y = torch.randn(20, 4), torch.randint(0, 2, (20,))
    >>> task = Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
    >>> task.steps({})
    1
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        loss: Loss,
        *,
        train: Any,
        fitness: Any,
        test: Any = None,
        pick: Any = None,
        batch_size: int = 32,
        metrics: Mapping[str, OfOutputs | Accumulates | OfNetwork] | None = None,
        select: str | None = None,
        mode: str = "min",
        workers: int = 0,
        calibration: Any = None,
        nonnegative: bool | None = None,
    ) -> None:
        _check_arguments(make_model, loss, batch_size)
        own = _is_own_fitness(fitness)
        self.model: Callable[[], nn.Module] = make_model
        self.batch_size = batch_size
        self._metrics = sorted_metrics(metrics or {})
        self.select = _checked_selection(select, mode, self._metrics.of_split, own=own)
        known = _never_negative(loss) if nonnegative is None else nonnegative
        self.nonnegative = not own and self.select is None and known
        self._loss, self._weights = loss, target_weights(loss)
        self._train = source("train", train, workers)
        self._fitness: Source | None = None if own else source("fitness", fitness, workers)
        self._own: Callable[[nn.Module], Any] | None = fitness if own else None
        self._pick: Source | None = None
        if isinstance(pick, float):
            self._fitness, self._pick = divided(self._fitness, pick)
        elif pick is not None:
            self._pick = source("pick", pick, workers)
        self._test = None if test is None else source("test", test, workers)
        self._calibration = self._train if calibration is None else source("calibration", calibration, workers)

    def __repr__(self) -> str:
        splits = {"train": self._train, "fitness": self._fitness, "pick": self._pick, "test": self._test}
        sizes = ", ".join(f"{name} {split.samples or 'stream'}" for name, split in splits.items() if split)
        return f"Supervised({sizes}, batch_size={self.batch_size})"

    @property
    def average(self) -> Average:
        """How an ensemble of networks averages their outputs: known for torch's own losses."""
        return average_for(self._loss)

    # Training

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        known = ("batch_size", "dropout")
        for name in settings:
            if name not in known:
                raise TaskError(
                    f"the setting {name!r} means nothing to Supervised. {did_you_mean(name, known)} Optimizer "
                    f"keywords such as weight_decay go into the species' `hyper`; for settings of your own write a "
                    "task."
                )
        self._batch_size(settings)
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
        return self._train.epoch(seeds, self._batch_size(settings))

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        if not isinstance(self._train, StackedSource):
            return None
        return self._train.epochs(seeds, self._batch_size(settings))

    def batch_sizes(self, settings: Settings) -> list[int] | None:
        samples = self._train.samples
        return (
            None if samples is None else list(map(len, batches_of(torch.arange(samples), self._batch_size(settings))))
        )

    def fitness_samples(self) -> int | None:
        return None if self._fitness is None else self._fitness.samples

    def steps(self, settings: Settings) -> int | None:
        sizes = self.batch_sizes(settings)
        return None if sizes is None else len(sizes)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        try:
            values = self._values(module, batch)[0]
            return values.mean() if values.dim() else values
        except ValueError as error:
            if "more than 1 value per channel" in str(error):
                raise TaskError(
                    "BatchNorm cannot be trained on a batch of one sample: it has no variance. Use batch_size ≥ 2 and "
                    "a training set of two samples or more."
                ) from error
            raise

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

    def size(self, batch: Batch) -> int:
        if batch is None:  # all of the fitness
            return 1 if self._fitness is None else self._fitness.samples or _count(self._fitness)
        return len(_checked_form(batch)[-1])

    def divisor(self, batch: Batch) -> float:
        if batch is None:
            return 1
        return self.size(batch) if self.select else float(self._counts(batch))

    def _counts(self, batch: Batch) -> Tensor | int:
        """What a batch counts as in a mean over a split: its samples, or the weight of its targets."""
        target = _checked_form(batch)[-1]
        if self._weights is None or not isinstance(target, Tensor) or target.is_floating_point():
            return self.size(batch)
        return self._weights.total(target)

    @property
    def _selects_by_whole(self) -> bool:
        """Whether the fitness is a metric that is no mean over samples: then it has one part."""
        return self.select is not None and not is_averaged(self._metrics.of_split[self.select[0]])

    def _selected(self, module: nn.Module, batch: Batch, name: str, mode: str) -> Tensor:
        """The metric that is the fitness, summed over a part; lower is better."""
        measured, sign = Measurement({name: self._metrics.of_split[name]}), 1 if mode == "min" else -1
        for part in self._on_device(self._fitness, module) if batch is None and self._fitness else [batch]:
            measured.add(module(*part[:-1]), part[-1], self.size(part))
        return sign * measured.values()[name] * (1 if batch is None else self.size(batch))

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
        for _, batch in self._calibration.parts(ceil(wanted / pieces)):
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
        return {name: means[name] for name in self._metrics.of_split}

    @torch.no_grad()
    def test(self, module: nn.Module) -> dict[str, float]:
        if self._test is None:
            return {}
        means, _ = self._means("test", self._test, module, self._metrics.of_split)
        whole = {name: metric(module) for name, metric in self._metrics.of_network.items()}
        return means | {name: float(scalar(value, f"the metric {name!r}")) for name, value in whole.items()}

    @torch.no_grad()
    def _means(
        self, name: str, split: Source, module: nn.Module, metrics: Mapping[str, OfOutputs | Accumulates]
    ) -> tuple[dict[str, float], int]:
        """The loss and the metrics of a network on a split, and how many samples it has."""
        module.eval()
        measured, total, counted, samples = Measurement(metrics), 0.0, 0.0, 0
        for batch in self._on_device(split, module):
            (values, output), n = self._values(module, batch), self.size(batch)
            counts = float(self._counts(batch)) if values.dim() == 0 else n
            total += float(values.double().mean()) * counts if counts else 0.0
            measured.add(output, batch[-1], n)
            counted, samples = counted + counts, samples + n
        if samples == 0:
            raise TaskError(f"the {name} data have no samples. Give {name}= at least one, at every call, or None.")
        found = {metric: float(value) for metric, value in measured.values().items()}
        return {"loss": total / counted if counted else nan, **found}, samples

    def _on_device(self, split: Source, module: nn.Module) -> Iterator[Batch]:
        """The batches of a split where the network is; copies, because it may write into its input."""
        device = next(module.parameters()).device
        return (copied(to_device(batch, device)) for _, batch in split.parts(_part_size(split)))

    def data(self) -> list[Any]:
        splits = (self._train, self._fitness, self._pick, self._test, self._calibration)
        return [split.data() for split in splits if split is not None]

    # What the data are like

    def look(self, network: nn.Module) -> Iterator[Concern]:
        splits = {"train": self._train, "fitness": self._fitness, "test": self._test}
        known = {name: split for name, split in splits.items() if split is not None}
        samples = [each for name, split in known.items() if (each := some_samples(name, split)) is not None]
        return concerns(samples, known, self._loss, network)

    def constant_fitness(self) -> float | None:
        return self._constant

    @cached_property
    def _constant(self) -> float | None:
        if self.select is not None or self._fitness is None or self._fitness.samples is None:
            return None
        targets = [_checked_form(batch)[-1] for _, batch in self._fitness.parts(_part_size(self._fitness))]
        if not all(isinstance(each, Tensor) and each.shape[1:] == targets[0].shape[1:] for each in targets):
            return None
        return constant_loss(self._loss, torch.cat(targets))

    def describe(self) -> dict[str, Any]:
        splits = {"train": self._train, "fitness": self._fitness, "pick": self._pick, "test": self._test}
        described = {name: split.describe() for name, split in splits.items() if split is not None}
        if self._own is not None:
            described["fitness"] = {"kind": _name(self._own)}
        selects = {"select": list(self.select)} if self.select else {}
        plain = {"loss": _name(self._loss), "batch_size": self.batch_size, **selects}
        return {**self._metrics.describe(), **plain, **described}

    def _batch_size(self, settings: Settings) -> int:
        return _checked_batch_size(settings.get("batch_size", self.batch_size))

    def _values(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
        """The loss as a scalar mean or one value per sample, and the network's output."""
        n = self.size(batch)
        output = module(*batch[:-1])
        value = self._loss(output, batch[-1])
        if not isinstance(value, Tensor):
            raise TaskError(
                f"the loss returned {type(value).__name__} {value!r}. It must return a torch tensor that gradients can "
                f"flow through: a scalar mean, or one value per sample."
            )
        if value.is_complex():
            raise TaskError(
                f"the loss is complex: {value.dtype}. Individuals are compared by their loss, and complex numbers have "
                f"no order. Take its .abs() or .real."
            )
        if value.dim() == 0:
            return value, output
        if len(value) == n:
            return value.reshape(n, -1).mean(dim=1), output
        raise TaskError(
            f"the loss returned a tensor of shape {tuple(value.shape)} for a batch of {n}. It must be a scalar mean "
            f"over the batch, or have one value per sample in its first dimension."
        )


def _part_size(split: Source) -> int:
    """About eight parts, of 64 to 1024 samples: fine enough to stop early, coarse enough to be fast."""
    return min(1024, max(64, ceil((split.samples or 0) / 8)))


def _count(split: Source) -> int:
    """The samples of a split that does not know how many it has."""
    return sum(len(_checked_form(batch)[-1]) for _, batch in split.parts(_part_size(split)))


def _checked_selection(
    select: str | None, mode: str, metrics: Mapping[str, object], *, own: bool
) -> tuple[str, str] | None:
    if mode not in ("min", "max"):
        raise TaskError(
            f"mode={mode!r} is neither 'min' nor 'max': whether the metric of select= is better low or high."
        )
    if select is None:
        if mode == "max":
            raise TaskError("mode='max' is for select=, which names a metric. A loss is always minimised.")
        return None
    if select not in metrics:
        raise TaskError(
            f"select={select!r} is not among the metrics of outputs and targets. {did_you_mean(select, metrics)} Give "
            f"it in metrics=, as a function of (output, target)."
        )
    if own:
        raise TaskError(f"select={select!r} needs a fitness split, but fitness= is a function of your own. Use one.")
    return select, mode


def _is_own_fitness(fitness: Any) -> bool:
    """A function of one argument, the network, is a fitness; one without arguments returns batches."""
    if not callable(fitness) or isinstance(fitness, nn.Module | tuple):
        return False
    try:
        parameters = inspect.signature(fitness).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 1:
        raise TaskError(
            f"fitness={fitness!r} takes {len(required)} arguments. A fitness of your own takes the network and "
            f"returns a number to minimise; a function without arguments returns batches."
        )
    return len(required) == 1


def _never_negative(loss: Loss) -> bool:
    plain = loss.func if isinstance(loss, partial) else loss
    return any(plain is known or type(plain) is known for known in NEVER_NEGATIVE)


def _check_arguments(make_model: object, loss: object, batch_size: int) -> None:
    if isinstance(make_model, nn.Module):
        raise TaskError(
            f"make_model is a {type(make_model).__name__}, a network. Each individual of the population needs one of "
            f"its own, so pass a function that builds it: lambda: {type(make_model).__name__}(…)."
        )
    for name, value in (("make_model", make_model), ("loss", loss)):
        if not callable(value):
            raise TaskError(
                f"{name}={value!r} cannot be called. Pass a function, for example F.cross_entropy as the loss."
            )
    _checked_batch_size(batch_size)
    reduction = loss.keywords.get("reduction") if isinstance(loss, partial) else getattr(loss, "reduction", None)
    if reduction == "sum":
        raise TaskError(
            "the loss has reduction='sum', so it would grow with the batch. Fitness and SGD need a mean over the "
            "batch, or one value per sample. Use reduction='mean' or 'none'."
        )


def _name(function: Any) -> str:
    """What a loss or fitness goes by in a manifest."""
    if isinstance(function, partial):
        keywords = ", ".join(f"{name}={value}" for name, value in sorted(function.keywords.items()))
        return f"{_name(function.func)}({keywords})"
    return (
        repr(function)
        if isinstance(function, nn.Module)
        else getattr(function, "__qualname__", type(function).__name__)
    )


def _checked_form(batch: Batch) -> Sequence[Any]:
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise TaskError(
            f"a batch is a {type(batch).__name__}, but Supervised needs (*inputs, target): the last item is the "
            f"target, the others go into the network. Return tuples, or write a task of your own for other batches."
        )
    return batch


def _checked_batch_size(batch_size: Any) -> int:
    if not is_count(batch_size):
        raise TaskError(
            f"batch_size={batch_size!r} is not a positive whole number. SGD needs at least 1 sample a step."
        )
    return batch_size
