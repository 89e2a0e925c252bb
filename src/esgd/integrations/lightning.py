"""A population of `LightningModule`s, from the code that `Trainer.fit` takes.

Nothing of Lightning is imported: who has a module has the package, `lightning` or `pytorch_lightning`.

| of Lightning                                        | what it becomes                                                |
|-----------------------------------------------------|----------------------------------------------------------------|
| `training_step`, `validation_step`, `self.log`      | the loss, and the fitness: the logged value `monitor`          |
| `configure_optimizers`: the optimizer and its rate  | the species: rates from a quarter of it to four times it       |
| `CosineAnnealingLR`, `MultiStepLR`, `StepLR`        | the same over the run; other schedulers become one cosine      |
| data modules, loaders                               | as `esgd.Supervised` reads a `DataLoader`                      |
| `max_epochs`, `max_steps`                           | the work of the whole population: what one network would take  |
| `gradient_clip_val`, `precision`                    | of every policy; of the engine                                 |
| callbacks, loggers, hooks that only watch           | listed in one warning                                          |
| what would train otherwise                          | refused by name, before training                               |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from esgd.errors import RecipeError, TaskError
from esgd.fit import fit as fit_task
from esgd.genome import build
from esgd.integrations.lightning_task import PROBE, LightningTask, Monitored
from esgd.operators import BestOfLooks, Cloned, Gaussian, MeanOfElites, Uninterrupted, trajectories
from esgd.protocols import Batch, Species
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.rules import ours
from esgd.schedules import CosineRun, Schedule, Steps
from esgd.sizes import Each, Earned
from esgd.species import Inherited, LogUniform, Optimizer
from esgd.tasks.reading import Reader
from esgd.work import Costs, expected_looks, sized

if TYPE_CHECKING:
    from lightning.pytorch import LightningDataModule, Trainer

SPREAD = 4.0
"""How far a learning rate may be from that of `configure_optimizers`, as a factor."""

NOT_DRAWN = ("lr", "foreach", "fused", "capturable", "differentiable")
"""Keywords of an optimizer that have a range of their own, or that the engine chooses."""

RACES = (((4, 2), 3), ((3, 1), 1))  # individuals at first and then, and generations after the first
RACE_SHARE = 1 / 3  # of the work, for the first generation
LOOKS_SHARE = 0.4  # of the work, for looks at the validation data

LONGEST = 100_000  # epochs that are searched for drops of a rate

REFUSED_HOOKS = (
    *("optimizer_step", "optimizer_zero_grad", "backward", "lr_scheduler_step", "configure_gradient_clipping"),
    *("on_before_batch_transfer", "on_after_batch_transfer", "transfer_batch_to_device"),
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"),
    *("on_train_batch_start", "on_train_epoch_start", "on_validation_model_eval", "on_validation_model_train"),
)
"""Hooks that can change what is trained, or on what."""

NAMED_HOOKS = (
    *("on_fit_start", "on_fit_end", "on_train_start", "on_train_end", "on_train_batch_end", "on_train_epoch_end"),
    *("on_validation_start", "on_validation_end", "on_validation_epoch_start", "on_validation_epoch_end"),
    *("on_validation_batch_start", "on_validation_batch_end", "configure_callbacks", "teardown"),
)
"""Hooks that mostly watch. They are not called."""

REFUSED_ARGUMENTS: Mapping[str, tuple[Any, str]] = {
    "accumulate_grad_batches": (1, "Use a batch_size that is so many times as large."),
    "gradient_clip_algorithm": ("norm", "Gradients are clipped by their norm."),
    "limit_train_batches": (1.0, "Give a loader of fewer samples."),
    "limit_val_batches": (1.0, "Give a loader of fewer samples."),
    "overfit_batches": (0.0, "Give a loader of fewer samples."),
    "fast_dev_run": (False, "Use a recipe with one generation."),
    "world_size": (1, "Use engine='pool' or engine='ray': every worker trains whole networks."),
}
"""Arguments of a `Trainer` that would change the training, what they are by default, and what to do instead."""

NAMED_ARGUMENTS: Mapping[str, Any] = {
    "min_epochs": None,
    "min_steps": None,
    "check_val_every_n_epoch": 1,
    "val_check_interval": 1.0,
    "reload_dataloaders_every_n_epochs": 0,
}
PRECISIONS = {"32-true": "float32", "bf16-mixed": "bf16"}
UNNAMED = ("ProgressBar", "ModelSummary", "ModelCheckpoint")
"""Callbacks that every `Trainer` has, and that a run has an own form of."""


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
    | `trainer`                              | the `Trainer` that you have: how much work the run may do, clipping    |
    |                                        | and precision. It is not run                                           |
    | `recipe`                               | instead of one that is made from `configure_optimizers` and `trainer`  |
    | `batch_length`                         | a function of a batch: how many samples it has, if that cannot be seen |
    | `nonnegative`                          | your promise that `monitor` is never below 0: offspring are evaluated  |
    |                                        | faster                                                                 |
    | `settings`                             | `seed`, `run`, `engine` and all others of `esgd.fit`                   |
    """
    make = Modules(make_module)
    module = build(make, PROBE)
    base = next((each for each in type(module).__mro__ if each.__name__ == "LightningModule"), None)
    if base is None:
        raise TaskError(f"make_module made a {type(module).__name__}, which is not a LightningModule.")
    optimizer, schedulers = _optimizer(module)
    _check_hooks(module, base)
    _check_trainer(trainer)
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
    unused = _unused(module, base, trainer)
    if recipe is None:
        schedule, ignored = _schedule(schedulers, optimizer)
        recipe = _recipe(task, trainer, _species(optimizer, schedule, trainer))
        unused += [f"{ignored} (one cosine over the run is used)"] if ignored else []
    if unused:
        warnings.warn(f"What changes nothing in a population: {', '.join(unused)}.", stacklevel=2)
    return fit_task(task, recipe, **{"engine": _engine(trainer), **settings})


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
                hook(*arguments)
        return module


def _optimizer(module: Any) -> tuple[torch.optim.Optimizer, list[Any]]:
    """The one optimizer of a module, and its schedulers; refuses by name what has none or several."""
    if not module.automatic_optimization:
        raise TaskError(
            f"{type(module).__name__} has automatic_optimization=False. Policies of a population train a network, so "
            f"its own optimization cannot be used. Return a loss from training_step."
        )
    found: Any = module.configure_optimizers()
    schedulers: Any = ()
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(each, list | tuple) for each in found):
        found, schedulers = found
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        schedulers = [found["lr_scheduler"]] if "lr_scheduler" in found else []
        found = found.get("optimizer")
    if not isinstance(found, torch.optim.Optimizer):
        several = f"{len(found)} optimizers" if isinstance(found, list | tuple) else f"{type(found).__name__}"
        raise TaskError(
            f"configure_optimizers of {type(module).__name__} returned {several}. An individual is trained by one "
            f"optimizer. Return one."
        )
    return found, [each["scheduler"] if isinstance(each, Mapping) else each for each in schedulers]


def _species(optimizer: torch.optim.Optimizer, schedule: Schedule, trainer: Any) -> Species:
    """Learning rates around the module's, with its optimizer and keywords."""
    kind, (group, *others) = type(optimizer), optimizer.param_groups
    keywords = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
    for other in others:
        different = [name for name, value in keywords.items() if other.get(name) != value]
        if different:
            raise TaskError(
                f"configure_optimizers has groups of parameters with other values of {', '.join(different)}. They "
                f"cannot be taken over. Use one group, or recipe=Recipe(species=…)."
            )
    known = signature(kind).parameters
    hyper = {
        name: value
        for name, value in keywords.items()
        if name in known and name not in NOT_DRAWN and value != known[name].default
    }
    rate = float(group.get("initial_lr", group["lr"]))
    if not rate > 0:
        raise TaskError(
            f"the learning rate of configure_optimizers is {rate}. Rates are drawn around it: give one above 0."
        )
    pool = Optimizer(
        name=_name(kind),
        lr=LogUniform(rate / SPREAD, rate * SPREAD),
        gamma=1.0,
        hyper=hyper,
        schedule=schedule,
        clip_norm=getattr(trainer, "gradient_clip_val", None) or None,
    )
    return Inherited(species=pool, probability=0.75, jitter=0.3, offspring_only=True)


def _name(kind: type[torch.optim.Optimizer]) -> str:
    """The optimizer as a policy names it."""
    if getattr(torch.optim, kind.__name__, None) is kind:
        return str(kind.__name__).lower()
    if "." in kind.__qualname__ or kind.__module__ == "__main__":
        raise TaskError(
            f"the optimizer {kind.__qualname__} cannot be named in a recipe: it is not at the top of a module that can "
            f"be imported. Put it there, or use one of torch.optim."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _schedule(schedulers: list[Any], optimizer: torch.optim.Optimizer) -> tuple[Schedule, str]:
    """The schedule of policies, and the name of the scheduler that it does not follow."""
    if not schedulers:
        return CosineRun(), ""
    (scheduler, *more) = schedulers
    rate = optimizer.param_groups[0].get("initial_lr", optimizer.param_groups[0]["lr"])
    kind = type(scheduler)
    if more:
        return CosineRun(), ", ".join(type(each).__name__ for each in schedulers)
    if kind is lr_scheduler.CosineAnnealingLR and 0 <= scheduler.eta_min <= rate:
        return CosineRun(floor=scheduler.eta_min / rate), ""
    if kind is lr_scheduler.MultiStepLR and all(times == 1 for times in scheduler.milestones.values()):
        return Steps(after=tuple(sorted(scheduler.milestones)), factor=scheduler.gamma), ""
    if kind is lr_scheduler.StepLR and 0 < scheduler.gamma < 1:
        drops = takewhile(lambda n: scheduler.gamma**n > 1e-6, range(1, LONGEST))
        return Steps(after=tuple(scheduler.step_size * n for n in drops), factor=scheduler.gamma), ""
    return CosineRun(), kind.__name__


def _recipe(task: LightningTask, trainer: Any, species: Species) -> Recipe:
    """Our rules with the work of one network, as the trainer has it, and the module's own optimizer.

    Where their looks at the validation data would leave too little for training, a smaller race takes their place.
    """
    if trainer is None:
        return replace(ours(task), species=species)
    work = _work(task, trainer)
    rules = [partial(ours, task, work), *(partial(sized, task, work, partial(_race, *each)) for each in RACES)]
    costs = Costs.of(task, Recipe())
    for rule in rules:
        try:
            recipe = rule()
        except RecipeError:  # its looks alone are more than the work
            continue
        if expected_looks(costs, recipe) <= LOOKS_SHARE * work:
            return replace(recipe, species=species)
    raise RecipeError(
        f"max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps} are too little work for a population: one "
        f"look of every network at the validation data is paid from it, too. Raise them, use fewer validation data, or "
        f"give a recipe."
    )


def _race(individuals: tuple[int, int], after: int, epochs: float) -> Recipe:
    """So many individuals, then the best of them in so many generations; epochs are summed over all."""
    first, then = individuals
    return Recipe(
        population=Each(individuals),
        elites=1.0,
        generations=1 + after,
        sgd_epochs=Each((epochs * RACE_SHARE / first, epochs * (1 - RACE_SHARE) / after / then)),
        offspring=Earned(1, 3) if then > 1 else 0,
        mates_from=trajectories,
        kinds=(MeanOfElites(), Cloned()),
        mutation=Gaussian(sigma=0.0),
        backoff=BestOfLooks(looks=()),
        baggage=Uninterrupted(returns=True),
    )


def _work(task: LightningTask, trainer: Any) -> float:
    """Of one network, in samples: backward counts twice, and it looks at the validation data after every epoch."""
    steps, samples = task.steps({}), task._train.samples
    if steps is None or samples is None:
        raise RecipeError(
            "the work of a run is counted in samples, and the train loader does not know how many. Give a recipe."
        )
    epochs = float(trainer.max_epochs) if (trainer.max_epochs or -1) > 0 else float("inf")
    if trainer.max_steps > 0:
        epochs = min(epochs, trainer.max_steps / steps)
    if epochs == float("inf"):
        raise RecipeError("the Trainer has no end: max_epochs and max_steps are -1. Set one of them, or give recipe=….")
    return epochs * (3.0 * samples + task.size(None))


def _engine(trainer: Any) -> str:
    precision = "float32" if trainer is None else PRECISIONS[trainer.precision]
    return "auto" if precision == "float32" else f"auto:precision={precision}"


def _check_trainer(trainer: Any) -> None:
    if trainer is None:
        return
    for name, (usual, instead) in REFUSED_ARGUMENTS.items():
        value = getattr(trainer, name, usual)
        if value is not None and str(getattr(value, "value", value)) != str(usual):
            raise RecipeError(f"{name}={value!r} cannot be taken over from the Trainer. {instead}")
    if trainer.precision not in PRECISIONS:
        raise RecipeError(
            f"precision={trainer.precision!r} cannot be taken over from the Trainer. Use {' or '.join(PRECISIONS)}."
        )


def _check_hooks(module: Any, base: Any) -> None:
    overridden = [name for name in REFUSED_HOOKS if _overrides(module, base, name)]
    if overridden:
        raise TaskError(
            f"{type(module).__name__} has {', '.join(overridden)}, which can change the training and would not be "
            f"called: the engine computes gradients and takes steps. Do it in training_step, or leave it out."
        )


def _unused(module: Any, base: Any, trainer: Any) -> list[str]:
    """What is there and is not used, for one warning."""
    found = [name for name in NAMED_HOOKS if _overrides(module, base, name)]
    if trainer is None:
        return found
    found += [
        f"{name}={getattr(trainer, name)!r}"
        for name, usual in NAMED_ARGUMENTS.items()
        if getattr(trainer, name, usual) != usual
    ]
    kinds = [{each.__name__ for each in type(callback).__mro__} for callback in trainer.callbacks]
    found += [
        type(each).__name__ for each, names in zip(trainer.callbacks, kinds, strict=True) if not names & {*UNNAMED}
    ]
    own = [each for each in trainer.loggers if each.name != "lightning_logs"]
    return found + [f"{type(each).__name__} (use trackers=…)" for each in own]


def _overrides(module: Any, base: Any, name: str) -> bool:
    return getattr(type(module), name, None) is not getattr(base, name, None)


def _loaders(module: Any, datamodule: Any, train: Any, fitness: Any) -> tuple[Any, Any]:
    """The two loaders, from wherever `Trainer.fit` would take them."""
    if datamodule is not None:
        if train is not None or fitness is not None:
            raise TaskError("data come from a datamodule or from loaders. Give one of them.")
        datamodule.prepare_data()
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
