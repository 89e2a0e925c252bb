"""A training batch is tried before anything is trained, so that data which do not fit the network are named.

Some samples go through a copy of the network and the loss. No step is taken, no random number of a run is used up, and
only splits are read that can be read at any place without processes: tensors and datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from esgd._limits import shortage
from esgd._tensors.batches import copied
from esgd.errors import TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds, global_randomness
from esgd.tasks.datasets import Mapped
from esgd.tasks.samples import evenly_spaced
from esgd.tasks.sources import Source, Tensors

FEW = 4  # samples
LARGEST = 50_000_000  # parameters that are trained, of a network that is tried: it is copied
SHOWN = 4  # items of a batch that are described

Loss = Callable[[nn.Module, Batch], Tensor]


def check_training(train: Source, fitness: Source | None, loss: Loss, network: nn.Module) -> None:
    """Refuse training data that the network or the loss does not take, where it takes those of the fitness, or takes
    them as float32.

    Where it takes none of these, the cause may be that nothing was moved to a device yet; what is scored first explains
    it.
    """
    batch, other = few_samples(train), None if fitness is None else few_samples(fitness)
    if batch is None or other is None:
        return
    error = fault(loss, network, batch)
    if error is None:
        return
    raised, numbers = f"{type(error).__name__}: {error}", with_float32_inputs(batch)
    if fault(loss, network, other) is None:
        raise TaskError(
            f"the network cannot be trained on train, although it can be scored on fitness: {raised}. Some samples of "
            f"train are {described(batch)}; of fitness {described(other)}. Give train the dtypes and shapes that the "
            f"network and the loss take."
        ) from error
    if numbers is not None and fault(loss, network, numbers) is None:
        raise TaskError(
            f"the network takes float32, and some samples of train are {described(batch)}: {raised}. Cast the inputs "
            f"with x.astype('float32') or x.float()."
        ) from error


@torch.no_grad()
def fault(loss: Loss, network: nn.Module, batch: Batch) -> Exception | None:
    """What is raised when a copy of the network is given a batch. It is in eval mode, in which it counts nothing.

    None where nothing is raised, and for a network that is too large to be copied.
    """
    if sum(p.numel() for p in network.parameters() if p.requires_grad) > LARGEST:
        return None
    frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
    try:
        with global_randomness(Seeds(0).integer("trial")):
            loss(deepcopy(network, memo=dict(frozen)).eval(), copied(batch))
    except Exception as error:  # noqa: BLE001  # whatever it is, the run would end with it
        return None if shortage(error) else error  # the run itself says what the machine has too little of
    return None


def few_samples(split: Source) -> Batch | None:
    """A batch of some samples; None where they can only be read as training reads them, or by processes that would
    have to be started for them."""
    if not isinstance(split, Tensors | Mapped) or split.samples < 2 or (isinstance(split, Mapped) and split.workers):
        return None
    chosen = evenly_spaced(split.samples, FEW)
    ((_, batch),) = split.some(chosen).parts(len(chosen))
    return batch


def with_float32_inputs(batch: Batch) -> Batch | None:
    """The batch with its first item cast; None where that is float32 already, or no tensor."""
    if not isinstance(batch, tuple | list) or not isinstance(batch[0], Tensor) or batch[0].dtype == torch.float32:
        return None
    return (batch[0].float(), *batch[1:])


def described(batch: Batch) -> str:
    """The dtypes and shapes of a batch.

    >>> described((torch.ones(2, 3), torch.tensor([0, 1])))
    'float32 (2, 3), int64 (2,)'
    """
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        items = [f"{name} {described(item)}" for name, item in batch.items()]
    elif isinstance(batch, tuple | list):
        items = list(map(described, batch))
    else:
        return f"a {type(batch).__name__}"
    return ", ".join(items[:SHOWN]) + (", …" if len(items) > SHOWN else "")
