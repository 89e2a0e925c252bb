"""Which kind of progress suits this place, or was asked for. What draws it is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from esgd.errors import RecipeError, did_you_mean
from esgd.generation import Generation
from esgd.progress.notebook import Figure, in_notebook
from esgd.progress.remaining import Remaining
from esgd.progress.text import Json, Plain, Silent
from esgd.recipe import Recipe

PROGRESS = ("auto", "bars", "plain", "json", "none")


class Reporter(Protocol):
    """Where a run says what it is doing."""

    def tick(self, phase: str, done: int, total: int) -> None: ...

    def generation(self, generation: Generation) -> None: ...

    def say(self, sentence: str) -> None: ...

    def warn(self, sentence: str) -> None: ...


@contextmanager
def reporter(
    progress: bool | str,  # noqa: FBT001  # as `fit` takes it
    *,
    recipe: Recipe,
    past: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Reporter]:
    """A reporter for one run of the recipe, `past` being the history lines of the generations that are done."""
    from esgd.progress.outlet import Outlet

    kind, generations, done = check_progress(progress), recipe.stage_count, len(past)
    console, clock = Outlet(stderr=True, force_terminal=kind == "bars" or None), recipe.clock
    until = None if clock is None else clock.seconds - clock.elapsed(past)
    remaining = Remaining(recipe.stages(), past, until=until)
    if kind == "auto":
        kind = "figure" if in_notebook() else "bars" if console.is_terminal else "plain"
    if kind == "figure":
        yield Figure(remaining, generations, done)
    elif kind == "bars":
        from esgd.progress.terminal import bars

        breeds = next(recipe.stages()).evolution_steps > 0
        with bars(console, remaining, generations, done, breeds=breeds) as shown:
            yield shown
    elif kind == "json":
        yield Json(console, remaining, generations)
    else:
        yield Plain(console) if kind == "plain" else Silent(console)


def announce(sentence: str, progress: bool | str = True) -> None:  # noqa: FBT001, FBT002  # as `fit` takes it
    """Say on standard error what comes next, in the form that was asked for."""
    from esgd.progress.outlet import Outlet

    console, kind = Outlet(stderr=True), check_progress(progress)
    if kind == "json":
        Json(console, Remaining(()), 0).say(sentence)
    elif kind != "none":
        console.print(sentence, style="bold", highlight=False, markup=False, soft_wrap=True)


def check_progress(progress: bool | str) -> str:  # noqa: FBT001  # as `fit` takes it
    """One of `PROGRESS`; anything else is refused."""
    kind = {True: "auto", False: "none"}.get(progress, progress) if isinstance(progress, bool) else progress
    if kind not in PROGRESS:
        raise RecipeError(
            f"progress={progress!r} is not known. {did_you_mean(str(progress), PROGRESS)} True is 'auto', False 'none'."
        )
    return str(kind)
