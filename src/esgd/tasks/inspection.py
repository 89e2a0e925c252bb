"""One look at the data before training: what makes a run useless although nothing in it is wrong.

It is cheap: of tensors it takes at most some million numbers, of a dataset some hundred samples, evenly spaced. It
uses no random numbers of anybody and changes nothing. A function that returns batches is not called, and a source of
your own is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import combinations

import torch
from torch import Tensor, nn

from esgd.randomness import Seeds, global_randomness
from esgd.tasks.batch_forms import BatchForm
from esgd.tasks.datasets import Mapped
from esgd.tasks.losses import Loss, compares_numbers
from esgd.tasks.samples import Samples, evenly_spaced, read_samples
from esgd.tasks.sources import Concern, Source, Tensors
from esgd.tasks.standardisation import ScaledLoss, ScaledNetwork
from esgd.tasks.weights import ignored_class

LARGE, SMALL = 100.0, 0.01  # of inputs, beside 1: the scale that initial weights and learning rates are made for
APART = 1e3  # the largest features in units of the smallest
FAR = 100.0  # targets in units of 1: a new network answers about 0 ± 1
CLASSES = 1000  # more different whole numbers are no classes, but words or identities
SHARED = 0.01  # of the test samples that are in another split, too
SEARCHED, PIECE = 10_000, 128  # samples of a dataset that are searched for NaN at most, and that are read at a time
ROWS, KEYS = 200_000, 16  # samples that are compared between splits, and the numbers of each that are compared first


def concerns(
    samples: Sequence[Samples], splits: dict[str, Source], loss: Loss, network: nn.Module
) -> Iterator[Concern]:
    """Everything that is noteworthy about the data; the network is a new one, which is not changed."""
    train = next((each for each in samples if each.name == "train"), None)
    for each in samples:
        yield from _not_finite(each)
    if train is not None:
        yield from _length(train)
        yield from _inputs(train, network)
        yield from _targets(train, loss)
        yield from _shapes(train, loss, network)
    yield from _classes(splits, ignored_class(loss))
    yield from _duplicates(splits)


def search(split: Source, form: BatchForm) -> Iterator[Concern]:
    """Where a dataset to train on first has NaN or inf. It is read piece by piece until one is found."""
    if not isinstance(split, Mapped):
        return  # tensors have none
    for first in range(0, min(split.samples, SEARCHED), PIECE):
        chosen = torch.arange(first, min(first + PIECE, split.samples))
        samples = read_samples("train", split, chosen, form)
        found = list(_not_finite(samples)) if samples else []
        if found or samples is None:
            yield from found
            return


def _length(train: Samples) -> Iterator[Concern]:
    """A batch whose length is not along the samples."""
    read = len(train.indices)
    if train.counted != read:
        yield (
            "length",
            f"A batch of {read} samples of train counts as {train.counted}: so long is its target, or what else is "
            f"counted. A mean over a split weighs batches by it. Give batch_length=, a function of a batch that "
            f"returns how many samples it has.",
        )


def _not_finite(samples: Samples) -> Iterator[Concern]:
    items = [*((f"input {n}", item) for n, item in enumerate(samples.inputs)), ("target", samples.target)]
    for what, item in items:
        if item is None or not item.is_floating_point():
            continue
        bad = ~torch.isfinite(item).reshape(len(item), -1).all(dim=1)
        if bad.any():
            first = int(samples.indices[int(bad.nonzero()[0])])
            yield (
                "nan",
                f"In {samples.name}, {what} has NaN or inf in {int(bad.sum())} of {samples.scope}, the first at index "
                f"{first}. Every loss they touch is NaN, so updates with them are lost. Remove or fill these samples.",
            )


def _inputs(train: Samples, network: nn.Module) -> Iterator[Concern]:
    for number, x in enumerate(train.inputs):
        if x is None or not x.is_floating_point() or len(x) < 2 or not torch.isfinite(x).all():
            continue
        columns = x.reshape(len(x), -1)
        varies = (columns != columns[:1]).any(dim=0)
        if not varies.any():
            yield (
                "constant_inputs",
                f"Input {number} of train is the same in all of {train.scope}. A network cannot tell the samples apart "
                f"by it. Look at how it is loaded.",
            )
        elif not _normalises(network):
            yield from _scale(number, columns[:, varies].abs().amax(dim=0), features=x.dim() == 2)


def _scale(number: int, largest: Tensor, *, features: bool) -> Iterator[Concern]:
    """`largest` has the largest magnitude of each feature."""
    high, low = float(largest.max()), float(largest.min())
    remedy = "Use esgd.scaled(task), which standardises them inside the network, or scale the data yourself."
    if features and high > APART * low:
        yield (
            "scale",
            f"The features of input {number} of train differ in scale: the largest values of some are {high:.2g}, of "
            f"others {low:.2g}. No one learning rate suits both. {remedy}",
        )
    elif high > LARGE or high < SMALL:
        yield (
            "scale",
            f"The values of input {number} of train are {'no larger than' if high < SMALL else 'as large as'} "
            f"{high:.2g}. Initial weights and learning-rate ranges are made for values of about 1. {remedy}",
        )


def _normalises(network: nn.Module) -> bool:
    """Whether the first layer takes the scale out of the inputs."""
    layers = [layer for layer in network.modules() if not any(True for _ in layer.children())]
    kinds = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
    return isinstance(network, ScaledNetwork) or isinstance(next(iter(layers), None), kinds)


def _targets(train: Samples, loss: Loss) -> Iterator[Concern]:
    y = train.target
    if y is None or len(y) < 2 or (y.is_floating_point() and not torch.isfinite(y).all()):
        return
    if bool((y == y[:1]).all()):
        yield (
            "constant_targets",
            f"The targets of train are the same in all of {train.scope}. There is nothing to learn. Look at how they "
            f"are loaded, and whether the samples are sorted by target.",
        )
    elif y.is_floating_point() and compares_numbers(loss) and not isinstance(loss, ScaledLoss):
        mean, deviation = float(y.double().mean()), float(y.double().std())
        if abs(mean) > FAR or deviation > FAR or (max(abs(mean), deviation) < 1 / FAR):
            yield (
                "targets",
                f"The targets of train are {mean:.2g} ± {deviation:.2g}. A new network answers about 0 ± 1, so "
                f"learning rates that suit other tasks do not suit this one. Use esgd.scaled(task): it standardises "
                f"the targets inside the network, which answers in their own units.",
            )


def _shapes(train: Samples, loss: Loss, network: nn.Module) -> Iterator[Concern]:
    """(n, 1) against (n,): torch broadcasts the two, and every output is compared with every target."""
    y = train.target
    if y is None or not compares_numbers(loss) or len(y) < 2 or any(x is None for x in train.inputs):
        return
    few = min(len(y), 3)
    try:
        with torch.no_grad(), global_randomness(Seeds(0).integer("look")):
            output = deepcopy(network).cpu().eval()(*(x[:few].clone() for x in train.inputs if x is not None))
    except Exception:  # noqa: BLE001  # what fails here fails again when it is scored, where it is explained
        return
    if isinstance(output, Tensor) and output.shape != y[:few].shape:
        yield (
            "shapes",
            f"For {few} samples the network's output has the shape {tuple(output.shape)}, and the targets have "
            f"{tuple(y[:few].shape)}. The loss compares every output with every target, or fails. Give targets of the "
            f"output's shape: y[:, None], or .squeeze(1) on the output.",
        )


def _classes(splits: dict[str, Source], ignored: int | None) -> Iterator[Concern]:
    """Classes that one split has and another has not; of tensors, because of a dataset not all samples are read.

    The label that the loss ignores is no class.
    """
    found = dict[str, Tensor]()
    for name, split in splits.items():
        y = split.tensors[-1] if isinstance(split, Tensors) and not split.names else None
        if (
            y is not None
            and y.dim() == 1
            and y.dtype in (torch.int64, torch.int32, torch.uint8, torch.int16, torch.bool)
        ):
            classes = y.unique().cpu()
            found[name] = classes if ignored is None else classes[classes != ignored]
    if "train" not in found or max(map(len, found.values())) > CLASSES:
        return
    for name in found:
        for here, there, meaning in (
            (name, "train", f"SGD cannot learn them, so every error on them in {name} stays."),
            (
                "train",
                name,
                "Selection never sees whether they are learned."
                if name == "fitness"
                else "The test says nothing about them.",
            ),
        ):
            missing = sorted(set(found[here].tolist()) - set(found[there].tolist()))
            if missing:
                listed = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
                yield (
                    "classes",
                    f"{len(missing)} of {len(found[here])} classes of {here} are absent from {there}: {listed}. "
                    f"{meaning} Split the data at random, or stratified by class.",
                )


def _duplicates(splits: dict[str, Source]) -> Iterator[Concern]:
    """Samples of the test split that SGD or selection has seen."""
    for one, other in combinations(splits, 2):
        first, second = splits[one], splits[other]
        if other != "test" or not isinstance(first, Tensors) or not isinstance(second, Tensors):
            continue
        seen, unseen = first.tensors[0], second.tensors[0]
        if seen.shape[1:] != unseen.shape[1:] or seen.dtype != unseen.dtype or seen[0].numel() < 2:
            continue
        shared = _shared(seen, unseen)
        looked = min(len(unseen), ROWS)
        if shared > SHARED * looked:
            yield (
                "duplicates",
                f"{shared:,} of {looked:,} inputs of test are in {one}, too. What the test says of them is not what "
                f"the network does with data that it has never seen. Remove them from one of the two splits.",
            )


def _shared(seen: Tensor, unseen: Tensor) -> int:
    """How many rows of `unseen` are rows of `seen`; a few numbers of each are compared before the whole."""
    a, b = (_rows(each) for each in (seen, unseen))
    keys = evenly_spaced(a.shape[1], KEYS)
    known = {row.tobytes() for row in a[:, keys].numpy()}
    likely = [n for n, row in enumerate(b[:, keys].numpy()) if row.tobytes() in known]
    if not likely:
        return 0
    wanted = {row.tobytes() for row in b[torch.tensor(likely)][:, keys].numpy()}
    candidates = [n for n, row in enumerate(a[:, keys].numpy()) if row.tobytes() in wanted]
    whole = {a[n].numpy().tobytes() for n in candidates}
    return sum(b[n].numpy().tobytes() in whole for n in likely)


def _rows(x: Tensor) -> Tensor:
    chosen = x if len(x) <= ROWS else x[evenly_spaced(len(x), ROWS).to(x.device)]
    return chosen.detach().cpu().reshape(len(chosen), -1)
