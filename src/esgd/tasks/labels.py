"""Class numbers for which a network has no output, found before training. Torch refuses them in the step that meets
them, without their place; compiled code may compute with them.

Only torch's own cross entropies are known to take class numbers and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esgd.errors import TaskError
from esgd.protocols import Batch
from esgd.tasks.batch_forms import BatchForm
from esgd.tasks.objectives import name_of
from esgd.tasks.samples import Samples
from esgd.tasks.sources import Source, Tensors
from esgd.tasks.trial import FEW, fault, few_samples
from esgd.tasks.weights import ignored_class

Targets = tuple[str, Any, Tensor | None, int]
"""The name of a split, its targets, their places in it if these are not all, and how many samples it has."""


def check_labels_of_tensors(splits: Mapping[str, Source], loss: Any, form: BatchForm, network: nn.Module) -> None:
    """Refuse class numbers that are out of range, in the splits that are tensors. All of them are looked at."""
    held = {name: split for name, split in splits.items() if type(split) is Tensors}
    if held and ignored_class(loss) is not None:
        targets = [(name, _target(split, form), None, split.samples) for name, split in held.items()]
        _check(targets, loss, form, network, few_samples(next(iter(held.values()))))


def check_labels_of_samples(samples: Iterable[Samples], loss: Any, form: BatchForm, network: nn.Module) -> None:
    """Refuse class numbers that are out of range, among samples that were read."""
    known = [each for each in samples if each.target is not None and all(x is not None for x in each.inputs)]
    if known and ignored_class(loss) is not None:
        targets: list[Targets] = [(each.name, each.target, each.indices, each.total) for each in known]
        few = tuple(item[:FEW] for item in (*known[0].inputs, known[0].target) if item is not None)
        _check(targets, loss, form, network, few)


def _target(split: Tensors, form: BatchForm) -> Any:
    ((_, batch),) = split.parts(split.samples)
    try:
        return form.target(batch)
    except TaskError:
        return None  # it is said where the loss is taken


def _check(targets: Iterable[Targets], loss: Any, form: BatchForm, network: nn.Module, few: Batch | None) -> None:
    classes, ignored = None if few is None else _classes(network, few, form), ignored_class(loss)
    if classes is None:
        return
    for name, y, places, total in targets:
        if not _is_whole(y) or not len(y):
            continue
        low, high = (int(bound) for bound in torch.aminmax(y))
        if low >= 0 and high < classes:
            continue
        wrong = (((y < 0) | (y >= classes)) & (y != ignored)).reshape(len(y), -1)
        rows = wrong.any(dim=1).nonzero().flatten().cpu()
        if not len(rows):
            continue
        first = int(rows[0])
        label = int(y[first].reshape(-1)[wrong[first]][0])
        index = first if places is None else int(places[first])
        among = f"its {total:,}" if len(y) == total else f"the {len(y):,} of its {total:,}"
        raise TaskError(
            f"{name} has the label {label} at index {index}. The network has {classes} outputs, so the class numbers "
            f"of {name_of(loss)} are 0 to {classes - 1}, and {ignored} for what is ignored. Out of range: "
            f"{len(rows):,} of {among} samples{' that were looked at' if len(y) < total else ''}. Number the classes "
            f"from 0 (y.unique(return_inverse=True)[1]), or let make_model build a network with an output for each "
            f"class."
        )


def _classes(network: nn.Module, few: Batch, form: BatchForm) -> int | None:
    """For how many classes a network has outputs: (n, classes, …) for targets (n, …). None where it is not so."""
    outputs = list[Any]()

    def keep(module: nn.Module, batch: Batch) -> Tensor:
        outputs.append(form.output(module, batch))
        return torch.zeros(())

    if fault(keep, network, few) is not None or not outputs:
        return None
    output, y = outputs[0], form.target(few)
    if not isinstance(output, Tensor) or output.dim() < 2 or not _is_whole(y):
        return None
    return output.shape[1] if y.shape == (output.shape[0], *output.shape[2:]) else None


def _is_whole(y: Any) -> bool:
    """Whether these are class numbers of a kind that cross entropies take, and not the probabilities of classes."""
    return isinstance(y, Tensor) and y.dtype in (torch.int64, torch.uint8)
