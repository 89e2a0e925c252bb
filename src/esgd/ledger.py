"""The ledger: samples through forward and backward, and seconds, by phase.

Arms of a comparison that share "the same SGD epochs" may still differ in fitness passes; the ledger shows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from time import perf_counter

SAMPLES = ("sgd_forward", "sgd_backward", "fitness_sgd", "fitness_evolution", "fitness_saved")


@dataclass(slots=True)
class Ledger:
    """Samples and seconds spent; adds up with `+=`.

    | field               | samples that went …                                                       |
    |---------------------|---------------------------------------------------------------------------|
    | `sgd_forward`       | forward in SGD                                                            |
    | `sgd_backward`      | backward in SGD                                                           |
    | `fitness_sgd`       | forward for the fitness in the SGD step, statistics included              |
    | `fitness_evolution` | forward for the fitness of offspring and of the initial population       |
    | `fitness_saved`     | nowhere, because an evaluation was aborted early                          |

    `bytes_moved` are those of individuals that went to other machines and came back.
    """

    sgd_forward: int = 0
    sgd_backward: int = 0
    fitness_sgd: int = 0
    fitness_evolution: int = 0
    fitness_saved: int = 0
    bytes_moved: int = 0
    seconds_sgd: float = 0.0
    seconds_fitness: float = 0.0
    seconds_evolution: float = 0.0

    def __iadd__(self, other: Ledger) -> Ledger:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def within(self, seconds: float) -> Ledger:
        """The same work, its seconds scaled down to what has passed if several worked at the same time."""
        spent = self.seconds_sgd + self.seconds_fitness + self.seconds_evolution
        share = min(1.0, seconds / spent) if spent else 1.0
        return replace(
            self,
            seconds_sgd=self.seconds_sgd * share,
            seconds_fitness=self.seconds_fitness * share,
            seconds_evolution=self.seconds_evolution * share,
        )

    @property
    def samples(self) -> dict[str, int]:
        """The ledger of a history line."""
        return {name: getattr(self, name) for name in SAMPLES}

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Add the time of a block to `seconds_<phase>`."""
        begun, name = perf_counter(), f"seconds_{phase}"
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + perf_counter() - begun)


def passes(ledger: Mapping[str, int]) -> float:
    """Work as forward-equivalents: a forward counts 1, a backward 2.

    >>> passes({"sgd_forward": 10, "sgd_backward": 10, "fitness_sgd": 5, "fitness_evolution": 0})
    35.0
    """
    forward = ledger["sgd_forward"] + ledger["fitness_sgd"] + ledger["fitness_evolution"]
    return forward + 2.0 * ledger["sgd_backward"]
