"""A population of `LightningModule`s, from the code that `Trainer.fit` takes.

Nothing of Lightning is imported: who has a module has the package, `lightning` or `pytorch_lightning`.

| of Lightning                                        | what it becomes                                                |
|-----------------------------------------------------|----------------------------------------------------------------|
| `training_step`, `validation_step`, `self.log`      | the loss, and the fitness: the logged value `monitor`          |
| `configure_optimizers`: the optimizer and its rate  | the species: rates from a quarter of it to four times it       |
| groups with another rate or weight decay            | groups of the species, by the names of the parameters          |
| `CosineAnnealingLR` over all epochs                 | the same over the run; other schedulers become one cosine      |
| data modules, loaders                               | as `esgd.Supervised` reads a `DataLoader`                      |
| `max_epochs`, `max_steps`                           | the work of the whole population: what one network would take  |
| `accumulate_grad_batches`, `gradient_clip_val`      | of every policy                                                |
| `precision`                                         | of the engine                                                  |
| the `stopping_threshold` of an `EarlyStopping`      | `stop=Target(…)`                                               |
| other callbacks, loggers, hooks that only watch     | listed in one warning                                          |
| what would train otherwise                          | refused by name, before training                               |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader

from esgd.errors import TaskError
from esgd.fit import fit as fit_task
from esgd.genome import build
from esgd.integrations.lightning_optimizer import names_of, optimizer_of, schedule_of, species_of
from esgd.integrations.lightning_task import PROBE, LightningTask, Monitored, without_trainer
from esgd.integrations.lightning_trainer import (
    accumulate_of,
    check_trainer,
    clip_norm_of,
    engine_of,
    epochs_of,
    policy_arguments,
    precision_argument,
    recipe_of,
    stops_of,
    unused_of,
)
from esgd.protocols import Batch
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.stopping import StopRule, check_stop
from esgd.tasks.reading import Reader

if TYPE_CHECKING:
    from lightning.pytorch import LightningDataModule, Trainer

TRANSFERS = ("on_before_batch_transfer", "on_after_batch_transfer", "transfer_batch_to_device")
"""Hooks that modules and data modules have, and that can change batches."""

REFUSED_HOOKS = (
    *("optimizer_step", "optimizer_zero_grad", "backward", "lr_scheduler_step", "configure_gradient_clipping"),
    *TRANSFERS,
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"),
    *("on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_epoch_end"),
    *("on_train_batch_start", "on_train_batch_end", "on_validation_model_eval", "on_validation_model_train"),
    *("training_step_end", "training_epoch_end", "validation_step_end", "validation_epoch_end"),  # Lightning 1
)
"""Hooks that can change what is trained, or on what."""

WATCHING_HOOKS = (
    *("on_fit_end", "on_train_end", "configure_callbacks", "teardown"),
    *("on_validation_start", "on_validation_end", "on_validation_epoch_start", "on_validation_epoch_end"),
    *("on_validation_batch_start", "on_validation_batch_end", "on_validation_model_zero_grad"),
    *("on_save_checkpoint", "on_load_checkpoint"),
)
"""Hooks that mostly watch. They are not called."""

WATCHING_DATA = ("teardown", "on_exception", "state_dict", "load_state_dict")
"""Hooks of a data module that are not called."""


def fit(
    make_module: Callable[[], nn.Module],
    *,
    monitor: str = "val_loss",
    mode: str = "min",
    datamodule: LightningDataModule | None = None,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    trainer: Trainer | None = None,
    recipe: Recipe | None = None,
    batch_length: Callable[[Batch], int] | None = None,
    nonnegative: bool = False,
    **settings: Any,
) -> Result:
    """Train a population of modules; `result.model` is the fittest one, for `trainer.test` and everything else.

    | argument                               | meaning                                                                |
    |----------------------------------------|------------------------------------------------------------------------|
    | `make_module`                          | makes a new module: its class, or a function                           |
    | `monitor`, `mode`                      | what selection goes by: a name that `validation_step` logs             |
    | `datamodule`, `train_dataloaders`, `val_dataloaders` | as for `Trainer.fit`; or the module's own loaders        |
    | `trainer`                              | the `Trainer` that you have: how much work the run may do,             |
    |                                        | accumulation, clipping and precision. It is not run                    |
    | `recipe`                               | instead of one that is made from `configure_optimizers` and `trainer`  |
    | `batch_length`                         | a function of a batch: how many samples it has, if that cannot be seen |
    | `nonnegative`                          | your promise that `monitor` is never below 0: offspring are evaluated  |
    |                                        | faster                                                                 |
    | `settings`                             | `seed`, `run`, `engine` and all others of `esgd.fit`; `budget` takes   |
    |                                        | the place of `max_epochs` and `max_steps`                              |
    """
    make = Modules(make_module)
    first: Any = build(make_module, PROBE)
    base = _base(first, "LightningModule")
    _check_hooks(first, base, REFUSED_HOOKS)
    if datamodule is None and _is_a(train_dataloaders, "LightningDataModule"):  # as Trainer.fit takes it, too
        datamodule, train_dataloaders = train_dataloaders, None
    if datamodule is not None:
        _check_hooks(datamodule, _base(datamodule, "LightningDataModule"), TRANSFERS)
    check_trainer(trainer)
    with without_trainer("prepare_data"):
        first.prepare_data()
    module = build(make, PROBE)
    optimizer, schedulers = optimizer_of(module)
    train, fitness = _loaders(module, datamodule, train_dataloaders, val_dataloaders)
    read = Reader()
    task = LightningTask(
        make,
        read.source("train", train),
        read.source("fitness", fitness),
        monitor=Monitored(monitor, mode),
        batch_length=batch_length,
        nonnegative=nonnegative,
    )
    unused = [name for name in WATCHING_HOOKS if _overrides(module, base, name)] + unused_of(trainer, monitor, mode)
    if datamodule is not None:
        source = _base(datamodule, "LightningDataModule")
        unused += [f"{name} of the data module" for name in WATCHING_DATA if _overrides(datamodule, source, name)]
    if "engine" in settings:
        unused += precision_argument(trainer)
    if recipe is None:
        schedule, ignored = schedule_of(schedulers, optimizer, epochs_of(trainer, settings.get("budget")))
        species = species_of(
            optimizer,
            module,
            schedule=schedule,
            clip_norm=clip_norm_of(trainer),
            accumulate=accumulate_of(trainer),
        )
        recipe = recipe_of(task, trainer, species, settings.get("budget"))
        unused += [f"{ignored} (not followed: the learning rate falls in one cosine over the run)"] if ignored else []
    else:
        unused += [*names_of(schedulers), *policy_arguments(trainer)]
    if unused:
        warnings.warn(f"Not used in a population: {', '.join(unused)}.", stacklevel=2)
    stop: list[StopRule] = [*check_stop(settings.pop("stop", None)), *stops_of(trainer, monitor, mode)]
    return fit_task(task, recipe, stop=stop, **{"engine": engine_of(trainer), **settings})


@dataclass(frozen=True, eq=False)
class Modules:
    """Makes a module as a `Trainer` would have it: after `setup` and `configure_model`."""

    make: Callable[[], nn.Module]

    def __post_init__(self) -> None:
        if isinstance(self.make, nn.Module) or not callable(self.make):
            raise TaskError(
                f"make_module is a {type(self.make).__name__}. Each individual of the population needs a module of its "
                f"own, so pass the class or a function that makes one: lambda: {type(self.make).__name__}(…)."
            )

    def __call__(self) -> nn.Module:
        module = self.make()
        for name, arguments in (("setup", ("fit",)), ("configure_model", ())):
            hook: Any = getattr(module, name, None)
            if hook is not None:
                with without_trainer(name):
                    hook(*arguments)
        return module


def _base(value: Any, name: str) -> type:
    """The class of Lightning that a module or a data module is derived from."""
    for each in type(value).__mro__:
        if each.__name__ == name:
            return each
    raise TaskError(f"a {type(value).__name__} is not a {name}.")


def _is_a(value: Any, name: str) -> bool:
    return any(each.__name__ == name for each in type(value).__mro__)


def _check_hooks(module: Any, base: Any, refused: Iterable[str]) -> None:
    overridden = [name for name in refused if _overrides(module, base, name)]
    if overridden:
        raise TaskError(
            f"{type(module).__name__} has {', '.join(overridden)}, which can change the training and would not be "
            f"called: the engine moves batches, computes gradients and takes steps. Do it in training_step, or leave "
            f"it out."
        )


def _overrides(module: Any, base: Any, name: str) -> bool:
    return getattr(type(module), name, None) is not getattr(base, name, None)


def _loaders(module: Any, datamodule: Any, train: Any, fitness: Any) -> tuple[Any, Any]:
    """The two loaders, from wherever `Trainer.fit` would take them."""
    if datamodule is not None:
        if train is not None or fitness is not None:
            raise TaskError("data come from a datamodule or from loaders. Give one of them.")
        with without_trainer("prepare_data of the data module"):
            datamodule.prepare_data()
        with without_trainer("setup of the data module"):
            datamodule.setup("fit")
    home = module if datamodule is None else datamodule
    found = {"train": train, "val": fitness}
    for name, given in found.items():
        loader = _called(home, f"{name}_dataloader") if given is None else given
        if isinstance(loader, list | tuple) and len(loader) == 1:
            (loader,) = loader
        if (
            not isinstance(loader, DataLoader)
            and isinstance(loader, Iterable | None)
            and not hasattr(loader, "dataset")
        ):
            raise TaskError(
                f"the {name} data are {_described(loader)}. Give one DataLoader: a population has one loss, and one "
                f"fitness."
            )
        found[name] = loader
    return found["train"], found["val"]


def _called(home: Any, name: str) -> Any:
    """What a hook returns; None where it is the one that only raises."""
    try:
        with without_trainer(name):
            return getattr(home, name)()
    except Exception as error:
        if type(error).__name__ == "MisconfigurationException":
            return None
        raise


def _described(loader: Any) -> str:
    if loader is None:
        return "missing"
    several = len(loader) if isinstance(loader, list | tuple | Mapping) else 0
    return f"{several} loaders" if several else f"a {type(loader).__name__}"
