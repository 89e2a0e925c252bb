"""A `LightningModule` as a task: `training_step` is the loss, and what `validation_step` logs is the fitness.

Nothing of Lightning is imported. A module is called without a `Trainer`; for the time of a step, `self.log` writes down
what it is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from esgd._tensors.batches import copied, to_device
from esgd._validation import is_count
from esgd.errors import TaskError, did_you_mean
from esgd.genome import build
from esgd.protocols import Batch, Settings
from esgd.randomness import Seeds
from esgd.tasks.batch_forms import BatchForm
from esgd.tasks.metrics import scalar
from esgd.tasks.sources import Concern, CutsItself, HasNotes, Source
from esgd.tasks.trial import fault, few_samples

BATCH_SIZE = 32  # where a loader has batches of its own
PROBE = Seeds(0, ("lightning",))


@runtime_checkable
class Metric(Protocol):
    """What torchmetrics has: a metric that sums up batches, and is logged as it is."""

    def compute(self) -> Any: ...

    def reset(self) -> None: ...


@dataclass(frozen=True)
class Monitored:
    """The logged value that selection goes by: its name, and "min" or "max"."""

    name: str
    mode: str = "min"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TaskError(
                f"monitor={self.name!r} is no name. Selection goes by a value that validation_step logs. Give its "
                f"name, such as monitor='val_loss'."
            )
        if self.mode not in ("min", "max"):
            raise TaskError(
                f"mode={self.mode!r} is neither 'min' nor 'max': whether {self.name!r} is better low or high."
            )

    @property
    def sign(self) -> int:
        return 1 if self.mode == "min" else -1


class LightningTask:
    """Training and validation of a module as Lightning has them, for engines of ours.

    A batch is (number, batch) for a step that takes `batch_idx`, and (batch,) for one that does not: then it is tensors
    alone, and `Vmap` can stack it.
    """

    def __init__(
        self,
        make_module: Callable[[], nn.Module],
        train: Source,
        fitness: Source,
        *,
        monitor: Monitored,
        batch_length: Callable[[Batch], int] | None = None,
        nonnegative: bool = False,
    ) -> None:
        self.model, self._train, self._fitness = make_module, train, fitness
        self._form, self._monitor, self._numbered = BatchForm(length=batch_length), monitor, dict[str, bool]()
        self.batch_size = (train.batch_size if isinstance(train, CutsItself) else None) or BATCH_SIZE
        name, self._whole = self._probed()
        self._monitor = replace(monitor, name=name)
        self.nonnegative = nonnegative and not self._whole and monitor.mode == "min"

    @property
    def select(self) -> tuple[str, str]:
        return self._monitor.name, self._monitor.mode

    @property
    def average(self) -> Any:
        raise TaskError(
            "LightningModules make no ensemble that has a validation_step. Use result.soup(), or average what "
            "result.top(5) predict."
        )

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        for name in settings:
            if name != "batch_size":
                raise TaskError(
                    f"the setting {name!r} means nothing to a LightningModule. {did_you_mean(name, ['batch_size'])}"
                )
        self._size_of_batches(settings)

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        epoch = self._train.epoch(seeds, self._size_of_batches(settings))
        return (self._for("training_step", number, batch) for number, batch in enumerate(epoch))

    def steps(self, settings: Settings) -> int | None:
        size = self._size_of_batches(settings)
        return self._train.steps(size) if isinstance(self._train, CutsItself) else None

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        with logged(module):
            found = _step(module, "training_step", batch)
        loss = found.get("loss") if isinstance(found, Mapping) else found
        if found is None:
            raise TaskError(
                "training_step returned None, by which Lightning skips a batch. In a population every batch is a step: "
                "schedules and work are counted in them, and networks may be trained many at once. Leave such samples "
                "out of the loader, or return a loss in which they count 0, such as (weight * losses).mean()."
            )
        if not isinstance(loss, Tensor):
            raise TaskError(
                f"training_step returned {type(found).__name__}. It must return the loss, or a dict with 'loss'."
            )
        return loss

    def parts(self, order: Sequence[int] | None = None) -> Iterable[tuple[int, Batch]]:
        if self._whole:
            return [(0, None)]
        return self._validated(order)

    def fitness(self, module: nn.Module, batch: Batch) -> Tensor:
        if batch is None:
            return self._monitor.sign * scalar(self._values(module)[self._monitor.name], repr(self._monitor.name))
        with logged(module) as values:
            _step(module, "validation_step", batch)
        value = values[self._monitor.name].value
        return self._monitor.sign * scalar(value, repr(self._monitor.name)) * self.size(batch)

    def size(self, batch: Batch) -> int:
        if batch is None:
            return self._fitness.samples or sum(self.size(each) for _, each in self._validated())
        return self._form.size(batch[-1])

    def divisor(self, batch: Batch) -> float:
        return 1 if batch is None else self.size(batch)

    def calibration(self, samples: int) -> Iterator[Batch]:
        seen = 0
        for number, batch in self._train.parts(self.batch_size):
            yield self._for("training_step", number, batch)
            seen += self._form.size(batch)
            if seen >= samples:
                return

    def fitness_metrics(self, module: nn.Module) -> dict[str, float]:
        """Everything that `validation_step` logs, over the whole split."""
        return {name: float(scalar(value, repr(name))) for name, value in self._values(module).items()}

    def test(self, module: nn.Module) -> dict[str, float]:
        """Nothing: `trainer.test(result.model)` is Lightning's own."""
        return {}

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "lightning",
            "monitor": list(self.select),
            "batch_size": self.batch_size,
            "train": self._train.describe(),
            "fitness": self._fitness.describe(),
        }

    def data(self) -> list[Any]:
        return [self._train.data(), self._fitness.data()]

    def look(self, network: nn.Module) -> Iterator[Concern]:
        for split in (self._train, self._fitness):
            if isinstance(split, HasNotes):
                yield from split.notes

    def try_training(self, network: nn.Module) -> None:
        """Refuse a `training_step` that needs a `Trainer` or returns no loss. Other errors are raised in training."""
        few = few_samples(self._train)
        with without_progress(network):
            error = None if few is None else fault(self.loss, network, self._for("training_step", 0, few))
        if isinstance(error, TaskError):
            raise error

    def constant_fitness(self) -> None:
        """Not known: the loss is inside the module."""

    @property
    def _part_size(self) -> int:
        return (self._fitness.batch_size if isinstance(self._fitness, CutsItself) else None) or 256

    def _validated(self, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        """The parts of the fitness, as `validation_step` takes them."""
        for number, batch in self._fitness.parts(self._part_size, order):
            yield number, self._for("validation_step", number, batch)

    def _for(self, step: str, number: int, batch: Batch) -> tuple[Any, ...]:
        return (number, batch) if self._numbered[step] else (batch,)

    def _size_of_batches(self, settings: Settings) -> int:
        size = settings.get("batch_size", self.batch_size)
        resizable = isinstance(self._train, CutsItself) and self._train.resizable
        if not is_count(size) or ("batch_size" in settings and not resizable):
            raise TaskError(
                f"the setting batch_size={size!r} cannot be applied. It is a positive whole number, for a train loader "
                f"without batches of its own."
            )
        return int(size)

    @torch.no_grad()
    def _values(self, module: nn.Module) -> dict[str, Any]:
        """What `validation_step` logs, as Lightning has it at the end of an epoch: means over samples, and metrics."""
        module.eval()
        device, totals, counted = next(module.parameters()).device, dict[str, Any](), dict[str, int]()
        for metric in module.modules():
            if isinstance(metric, Metric):
                metric.reset()
        for _, each in self._validated():
            with logged(module) as values:
                _step(module, "validation_step", copied(to_device(each, device)))
            for name, found in values.items():
                if isinstance(found.value, Metric):
                    totals[name] = found.value
                else:
                    weight = self.size(each) if found.batch_size is None else found.batch_size
                    totals[name] = totals.get(name, 0.0) + scalar(found.value, repr(name)) * weight
                    counted[name] = counted.get(name, 0) + weight
        return {
            name: value.compute() if isinstance(value, Metric) else value / counted[name]
            for name, value in totals.items()
        }

    @torch.no_grad()
    def _probed(self) -> tuple[str, bool]:
        """Look at what one batch logs. Returns the name that is monitored, and whether its value is known of the whole
        split alone: a metric, or a mean with weights of the module's own."""
        module = build(self.model, PROBE).eval()
        self._numbered = {name: takes_number(getattr(module, name)) for name in ("training_step", "validation_step")}
        found = list(islice(self._validated(), 1))
        if not found:
            raise TaskError("the validation data have no batches. Selection needs at least one.")
        with logged(module) as values:
            _step(module, "validation_step", copied(found[0][1]))
        for each, value in values.items():
            value.check(each)
        name = self._monitor.name
        plain = values.get(name.removesuffix("_epoch"))
        if name not in values and plain is not None and plain.on_epoch:
            name = name.removesuffix("_epoch")
        if name not in values:
            raise TaskError(
                f"monitor={name!r} is not what validation_step logs. {did_you_mean(name, values)} Log it there, with "
                f"self.log({name!r}, …): hooks at the end of an epoch are not called."
            )
        return name, isinstance(values[name].value, Metric) or values[name].batch_size is not None


@dataclass(frozen=True)
class Logged:
    """What `self.log` was given: a value or a metric, and the arguments that say how batches become one value."""

    value: Any
    batch_size: int | None = None
    on_epoch: bool | None = None
    reduce_fx: Any = "mean"

    def check(self, name: str) -> None:
        """Refuse what is no mean over batches."""
        if self.reduce_fx not in ("mean", torch.mean) and not isinstance(self.value, Metric):
            raise TaskError(
                f"validation_step logs {name!r} with reduce_fx={self.reduce_fx!r}, and a population takes means over "
                f"samples. Leave reduce_fx out, or log a metric of torchmetrics, such as MaxMetric."
            )


@contextmanager
def logged(module: nn.Module) -> Iterator[dict[str, Logged]]:
    """What the module logs meanwhile, by name."""
    values = dict[str, Logged]()

    def log(name: str, value: Any, *_: Any, **settings: Any) -> None:
        known = {each: settings[each] for each in ("batch_size", "on_epoch", "reduce_fx") if each in settings}
        values[name] = Logged(value.detach() if isinstance(value, Tensor) else value, **known)

    module.__dict__["log"] = log
    try:
        yield values
    finally:
        del module.__dict__["log"]


def _step(module: nn.Module, name: str, batch: tuple[Any, ...]) -> Any:
    """Call a step as Lightning does: with the batch, and its number if it takes one."""
    with without_trainer(name):
        return getattr(module, name)(*reversed(batch))


@contextmanager
def without_trainer(name: str) -> Iterator[None]:
    """Say in a sentence that what is called so uses `self.trainer` or `self.logger`."""
    try:
        yield
    except AttributeError as error:
        if error.name is None or error.obj is not None:
            raise
        raise TaskError(
            f"{name} asks None for {error.name!r}. A population has no Trainer, so self.logger of a module and "
            f"self.trainer of a data module are None. Use self.log, and give the rest as arguments."
        ) from error
    except RuntimeError as error:
        if "not attached to a `Trainer`" in str(error):
            raise TaskError(
                f"{name} uses self.trainer, and a population has none. Give the module what it needs as arguments."
            ) from error
        raise


@contextmanager
def without_progress(module: nn.Module) -> Iterator[None]:
    """Refuse a step that asks how far training is: without a `Trainer` these are 0 for ever."""

    def refused(name: str) -> property:
        def ask(self: Any) -> int:
            raise TaskError(
                f"training_step uses self.{name}, which a `Trainer` counts, and a population has none: it would be 0 "
                f"for ever. Use a learning-rate schedule, or count the steps in a buffer of the module."
            )

        return property(ask)

    kind = type(module)
    module.__class__ = type(kind.__name__, (kind,), {name: refused(name) for name in ("current_epoch", "global_step")})
    try:
        yield
    finally:
        module.__class__ = kind


def takes_number(step: Callable[..., Any]) -> bool:
    """Whether a step takes the number of a batch."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds for each in inspect.signature(step).parameters.values()) > 1
