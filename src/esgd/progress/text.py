"""Progress without a screen: plain lines, JSON lines, silence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from esgd.generation import Generation
from esgd.progress.remaining import Remaining

if TYPE_CHECKING:
    from rich.console import Console

HEADLINES = (
    "k",
    "stage",
    "best",
    "elite_mean",
    "mean",
    "offspring_among_elites",
    "diversity",
    "backed_off",
    "diverged",
    "leader",
    "metrics",
    "test",
    "guarantee",
    "notes",
)
"""What a JSON line has of a generation's record; the whole of it is in the run's history."""


class Silent:
    """Says nothing, but does not keep back what went wrong."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def tick(self, phase: str, done: int, total: int) -> None:
        pass

    def generation(self, generation: Generation) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def warn(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class Plain:
    """A line for every finished generation, and one for every health note."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def tick(self, phase: str, done: int, total: int) -> None:
        pass

    def generation(self, generation: Generation) -> None:
        self.say(str(generation))
        for note in generation.notes:
            self.say(f"  note: {note}")

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def warn(self, sentence: str) -> None:
        self.say(sentence)


class Json:
    """One JSON object a line: `event` is "generation", or "said" or "warned" with a `text`."""

    def __init__(self, console: Console, remaining: Remaining, generations: int) -> None:
        self._console, self._remaining, self._generations = console, remaining, generations

    def tick(self, phase: str, done: int, total: int) -> None:
        self._remaining.tick(phase, done, total)

    def generation(self, generation: Generation) -> None:
        took, line = self._remaining.generation(), generation.state.history[-1]
        left = self._remaining.estimate
        self._print(
            {
                "event": "generation",
                **{name: line[name] for name in HEADLINES if name in line},
                "generations": self._generations,
                "seconds": took,
                "seconds_left": left.seconds if left else 0.0,
            }
        )

    def say(self, sentence: str) -> None:
        self._print({"event": "said", "text": sentence})

    def warn(self, sentence: str) -> None:
        self._print({"event": "warned", "text": sentence})

    def _print(self, value: dict[str, Any]) -> None:
        self._console.out(json.dumps(value, ensure_ascii=False), highlight=False)
