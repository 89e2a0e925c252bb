"""What individuals are trained with, by the `TrainingArguments` of Hugging Face: optimizer, rates, schedule, groups."""

from __future__ import annotations

from collections.abc import Collection
from glob import escape
from math import ceil, inf
from typing import Any

from torch import nn

from esgd.errors import TaskError
from esgd.groups import Group, Groups, NoDecay
from esgd.protocols import Species
from esgd.schedules import Constant, CosineRun, Schedule, Steps
from esgd.species import Inherited, Ladder, Optimizer

OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
}
SCHEDULES = ("linear", "cosine", "cosine_with_min_lr", "constant", "constant_with_warmup")
TRIED = (1.0, 4.0, 16.0, 0.25)
"""The learning rates of the individuals that a race begins with, as multiples of `learning_rate`. Its default suits
whole networks and is far too low for adapters."""

LOWEST = ("min_lr", "min_lr_rate")
"""What `lr_scheduler_kwargs` may have: where a cosine ends."""


def species_of(args: Any, samples: int, groups: Groups = ()) -> Species:
    """What individuals are trained with: the optimizer, with `learning_rate` and multiples of it at the beginning.

    Survivors keep their policy, and offspring have their mate's with another rate.
    """
    if not 0 < args.learning_rate < inf:
        raise TaskError(
            f"learning_rate={args.learning_rate} of TrainingArguments. It and multiples of it are tried: give one "
            f"above 0, such as 5e-5."
        )
    optimizer = OPTIMIZERS[word(args.optim)]
    hyper: dict[str, Any] = {"weight_decay": args.weight_decay}
    if optimizer == "adamw":
        hyper |= {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    rates = Optimizer(
        name=optimizer,
        lr=args.learning_rate,
        gamma=1.0,
        hyper=hyper,
        schedule=schedule_of(args, samples),
        clip_norm=args.max_grad_norm or None,
        accumulate=args.gradient_accumulation_steps,
        groups=groups,
    )
    ladder = Ladder(species=rates, factors=TRIED)
    return Inherited(species=ladder, probability=1.0, jitter=0.3, offspring_only=True)


def schedule_of(args: Any, samples: int) -> Schedule:
    """The schedule of all policies. A warm-up is the share of the run that it is of the steps of one network."""
    shape, lowest = word(args.lr_scheduler_type), args.lr_scheduler_kwargs or {}
    if shape == "constant":  # without a warm-up in a Trainer, too
        return Constant()
    steps = _optimizer_steps(args, samples)
    warmup = min(1.0, args.get_warmup_steps(steps) / steps)
    if shape == "constant_with_warmup":
        return Steps(after=(), warmup=warmup)
    floor = lowest.get("min_lr_rate") or (lowest.get("min_lr") or 0.0) / args.learning_rate
    return CosineRun(floor=floor, warmup=warmup)


def decay_groups(args: Any, network: nn.Module, decaying: Collection[str]) -> Groups:
    """The parameters without weight decay: all but those that `Trainer` calls `decaying`.

    That is `NoDecay`, and the parameters of which `Trainer` says otherwise, by their names: it goes by names as well as
    by classes, and knows no BatchNorm.
    """
    if not args.weight_decay:
        return ()
    names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    spared = NoDecay().changes(network, names)
    others = [name for name in names if (name in decaying) == (name in spared)]
    decays = {name: args.weight_decay if name in decaying else 0.0 for name in others}
    return (NoDecay(), *(Group(names=escape(name), weight_decay=decay) for name, decay in decays.items()))


def word(value: Any) -> str:
    """The name of an argument that may be a member of an enumeration."""
    return str(getattr(value, "value", value))


def _optimizer_steps(args: Any, samples: int) -> int:
    """Steps of the optimizer that one network would take."""
    if args.max_steps > 0:
        return int(args.max_steps)
    batches = samples / args.per_device_train_batch_size
    whole = int(batches) if args.dataloader_drop_last else ceil(batches)
    steps: int = max(1, ceil(args.num_train_epochs * ceil(whole / args.gradient_accumulation_steps)))
    return steps
