"""Selection of mates: "ρ individuals are selected using roulette wheel selection where the probability of
selection is proportional to the fitness … better fitness has a higher probability" (§3.3, item 2).

The paper minimises its fitness, so "proportional" needs a map from losses to weights, which it does not give.
Ours is windowed (`Roulette`): worst − f. Siblings offer 1/f, ranks and a softmax. All of them draw the mates of
one offspring without replacement (self-mating would be mutation only), give weight 0 to a fitness that is not
finite, and choose uniformly if all are equally fit or none is finite. `smoothing` is an exponent on the
weights: 1 leaves them, 0 makes them uniform, 0.5 is how we read Penn Treebank's "fitness smoothing 0.5".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._validation import check_field, check_function
from esgd.protocols import Mating

_ON_THE_WHEEL = "It keeps every finite individual on the roulette wheel. Use a small positive number such as 0.01."
_TEMPERATURE = (
    "It divides the differences of fitness, in units of their standard deviation, before the exponential. Use 1, or "
    "less for a sharper choice."
)
_TRUNCATION = "It is the share of the population that may mate, the fittest. Use 0.25."
_RACED = "It draws one set of mates. Use Roulette()."
_SETS = "It is the number of sets of mates that are drawn for one offspring. Use 4."
_SMOOTHING = (
    "It is the exponent on the roulette weights, and a negative one would favour the worst. Use 1 for the plain wheel, "
    "0.5 for the Penn Treebank setting, 0 for a uniform one."
)


@dataclass(frozen=True, kw_only=True)
class Roulette:
    """Weight = worst − f + floor · (worst − best).

    The floor leaves the worst individual a chance. Against 1/f: for losses 0.0142 … 0.0159 the best is 1.12 times
    as likely as the worst under 1/f, but 101 times as likely here.

    >>> Roulette().weights(torch.tensor([1.0, 2.0, 3.0]))
    tensor([2.0200, 1.0200, 0.0200])
    """

    floor: float = 0.01
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "floor", above=0, meaning=_ON_THE_WHEEL)
        check_field(self, "smoothing", at_least=0, meaning=_SMOOTHING)

    def weights(self, fitness: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        spread = fitness.max() - fitness.min()
        return fitness.max() - fitness + self.floor * spread if spread > 0 else torch.ones_like(fitness)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        return spin(self.weights, fitness, self.smoothing, mates, generator)


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """Weight = best / f: almost uniform for close losses, undefined for f ≤ 0 (such weights are that of the best)."""

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "smoothing", at_least=0, meaning=_SMOOTHING)

    def weights(self, fitness: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        positive = fitness[fitness > 0]
        return positive.min() / fitness.clamp(min=float(positive.min())) if len(positive) else torch.ones_like(fitness)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        return spin(self.weights, fitness, self.smoothing, mates, generator)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Weight = n, n − 1, …, 1 from the fittest to the least fit; equal fitness has equal weight."""

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "smoothing", at_least=0, meaning=_SMOOTHING)

    def weights(self, fitness: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        fitter = (fitness < fitness[:, None]).sum(dim=1)
        return (len(fitness) - fitter).to(fitness)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        return spin(self.weights, fitness, self.smoothing, mates, generator)


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """Weight = exp(−(f − best) / temperature); a temperature in units of the standard deviation of f."""

    temperature: float = 1.0
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "temperature", above=0, meaning=_TEMPERATURE)
        check_field(self, "smoothing", at_least=0, meaning=_SMOOTHING)

    def weights(self, fitness: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        scale = self.temperature * fitness.std(correction=0)
        return torch.exp((fitness.min() - fitness) / scale) if scale > 0 else torch.ones_like(fitness)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        return spin(self.weights, fitness, self.smoothing, mates, generator)


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """The fittest `share` of the individuals, each equally likely: population-based training's truncation selection."""

    share: float = 0.25

    def __post_init__(self) -> None:
        check_field(self, "share", above=0, at_most=1, meaning=_TRUNCATION)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        best = fitness.argsort(stable=True)[: max(mates, round(self.share * len(fitness)))]
        return best[spin(torch.ones_like, fitness[best], 1.0, mates, generator)].tolist()


@dataclass(frozen=True, kw_only=True)
class Raced:
    """Several sets of mates are drawn by `mating`, and the one with the lowest mean fitness becomes parents.

    So offspring are raced by their parents before any of them costs a fitness pass.
    """

    sets: int = 4
    mating: Mating = Roulette()

    def __post_init__(self) -> None:
        check_field(self, "sets", at_least=1, at_most=1000, whole=True, meaning=_SETS)
        check_function("mating", self.mating, "fitness", "mates", "generator", meaning=_RACED)

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]:
        drawn = [self.mating(fitness, mates, generator) for _ in range(self.sets)]
        return min(drawn, key=lambda some: float(fitness[some].mean()))


def spin(
    weights: Callable[[Float[Tensor, " n"]], Float[Tensor, " n"]],
    fitness: Float[Tensor, " n"],
    smoothing: float,
    mates: int,
    generator: torch.Generator,
) -> list[int]:
    """Turn the wheel: `mates` distinct indices of finite individuals, or as many as there are."""
    finite = fitness.isfinite().nonzero().flatten()
    if len(finite) == 0:
        return torch.randperm(len(fitness), generator=generator)[:mates].tolist()
    plain, n = weights(fitness[finite]), min(mates, len(finite))
    wheel = plain**smoothing
    if wheel.isfinite().all() and int((wheel > 0).sum()) >= n:
        drawn = torch.multinomial(wheel, n, replacement=False, generator=generator)
    else:
        drawn = _in_logarithms(plain, smoothing, n, generator)
    return finite[drawn].tolist()


def _in_logarithms(weights: Float[Tensor, " n"], smoothing: float, mates: int, generator: torch.Generator) -> Tensor:
    """The same draw where the weights to the power of `smoothing` are too small or too large for a float.

    The largest of log w + g, with g from Gumbel's distribution, are a draw without replacement in proportion to w.
    """
    real = torch.finfo(torch.float64)
    logarithms = weights.double().nan_to_num(nan=real.tiny, posinf=real.max).clamp(min=real.tiny).log()
    gumbel = -torch.empty_like(logarithms).exponential_(generator=generator).log()
    return (smoothing * (logarithms - logarithms.max()) + gumbel).topk(mates).indices
