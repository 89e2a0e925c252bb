"""Callbacks: code of your own that `fit` calls at four moments of a run.

A callback is any object with one or more of these methods, or a function, which is called as `on_generation_end`.

| method                          | called                                       | with                                |
|---------------------------------|----------------------------------------------|-------------------------------------|
| `on_run_begin(run)`             | before anything is trained, also on a resume | its `name`, `id` and `manifest`     |
| `on_generation_end(generation)` | when a generation is made and saved          | the `Generation`                    |
| `on_run_end(result)`            | when the run has ended, stopped or not       | the `Result` that `fit` returns     |
| `on_error(error)`               | when an error ends the run                   | the exception                       |

Each may raise `StopRun("why")`. The run then stops, and `fit` returns the result so far; from `on_error` it does so
instead of raising the error. Any other exception in a callback ends the run, with a note that names the callback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from esgd._algorithm.last_state import last_generation
from esgd._serialization import encode
from esgd.errors import RecipeError, StopRun, did_you_mean, shown
from esgd.generation import Generation, State
from esgd.progress.tracking import Tracked
from esgd.stopping import StopRule, asked, blame, check_names, check_stop, name_of

__all__ = ["INTERRUPTED", "MOMENTS", "Watchers"]

INTERRUPTED = "interrupted"
MOMENTS = ("on_run_begin", "on_generation_end", "on_run_end", "on_error")


class Watchers:
    """The stop rules and callbacks of one call of `fit`. What asks to stop the run is returned as a reason."""

    def __init__(self, stop: object, callbacks: object, on_interrupt: str = "return") -> None:
        self._rules: tuple[StopRule, ...] = check_stop(stop)
        self._callbacks, self._on_interrupt = _checked(callbacks), on_interrupt
        if on_interrupt not in ("return", "raise"):
            raise RecipeError(
                f"on_interrupt={shown(on_interrupt)} is neither 'return', the result so far after Ctrl-C, nor 'raise'."
            )

    @property
    def spelt(self) -> tuple[Mapping[str, Any], ...]:
        """The rules as tables, so that `esgd resume` has them again; those without an importable name are left out."""
        return tuple(table for rule in self._rules if (table := _spelt(rule)) is not None)

    def check(self, known: Mapping[str, Callable[[], Collection[str]]]) -> None:
        """Refuse what goes by a metric that there will not be; `known` has the names of all, by table."""
        check_names((*self._rules, *self._callbacks), known)

    def begin(self, run: Tracked, state: State | None) -> str:
        """The run begins or continues from a state, about which the rules are asked again: they decide as before."""
        wanted = self._call("on_run_begin", run)
        return wanted or (asked(self._rules, last_generation(state)) if state and self._rules else "")

    def generation(self, generation: Generation) -> str:
        """A generation has ended; every callback is called, then the rules are asked."""
        wanted = self._call("on_generation_end", generation)
        return asked(self._rules, generation) or wanted

    def end(self, result: object) -> None:
        """The run has ended; nothing is left to be stopped."""
        self._call("on_run_end", result)

    def ended_by(self, error: BaseException) -> str:
        """The run ends with an error or an interrupt; a reason asks for the result so far instead."""
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED if self._on_interrupt == "return" else ""
        if isinstance(error, StopRun):  # before the first generation
            return ""
        try:
            return self._call("on_error", error)
        except Exception as another:  # noqa: BLE001  # the first error is the one to raise
            notes = " ".join(getattr(another, "__notes__", ()))
            error.add_note(f"While this was handled, {type(another).__name__}: {another}. {notes}")
            return ""

    def _call(self, moment: str, value: object) -> str:
        reasons = list[str]()
        for callback in self._callbacks:
            method = _method(callback, moment)
            if method is None:
                continue
            try:
                method(value)
            except StopRun as stop:
                reasons.append(str(stop) or f"{name_of(callback)} stopped it")
            except Exception as error:
                blame(error, f"{moment} of the callback {name_of(callback)}")
                raise
        return reasons[0] if reasons else ""


def _spelt(rule: StopRule) -> Mapping[str, Any] | None:
    try:
        table: Mapping[str, Any] = encode(rule)
    except RecipeError:
        return None
    return table


def _method(callback: Any, moment: str) -> Callable[[Any], object] | None:
    if not _named(callback):  # a function
        return callback if moment == "on_generation_end" else None
    return getattr(callback, moment, None)


def _named(callback: object) -> list[str]:
    return [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]


def _checked(callbacks: object) -> Sequence[object]:
    """The callbacks that were given; what is none, and a method that would never be called, is refused by name."""
    if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
        raise RecipeError(f"callbacks={shown(callbacks)} is not a list. Write callbacks=[…], with brackets.")
    given = list(callbacks)
    for callback in given:
        methods = _named(callback)
        if isinstance(callback, type) or not (methods or callable(callback)):
            raise RecipeError(
                f"{shown(callback)} among the callbacks is none. A callback is a function of a generation, or an "
                f"object with one or more of these methods: {', '.join(MOMENTS)}."
            )
        for name in methods:
            if name not in MOMENTS:
                raise RecipeError(
                    f"callback {name_of(callback)} has the method {name!r}, which is never called. "
                    f"{did_you_mean(name, MOMENTS)} The moments of a run: {', '.join(MOMENTS)}."
                )
    return given
