"""How sure a network is, corrected: scales for the outputs of places that compete, and a kind of offspring.

Training says little about the scale of a network's outputs. One that was trained on noisy labels is less sure than it
should be, one that has over-fitted is surer. Temperature scaling (Guo et al., 2017) corrects this after training, by
one number that is fitted to held-out data. Here the number multiplies the parameters, so the result is an ordinary
network. With L ReLU layers that have no biases the outputs are multiplied by its power L; with biases nearly so, as
long as the number is close to 1. Of LoRA's two factors one is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._validation import check_field
from esgd.operators.kinds import Mates, Union
from esgd.population import Birth
from esgd.randomness import Seeds

_STEP = "The first factors that are tried are exp(step) and exp(−step). Use step=0.1."
_MOST = "So many factors are tried at most. Use most=6."
_SAMPLES = "It is the size of the fitness set. Use for example 500."
WIDTH = 0.1  # of the logarithm, before anything is known: the standard deviation of a normal prior around 0
SCALES = tuple(exp(sign * step) for step in (0.1, 0.2, 0.4, 0.8) for sign in (1, -1))
"""What the output of a place is multiplied by. Each costs one loss of the output; the network is not run again."""


def curvature(fitness: float, *, samples: int, width: float) -> float:
    """c of the penalty c x² / 2 for the logarithm x of a number: 1 / (width² · samples), relative above a fitness of 1.

    With a cross-entropy, fitness plus penalty is the posterior of x given so many samples, and a normal prior. A
    network that is right on all of fifteen samples would otherwise be made certain of everything.
    """
    return max(1.0, abs(fitness)) / (width**2 * max(1, samples))


def best_scales(
    plain: Float[Tensor, " n"], scaled: Float[Tensor, "s n"], *, samples: int, width: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Of 1 and `SCALES` the number with the lowest fitness plus penalty for each individual, and its fitness with that.

    >>> best_scales(torch.tensor([0.5]), torch.linspace(0.55, 0.2, 8)[:, None], samples=100, width=1.0)
    (tensor([0.4493]), tensor([0.2000]))
    """
    numbers = torch.tensor((1.0, *SCALES), dtype=plain.dtype)[:, None].expand(-1, len(plain))
    known = torch.cat([plain[None], torch.where(scaled.isnan(), inf, scaled)])
    bend = torch.tensor([curvature(each, samples=samples, width=width) for each in plain.tolist()], dtype=plain.dtype)
    penalties = torch.where(plain < inf, 0.5 * bend * numbers.log() ** 2, 0.0)
    best = (known + penalties).argmin(dim=0, keepdim=True)
    return numbers.gather(0, best)[0], known.gather(0, best)[0]


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """The fittest candidate, with all parameters that are trained multiplied by one number; in the last evolution step.

    The logarithm x of the number is found by a line search: `step` to both sides, twice as far as long as it gets
    better, then the lowest point of the parabola through the last three. Each number that is tried costs a fitness
    pass. There is no offspring if none is better than 1.

    What gets better is the fitness plus a penalty (`curvature`), which follows the number of `samples`.
    """

    samples: int = 500
    step: float = 0.1
    most: int = 6

    share = None
    name = "rescaled"

    def __post_init__(self) -> None:
        check_field(self, "samples", at_least=1, whole=True, meaning=_SAMPLES)
        check_field(self, "step", above=0, at_most=1, meaning=_STEP)
        check_field(self, "most", at_least=2, whole=True, meaning=_MOST)

    def tries(self, population: int, *, last: bool) -> int:
        return self.most if last else 0

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union | None:
        fittest = int(candidates.fitness.argmin())
        if not candidates.last or not candidates.fitness[fittest] < inf:
            return None

        before = float(candidates.fitness[fittest])
        bend = curvature(before, samples=self.samples, width=WIDTH)

        def penalised(logarithm: float) -> float:
            birth = Birth("0.0.0", mates=(fittest,), kind=self.name, weights=(exp(logarithm),))
            return float(candidates.score([birth]).fitness[0]) + 0.5 * bend * logarithm**2

        best = lowest(penalised, before, step=self.step, most=self.most)
        return Union((fittest,), weights=(exp(best),)) if best else None


def lowest(f: Callable[[float], float], at_zero: float, *, step: float, most: int) -> float:
    """Where f was lowest in a line search that begins at 0 and takes at most so many values of it, two at least.

    >>> lowest(lambda x: (x - 0.75) ** 2, 0.5625, step=0.1, most=8)
    0.75
    >>> lowest(abs, 0.0, step=0.1, most=8)
    0.0
    """
    known = {0.0: at_zero, step: f(step)}
    best = step
    if not known[step] < at_zero:
        best = -step
        known[best] = f(best)
    while known[best] < at_zero and len(known) <= most:
        known[2 * best] = f(2 * best)
        if not known[2 * best] < known[best]:
            break
        best *= 2
    if len(known) <= most and (bottom := _bottom(known)) is not None:
        known[bottom] = f(bottom)
    return min(known, key=lambda x: (known[x], abs(x)))


def _bottom(known: dict[float, float]) -> float | None:
    """Where the parabola through the lowest point and its two neighbours is lowest, if they enclose it."""
    places = sorted(known)
    lowest = places.index(min(places, key=lambda x: (known[x], abs(x))))
    if not 0 < lowest < len(places) - 1:
        return None
    left, middle, right = places[lowest - 1 : lowest + 2]
    fall, rise = known[left] - known[middle], known[right] - known[middle]
    if not 0 < fall + rise < inf:
        return None
    before, after = middle - left, right - middle
    shift = 0.5 * (fall * after**2 - rise * before**2) / (fall * after + rise * before)
    return middle + shift if shift else None
