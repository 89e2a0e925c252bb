"""One way to refuse a number: what is wrong with it, then why and what to do, in the caller's words."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from math import inf
from numbers import Integral, Real
from typing import Any, TypeGuard

from esgd.errors import RecipeError, shown

LARGEST = 2**63 - 1
"""The largest whole number that a machine counts to; TOML has none beyond."""

FLOAT_BITS = 1023  # of a whole number that a float can hold


def is_count(value: Any, least: int = 1, most: float = inf) -> TypeGuard[int]:
    """Whether a value is a whole number from `least` to `most`; a bool is none.

    >>> is_count(3), is_count(True), is_count(0), is_count(2.0)
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_number(
    name: str,
    value: Any,
    *,
    meaning: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    whole: bool = False,
) -> Any:
    """The value as Python's own int or float, where it is a finite number inside its bounds; else a `RecipeError`.

    A bool is not a number; numpy's numbers are. `meaning` says why, in the paper's terms, and what to do.

    >>> check_number("gamma", 1.5, above=0, at_most=1, meaning="The range of generation k is γ^k times the first.")
    Traceback (most recent call last):
    esgd.errors.RecipeError: gamma=1.5 is not in (0, 1]. The range of generation k is γ^k times the first.
    """
    fault = _fault(value, at_least, above, at_most, whole=whole)
    if fault:
        raise RecipeError(f"{name}={shown(value)} {fault}. {meaning}")
    return int(value) if isinstance(value, Integral) else float(value)


def check_field(
    owner: object,
    name: str,
    *,
    meaning: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    whole: bool = False,
) -> None:
    """`check_number` for a field of a frozen value, which keeps Python's own number: it prints and goes to TOML."""
    value = getattr(owner, name)
    bounds = {"at_least": at_least, "above": above, "at_most": at_most}
    object.__setattr__(owner, name, check_number(name, value, meaning=meaning, whole=whole, **bounds))


def check_range(
    low: Any, high: Any, *, name: str = "", meaning: str, at_least: float | None = None, whole: bool = False
) -> tuple[Any, Any]:
    """Both ends of a range low ≤ high as Python's own numbers; `name` is the field that holds them as a pair.

    >>> check_range(0.2, 0.1, meaning="A range begins at its lower end.")
    Traceback (most recent call last):
    esgd.errors.RecipeError: low=0.2 exceeds high=0.1. A range begins at its lower end.
    """
    said = f"{name}={(low, high)!r}: {meaning}" if name else meaning
    first = check_number("low", low, at_least=at_least, whole=whole, meaning=said)
    last = check_number("high", high, at_least=at_least, whole=whole, meaning=said)
    if first > last:
        raise RecipeError(f"low={low!r} exceeds high={high!r}. {said}")
    return first, last


def check_function(name: str, value: Any, *arguments: str, meaning: str) -> None:
    """Refuse what cannot be called with so many arguments; nothing is called.

    Functions of our own are for one place each. They are known by the names of their parameters.

    >>> check_function("rest", "anyone", "role", meaning="It says who is admitted.")
    Traceback (most recent call last):
    esgd.errors.RecipeError: rest='anyone' cannot be called with (role). It says who is admitted.
    """
    fits = callable(value) and not isinstance(value, type)
    if fits:
        try:
            takes = signature(value)
            takes.bind(*arguments)
            fits = not _is_ours(value) or tuple(takes.parameters) == arguments
        except TypeError:
            fits = False
        except ValueError:
            pass  # some builtin functions do not tell
    if not fits:
        raise RecipeError(f"{name}={shown(value)} cannot be called with ({', '.join(arguments)}). {meaning}")


def check_species(name: str, value: Any) -> None:
    """Refuse what no policy can be drawn from."""
    meaning = "A species is a function from a Draw to a Policy. Use for example Sgd(lr=0.1)."
    check_function(name, value, "request", meaning=meaning)


def check_flag(owner: Any, name: str) -> None:
    """Refuse a field of a frozen value that is neither true nor false.

    >>> from types import SimpleNamespace
    >>> check_flag(SimpleNamespace(ranked=None), "ranked")
    Traceback (most recent call last):
    esgd.errors.RecipeError: ranked=None is neither true nor false.
    """
    value = getattr(owner, name)
    if not isinstance(value, bool):
        raise RecipeError(f"{name}={shown(value)} is neither true nor false.")


def check_list(name: str, value: Any, *, meaning: str) -> tuple[Any, ...]:
    """The value as a tuple, where it is several things in a row.

    >>> check_list("after", 80, meaning="Give the epochs as a list.")
    Traceback (most recent call last):
    esgd.errors.RecipeError: after=80 is not a list. Give the epochs as a list.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise RecipeError(f"{name}={shown(value)} is not a list. {meaning}")
    return tuple(value)


def check_numbers(owner: Any, name: str, *, may_be_zero: bool, meaning: str) -> None:
    """A field of a frozen dataclass with one number or more, above 0 or from 0 on: it is kept as a tuple of floats."""
    values = check_list(name, getattr(owner, name), meaning=meaning)
    check_number(f"len({name})", len(values), at_least=1, meaning=meaning)
    least, above = (0, None) if may_be_zero else (None, 0)
    for i, each in enumerate(values):
        check_number(f"{name}[{i}]", each, at_least=least, above=above, meaning=meaning)
    object.__setattr__(owner, name, tuple(map(float, values)))


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "esgd"


def _fault(value: Any, at_least: float | None, above: float | None, at_most: float | None, *, whole: bool) -> str:
    """What is wrong with the number, or nothing."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return "is not a number"
    number: Any = value
    if isinstance(value, Integral) and int(value).bit_length() > FLOAT_BITS:
        return "has too many digits"
    low = at_least if above is None else above
    bounded = low is not None and at_most is not None
    if not bounded and not -inf < number < inf:
        return "is not a finite number"
    if whole and not isinstance(value, Integral):
        return "is not an int"
    too_low = (at_least is not None and not number >= at_least) or (above is not None and not number > above)
    too_high = at_most is not None and not number <= at_most
    if (too_low or too_high) and bounded:
        return f"is not in {'[' if above is None else '('}{low:g}, {at_most:g}]"
    if too_low:
        return f"is below {low:g}" if above is None else f"is not above {low:g}"
    return f"exceeds {at_most:g}" if too_high else ""
