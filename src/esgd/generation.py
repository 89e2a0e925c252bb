"""The record of one generation, and the state from which a run can continue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar, overload

from esgd._text.json_numbers import finite, number
from esgd._text.notebook_cards import card, remark
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Individual, Population
from esgd.protocols import Fared
from esgd.ranges import FoundRange

T = TypeVar("T")


class Growing(Sequence[T]):
    """A sequence that is extended without a copy: every longer one shares the values of those before it.

    >>> one = Growing([1]).then(2)
    >>> one.then(3)[:], one.then(4)[:], one[:]
    ((1, 2, 3), (1, 2, 4), (1, 2))
    """

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._shared = list(values)
        self._length = len(self._shared)

    def then(self, *values: T) -> Growing[T]:
        """These values and further ones. Only if this one was extended before, its values are copied."""
        longer = Growing[T]()
        longer._shared = self._shared if len(self._shared) == self._length else list(self)
        longer._shared.extend(values)
        longer._length = self._length + len(values)
        return longer

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        places = range(self._length)[at]
        return self._shared[places] if isinstance(places, int) else tuple(self._shared[place] for place in places)


@dataclass(frozen=True, eq=False)
class State:
    """All that the next generation depends on.

    | field        | meaning                                                          |
    |--------------|------------------------------------------------------------------|
    | `k`          | generations done                                                 |
    | `population` | Ψ^(k)                                                            |
    | `archive`    | the fittest individual ever seen, as a population of one; where  |
    |              | a task has a split that picks, the elite with the lowest loss on it |
    | `history`    | the history lines of generations 1 … k                           |
    | `past`       | the results of all earlier policies, for species that learn from it |
    | `noted`      | what the health notes need of the history; None to read it there  |
    | `remark`     | what the next generation is to note, such as that the run was extended |
    | `mark`       | when the history was last added to, by the clock of this process; None if it was not here |
    | `ranges`     | what a range test has found for each optimizer                   |
    | `untold`     | those of them that no history line says yet                      |
    """

    k: int
    population: Population
    archive: Population
    history: Growing[dict[str, Any]] = field(default_factory=Growing)
    past: Growing[Fared] = field(default_factory=Growing)
    noted: Noted | None = None
    remark: str = ""
    mark: float | None = None
    ranges: tuple[FoundRange, ...] = ()
    untold: tuple[FoundRange, ...] = ()


_OUTCOME = ("id", "before", "after", "accepted")


def read_past(history: Iterable[Mapping[str, Any]], *, allow: Collection[str] = ()) -> Growing[Fared]:
    """The results of all policies, from the lines of a history; `allow` has the packages that a policy may name."""
    return Growing(
        Fared(
            k=line["k"],
            policy=Policy.from_record({key: value for key, value in each.items() if key not in _OUTCOME}, allow=allow),
            before=number(each["before"]),
            after=number(each["after"]),
            accepted=each["accepted"],
        )
        for line in history
        for each in line["policies"]
    )


@dataclass(frozen=True)
class Note:
    """A health note: what was seen, what it means and what to change."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Noted:
    """What the next generation's notes need of those before: the kinds of notes given, and the lowest test loss with
    the best fitness and k of its generation. It is as small after a thousand generations as after one. `pending` are
    notes from before generation 1, which its record will have."""

    kinds: frozenset[str] = frozenset()
    lowest: tuple[float, float, int] | None = None
    pending: tuple[Note, ...] = ()

    @staticmethod
    def of(history: Iterable[Mapping[str, Any]]) -> Noted:
        """From the lines of a history."""
        noted = Noted()
        for line in history:
            noted = noted.after(line)
        return noted

    def after(self, line: Mapping[str, Any]) -> Noted:
        """With one more generation."""
        now: Any = (held_out(line), line["best"], line["k"])
        known = [each for each in (self.lowest, now) if each is not None and None not in each]
        return Noted(self.kinds | {note["kind"] for note in line["notes"]}, min(known, default=None))


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation:
    """What happened in generation k. It prints as one line; `record()` is its line in the history.

    | field                    | meaning                                                                        |
    |--------------------------|--------------------------------------------------------------------------------|
    | `population`             | Ψ^(k); after an evolution step the elites come first                           |
    | `elites`                 | m                                                                              |
    | `policies`               | the policy drawn for each individual of Ψ^(k−1)                                |
    | `before`                 | Ψ^(k−1) before the SGD step: ids and fitness                                   |
    | `offspring_among_elites` | share of the m elites that were born in this generation (figure 2)             |
    | `guarantee`              | "held", or "waived" with the reason in `waiver`                                |
    | `state`                  | the state from which a run can continue                                        |
    | `test`                   | metrics of the kept network, the fittest unless a split picks, on the split    |
    |                          | that selection never sees                                                      |
    | `pick`                   | loss of the kept network on the split that picks; None if there is none        |
    | `metrics`                | the task's metrics of the kept network on the fitness split                    |
    | `select`                 | the metric that is the fitness, and "min" or "max"; None where it is the loss   |
    | `ranges`                 | learning rates that were found just before it                                  |
    """

    k: int
    stage: str
    population: Population
    elites: int
    policies: tuple[Policy, ...]
    before: tuple[tuple[str, float], ...]
    after: tuple[float, ...]
    accepted: tuple[bool, ...]
    backed_off: int
    checked: int
    diverged: int
    offspring_among_elites: float
    guarantee: str
    waiver: str
    work: Ledger
    seconds: float
    test: Mapping[str, float]
    pick: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    select: tuple[str, str] | None = None
    notes: tuple[Note, ...] = ()
    ranges: tuple[FoundRange, ...] = ()
    state: State = field(repr=False)

    @property
    def best(self) -> Individual:
        """θ_{1:μ}."""
        return self.population.best

    @property
    def leader(self) -> Policy | None:
        """The policy that led to the best fitness; where SGD is not interrupted, perhaps not the one it trains by."""
        archive = self.state.archive
        return archive.policies[0] if float(archive.fitness[0]) == self.best.fitness else self.best.policy

    @property
    def elite_mean(self) -> float:
        """J_{m̄:μ} of this generation."""
        return self.population.elite_mean(self.elites)

    def __str__(self) -> str:
        name, sign = self._selected_by
        measured = "".join(
            f"{metric} {value:.4g}{f' (test {self.test[metric]:.4g})' if metric in self.test else ''}  "
            for metric, value in self.metrics.items()
        )
        return (
            f"k={self.k}  best{name} {sign * self.best.fitness:.4g}  elites {sign * self.elite_mean:.4g}  {measured}"
            f"offspring among elites {self.offspring_among_elites:.0%}  leader {self.leader or 'untrained'}"
        )

    @property
    def _selected_by(self) -> tuple[str, int]:
        """The metric that is the fitness, if it is one, after a space; and −1 if larger is better."""
        return ("", 1) if self.select is None else (f" {self.select[0]}", -1 if self.select[1] == "max" else 1)

    def _repr_html_(self) -> str:
        name, sign = self._selected_by
        facts = {
            f"best{name}": f"{sign * self.best.fitness:.6g}",
            f"elites ({self.elites})": f"{sign * self.elite_mean:.6g}",
            "offspring among elites": f"{self.offspring_among_elites:.0%}",
            "backed off": f"{self.backed_off} of {self.checked}",
            **{name: f"{value:.4g}" for name, value in self.metrics.items()},
            **{f"test {name}": f"{value:.4g}" for name, value in self.test.items()},
            "leader": self.leader or "untrained",
            "guarantee": self.guarantee,
        }
        return card(f"Generation {self.k}", facts, *(remark(note.text) for note in self.notes))

    @property
    def fared(self) -> tuple[Fared, ...]:
        """The results of the policies of this generation; a fitness that is not finite counts as inf."""
        outcomes = zip(self.policies, self.before, self.after, self.accepted, strict=True)
        return tuple(
            Fared(
                k=self.k,
                policy=policy,
                before=number(finite(before)),
                after=number(finite(after)),
                accepted=accepted,
            )
            for policy, (_, before), after, accepted in outcomes
        )

    def record(self) -> dict[str, Any]:
        """The generation as one JSON object; numbers that are not finite become null."""
        population, work = self.population, self.work
        known = work.seconds_sgd + work.seconds_fitness + work.seconds_evolution
        leader = self.leader
        outcomes = zip(self.policies, self.before, self.after, self.accepted, strict=True)
        return {
            "k": self.k,
            "stage": self.stage,
            "best": finite(self.best.fitness),
            "elite_mean": finite(self.elite_mean),
            "mean": finite(float(population.fitness.mean())),
            "fitness": [finite(f) for f in population.fitness.tolist()],
            "elites": self.elites,
            "offspring_among_elites": self.offspring_among_elites,
            "backed_off": self.backed_off,
            "checked": self.checked,
            "diverged": self.diverged,
            "founders": population.founders_alive,
            "diversity": finite(population.diversity),
            "leader": leader.record() if leader else None,
            "policies": [
                {
                    "id": id_,
                    **policy.record(),
                    "before": finite(before),
                    "after": finite(after),
                    "accepted": accepted,
                }
                for policy, (id_, before), after, accepted in outcomes
            ],
            "births": [birth.record() for birth in population.births],
            "test": {name: finite(value) for name, value in self.test.items()},
            **({} if self.pick is None else {"pick": self._picked(self.pick)}),
            **({"metrics": {name: finite(value) for name, value in self.metrics.items()}} if self.metrics else {}),
            **({} if self.select is None else {"select": dict(zip(("metric", "mode"), self.select, strict=True))}),
            **({"ranges": [each.record() for each in self.ranges]} if self.ranges else {}),
            "ledger": work.samples,
            "bytes_moved": work.bytes_moved,
            "seconds": {
                "sgd": work.seconds_sgd,
                "fitness": work.seconds_fitness,
                "evolution": work.seconds_evolution,
                "checkpoint": 0.0,
                "other": max(0.0, self.seconds - known),
            },
            "guarantee": self.guarantee,
            "waiver": self.waiver,
            "notes": [{"kind": note.kind, "text": note.text} for note in self.notes],
        }

    def _picked(self, loss: float) -> dict[str, float | None]:
        """The kept network: its loss on the split that picks, and its fitness."""
        return {"loss": finite(loss), "fitness": finite(float(self.state.archive.fitness[0]))}


def held_out(line: Mapping[str, Any]) -> float | None:
    """What selection goes by, on the test split: the loss, or the metric in its place; lower is better."""
    selected = line.get("select")
    value: float | None = line["test"].get(selected["metric"] if selected else "loss")
    return -value if value is not None and selected and selected["mode"] == "max" else value
