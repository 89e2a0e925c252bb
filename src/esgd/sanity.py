"""One look at a run before it begins: at the task, at the data as far as it can tell, and at the initial networks.

None of them uses up random numbers or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import torch
from torch import nn

from esgd.errors import TaskError
from esgd.generation import Note
from esgd.operators import LoraProduct, RandomStart
from esgd.operators.lora import has_other_adapters, lora_pairs
from esgd.population import Population
from esgd.protocols import Inspects, Setup, Task
from esgd.recipe import Recipe

_LOOKED: WeakKeyDictionary[nn.Module, tuple[Note, ...]] = WeakKeyDictionary()


LARGE_BASE = 1_000_000  # frozen parameters; loading fewer takes no time that matters
NEEDED = ("model", "prepare", "batches", "steps", "loss", "parts", "fitness", "size", "test", "describe")
"""Methods of a task without which no run begins. The rest of `Task` is needed by some networks alone."""


def check_is_task(task: Task) -> None:
    """Refuse what has not the methods of a task. It may be an object of any class."""
    missing = [f"{name}()" for name in NEEDED if not callable(getattr(task, name, None))]
    if not missing:
        return
    network = " A network alone does not say on which data, and by which loss, it is trained."
    raise TaskError(
        f"task is {'None' if task is None else f'a {type(task).__name__}'}, and no task: it has no "
        f"{', '.join(missing)}.{network if isinstance(task, nn.Module) else ''} A run needs data, a loss and a "
        f"fitness. Make a task of them with esgd.Supervised(make_model, loss, train=…, fitness=…), where make_model is "
        f"a function that builds the network; a task of your own has the methods of esgd.protocols.Task."
    )


def look(setup: Setup) -> tuple[Note, ...]:
    """What is noteworthy about data and network: what was seen, what it means and what to do. Data are looked at
    once."""
    network = setup.genome.template
    if network not in _LOOKED and isinstance(setup.task, Inspects):
        _LOOKED[network] = tuple(Note(kind, text) for kind, text in setup.task.look(network))
    return (*_LOOKED.get(network, ()), *_adapters(setup))


def _adapters(setup: Setup) -> Iterator[Note]:
    """How the offspring of networks with adapters are made."""
    pairs = lora_pairs(setup.genome)
    if pairs and setup.recombination == LoraProduct():
        yield Note(
            "lora",
            f"The network has {len(pairs)} pairs of LoRA factors. Offspring get the mean of their mates' updates B·A, "
            f"factored back to the same rank (recombination=LoraProduct()). With A frozen the mean of B is exact, and "
            f"cheaper.",
        )
    elif pairs and not setup.recombines_by_layout:
        yield Note(
            "lora",
            f"The network has {len(pairs)} pairs of LoRA factors, and recombination="
            f"{getattr(setup.recombination, '__name__', setup.recombination)} sees rows only. The mean of B times the "
            f"mean of A is not the mean of the updates B·A. Use recombination=LoraProduct(), or freeze A.",
        )
    if has_other_adapters(setup.genome):
        yield Note(
            "adapters",
            "The network has adapters whose update is no product B·A, such as those of AdaLoRA, KaSA, LoHa, LoKr or "
            "block-diagonal LoRA. Of these the rows of the mates are averaged, not the updates.",
        )


def built_often(population: Population, recipe: Recipe) -> Iterator[Note]:
    """A note if a large frozen base, of which one copy is kept, was built for every individual."""
    frozen = sum(p.numel() for p in population.genome.template.parameters() if not p.requires_grad)
    if isinstance(recipe.start, RandomStart) and len(population) > 2 and frozen > LARGE_BASE:
        yield Note(
            "base",
            f"make_model built the frozen base of {frozen:,} parameters once for each of the {len(population)} "
            f"individuals; one copy of it is kept. To build it once, let them start as one network: "
            f"Recipe(start=Perturbed(sigma=0.0)).",
        )


def alike(population: Population, recipe: Recipe) -> Iterator[Note]:
    """A note if the initial networks are one, although each was to be initialised for itself."""
    rows = population.rows
    if len(rows) < 2 or not isinstance(recipe.start, RandomStart) or not all(torch.equal(rows[0], row) for row in rows):
        yield from built_often(population, recipe)
        return
    yield Note(
        "identical",
        f"make_model builds the same network each time, so all {len(rows)} individuals start as one, and means of them "
        f"are the same network again. Remove the fixed seed or the loaded weights from make_model. To start from one "
        f"network on purpose, use Recipe(start=Perturbed()).",
    )
