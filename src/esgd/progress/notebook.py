"""Progress in a notebook: a figure that grows with every generation. The one file that imports IPython, and only
where a notebook has done so already."""

from __future__ import annotations

import sys
from html import escape
from time import perf_counter
from typing import Any

from esgd.errors import MissingExtraError
from esgd.generation import Generation
from esgd.progress.remaining import Remaining

BETWEEN = 0.5  # seconds: a page need not be told more often


class Figure:
    """Fitness over generations, and below it where the run is. Without matplotlib: the lines alone."""

    def __init__(self, remaining: Remaining, generations: int, done: int) -> None:
        import IPython.display

        shown: Any = IPython.display  # without annotations
        self._html, self._display = shown.HTML, shown.display
        self._remaining, self._generations, self._k = remaining, generations, done
        self._lines, self._picture, self._told = list[str](), "", perf_counter()
        self._cell = self._display(self._html(self._page("")), display_id=True)

    def tick(self, phase: str, done: int, total: int) -> None:
        self._remaining.tick(phase, done, total)
        if perf_counter() - self._told > BETWEEN:
            left = self._remaining.estimate
            name = "SGD" if phase == "sgd" else phase
            now = f"generation {self._k + 1} of {self._generations}  {name} {done}/{total}  {left or ''}"
            self._show(now)

    def generation(self, generation: Generation) -> None:
        self._remaining.generation()
        self._k, left = generation.k, self._remaining.estimate
        try:
            from esgd.report.figures import as_svg, figure_run

            self._picture = as_svg(figure_run(generation.state.history), f"esgd-{id(self):x}")
            self._lines = [str(generation)]
        except MissingExtraError:
            self._lines.append(str(generation))
        self._lines += [f"note: {note}" for note in generation.notes]
        self._show(str(left) if left else "")

    def say(self, sentence: str) -> None:
        self._display(self._html(f"<small>{escape(sentence)}</small>"))

    def warn(self, sentence: str) -> None:
        self.say(sentence)

    def _show(self, now: str) -> None:
        self._told = perf_counter()
        if self._cell is not None:
            self._cell.update(self._html(self._page(now)))

    def _page(self, now: str) -> str:
        text = "\n".join(escape(line) for line in [*self._lines, now] if line)
        return f'<div style="max-width: 34em">{self._picture}<pre style="white-space: pre-wrap">{text}</pre></div>'


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this program; IPython on a terminal is a terminal."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and shell.has_trait("kernel")
