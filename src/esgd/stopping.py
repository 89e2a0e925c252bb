"""Rules that stop a run before its last generation, for `fit(stop=…)`.

A rule is a function of a `Generation`. It is asked when the generation is saved; what it returns is true to stop, and
may be a sentence that says why. Patience and Target look at the history alone, so they decide the same after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from math import inf
from typing import Any, Protocol, runtime_checkable

from esgd._validation import check_field, check_number
from esgd.errors import RecipeError, StopRun, did_you_mean, shown
from esgd.generation import Generation

__all__ = ["Patience", "StopRule", "Target"]

StopRule = Callable[[Generation], object]
"""Returns something true to stop; a text is the reason."""

PLAIN = ("best", "elite_mean", "mean", "diversity", "offspring_among_elites")
TABLES = ("test", "metrics", "pick")
_OF = (
    f"It names a number in a line of the history: {', '.join(PLAIN)}, or a metric such as 'test.loss' or 'metrics.f1'."
)


@runtime_checkable
class GoesBy(Protocol):
    """A rule or a callback that goes by one number of every history line, such as `Patience`, and wants it checked."""

    @property
    def goes_by(self) -> str: ...


@dataclass(frozen=True)
class Patience:
    """Stop when a number has not improved for so many `generations`.

    | argument | meaning                                                                                       |
    |----------|-----------------------------------------------------------------------------------------------|
    | `of`     | the number, as a history line has it: "best", the fitness, "elite_mean", or a metric:         |
    |          | "metrics.f1" on the fitness split, "test.loss", "pick.loss"                                   |
    | `mode`   | "min" where lower is better, or "max"                                                         |
    | `least`  | the smallest change that counts as an improvement                                             |

    >>> print(Patience(3, of="test.loss"))
    Patience(3, of='test.loss')
    """

    generations: int
    _: KW_ONLY
    of: str = "best"
    mode: str = "min"
    least: float = 0.0

    def __post_init__(self) -> None:
        meaning = "A run is given so many generations to improve. Use for example Patience(3)."
        check_field(self, "generations", at_least=1, whole=True, meaning=meaning)
        check_field(self, "least", at_least=0, meaning="It is the smallest improvement that counts. Use 0 for any.")
        _check(self.of, self.mode)

    @property
    def goes_by(self) -> str:
        return self.of

    def __call__(self, generation: Generation) -> str:
        lowest, since = inf, 0
        for line in generation.state.history:
            value = _signed(line, self.of, self.mode)
            if value < lowest - self.least or (lowest == inf and value < inf):
                lowest, since = value, line["k"]
        if generation.k - since < self.generations:
            return ""
        best = f"{lowest if self.mode == 'min' else -lowest:.6g} since generation {since}" if since else "never finite"
        return f"{self.of} has not improved for {generation.k - since} generations: {best}"

    def __str__(self) -> str:
        return _in_short(self)


@dataclass(frozen=True)
class Target:
    """Stop when a number is as good as `value`; `of` and `mode` are those of `Patience`.

    >>> print(Target(0.05))
    Target(0.05)
    """

    value: float
    _: KW_ONLY
    of: str = "best"
    mode: str = "min"

    def __post_init__(self) -> None:
        check_field(self, "value", meaning="It is the number to reach. Use for example Target(0.05).")
        _check(self.of, self.mode)

    @property
    def goes_by(self) -> str:
        return self.of

    def __call__(self, generation: Generation) -> str:
        reached = _signed(generation.state.history[-1], self.of, self.mode)
        sign = 1 if self.mode == "min" else -1
        return f"{self.of} is {sign * reached:.6g}, and the target is {self.value:g}" * (reached <= sign * self.value)

    def __str__(self) -> str:
        return _in_short(self)


def check_stop(stop: object) -> tuple[StopRule, ...]:
    """The rules that were given: none, one, or several; what is no rule is refused by name."""
    rules: tuple[Any, ...] = (
        () if stop is None else tuple(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
    )
    for rule in rules:
        if isinstance(rule, type) or not callable(rule):
            raise RecipeError(
                f"stop={shown(rule)} is not a rule. A rule is called with each generation and says whether to stop. "
                f"Use Patience(3), Target(0.05), a function of your own, or a list of these."
            )
    return rules


def check_names(watching: Iterable[object], known: Mapping[str, Callable[[], Collection[str]]]) -> None:
    """Refuse a rule or a callback that goes by a metric which was not measured.

    `known` says by table which metrics there are; that is measured, so only where one is asked for.
    """
    for each in watching:
        of = each.goes_by if isinstance(each, GoesBy) else ""
        table, dot, metric = of.partition(".")
        if dot and table in known and metric not in known[table]():
            there = [f"{name}.{metric}" for name, metrics in known.items() for metric in metrics()]
            raise RecipeError(
                f"{name_of(each)} goes by {of!r}, and a network that was measured does not have it. "
                f"{did_you_mean(of, there)} {_OF}"
            )


def asked(rules: Iterable[StopRule], generation: Generation) -> str:
    """Why to stop after this generation, in the words of the first rule that wants it; nothing to continue."""
    for rule in rules:
        try:
            answer = rule(generation)
            wanted = bool(answer)
        except StopRun as stop:
            return str(stop) or f"{name_of(rule)} stopped it"
        except RecipeError:
            raise
        except Exception as error:
            blame(error, f"stop={name_of(rule)}")
            raise
        if wanted:
            return f"{name_of(rule)}: {answer}" if isinstance(answer, str) else f"{name_of(rule)} was true"
    return ""


def blame(error: Exception, whose: str) -> None:
    """Note on an exception whose code raised it. Its type stays: a caller may wait for it, as Optuna for its own."""
    error.add_note(f"Raised by {whose}, which was given to fit. The run itself is sound.")


def name_of(value: object) -> str:
    """What a rule or a callback is called: a value by what it prints, a function by its name."""
    name = str(getattr(value, "__qualname__", ""))
    return name.rpartition("<locals>.")[2] or str(value)


def check_of(of: str) -> None:
    """Refuse what cannot be the name of a number in a history line."""
    _check(of, "min")


def number_in(line: Mapping[str, Any], of: str) -> float:
    """The number of this name in a history line, such as "best" or "metrics.f1"; inf where it is not finite."""
    return _signed(line, of, "min")


def _in_short(rule: Patience | Target) -> str:
    """The rule as one would write it: without what is at its default."""
    first, *others = fields(rule)
    given = [f"{each.name}={value!r}" for each in others if (value := getattr(rule, each.name)) != each.default]
    return f"{type(rule).__name__}({', '.join([repr(getattr(rule, first.name)), *given])})"


def _check(of: str, mode: str) -> None:
    table, dot, metric = str(of).partition(".")
    if of not in PLAIN and not (table in TABLES and dot and metric):
        raise RecipeError(f"of={shown(of)} is not known. {did_you_mean(str(of), PLAIN)} {_OF}")
    if mode not in ("min", "max"):
        raise RecipeError(f"mode={shown(mode)} is neither 'min' nor 'max': whether lower or higher is better.")


def _signed(line: Mapping[str, Any], of: str, mode: str) -> float:
    """The number in a line, lower is better; inf where it is not finite."""
    table, dot, metric = of.partition(".")
    found = line.get(table, {} if dot else None)
    if dot:
        if metric not in found:
            known = [f"{name}.{each}" for name in TABLES for each in line.get(name) or ()]
            raise RecipeError(f"generation {line['k']} has no {of!r}. {did_you_mean(of, known)} {_OF}")
        found = found[metric]
    if found is None:
        return inf
    return float(check_number(of, found, meaning=_OF)) * (1 if mode == "min" else -1)
