"""K_s that follows the ledger: a run that spends all of its work. See `Spending`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esgd._sizes.situation import Situation
from esgd._sizes.timed import Turn, sum_of, value_of
from esgd._validation import check_numbers
from esgd.ledger import passes

RECENT = 3
"""Generations by whose fitness passes those to come are judged."""
LIMITS = (0.5, 2.0)
"""Times its planned epochs that a generation is given, whatever others have left or taken."""

_PARTS = "It has one number for each generation; the last one stays. The rules of esgd.rules reckon them."


@dataclass(frozen=True, kw_only=True)
class Spending:
    """K_s for a run that spends the work that it was planned for: what other generations have left is trained with.

    | field    | meaning                                                                                            |
    |----------|----------------------------------------------------------------------------------------------------|
    | `epochs` | planned for each generation; the last one stays                                                    |
    | `sgd`    | samples of a generation's SGD, forward 1 and backward 2, as planned; the last one stays            |
    | `rest`   | samples of a generation beside SGD, as planned; the last one stays                                 |

    An offspring that was not born leaves work over. It is divided among the generations that follow, in proportion to
    their planned epochs, and as much is expected to be left by these. What was spent is in the history, so a run that
    is resumed decides as before. No evaluation is aborted early: how many samples that saves depends on which worker is
    first, and K_s must not. The place of a generation in the run, by which learning rates are annealed, is the planned
    one.

    >>> from esgd.sizes import Situation
    >>> four = Spending(epochs=(1.0,), sgd=(100.0,), rest=(10.0,))
    >>> line = {"k": 1, "ledger": {"sgd_forward": 30, "sgd_backward": 30, "fitness_sgd": 5, "fitness_evolution": 0}}
    >>> four(Situation(k=1, generations=4)), four(Situation(k=2, generations=4, history=[line]))
    (1.0, 1.1)
    """

    epochs: tuple[float, ...]
    sgd: tuple[float, ...]
    rest: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("epochs", "sgd", "rest"):
            check_numbers(self, name, may_be_zero=name == "rest", meaning=_PARTS)

    def __call__(self, situation: Situation) -> float:
        return self.turn(situation.k, situation.generations, situation.history).epochs

    def turn(self, k: int, generations: int, history: Sequence[Mapping[str, Any]] | None = None) -> Turn:
        """What generation k is given after this history, of a plan where that is None."""
        planned, whole = value_of(self.epochs, k), sum_of(self.epochs, 1, generations)
        factor = self._factor(k, generations, history) if history else 1.0
        return Turn(factor * planned, factor * sum_of(self.epochs, 1, k - 1), factor * whole, last=k == generations)

    def _factor(self, k: int, generations: int, history: Sequence[Mapping[str, Any]]) -> float:
        """By how much the epochs that are planned from generation k on can be longer."""
        recent = history[-RECENT:]
        rest, beside = sum(map(_beside, recent)), sum(value_of(self.rest, line["k"]) for line in recent)
        to_come = sum_of(self.rest, k, generations)
        saved = to_come * (1.0 - rest / beside) if beside else 0.0
        left = sum(self._work(line["k"]) - passes(line["ledger"]) for line in history)
        low, high = LIMITS
        return min(high, max(low, 1.0 + (left + saved) / sum_of(self.sgd, k, generations)))

    def _work(self, k: int) -> float:
        """Samples of generation k, as planned."""
        return value_of(self.sgd, k) + value_of(self.rest, k)


def _beside(line: Mapping[str, Any]) -> int:
    """Samples of a generation beside SGD."""
    ledger = line["ledger"]
    return int(ledger["fitness_sgd"] + ledger["fitness_evolution"])
