"""What species and operators must be, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import Signature, signature
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd.genome import Genome, Row
from esgd.policies import Policy
from esgd.randomness import Seeds


@dataclass(frozen=True, kw_only=True)
class Fared:
    """The result of one policy in one SGD step."""

    k: int
    policy: Policy
    before: float
    after: float
    accepted: bool


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a species may look at when it draws a policy for individual j in generation k.

    | field         | meaning                                                                                  |
    |---------------|------------------------------------------------------------------------------------------|
    | `k`, `j`      | generation from 1, individual from 0                                                     |
    | `generations` | K                                                                                        |
    | `seeds`       | the node of this draw; ask it with a name: `draw.seeds("momentum")`                      |
    | `stream`      | the node above: `stream.at(k, j)` is the draw of another place                           |
    | `inherited`   | the policy this individual last accepted, or its fittest mate did; None at the beginning |
    | `newborn`     | whether it is an offspring of the last generation                                        |
    | `returned`    | whether its SGD passed nothing fitter and begins again at its best place (see            |
    |               | `Uninterrupted`)                                                                         |
    | `past`        | the results of all earlier policies                                                      |
    | `tops`        | by optimizer, the highest learning rate that a range test has found; empty without one.  |
    |               | Of a further pool with the same optimizer, by its `repr`                                 |

    The paper's pools look at `k` and `seeds` only.
    """

    k: int
    j: int
    generations: int
    stream: Seeds
    address: tuple[int, int] | None = None
    inherited: Policy | None = None
    newborn: bool = False
    returned: bool = False
    past: Sequence[Fared] = ()
    tops: Mapping[str, float] = field(default_factory=dict)

    @property
    def seeds(self) -> Seeds:
        return self.stream.at(*(self.address or (self.k, self.j)))

    def as_in(self, k: int) -> Draw:
        """The same individual and annealing, but the random numbers of generation k."""
        return replace(self, address=(k, self.j))


Species = Callable[[Draw], Policy]


SpeciesLike = Species | str | type[torch.optim.Optimizer]
"""A species, "auto", or an optimizer whose ranges are found."""


class Trajectory(Protocol):
    """n individuals on their way through one SGD step; what a back-off strategy steers.

    `Loop` trains one individual at a time (n = 1), a batched engine many; strategies are written for n.
    """

    @property
    def fitness(self) -> Float[Tensor, " n"]:
        """Fitness at the last measurement or restored snapshot; NaN since an epoch was trained."""
        ...

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        """The current parameters; assign with `place`."""
        ...

    def epoch(self) -> None:
        """Train to the next end of an epoch."""
        ...

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        """Train until so many epochs of this SGD step are done, also fractions; each iterate goes into `averages`."""
        ...

    def measure(self) -> Float[Tensor, " n"]:
        """Evaluate the fitness where the trajectory stands; NaN and inf come back as +inf."""
        ...

    @property
    def scalable(self) -> bool:
        """Whether networks have parameters that multiply their output, as far as is known."""
        ...

    def measure_scaled(self, scales: Sequence[float]) -> Float[Tensor, "s n"]:
        """As `measure`, and from the same pass the fitness with the network's output times each of these numbers.

        Returns the latter: what to expect of `scale`, not what is then measured. It is +inf where the network has no
        parameters that multiply its output.
        """
        ...

    @property
    def samples(self) -> int:
        """How many samples the fitness is a mean of; known since it was measured."""
        ...

    def scale(self, factors: Float[Tensor, " n"]) -> None:
        """Go to where the output of each is multiplied by a number; where it is 1, the individual stays."""
        ...

    def snapshot(self) -> Any:
        """Remember this place: weights, buffers, optimizer state and fitness."""
        ...

    def restore(self, snapshot: Any, where: Bool[Tensor, " n"]) -> None:
        """Go back to a snapshot, for the individuals in `where`."""
        ...

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        """Go somewhere else altogether, such as the mean of past rows."""
        ...

    def place_average(self, average: IterateAverage) -> None:
        """Go to an average that has seen an iterate."""
        ...

    def coin(self, number: int) -> Float[Tensor, " n"]:
        """A uniform number for each individual, from a stream of its own."""
        ...


@runtime_checkable
class BackOff(Protocol):
    """The SGD step of Algorithm 1 with its back-off: K_s epochs, also fractions of one, and what is kept of them.

    Returns how many updates were refused for each individual. `certain` says whether the trajectory can never end at a
    worse fitness than it began with: a condition of Theorem 1. `checks` counts the comparisons in K_s epochs.
    """

    @property
    def certain(self) -> bool: ...

    def checks(self, epochs: float) -> int: ...

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]: ...


@runtime_checkable
class Mating(Protocol):
    """Choose ρ distinct parents for one offspring; returns indices."""

    def __call__(self, fitness: Float[Tensor, " n"], mates: int, generator: torch.Generator) -> list[int]: ...


PlainRecombination = Callable[[Float[Tensor, "rho d"]], Row]
"""One row from those of the mates, the fittest first. Where a kind of offspring weighs its mates, it is not asked: the
row is the weighted mean."""


LayoutRecombination = Callable[[Float[Tensor, "rho d"], Sequence[float], Genome], Row]
"""One row from those of the mates, their weights, and the layout of a row; asked for every
offspring."""


Recombination = PlainRecombination | LayoutRecombination
"""Which of the two it is, its signature says: it has one parameter, or three."""


def takes_layout(recombination: Recombination) -> bool:
    """Whether a recombination is handed weights and genome, too: it cannot be called with the mates alone."""
    try:
        parameters = signature(recombination)
    except (TypeError, ValueError):  # some builtin functions do not tell
        return False
    return not _binds(parameters, "mates") and _binds(parameters, "mates", "weights", "genome")


def _binds(parameters: Signature, *arguments: str) -> bool:
    try:
        parameters.bind(*arguments)
    except TypeError:
        return False
    return True


@runtime_checkable
class Mutation(Protocol):
    """Perturb a row; `strength` says how strongly in generation k."""

    def strength(self, k: int, generator: torch.Generator) -> float: ...

    def __call__(self, row: Row, sigma: float, generator: torch.Generator, genome: Genome) -> Row: ...


@runtime_checkable
class BufferRule(Protocol):
    """How buffers come about: inherited from the mates, and re-estimated on how many training samples (0: not)."""

    @property
    def samples(self) -> int: ...

    def __call__(self, buffers: Mapping[str, Shaped[Tensor, "rho ..."]]) -> dict[str, Tensor]: ...


class Role(StrEnum):
    """What a candidate for survival is."""

    MOVED = "moved"  # a parent whose SGD update was accepted
    PASSED = "passed"  # a parent that kept an earlier or averaged place than the end of its SGD step
    HELD = "held"  # a parent that backed off to where it began
    END = "end"  # where the SGD step of a parent ended that is now elsewhere
    IMMIGRANT = "immigrant"
    OFFSPRING = "offspring"


@runtime_checkable
class Survival(Protocol):
    """Choose the next population from all candidates; returns `size` indices, the elites first."""

    @property
    def wants_ends(self) -> bool:
        """Whether the un-backed-off ends of the SGD step take part."""
        ...

    @property
    def ranks_everyone(self) -> bool:
        """Whether it looks at the fitness of others than the m best: then no evaluation may be aborted early."""
        ...

    def __call__(
        self,
        fitness: Float[Tensor, " n"],
        roles: Sequence[Role],
        *,
        size: int,
        elites: int,
        generator: torch.Generator,
    ) -> list[int]: ...


@runtime_checkable
class Baggage(Protocol):
    """Which optimizer state an individual brings into its next SGD step."""

    @property
    def keeps(self) -> bool:
        """Whether any state is kept at all between generations."""
        ...

    def inherit(self, mates: Sequence[Any]) -> Any:
        """The state of an offspring, from those of its mates, fittest first."""
        ...


def continues(baggage: Baggage) -> bool:
    """Whether SGD continues from where it stood, and not from what was kept; a rule says so with `continues`."""
    return bool(getattr(baggage, "continues", False))


def returns(baggage: Baggage) -> bool:
    """Whether SGD goes back to what was kept after a step that passed nothing fitter; a rule says so with `returns`."""
    return bool(getattr(baggage, "returns", False))


def shrinks(baggage: Baggage) -> float:
    """By which share of them parameters shrink at most where SGD begins again; a rule says so with `shrink`."""
    return float(getattr(baggage, "shrink", 0.0))


class Pull(Protocol):
    """A pull towards a fixed row in the SGD step: how strong, and every how many steps; none at first."""

    @property
    def strength(self) -> float: ...

    @property
    def every(self) -> int: ...

    @property
    def after(self) -> int: ...
