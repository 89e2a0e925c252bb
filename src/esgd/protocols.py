"""The protocols of plug-ins. Any object with the right methods qualifies, most often a plain function.

Four packages implement them and never import one another: `tasks/`, `species/`, `operators/`, `engines/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from inspect import Signature, signature
from time import perf_counter
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from esgd._averages import IterateAverage
from esgd.genome import Genome, Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.randomness import Seeds
from esgd.ranges import FoundRange

Batch = Any
Settings = Mapping[str, Any]


@runtime_checkable
class Task(Protocol):
    """Data, loss and fitness. A task never sees an optimizer or a population.

    The fitness is a sum over fixed `parts` divided by the number of samples in them, or by what a `Weighted` task says,
    so that an engine can visit the parts in any order and stop early. A fitness that cannot be divided has one part.
    """

    @property
    def nonnegative(self) -> bool:
        """Whether no part's sum can be below zero: then a partial sum only grows, and early abort is exact."""
        ...

    def model(self) -> nn.Module:
        """Build a newly initialised network."""
        ...

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        """Apply `Policy.settings` to the network (dropout, …), or refuse an unknown one by name."""
        ...

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        """One epoch of training batches; all its randomness comes from `seeds`."""
        ...

    def steps(self, settings: Settings) -> int | None:
        """How many batches an epoch has, if that can be known."""
        ...

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The scalar to differentiate."""
        ...

    def parts(self, order: Sequence[int] | None = None) -> Iterable[tuple[int, Batch]]:
        """The fixed parts of the fitness with their numbers, visited in `order` where that is possible."""
        ...

    def fitness(self, module: nn.Module, batch: Batch) -> Tensor:
        """The fitness *summed* over the samples of a part (lower is better); module in eval mode, no gradients."""
        ...

    def size(self, batch: Batch) -> int:
        """How many samples a batch has."""
        ...

    def calibration(self, samples: int) -> Iterable[Batch]:
        """The first `samples` training samples, the same each time: BatchNorm statistics are estimated on them."""
        ...

    def test(self, module: nn.Module) -> dict[str, float]:
        """Metrics on a split that selection never sees; empty if there is none."""
        ...

    def describe(self) -> dict[str, Any]:
        """The data as the manifest describes them: names, sizes, fingerprints."""
        ...


@runtime_checkable
class DealsTogether(Protocol):
    """A task that can deal out the epochs of many individuals at once. Faster for tiny networks, never different."""

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        """As `batches` for each of the seeds, stacked along a new first dimension; None if these data cannot."""
        ...


@runtime_checkable
class HoldsData(Protocol):
    """A task that names its data. They are never written to, so all workers of a machine can read one copy. Of
    everything else in a task each worker has its own copy."""

    def data(self) -> Any:
        """The data: tensors, arrays, or objects that hold them."""
        ...


@runtime_checkable
class MovesData(Protocol):
    """A task whose data can be on the device of an engine: then no step waits for a batch to be copied there."""

    def on_device(self, device: torch.device, most: int) -> Task:
        """The same task with its data on the device, if they take no more than `most` bytes; else the task itself.

        Batches have the same values either way.
        """
        ...


@runtime_checkable
class Inspects(Protocol):
    """A task that can tell what its data are like, for the notes of a run."""

    def look(self, network: nn.Module) -> Iterable[tuple[str, str]]:
        """What is noteworthy before training: the kind and the text of each note.

        `network` is a new one, which stays as it is. No random numbers are used up.
        """
        ...

    def constant_fitness(self) -> float | None:
        """The fitness of the best constant answer, whatever the input; None if it is not known."""
        ...


@runtime_checkable
class Counts(Protocol):
    """A task that knows how many samples it has without going through the data, which may take minutes."""

    def batch_sizes(self, settings: Settings) -> Sequence[int] | None:
        """Of each batch of an epoch; None if it is not known."""
        ...

    def fitness_samples(self) -> int | None:
        """Of all parts of the fitness; None if it is not known."""
        ...


@runtime_checkable
class Repeats(Protocol):
    """A task whose steps may take every sample through the network more than once."""

    def repeats(self, settings: Settings) -> int:
        """How often, with these settings. The ledger counts it."""
        ...


@runtime_checkable
class Weighted(Protocol):
    """A task whose fitness is not divided by the number of samples: targets have weights, or some do not count."""

    def divisor(self, batch: Batch) -> float:
        """What the sum over a part counts as, in samples; it does not depend on the network. Also of a training batch,
        whose mean loss counts as so much where gradients are accumulated."""
        ...


@runtime_checkable
class Measures(Protocol):
    """A task with metrics of its fitness split. One of them may be what selection goes by, instead of the loss."""

    @property
    def select(self) -> tuple[str, str] | None:
        """The name of that metric, and "min" or "max"; the fitness is the metric, or for "max" its negative."""
        ...

    def fitness_metrics(self, module: nn.Module) -> dict[str, float]:
        """The metrics by name; empty if there are none."""
        ...


@runtime_checkable
class Picks(Protocol):
    """A task with a second split: the fitness decides which individuals survive, this one which network is returned."""

    def pick_loss(self, module: nn.Module) -> tuple[float, int] | None:
        """The mean loss on it (lower is better) and its samples; None if there is no such split."""
        ...


Average = Literal["softmax", "sigmoid", "outputs"]
"""How the outputs of several networks become one: by the mean of the probabilities that they mean, or as they are."""


@runtime_checkable
class Averages(Protocol):
    """A task that knows what the outputs of its networks are, so that an ensemble can average them."""

    @property
    def average(self) -> Average:
        """See `esgd.Ensemble`."""
        ...


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
    | `past`        | the results of all earlier policies                                                      |
    | `tops`        | by optimizer, the highest learning rate that a range test has found; empty without one   |

    The paper's pools look at `k` and `seeds` only.
    """

    k: int
    j: int
    generations: int
    stream: Seeds
    address: tuple[int, int] | None = None
    inherited: Policy | None = None
    newborn: bool = False
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
"""One row from those of the mates, their weights, which sum to 1, and the layout of a row; asked for every
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


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What an engine must know for a whole run; shipped to every worker once."""

    task: Task
    genome: Genome
    seeds: Seeds
    recombination: Recombination
    mutation: Mutation
    buffers: BufferRule
    baggage: Baggage
    begun: float = field(default_factory=perf_counter)
    """When the run began, by the clock of the process that made this."""

    @cached_property
    def recombines_by_layout(self) -> bool:
        """Whether the recombination is handed weights and genome."""
        return takes_layout(self.recombination)


@dataclass(frozen=True)
class Load:
    """The work of a run: μ individuals, each for this number of epochs of SGD."""

    population: int
    epochs: int


class Anchor(Protocol):
    """A pull towards a fixed row in the SGD step: how strong, and every how many steps; none at first."""

    @property
    def strength(self) -> float: ...

    @property
    def every(self) -> int: ...

    @property
    def after(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """One SGD step of a generation, as an engine sees it."""

    k: int
    epochs: float
    backoff: BackOff
    before: float = 0
    total: float = 1
    keep_ends: bool = False
    keep_every_end: bool = False
    anchor: Anchor | None = None
    anchor_row: Row | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Trained:
    """A population after its SGD step.

    | field      | shape | meaning                                                                |
    |------------|-------|------------------------------------------------------------------------|
    | `moved`    | (n,)  | the individual is not where it began                                   |
    | `refused`  | (n,)  | updates that were backed off                                           |
    | `diverged` | (n,)  | a measured fitness was NaN or inf                                      |
    | `passed`   | (n,)  | the individual kept another place than its end, which is in `ends`     |
    | `ends`     |       | where those that did not move would have gone, if a strategy wants it  |
    """

    population: Population
    moved: Bool[Tensor, " n"]
    passed: Bool[Tensor, " n"]
    refused: Int[Tensor, " n"]
    diverged: Bool[Tensor, " n"]
    ends: Population

    def then(self, population: Population) -> Trained:
        """The same after an evolution step: a survivor starts the next one from where it is."""
        n = len(population)
        return Trained(
            population=population,
            moved=torch.ones(n, dtype=torch.bool),
            passed=torch.zeros(n, dtype=torch.bool),
            refused=torch.zeros(n, dtype=torch.int64),
            diverged=torch.zeros(n, dtype=torch.bool),
            ends=population[[]],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """Fitness of births. Where `complete` is False the evaluation was aborted: not an elite, fitness +inf."""

    fitness: Float[Tensor, " n"]
    complete: Bool[Tensor, " n"]
    begun: Mapping[int, Any] = field(default_factory=dict)
    """What is known of aborted evaluations, by number of the birth; an engine continues from it."""

    @staticmethod
    def unknown(n: int) -> Scores:
        """The scores of n births that have not been evaluated yet."""
        return Scores(
            fitness=torch.full((n,), torch.inf, dtype=torch.float64),
            complete=torch.zeros(n, dtype=torch.bool),
        )


class Session(Protocol):
    """An engine at work on one run."""

    def train(self, population: Population, policies: Sequence[Policy], step: Step) -> Trained:
        """Train every individual with its policy for one SGD step."""
        ...

    def evaluate(self, parents: Population, births: Sequence[Birth], elites: int | None = None) -> Scores:
        """Build each birth, take its fitness, drop it. With `elites`, stop early on those that cannot be elite."""
        ...

    def unite(self, parents: Population, births: Sequence[Birth], scores: Scores, chosen: Sequence[int]) -> Population:
        """The next population: indices below len(parents) are parents, the others are births, built again."""
        ...

    def spent(self) -> Ledger:
        """Samples and seconds since this was last asked."""
        ...


@runtime_checkable
class FindsRanges(Protocol):
    """A session that can test learning rates. One that cannot leaves the usual ranges."""

    def find_ranges(self, one: Population, policies: Sequence[Policy]) -> list[FoundRange]:
        """The range of each policy, whose own rate is not used, for the first individual; nothing is kept of it."""
        ...


@runtime_checkable
class Start(Protocol):
    """Make the initial population Ψ^(0); `common` says whether its members share one origin."""

    @property
    def common(self) -> bool: ...

    def __call__(self, task: Task, genome: Genome, session: Session, size: int, seeds: Seeds) -> Population: ...


Tick = Callable[[str, int, int], None]
"""Progress: a phase, how many individuals are done, and of how many."""


@runtime_checkable
class Engine(Protocol):
    """Where the work is done: a value that opens a `Session` for a run and closes it after."""

    def open(self, setup: Setup, tick: Tick) -> AbstractContextManager[Session]: ...
