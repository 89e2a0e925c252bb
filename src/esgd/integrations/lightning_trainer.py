"""What of a `Trainer`'s arguments is taken over, refused by name, or named as unused. It is read and not run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from esgd.budget import Budget, Work
from esgd.errors import RecipeError
from esgd.integrations.lightning_task import LightningTask
from esgd.integrations.short_races import LOOKS_SHARE, RACES, race
from esgd.protocols import Species
from esgd.recipe import Recipe
from esgd.rules import ours
from esgd.stopping import Target
from esgd.work import Costs, check_length, expected_looks, sized

REFUSED_ARGUMENTS: Mapping[str, tuple[Any, str]] = {
    "gradient_clip_algorithm": ("norm", "Gradients are clipped by their norm."),
    "fast_dev_run": (False, "Use a recipe with one generation."),  # sets the limits below, as the next one does
    "overfit_batches": (0.0, "Give a loader of fewer samples."),
    "limit_train_batches": (1.0, "Give a loader of fewer samples."),
    "limit_val_batches": (1.0, "Give a loader of fewer samples."),
    "world_size": (1, "Use engine='pool' or engine='ray': every worker trains whole networks."),
}
"""Arguments of a `Trainer` that would change the training, what they are by default, and what to do instead."""

NAMED_ARGUMENTS: Mapping[str, Any] = {
    "min_epochs": None,
    "min_steps": None,
    "check_val_every_n_epoch": 1,
    "val_check_interval": 1.0,
    "reload_dataloaders_every_n_epochs": 0,
    "_detect_anomaly": False,
}

REFUSED_CALLBACKS: Mapping[str, str] = {
    "StochasticWeightAveraging": "result.soup() averages networks, and Swa of esgd.schedules the iterates of one.",
    "WeightAveraging": "result.soup() averages networks, and Swa of esgd.schedules the iterates of one.",
    "ModelPruning": "Prune result.model.",
    "GradientAccumulationScheduler": "accumulate_grad_batches of the Trainer is taken over.",
    "BaseFinetuning": "Freeze parameters in __init__.",
    "LearningRateFinder": "Rates are drawn around that of configure_optimizers; Recipe(species='auto') finds them.",
    "BatchSizeFinder": "Give loaders of the batch size that you want.",
    "SpikeDetection": "A generation that makes the fitness worse is backed off.",
}
"""Callbacks that train otherwise, with all that are derived from them, and what to do instead."""

INSTEAD: Mapping[str, str] = {
    "ModelCheckpoint": "every generation is saved with run=…",
    "LearningRateMonitor": "the history has every policy",
    "Timer": "use budget=…",
}
"""Callbacks that only watch or stop, and what a run has instead."""

POLICY_ARGUMENTS: Mapping[str, Any] = {"gradient_clip_val": None, "accumulate_grad_batches": 1}
"""What policies take over, and what it is by default."""

PRECISIONS = {"32-true": "float32", "bf16-mixed": "bf16"}
UNNAMED = ("ProgressBar", "ModelSummary")
"""Callbacks that every `Trainer` has, and that a run has an own form of."""


def check_trainer(trainer: Any) -> None:
    """Refuse by name the arguments that a population cannot be trained with."""
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

    for callback in trainer.callbacks:
        for name, instead in REFUSED_CALLBACKS.items():
            if _is_one_of(callback, (name,)):
                raise RecipeError(
                    f"the callback {type(callback).__name__} of the Trainer changes the training and would not be "
                    f"called. Leave it out. {instead}"
                )


def stops_of(trainer: Any, monitor: str, mode: str) -> list[Target]:
    """The rules that stop a run where an `EarlyStopping` would: at the `stopping_threshold` of what selection goes by.

    The fitness is the negative of what is to be high.
    """
    sign = 1 if mode == "min" else -1
    return [
        Target(sign * each.stopping_threshold)
        for each in getattr(trainer, "callbacks", ())
        if _is_followed(each, monitor, mode)
    ]


def unused_of(trainer: Any, monitor: str, mode: str) -> list[str]:
    """Arguments, callbacks and loggers that a population does not use."""
    if trainer is None:
        return []
    found = _given(trainer, NAMED_ARGUMENTS)
    if not _is_one_of(trainer.profiler, ("PassThroughProfiler",)):
        found.append(f"{type(trainer.profiler).__name__} (the history has seconds)")
    for each in trainer.callbacks:
        if _is_one_of(each, ("EarlyStopping",)):
            found += _early_stopping(each, trainer, followed=_is_followed(each, monitor, mode))
        elif not _is_usual(each):
            instead = next((words for name, words in INSTEAD.items() if _is_one_of(each, (name,))), "")
            found.append(f"{type(each).__name__} ({instead})" if instead else type(each).__name__)
    return found + [f"{type(each).__name__} (use trackers=…)" for each in trainer.loggers]


def _is_followed(callback: Any, monitor: str, mode: str) -> bool:
    """Whether it has a threshold of what selection goes by. Its patience counts epochs of one network, and so has no
    meaning in generations."""
    if not _is_one_of(callback, ("EarlyStopping",)) or callback.stopping_threshold is None:
        return False
    return bool(callback.monitor == monitor and callback.mode == mode)


def _early_stopping(callback: Any, trainer: Any, *, followed: bool) -> list[str]:
    """What of an `EarlyStopping` is not followed, and what to use instead; nothing if its patience has no end."""
    name = type(callback).__name__
    if not followed:
        return [f"{name} (use stop=esgd.Patience(…), in generations, or stop=esgd.Target(…))"]
    epochs = trainer.max_epochs or 0
    endless = 0 < epochs <= callback.patience
    left = [] if endless else [f"patience={callback.patience}"]
    left += [] if callback.divergence_threshold is None else [f"divergence_threshold={callback.divergence_threshold}"]
    return [f"{', '.join(left)} of {name} (use stop=esgd.Patience(…), in generations)"] if left else []


def policy_arguments(trainer: Any) -> list[str]:
    """What a recipe decides instead of a `Trainer`."""
    decided = {**POLICY_ARGUMENTS, "max_epochs": None, "max_steps": -1}
    return [f"{each} (the recipe decides)" for each in _given(trainer, decided)]


def precision_argument(trainer: Any) -> list[str]:
    """The precision, where an engine is given that has its own."""
    return [f"{each} (the engine decides)" for each in _given(trainer, {"precision": "32-true"})]


def _given(trainer: Any, usual: Mapping[str, Any]) -> list[str]:
    """Arguments that are not as usual, such as "min_epochs=2"."""
    values = {name: getattr(trainer, name, value) for name, value in usual.items()}
    return [f"{name.lstrip('_')}={value!r}" for name, value in values.items() if value != usual[name]]


def _is_usual(callback: Any) -> bool:
    """Whether it is what a `Trainer` has without being asked."""
    if _is_one_of(callback, ("ModelCheckpoint",)):
        return callback.monitor is None and callback.dirpath is None
    return _is_one_of(callback, UNNAMED)


def _is_one_of(callback: Any, names: Collection[str]) -> bool:
    return any(each.__name__ in names for each in type(callback).__mro__)


def epochs_of(trainer: Any, budget: Budget | None) -> int | None:
    """The epochs of one network, if they alone say how long it is trained."""
    if trainer is None or budget is not None or trainer.max_steps > 0 or (trainer.max_epochs or -1) < 0:
        return None
    return int(trainer.max_epochs)


def accumulate_of(trainer: Any) -> int:
    """Batches of one step of the optimizer."""
    return int(getattr(trainer, "accumulate_grad_batches", None) or 1)


def clip_norm_of(trainer: Any) -> float | None:
    """The largest gradient norm."""
    return getattr(trainer, "gradient_clip_val", None) or None


def engine_of(trainer: Any) -> str:
    """The engine with the precision of the trainer."""
    precision = "float32" if trainer is None else PRECISIONS[trainer.precision]
    return "auto" if precision == "float32" else f"auto:precision={precision}"


def recipe_of(task: LightningTask, trainer: Any, species: Species, budget: Budget | None = None) -> Recipe:
    """Our rules with the work of one network, as the trainer has it, or of the budget, and the module's own optimizer.

    Where their looks at the validation data would leave too little for training, a smaller race takes their place. A
    budget of time changes the epochs later.
    """
    if isinstance(budget, Work):
        check_length(task, f"budget={budget!r}")
        work = budget.samples
    elif trainer is None or budget is not None:
        return replace(ours(task), species=species)
    else:
        work = work_of(task, trainer)
    rules = [partial(ours, task, work), *(partial(sized, task, work, partial(race, *each)) for each in RACES)]
    costs = Costs.of(task, Recipe())
    for rule in rules:
        try:
            recipe = rule()
        except RecipeError:  # its looks alone are more than the work
            continue
        if expected_looks(costs, recipe) <= LOOKS_SHARE * work:
            return replace(recipe, species=species)
    given = (
        f"max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps} are" if budget is None else f"{budget} is"
    )
    raise RecipeError(
        f"{given} too little work for a population: one look of every network at the validation data is paid from it, "
        f"too. Give more, use fewer validation data, or give a recipe."
    )


def work_of(task: LightningTask, trainer: Any) -> float:
    """Of one network, in samples: backward counts twice, and it looks at the validation data after every epoch."""
    steps, samples = task.steps({}), task._train.samples
    if steps is None or samples is None:
        raise RecipeError(
            "the work of a run is counted in samples, and the train loader does not know how many. Give a recipe."
        )
    epochs = float(trainer.max_epochs) if (trainer.max_epochs or -1) > 0 else float("inf")
    if trainer.max_steps > 0:
        epochs = min(epochs, trainer.max_steps / ceil(steps / accumulate_of(trainer)))
    if epochs == float("inf"):
        raise RecipeError("the Trainer has no end: max_epochs and max_steps are -1. Set one of them, or give recipe=….")
    return epochs * (3.0 * samples + task.size(None))
