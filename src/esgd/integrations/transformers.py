"""A population of Hugging Face networks, from the arguments of their `Trainer`. The one file that imports transformers.

What is not training is `Trainer`'s own: how samples become batches, which column is the target, evaluation, prediction,
and what a saved network's folder has.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader

from esgd.budget import Budget, Work, seconds_in
from esgd.errors import MissingExtraError, RecipeError, TaskError, did_you_mean
from esgd.fit import fit
from esgd.integrations.short_races import LOOKS_SHARE, RACES, race
from esgd.integrations.training_arguments import (
    check_arguments,
    folder_of,
    ignored,
    selection_of,
    unlike_selection,
    work_of,
)
from esgd.integrations.training_species import decay_groups, species_of
from esgd.operators import Perturbed
from esgd.progress.tracking import Tracker
from esgd.protocols import Engine, Species, Task
from esgd.randomness import global_randomness
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.tasks import Supervised
from esgd.tasks.objectives import OfModel
from esgd.work import Costs, expected_looks, sized

if TYPE_CHECKING:
    from transformers import TrainingArguments

PADDING = -100
"""What `Trainer` fills up shorter batches with, and what losses of Hugging Face leave out."""

INSTEAD: Mapping[str, str] = {
    "push_to_hub": "Write a folder with save_model, and upload it with huggingface_hub.upload_folder.",
    "create_model_card": "Its draft has the settings of one network. Those of the run are in result.recipe.",
    "hyperparameter_search": "The population is the search: it tries learning_rate and multiples of it.",
    "state": "Every generation is in result.history.",
    "optimizer": "Policies of the population are in result.history.",
    "add_callback": "Follow a run with trackers=….",
}
"""What there is instead of methods and attributes of `Trainer` that scripts use most."""


class EsgdTrainer:
    """`Trainer` with a population: the same arguments, and at most the same work.

    | argument                          | meaning                                                                    |
    |-----------------------------------|----------------------------------------------------------------------------|
    | `model_init`, `model`             | the network that all individuals start from, as a function or as it is     |
    | `args`                            | `TrainingArguments`; `esgd.integrations.training_arguments` says what they |
    |                                   | become. What is ignored is listed in one warning                           |
    | `train_dataset`                   | what SGD sees                                                              |
    | `eval_dataset`                    | what selection sees; give `predict` other data for a last judgement        |
    | `data_collator`, `processing_class`, `compute_metrics`, `preprocess_logits_for_metrics` | as `Trainer` has them |
    | `recipe`                          | instead of one that is made from `args`: it says all about optimizers      |
    | `budget`                          | instead of the work that `args` has: "30m", or `esgd.Work(samples=1e6)`    |
    | `engine`, `trackers`              | as `esgd.fit` has them                                                     |

    `model_init` is called once, with the seed of `args`, so the start is that of `Trainer`. A run in `output_dir`
    continues where it stopped.
    """

    def __init__(
        self,
        *unnamed: Any,
        model_init: Callable[[], nn.Module] | None = None,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        processing_class: Any = None,
        tokenizer: Any = None,
        compute_metrics: Callable[[Any], dict[str, float]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        compute_loss_func: None = None,
        callbacks: None = None,
        optimizers: tuple[None, None] = (None, None),
        optimizer_cls_and_kwargs: None = None,
        recipe: Recipe | None = None,
        budget: Budget | None = None,
        engine: str | Engine = "auto",
        trackers: Sequence[Tracker] = (),
    ) -> None:
        if unnamed:
            raise TaskError(
                "EsgdTrainer takes its arguments by name. Write EsgdTrainer(model=…, args=…, train_dataset=…, "
                "eval_dataset=…)."
            )
        package = _package()
        _check_overridden(type(self), package.Trainer)
        args = package.TrainingArguments(output_dir="tmp_trainer") if args is None else args
        if not isinstance(args, package.TrainingArguments):
            raise TaskError(f"args is a {type(args).__name__}. Give TrainingArguments(output_dir=…, …).")
        refused = {"compute_loss_func": compute_loss_func, "optimizer_cls_and_kwargs": optimizer_cls_and_kwargs}
        _check_given(refused | {"callbacks": callbacks or None, "optimizers": optimizers if any(optimizers) else None})
        _check_data(train_dataset, eval_dataset)
        check_arguments(args)
        if budget is not None:
            seconds_in(budget)  # what is no budget is refused before a network is made
        select, mode = selection_of(args)
        if select is not None and compute_metrics is None:
            raise RecipeError(
                f"metric_for_best_model={select!r} needs compute_metrics, which computes it. Give both, or neither."
            )
        if rest := ignored(args):
            warnings.warn(f"TrainingArguments that are not followed: {', '.join(rest)}.", stacklevel=2)
        unlike = unlike_selection(args)  # before there is a Trainer, whose devices new TrainingArguments would reset
        with global_randomness(args.seed):  # a Trainer seeds global generators, too
            network = _network(model_init, model)
            self._trainer: Any = package.Trainer(
                model=network,
                args=args,
                data_collator=data_collator,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class if processing_class is not None else tokenizer,
                compute_metrics=compute_metrics,
                preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            )
        self.args, self.budget, self.engine, self.trackers = args, budget, engine, tuple(trackers)
        measures = self._measures(select, unlike)
        self.task = self._task(network.cpu(), select, mode, measures=measures)
        self.recipe = recipe or self._recipe(network, len(train_dataset))
        self.result: Result | None = None

    @property
    def model(self) -> nn.Module:
        """The network of the run, once there is one; before, the network that all start from."""
        network: nn.Module = self._trainer.model
        return network

    def __getattr__(self, name: str) -> Any:
        """Say what there is instead of something that only a `Trainer` has."""
        trainer = self.__dict__.get("_trainer")
        if name.startswith("_") or trainer is None or name not in dir(trainer):
            raise AttributeError(f"EsgdTrainer has no {name!r}.", name=name, obj=self)
        raise AttributeError(
            f"EsgdTrainer has no {name!r}. It is of a Trainer, which trains one network. "
            f"{INSTEAD.get(name, 'Leave it out.')}",
            name=name,
            obj=self,
        )

    def train(self, resume_from_checkpoint: Any = None) -> Result:
        """Train the population, or continue a run that was interrupted; afterwards `model` is its best network.

        A run in `output_dir` continues whether `resume_from_checkpoint` is True or not given.
        """
        if not isinstance(resume_from_checkpoint, bool | None):
            raise RecipeError(
                f"resume_from_checkpoint={resume_from_checkpoint!r} is a checkpoint of one network. A population in "
                f"output_dir continues by itself. To start from that network, give model=…."
            )
        self.result = fit(
            self.task,
            self.recipe,
            seed=self.args.seed,
            budget=self.budget,
            run=folder_of(self.args),
            engine=self.engine,
            progress=not self.args.disable_tqdm,
            trackers=self.trackers,
        )
        self._trainer.model = self._trainer.model_wrapped = self.result.model.to(self.args.device)
        return self.result

    def evaluate(self, eval_dataset: Any = None, **settings: Any) -> dict[str, float]:
        """Loss and metrics of `model`, as `Trainer.evaluate` has them. Of the eval_dataset they are optimistic:
        selection has seen it."""
        found: dict[str, float] = self._trainer.evaluate(eval_dataset, **settings)
        return found

    def predict(self, test_dataset: Any, **settings: Any) -> Any:
        """Predictions, labels and metrics of `model`, as `Trainer.predict` has them."""
        return self._trainer.predict(test_dataset, **settings)

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Write `model` as a folder that `from_pretrained` reads and the Hub takes: config, tokenizer, safetensors; of
        a PEFT model, the adapter. In `output_dir` of the arguments unless given."""
        self._trainer.save_model(None if output_dir is None else str(output_dir))

    def log_metrics(self, split: str, metrics: dict[str, float]) -> None:
        """Print metrics, as `Trainer.log_metrics` does."""
        self._trainer.log_metrics(split, metrics)

    def save_metrics(self, split: str, metrics: dict[str, float], **settings: Any) -> None:
        """Write metrics to `output_dir`, as `Trainer.save_metrics` does."""
        self._trainer.save_metrics(split, metrics, **settings)

    def save_state(self) -> None:
        """Write `trainer_state.json`, as `Trainer.save_state` does. What a run continues from is in `esgd`."""
        self._trainer.save_state()

    def _task(self, network: nn.Module, select: str | None, mode: str, *, measures: bool) -> Supervised:
        names = self._trainer.label_names
        if select is not None and len(names) != 1:
            raise TaskError(
                f"metric_for_best_model={select!r} is a metric of one target, and this network has {names}. Select by "
                f"the loss, or name one with label_names."
            )
        args, collate = self.args, self._collator(network)
        loader = partial(DataLoader, collate_fn=collate, num_workers=args.dataloader_num_workers)
        metrics = _Metrics(self._trainer.compute_metrics, self._trainer.preprocess_logits_for_metrics, select)
        return Supervised(
            Copies(network),
            WithOutputs(hidden=_hidden(network)),
            train=loader(
                self._trainer.train_dataset,
                batch_size=args.per_device_train_batch_size,
                shuffle=True,
                drop_last=args.dataloader_drop_last,
            ),
            fitness=loader(self._trainer.eval_dataset, batch_size=args.per_device_eval_batch_size),
            metrics={select or "compute_metrics": metrics} if measures else {},
            select=select,
            mode=mode,
            target=names[0] if len(names) == 1 else None,
        )

    def _measures(self, select: str | None, unlike: list[str]) -> bool:
        """Whether what compute_metrics returns for the best network is in the history."""
        if select is not None:
            return True
        if self._trainer.compute_metrics is None or self.args.prediction_loss_only:
            return False
        names = self._trainer.label_names
        reasons = unlike + ([] if len(names) == 1 else [f"label_names={names!r}"])
        if reasons:
            warnings.warn(
                f"compute_metrics is called by evaluate and predict only, and its metrics are not in the history: "
                f"{', '.join(reasons)}.",
                stacklevel=3,
            )
        return not reasons

    def _recipe(self, network: nn.Module, samples: int) -> Recipe:
        decaying = frozenset(self._trainer.get_decay_parameter_names(network))
        species = species_of(self.args, samples, decay_groups(self.args, network, decaying))
        if isinstance(self.budget, Work):
            return _raced(self.task, self.budget.samples, species)
        try:
            return _raced(self.task, work_of(self.args, samples), species)
        except RecipeError as error:
            raise RecipeError(
                f"{error} The work is that of one network by num_train_epochs={self.args.num_train_epochs} and "
                f"max_steps={self.args.max_steps}; every look at the eval_dataset is paid from it. Raise them, use a "
                f"smaller eval_dataset, or give a recipe."
            ) from error

    def _collator(self, network: nn.Module) -> Callable[[list[Any]], Any]:
        """The collator of `Trainer`, which sees the columns that the network takes, and no others."""
        from transformers.trainer_utils import RemoveColumnsCollator

        collate: Callable[[list[Any]], Any] = self._trainer.data_collator
        if not self.args.remove_unused_columns:
            return collate
        base: Any = getattr(network, "get_base_model", lambda: network)()  # PEFT's own forward takes anything
        taken = [*inspect.signature(base.forward).parameters, "label", "label_ids", *self._trainer.label_names]
        return RemoveColumnsCollator(collate, taken)


@dataclass(frozen=True, eq=False)
class Copies:
    """A make_model for a population that starts as one network: each call copies it, but for what is frozen."""

    original: nn.Module

    def __call__(self) -> nn.Module:
        frozen = {id(p): p for p in self.original.parameters() if not p.requires_grad}
        return copy.deepcopy(self.original, memo=dict(frozen))


@dataclass(frozen=True)
class WithOutputs(OfModel):
    """The loss that a network returns. Metrics are given what `Trainer` gives them: one output, or a tuple of all."""

    hidden: tuple[str, ...] = ("loss",)

    def shown(self, returned: Any) -> Any:
        if not isinstance(returned, Mapping):
            return super().shown(returned)
        outputs = tuple(value for name, value in returned.items() if name not in self.hidden)
        return outputs[0] if len(outputs) == 1 else outputs


class _Metrics:
    """The numbers that `compute_metrics` gives, without `eval_` in front. It sees predictions and labels of the whole
    split, as `Trainer` gathers them: batches of unequal length are padded with −100."""

    def __init__(self, compute: Any, preprocess: Any, select: str | None) -> None:
        self._compute, self._preprocess, self._select = compute, preprocess, select
        self._gathered: Any = None

    def reset(self) -> None:
        self._gathered = None

    def update(self, output: Any, target: Tensor, /) -> None:
        from transformers import trainer_pt_utils

        gathering: Any = trainer_pt_utils
        output, target = gathering.nested_detach((output, target))
        seen = self._preprocess(output, target) if self._preprocess else output
        known, batch = self._gathered, gathering.nested_numpify((seen, target))
        self._gathered = batch if known is None else gathering.nested_concat(known, batch, padding_index=PADDING)

    def compute(self) -> dict[str, float]:
        from transformers import EvalPrediction

        predictions, labels = self._gathered
        found = self._compute(EvalPrediction(predictions=predictions, label_ids=labels))
        if not isinstance(found, Mapping):
            raise TaskError(
                f"compute_metrics returned {found!r}, which is not a dict of metrics by name. Return one, such as "
                f"{{'accuracy': 0.9}}."
            )
        given = {str(name): number for name, value in found.items() if (number := _number(value)) is not None}
        bare = {name: name.removeprefix("eval_") for name in given}
        numbers = {bare[name]: given.get(bare[name], number) for name, number in given.items()}
        if self._select is not None and self._select not in numbers:
            raise RecipeError(
                f"metric_for_best_model={self._select!r} is not among the numbers that compute_metrics returned: "
                f"{sorted(numbers)}. {did_you_mean(self._select, numbers)}"
            )
        numbers.pop("loss", None)  # the fitness, unless a metric is
        return numbers


def _number(value: Any) -> float | None:
    """A metric that can be drawn as a curve; None for others, such as the lists and texts that `Trainer` also takes."""
    if isinstance(value, list | tuple):
        return None
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value  # NumPy has no bfloat16
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # what NumPy cannot convert, such as a sparse tensor
        return None
    return float(array.reshape(())) if array.dtype.kind in "biuf" and array.size == 1 else None


def _hidden(network: nn.Module) -> tuple[str, ...]:
    """The outputs that `Trainer` does not give to compute_metrics."""
    config = getattr(network, "config", None)
    return ("loss", *getattr(config, "keys_to_ignore_at_inference", ["past_key_values"]))


def _raced(task: Task, work: float, species: Species) -> Recipe:
    """The larger of the races whose looks at the fitness leave enough of the work for training.

    Four individuals, then two trajectories and their means; or where that is too dear, three, and then the best of
    them.
    """
    costs = Costs.of(task, race(*RACES[-1], 1.0))
    looks = [expected_looks(costs, race(*each, 1.0)) for each in RACES]
    fitting = [each for each, dear in zip(RACES, looks, strict=True) if dear <= LOOKS_SHARE * work]
    raced = sized(task, work, partial(race, *(fitting or RACES[-1:])[0]))
    return replace(raced, start=Perturbed(sigma=0.0), species=species)


def _network(model_init: Callable[[], nn.Module] | None, model: nn.Module | None) -> nn.Module:
    if (model_init is None) == (model is None):
        raise TaskError(
            "give either model_init, a function that makes the network that all individuals start from, or model, that "
            "network itself."
        )
    if model_init is None:
        return model  # type: ignore[return-value]
    needed = [each.name for each in inspect.signature(model_init).parameters.values() if _is_needed(each)]
    if needed:
        raise TaskError(
            f"model_init needs {', '.join(needed)}, and is called without arguments: there are no trials of a search. "
            f"Give a function without arguments."
        )
    return model_init()


def _is_needed(parameter: inspect.Parameter) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in optional


def _check_overridden(kind: type, trainer: type) -> None:
    """Refuse a subclass with methods of `Trainer` that would not be called."""
    inherited = kind.__mro__[: kind.__mro__.index(EsgdTrainer)]
    own = {name for each in inherited for name in vars(each) if not name.startswith("__")}
    if unused := sorted(name for name in own if hasattr(trainer, name) and not hasattr(EsgdTrainer, name)):
        raise TaskError(
            f"{kind.__name__} has {', '.join(unused)}, which Trainer calls and EsgdTrainer does not: engines take "
            f"batches, compute gradients and take steps. Let the network return the loss that you want, give data with "
            f"data_collator=, and optimizers with recipe=Recipe(species=…)."
        )


def _check_given(refused: dict[str, Any]) -> None:
    for name, value in refused.items():
        if value is not None:
            how = {
                "callbacks": "Follow a run with trackers=…, and limit it with budget=….",
                "optimizers": "Use recipe=Recipe(species=…).",
                "optimizer_cls_and_kwargs": "Use recipe=Recipe(species=…).",
            }
            raise RecipeError(
                f"{name} of Trainer cannot be taken over: a population has many optimizers and no single loop. "
                f"{how.get(name, 'Let the network return its loss.')}"
            )


def _check_data(train: Any, fitness: Any) -> None:
    if train is None or fitness is None:
        missing = "train_dataset" if train is None else "eval_dataset"
        raise TaskError(
            f"{missing} is missing. SGD sees the train_dataset, and selection the eval_dataset, which must be other "
            f"samples: dataset.train_test_split(test_size=0.1) makes two of one."
        )
    for name, data in (("train_dataset", train), ("eval_dataset", fitness)):
        if isinstance(data, dict) or not hasattr(data, "__len__"):
            raise TaskError(
                f"{name} is a {type(data).__name__}. Give one dataset of known length: the work of a run is counted in "
                f"its samples."
            )


def _package() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise MissingExtraError("transformers", "transformers", "EsgdTrainer") from error
    return transformers
