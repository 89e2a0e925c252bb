"""What the `TrainingArguments` of Hugging Face mean for a population: taken over, refused by name, or named as ignored.

Nothing is imported: what is not set is known from arguments that are made with their defaults.

| arguments                                         | what they become                                                 |
|---------------------------------------------------|------------------------------------------------------------------|
| `learning_rate`                                   | tried first, then 4 and 16 times it, and 1/4 of it if four race  |
| `optim`, `weight_decay`, `adam_*`                 | the optimizer and its keywords; what decays, `Trainer` says      |
| `max_grad_norm`                                   | the largest gradient norm of a policy                            |
| `lr_scheduler_type`                               | "constant", or one cosine over the run, also for "linear"        |
| `warmup_steps`, `warmup_ratio`                    | the share of the run in which the rate rises                     |
| `gradient_accumulation_steps`                     | batches of one step of a policy                                  |
| `num_train_epochs`, `max_steps`                   | the work of the whole population: what one network would take    |
| `per_device_train_batch_size`, `…_eval_…`         | batches of SGD, and of the fitness                               |
| `metric_for_best_model`, `greater_is_better`      | what selection goes by, instead of the loss                      |
| `seed`                                            | of the network that `model_init` makes, and of the run           |
| `output_dir`, `save_strategy`                     | the run is in its folder `esgd`; with "no" nothing is kept       |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esgd.errors import RecipeError, did_you_mean
from esgd.integrations.training_species import LOWEST, OPTIMIZERS, SCHEDULES, word

TAKEN = frozenset(
    {
        "output_dir",
        "save_strategy",
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "num_train_epochs",
        "max_steps",
        "learning_rate",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "warmup_steps",
        "warmup_ratio",
        "gradient_accumulation_steps",
        "optim",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "max_grad_norm",
        "seed",
        "metric_for_best_model",
        "greater_is_better",
        "load_best_model_at_end",
        "label_names",
        "remove_unused_columns",
        "dataloader_num_workers",
        "dataloader_drop_last",
        "disable_tqdm",
        "use_cpu",
        "do_train",
        "do_eval",
        "do_predict",
        "full_determinism",
    }
)
"""What changes the training of a population, or asks for what is the case anyway."""

OF_EVALUATION = frozenset(
    {
        "prediction_loss_only",
        "eval_do_concat_batches",
        "eval_use_gather_object",
        "eval_accumulation_steps",
        "include_for_metrics",
        "batch_eval_metrics",
        "bf16_full_eval",
        "fp16_full_eval",
        "tf32",
        "use_cache",
        "dataloader_pin_memory",
        "dataloader_prefetch_factor",
        "dataloader_persistent_workers",
        "log_level",
        "log_level_replica",
        "logging_nan_inf_filter",
        "push_to_hub",
        "hub_token",
        "hub_private_repo",
        "hub_model_id",
        "hub_strategy",
        "hub_always_push",
        "hub_revision",
        "accelerator_config",
    }
)
"""What `evaluate`, `predict` and `save_model` go by, as those of `Trainer` do."""

NOT_IN_SELECTION = ("batch_eval_metrics", "include_for_metrics", "eval_do_concat_batches")
"""What changes how `compute_metrics` is called, and is not known where selection calls it."""

REFUSED: Mapping[str, str] = {
    "label_smoothing_factor": "The loss is the one that the network returns. Let it smooth the labels itself.",
    "fp16": "Use bf16 in the engine: engine=Loop(precision='bf16').",
    "bf16": "It is the engine's: engine=Loop(precision='bf16').",
    "torch_compile": "It is the engine's: engine=Loop(compile=True).",
    "gradient_checkpointing": "Call network.gradient_checkpointing_enable() inside model_init.",
    "neftune_noise_alpha": "Add the noise inside the network.",
    "auto_find_batch_size": "Choose a per_device_train_batch_size that fits.",
    "use_liger_kernel": "Apply it inside model_init.",
    "fsdp": "A network must fit one device. Use engine=Ray() for many devices, each with whole networks.",
    "deepspeed": "A network must fit one device. Use engine=Ray() for many devices, each with whole networks.",
    "predict_with_generate": "Selection and evaluate go by what the network returns, not by generated text. Generate "
    "with result.model afterwards.",
    "optim_args": "Use recipe=Recipe(species=Optimizer(…)).",
    "optim_target_modules": "Freeze the other parameters inside model_init.",
    "resume_from_checkpoint": "A run in output_dir continues by itself.",
}
"""What would change the training and cannot be done here, and what to do instead."""


def check_arguments(args: Any) -> None:
    """Refuse by name what a population cannot be trained with."""
    given = _set(args)
    for name in given:
        if name in REFUSED:
            raise RecipeError(
                f"{name}={getattr(args, name)!r} cannot be taken over from TrainingArguments. {REFUSED[name]}"
            )
    if "push_to_hub" in given and folder_of(args) is not None:
        raise RecipeError(
            f"push_to_hub=True uploads output_dir={args.output_dir!r} as a whole, and with it all networks of the run, "
            f"which are in its folder esgd. Leave it out, and upload the folder that save_model writes with "
            f"huggingface_hub.upload_folder; or use save_strategy='no', and no run is kept."
        )
    select, _ = selection_of(args)
    unlike = unlike_selection(args)
    if select is not None and unlike:
        raise RecipeError(
            f"{', '.join(unlike)} cannot be used with metric_for_best_model={select!r}: selection gives "
            f"compute_metrics the predictions and labels of the whole eval_dataset. Leave it out, or select by "
            f"the loss."
        )
    for name, known in (("optim", OPTIMIZERS), ("lr_scheduler_type", SCHEDULES)):
        if (value := word(getattr(args, name))) not in known:
            raise RecipeError(
                f"{name}={value!r} cannot be taken over from TrainingArguments. {did_you_mean(value, known)} Use one "
                f"of {', '.join(map(repr, known))}, or recipe=Recipe(species=…)."
            )
    shape, keywords = word(args.lr_scheduler_type), args.lr_scheduler_kwargs or {}
    if keywords and (shape != "cosine_with_min_lr" or not set(keywords) <= set(LOWEST)):
        raise RecipeError(
            f"lr_scheduler_kwargs={keywords!r} of lr_scheduler_type={shape!r} cannot be taken over from "
            f"TrainingArguments. 'cosine_with_min_lr' has {' or '.join(LOWEST)}. For others use "
            f"recipe=Recipe(species=…)."
        )


def unlike_selection(args: Any) -> list[str]:
    """The arguments that were set and let `compute_metrics` be called otherwise than selection calls it."""
    given = _set(args)
    return [f"{name}={getattr(args, name)!r}" for name in NOT_IN_SELECTION if name in given]


def ignored(args: Any) -> list[str]:
    """The arguments that were set and are not followed, such as "logging_steps=10"."""
    known = TAKEN | OF_EVALUATION | REFUSED.keys()
    if args.report_to in ([], "none", ["none"]):  # as it is here; the default of earlier versions is all that there is
        known |= {"report_to"}
    values = {name: getattr(args, name) for name in _set(args) if name not in known}
    return [f"{name}={getattr(value, 'value', value)!r}" for name, value in values.items()]


def work_of(args: Any, samples: int) -> float:
    """The work of one network that is trained as the arguments say, in samples; backward counts twice."""
    step = args.per_device_train_batch_size * args.gradient_accumulation_steps
    seen = args.max_steps * step if args.max_steps > 0 else args.num_train_epochs * samples
    return 3.0 * float(seen)


def selection_of(args: Any) -> tuple[str | None, str]:
    """The metric that selection goes by, None for the loss, and "min" or "max"."""
    name = (args.metric_for_best_model or "loss").removeprefix("eval_")
    if name == "loss":
        return None, "min"
    return name, "min" if args.greater_is_better is False else "max"


def folder_of(args: Any) -> Path | None:
    """Where the run is kept: every generation is, whatever is set, unless nothing is to be."""
    return None if word(args.save_strategy) == "no" else Path(args.output_dir) / "esgd"


def _set(args: Any) -> list[str]:
    """The names of the arguments that differ from their defaults."""
    usual = type(args)(output_dir=args.output_dir)
    names = [name for name in type(args).__dataclass_fields__ if getattr(args, name) != getattr(usual, name)]
    logs = Path(getattr(args, "logging_dir", None) or "")
    timed = {"logging_dir"} if logs.parent == Path(args.output_dir) / "runs" else set[str]()  # in earlier versions
    return [name for name in names if name not in timed]
