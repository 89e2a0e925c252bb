"""Progress on a terminal: bars that live at the bottom, and a line for every finished generation above them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from esgd._text.wording import duration
from esgd.generation import Generation
from esgd.progress.remaining import Remaining

BAR = 30  # characters, where there is room
REFRESH = 4  # times a second: the machine is there to train


class Bars:
    """The run, the SGD step and the evolution step as bars, with the time left."""

    def __init__(self, console: Console, remaining: Remaining, generations: int, done: int, *, breeds: bool) -> None:
        self._console, self._remaining, self._generations = console, remaining, generations
        self._k, self._breeds, self._best = done, breeds, float("inf")
        self._parts = {"sgd": (0, 0), "evolution": (0, 0)}

    def tick(self, phase: str, done: int, total: int) -> None:
        self._remaining.tick(phase, done, total)
        self._parts[phase] = (done, total)

    def generation(self, generation: Generation) -> None:
        took, best = self._remaining.generation(), generation.best.fitness
        text = Text(str(generation))
        text.highlight_regex(r"^k=\d+", "dim")
        text.highlight_regex(r"best \S+", "bold green" if best < self._best else "bold")
        text.append(f"  {duration(took)}", "dim")
        self._console.print(text, soft_wrap=True)
        for note in generation.notes:
            self._console.print(Padding(Text(f"note: {note}", "yellow"), (0, 0, 0, 2)))
        self._k, self._best = generation.k, min(best, self._best)
        self._parts = {"sgd": (0, 0), "evolution": (0, 0)}

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def warn(self, sentence: str) -> None:
        self._console.print(Text(sentence, "yellow"), soft_wrap=True)

    def render(self) -> RenderableType:
        """What stands at the bottom just now; nothing when the last generation is done."""
        if self._k >= self._generations:
            return Group()
        room = max(8, min(BAR, self._console.width - 46))
        left = self._remaining.estimate
        rows = Table.grid(padding=(0, 2))
        rows.add_row(
            Text(f"generation {self._k + 1} of {self._generations}", "bold"),
            ProgressBar(self._generations, self._k + self._share(), width=room),
            Text(str(left) if left else "", "cyan"),
        )
        for phase, name in (("sgd", "SGD"), ("evolution", "evolution")):
            done, total = self._parts[phase]
            if phase == "sgd" or self._breeds:
                count = Text(f"{done}/{total}" if total else "", "dim")
                rows.add_row(f"  {name}", ProgressBar(total or 1, done, width=room), count)
        return rows

    def _share(self) -> float:
        """How much of this generation is done; by individuals, as time is told beside it."""
        parts = [done / total if total else 0.0 for done, total in self._parts.values()]
        return sum(parts) / 2 if self._breeds else parts[0]


@contextmanager
def bars(console: Console, remaining: Remaining, generations: int, done: int, *, breeds: bool) -> Iterator[Bars]:
    """Bars while the block runs; they vanish with it, the lines stay."""
    shown = Bars(console, remaining, generations, done, breeds=breeds)
    with Live(get_renderable=shown.render, console=console, refresh_per_second=REFRESH, transient=True):
        yield shown
