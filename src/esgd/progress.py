"""What a person sees while a run goes on: one live line, and one line for every finished generation.

Everything goes to standard error, so that standard output stays free for results. Without a terminal there is no
live line, only the finished generations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from esgd.generation import Generation

PHASES = {"sgd": "SGD", "evolution": "evolution"}


class Reporter(Protocol):
    """Where a run says what it is doing."""

    def tick(self, phase: str, done: int, total: int) -> None: ...

    def generation(self, generation: Generation) -> None: ...

    def say(self, sentence: str) -> None: ...


class Silent:
    """Says nothing."""

    def tick(self, phase: str, done: int, total: int) -> None:
        pass

    def generation(self, generation: Generation) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


class Terminal:
    """A live line with generation, phase, fitness and the time left; a plain line when a generation ends."""

    def __init__(self, progress: Progress, console: Console, generations: int, done: int) -> None:
        self._progress, self._console, self._generations, self._done = progress, console, generations, done
        self._sgd_share = 0.85  # of a generation's time; measured after the first
        self._fitness = ""
        self._task: TaskID = progress.add_task("", total=generations, completed=done)
        self.tick("sgd", 0, 1)

    def tick(self, phase: str, done: int, total: int) -> None:
        part = done / total * (self._sgd_share if phase == "sgd" else 1 - self._sgd_share)
        within = part if phase == "sgd" else self._sgd_share + part
        k = min(self._done + 1, self._generations)
        text = f"generation {k}/{self._generations}  {PHASES.get(phase, phase)} {done}/{total}{self._fitness}"
        self._progress.update(self._task, completed=min(self._done + within, self._generations), description=text)

    def generation(self, generation: Generation) -> None:
        work, self._done = generation.work, generation.k
        if generation.seconds > 0:
            self._sgd_share = min(0.99, max(0.01, work.seconds_sgd / generation.seconds))
        self._fitness = f"  best {generation.best.fitness:.4g}  elites {generation.elite_mean:.4g}"
        self._console.print(str(generation), highlight=False, markup=False, soft_wrap=True)
        for note in generation.notes:
            self._console.print(f"  note: {note}", style="yellow", highlight=False, markup=False, soft_wrap=True)
        self._progress.update(self._task, completed=self._done)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def announce(sentence: str) -> None:
    """Say on standard error what comes next."""
    Console(stderr=True).print(sentence, style="bold", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def reporter(*, shown: bool, generations: int, done: int = 0) -> Iterator[Reporter]:
    """A reporter for one run; silent where nothing shall be shown."""
    if not shown:
        yield Silent()
        return
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Terminal(progress, console, generations, done)
