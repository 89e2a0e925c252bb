"""The initial population: "created either by randomized initialization of the weights of networks or by
perturbing some existing networks" (§3.3).

Networks that were initialised independently have poor averages at first, because their hidden units do not
correspond. Offspring become useful only once the descendants of one network have spread. A common start (`Perturbed`)
makes recombination work from generation 1, but costs diversity. Neither is always better; `RandomStart` is the paper's
speech setting and our default.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from esgd._validation import check_field, check_list, check_range
from esgd.errors import RecipeError, RunError, TaskError, shown
from esgd.genome import Genome, build
from esgd.operators.backoff import Never
from esgd.operators.mutation import Gaussian, Strength
from esgd.policies import Policy, check_policy, check_trainable
from esgd.population import Population
from esgd.protocols import Session, Step, Task
from esgd.randomness import Seeds
from esgd.run.model import load_network

Network = str | Path | nn.Module | Mapping[str, Tensor]

_SIGMA = (
    "It is the standard deviation of the noise that makes the initial population from one network, or a range (low, "
    "high) drawn per individual. Use 0.01, or 0 for copies."
)
_EPOCHS = "The one network is trained for this number of epochs before it is copied. Use 0 for no warm-up."
_NETWORKS = "A saved start is a list of modules, state dicts or safetensors files, at least μ of them."


@dataclass(frozen=True, kw_only=True)
class RandomStart:
    """μ independent initialisations, as `make_model` makes them.

    The first is the genome's template, which was built at the same address. `make_model` is called for each other one;
    if the second has nothing that is drawn at random, such as a network with loaded weights, not again.
    """

    @property
    def common(self) -> bool:
        return False

    def __call__(self, task: Task, genome: Genome, session: Session, size: int, seeds: Seeds) -> Population:
        second = [_fresh(task, genome, seeds.at(1))] if size > 1 else []
        if second and _reads_alike(genome, second[0]):
            return founders(genome, [lambda: genome.template] * size)
        others = [partial(_fresh, task, genome, seeds.at(j)) for j in range(2, size)]
        return founders(genome, [lambda: genome.template, *(second.pop for _ in second[:]), *others])


@dataclass(frozen=True, kw_only=True)
class Perturbed:
    """One network, and μ − 1 copies of it with N(0, σ²) added; a range for σ is drawn per individual (Penn Treebank).

    The network is a freshly initialised one, the genome's template, or `network`: a module, a state dict, or the path
    of a safetensors file. With `epochs` it is first trained by `policy`: a common warm-up. `make_model` is not called
    again, so this is also the start for a network that takes long to load; with `sigma=0.0` it is μ copies.
    """

    sigma: Strength = 0.01
    network: Network | None = None
    epochs: int = 0
    policy: Policy = Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9, "nesterov": True})

    def __post_init__(self) -> None:
        if isinstance(self.sigma, list | tuple) and len(self.sigma) == 2:
            object.__setattr__(self, "sigma", check_range(*self.sigma, name="sigma", at_least=0, meaning=_SIGMA))
        else:
            check_field(self, "sigma", at_least=0, meaning=_SIGMA)
        check_field(self, "epochs", at_least=0, whole=True, meaning=_EPOCHS)
        check_policy(self.policy)
        check_trainable(self.policy)
        if self.network is not None:
            check_network("network", self.network)

    @property
    def common(self) -> bool:
        return True

    def __call__(self, task: Task, genome: Genome, session: Session, size: int, seeds: Seeds) -> Population:
        network = genome.template if self.network is None else loaded(genome, self.network)
        one = founders(genome, [lambda: network])
        if self.epochs:
            step = Step(k=0, epochs=self.epochs, backoff=Never(), total=self.epochs)
            one = session.train(one, [self.policy], step).population
        rows, noise = one.rows[0].repeat(size, 1), Gaussian(sigma=self.sigma)
        for j in range(1, size):
            rows[j] = noise(rows[0], noise.strength(1, seeds("sigma", j)), seeds("perturb", j), genome)
        buffers = {name: stacked.expand(size, *stacked.shape[1:]).clone() for name, stacked in one.buffers.items()}
        return Population.founders(genome, rows, buffers)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Networks that exist already: paths of safetensors files, modules or state dicts, at least μ of them."""

    networks: tuple[Network, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "networks", check_list("networks", self.networks, meaning=_NETWORKS))
        for i, network in enumerate(self.networks):
            check_network(f"networks[{i}]", network)

    @property
    def common(self) -> bool:
        return False

    def __call__(self, task: Task, genome: Genome, session: Session, size: int, seeds: Seeds) -> Population:
        if len(self.networks) < size:
            raise RecipeError(
                f"the start has {len(self.networks)} saved networks, but population={size}. Give as many as the "
                f"population has, or use Perturbed(network=…) to make a population from one."
            )
        return founders(genome, [partial(loaded, genome, network) for network in self.networks[:size]])


def check_network(name: str, network: Any) -> None:
    """Refuse what no network can be loaded from; whether it fits, and whether there is a file, is found out later."""
    tensors = isinstance(network, Mapping) and all(isinstance(each, Tensor) for each in network.values())
    if not tensors and (not isinstance(network, str | Path | nn.Module) or "\0" in str(network)):
        raise RecipeError(
            f"{name}={shown(network)} is not a network. Give the path of a safetensors file, a module or a state dict."
        )


def _fresh(task: Task, genome: Genome, seeds: Seeds) -> nn.Module:
    module = build(task.model, seeds)
    if module is genome.template:
        raise TaskError(
            "make_model returned the same network twice. Each individual needs one of its own, with its own initial "
            "weights. Build a new network inside make_model."
        )
    return module


def _reads_alike(genome: Genome, module: nn.Module) -> bool:
    """Whether a network is the template once more, in row and buffers."""
    (row, buffers), (its_row, its_buffers) = genome.read(genome.template), genome.read(module)
    return torch.equal(_bits(row), _bits(its_row)) and all(
        torch.equal(_bits(buffer), _bits(its_buffers[name])) for name, buffer in buffers.items()
    )


def founders(genome: Genome, makers: Sequence[Callable[[], nn.Module]], step: int = 0) -> Population:
    """A population of networks that are made one at a time; `step` keeps the ids of several such populations apart."""
    rows, n = torch.empty(len(makers), genome.size, dtype=genome.dtype), len(makers)
    like = genome.read(genome.template)[1]
    stacked = {name: buffer.new_empty(n, *buffer.shape) for name, buffer in like.items()}
    for j, make in enumerate(makers):
        rows[j], buffers = genome.read(make())
        for name, buffer in buffers.items():
            stacked[name][j] = buffer
    return Population.founders(genome, rows, stacked, step=step)


def loaded(genome: Genome, network: Network) -> nn.Module:
    """A network of this genome from a module, a state dict or a safetensors file.

    All individuals share the frozen parameters of `make_model`: a network that was trained on others is refused.
    """
    if isinstance(network, nn.Module):
        genome.check(network)
        _check_frozen(genome, network)
        return network
    module = copy.deepcopy(genome.template)
    try:
        if isinstance(network, Mapping):
            module.load_state_dict(dict(network))
        else:
            load_network(module, Path(realpath(network)))
    except FileNotFoundError as error:
        raise RecipeError(
            f"there is no file {str(network)!r} to start from. A saved network is a safetensors file of the network's "
            f"state dict, such as model.safetensors of a run folder. Correct the path."
        ) from error
    except (RuntimeError, SafetensorError, OSError, RunError) as error:
        raise RecipeError(
            f"the saved network {'' if isinstance(network, Mapping) else repr(str(network))} does not fit the task's "
            f"network: {error}. All individuals share one architecture."
        ) from error
    _check_frozen(genome, module)
    return module


def _check_frozen(genome: Genome, network: nn.Module) -> None:
    """Refuse a network whose frozen parameters are not those of `make_model`, and name the first difference."""
    ours, theirs = _frozen(genome.template), _frozen(network)
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in ours or name not in theirs or not _same(ours[name], theirs[name]):
            raise RecipeError(
                f"the frozen parameter {name!r} of a saved network is not the one that make_model makes. Frozen "
                f"parameters are not part of an individual: all individuals share those of make_model, and with them "
                f"this network would no longer be the one that was saved. Load the same frozen parameters in "
                f"make_model, or make {name!r} trainable."
            )


def _frozen(network: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in network.named_parameters() if not p.requires_grad}


def _same(ours: Tensor, theirs: Tensor) -> bool:
    """Bit for bit, in the dtype and on the device of ours, so that NaN is itself."""
    alike = theirs.to(ours)
    return ours.shape == alike.shape and torch.equal(_bits(ours), _bits(alike))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
