"""What travels between the driver and an actor: jobs as letters, which hold the rows they need and nothing else.

An SGD step takes its individuals' rows along and brings them back. Evaluations take births along, a few numbers each;
the parents they speak of lie in Ray's object store, in slices that a node fetches once and only if it needs them. The
driver builds survivors itself, from the same births. So a generation moves O(μ d) bytes, whatever λ is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esgd.engines.jobs import Bench, Build, Evaluate, Job, Space, Train, conceive
from esgd.genome import Buffers
from esgd.protocols import Rules

SLICE = 1 << 24
"""Bytes of parents in one object, or one parent if it is larger."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A tensor as bytes, which Ray neither copies nor pickles on their way: whatever its dtype."""

    raw: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> Packed:
        whole = tensor.detach().cpu().contiguous()
        return Packed(whole.reshape(-1).view(torch.uint8).numpy(), whole.dtype, tuple(whole.shape))

    def tensor(self) -> Tensor:
        """The tensor, in memory that must not be written into."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it is read-only
            return torch.from_numpy(self.raw).view(self.dtype).view(self.shape)


@dataclass(frozen=True, eq=False)
class Individuals:
    """Some of a population, with their numbers in it."""

    numbers: tuple[int, ...]
    rows: Packed
    buffers: Mapping[str, Packed]

    @staticmethod
    def of(space: Space, numbers: Sequence[int]) -> Individuals:
        chosen = list(numbers)
        buffers = {name: Packed.of(stacked[chosen]) for name, stacked in space.buffers.items()}
        return Individuals(tuple(chosen), Packed.of(space.rows[chosen]), buffers)

    @property
    def nbytes(self) -> int:
        return int(self.rows.raw.nbytes + sum(each.raw.nbytes for each in self.buffers.values()))


class Known:
    """A stack of which only some rows are here; it is asked by their numbers in the whole."""

    def __init__(self, parts: Iterable[tuple[Sequence[int], Packed]]) -> None:
        self._rows = {
            number: row for numbers, packed in parts for number, row in zip(numbers, packed.tensor(), strict=True)
        }

    def __getitem__(self, which: int | Sequence[int]) -> Tensor:
        if isinstance(which, int):
            return self._rows[which].clone()
        return torch.stack([self._rows[number] for number in which])


def known(individuals: Sequence[Individuals]) -> Any:
    """A space in which only these individuals are."""
    names = individuals[0].buffers
    return Space(
        rows=Known([(each.numbers, each.rows) for each in individuals]),  # type: ignore[arg-type]
        buffers={name: Known([(each.numbers, each.buffers[name]) for each in individuals]) for name in names},  # type: ignore[misc]
    )


@dataclass(eq=False)
class Outbox:
    """A space that keeps what is put into it, to be sent."""

    rows: dict[int, Tensor] = field(default_factory=dict)
    buffers: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def put(self, places: Sequence[int], rows: Tensor, buffers: Buffers) -> None:
        for i, place in enumerate(places):
            self.rows[place] = rows[i]
            self.buffers[place] = {name: stacked[i] for name, stacked in buffers.items()}

    def individuals(self, places: Sequence[int], *, with_rows: bool = True) -> Individuals:
        names = self.buffers[places[0]]
        rows = torch.stack([self.rows[place] for place in places]) if with_rows else torch.empty(len(places), 0)
        buffers = {name: Packed.of(torch.stack([self.buffers[place][name] for place in places])) for name in names}
        return Individuals(tuple(places), Packed.of(rows), buffers)


@dataclass(frozen=True, eq=False)
class TrainLetter:
    """An SGD step, with those who take it."""

    job: Train
    individuals: Individuals

    def open(self, bench: Bench, library: Library) -> tuple[Any, Individuals]:
        outbox: Any = Outbox()
        account = replace(self.job, start=known([self.individuals]), into=outbox).run(bench)
        return account, outbox.individuals(self.job.numbers)


@dataclass(frozen=True, eq=False)
class BirthsLetter:
    """Births to be evaluated or built, and where their parents are."""

    job: Evaluate | Build
    shelf: int
    slices: Mapping[int, Any]  # number → reference

    def open(self, bench: Bench, library: Library) -> tuple[Any, Individuals | None]:
        parents = known(library.slices(self.shelf, self.slices))
        if isinstance(self.job, Evaluate):
            return replace(self.job, parents=parents).run(bench), None
        outbox: Any = Outbox()
        scored = replace(self.job, parents=parents, into=outbox).run(bench)
        return scored, outbox.individuals(self.job.places, with_rows=False)


Letter = TrainLetter | BirthsLetter


class Library:
    """What an actor has fetched of the parents; a new shelf makes it forget the old one."""

    def __init__(self, fetch: Callable[[list[Any]], list[Individuals]]) -> None:
        self._fetch, self._shelf = fetch, -1
        self._slices = dict[int, Individuals]()

    def slices(self, shelf: int, wanted: Mapping[int, Any]) -> list[Individuals]:
        if shelf != self._shelf:
            self._shelf, self._slices = shelf, {}
        missing = [number for number in wanted if number not in self._slices]
        for number, individuals in zip(missing, self._fetch([wanted[number] for number in missing]), strict=True):
            self._slices[number] = individuals
        return [self._slices[number] for number in wanted]


class Shelf:
    """Parents in the object store, in slices that are put there when the first letter speaks of them."""

    _numbers = count()

    def __init__(self, space: Space, store: Callable[[Individuals], Any]) -> None:
        self.number, self.space, self._store = next(self._numbers), space, store
        row = space.rows[:1].nbytes + sum(stacked[:1].nbytes for stacked in space.buffers.values())
        self._per_slice = max(1, SLICE // max(1, row))
        self._references = dict[int, Any]()
        self.nbytes = 0

    def holding(self, individuals: Iterable[int]) -> dict[int, Any]:
        """References to the slices that have these individuals."""
        return {number: self._reference(number) for number in sorted({i // self._per_slice for i in individuals})}

    def _reference(self, number: int) -> Any:
        if number not in self._references:
            first = number * self._per_slice
            some = Individuals.of(self.space, range(first, min(first + self._per_slice, len(self.space.rows))))
            self._references[number] = self._store(some)
            self.nbytes += some.nbytes
        return self._references[number]


def letter(job: Job, shelf: Callable[[Space], Shelf]) -> tuple[Letter, int]:
    """A job as it travels, and its bytes; `shelf` finds or makes the place of its parents."""
    nothing: Any = None
    if isinstance(job, Train):
        individuals = Individuals.of(job.start, job.numbers)
        return TrainLetter(replace(job, start=nothing, into=nothing), individuals), individuals.nbytes
    place = shelf(job.parents)
    before = place.nbytes
    slices = place.holding(mate for birth in job.births for mate in birth.mates)
    into = {"into": nothing} if isinstance(job, Build) else {}
    bare: Any = replace(job, parents=nothing, **into)
    return BirthsLetter(bare, place.number, slices), place.nbytes - before


def received(job: Job, individuals: Individuals | None, rules: Rules) -> None:
    """Put what came back where it belongs; survivors are built here, from the births they are."""
    if individuals is None:
        return
    buffers = {name: packed.tensor() for name, packed in individuals.buffers.items()}
    if isinstance(job, Train):
        job.into.put(individuals.numbers, individuals.rows.tensor(), buffers)
    elif isinstance(job, Build):
        rows = torch.stack([conceive(rules, job.parents, birth).row for birth in job.births])
        job.into.put(job.places, rows, buffers)
