"""A run of `fit`: generation after generation is saved and reported, until the recipe or something else ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from esgd._algorithm.initialization import Origin
from esgd._algorithm.last_state import LastState
from esgd._algorithm.range_finding import told
from esgd._algorithm.recorder import measured_names
from esgd._fit.how_to_continue import farewell, stopped
from esgd._fit.opening import Opened
from esgd._fit.rescoring import check_unchanged
from esgd._signals import deferred_signals
from esgd.algorithm import generations
from esgd.callbacks import Watchers
from esgd.errors import StopRun
from esgd.generation import Growing, State
from esgd.health import verdict
from esgd.progress import Reporter
from esgd.progress.tracking import Followers, Tracked
from esgd.protocols import Inspects, Setup
from esgd.randomness import in_turns
from esgd.recipe import Recipe
from esgd.run.folder import NoFolder, RunFolder
from esgd.run.manifest import digest
from esgd.run.stop import Stop
from esgd.sanity import look

Load = Callable[[], tuple[State | None, object]]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run reports to, and how it is called again: `origin` and `allow` are those of `fit`."""

    reports: Reporter
    followers: Followers
    watchers: Watchers
    origin: str
    allow: tuple[str, ...]


class Training:
    """The generations of one call of `fit`, from a state, None to begin with the start of the recipe.

    `state` is what the run returns; while a generation is made it is None, so that the one before is not kept in
    memory. `why` says what ended the run early.
    """

    def __init__(
        self,
        folder: RunFolder | NoFolder,
        opened: Opened,
        state: State | None,
        *,
        setup: Setup,
        recipe: Recipe,
        around: Surroundings,
        load: Load,
    ) -> None:
        self.folder, self.opened, self.setup, self.recipe, self.around = folder, opened, setup, recipe, around
        self.state, self.why, self._has_begun = state, "", False
        self.history: list[dict[str, Any]] = list(state.history) if state else []
        self.done, self._last = state.k if state else 0, LastState(load)

    @property
    def is_complete(self) -> bool:
        """Whether all generations of the recipe are made."""
        return self.done >= self.recipe.stage_count

    def tell_past(self) -> None:
        """What trackers and readers have to know of the generations that are done already."""
        for line in self.history:
            self.around.followers.write(line)
        for problem in self.opened.damaged:
            self.around.reports.say(f"{problem} Continuing from generation {self.done}.")
        if self.state:
            where = "" if self.folder.path is None else f"{self.folder.path}: "
            self.around.reports.say(f"{where}{self.done} of {self.recipe.stage_count} generations are already done.")

    def train(self, subject: Tracked, given: Origin) -> None:
        """Make the generations that are missing; `given` is what a run without a state begins with."""
        if not self.is_complete:
            line = self.history[-1] if self.history else None
            self.around.watchers.check(measured_names(self.setup, line))
        over = self.recipe.out_of_time(self.done, self.history)
        self.why = self.around.watchers.begin(subject, None if self.is_complete or over else self.state) or over
        if self.is_complete or self.why:
            if self.state is not None:
                check_unchanged(self.state, self.setup, self.opened.choice.engine, self.around.reports.tick)
            return
        if self.opened.choice.why:
            self.around.reports.say(self.opened.choice.why)
        concerns = look(self.setup) if self.state is None else ()
        for note in concerns:
            self.around.reports.say(f"note: {note}")
        self.folder.note_stop(Stop(self.around.watchers.spelt))
        self._has_begun = True
        made = generations(
            self.setup, self.recipe, self.opened.choice.engine, self.state or given, self.around.reports.tick
        )
        self.state = given = None
        with closing(made), closing(in_turns(made)) as to_come:
            for generation in to_come:
                with deferred_signals():
                    saved = self.folder.save(generation.state, run=digest(self.opened.manifest, generation.k))
                    self.history.append(saved)
                    self.done = generation.k
                    self._last.keep(generation.state)
                if generation.ranges:
                    self.around.reports.say(told(generation.ranges))
                said = tuple(note for note in generation.notes if note not in concerns)
                self.around.reports.generation(replace(generation, notes=said))
                self.around.followers.write(self.history[-1])
                self.why = self.around.watchers.generation(generation) or self.recipe.out_of_time(
                    self.done, generation.state.history
                )
                self.state = generation.state if self.why or self.is_complete else None
                del generation
                if self.why:
                    break

    def finish(self) -> None:
        """Make the folder of the run whole, and say why it has ended, if early."""
        if self.state is None:
            raise StopRun(f"{self.why}. No generation is finished, so there is no result.")
        around, path = self.around, self.folder.path
        if self.why and not self.is_complete:
            self.folder.note_stop(Stop(around.watchers.spelt, self.done, self.why))
            k = f"{self.done} of {self.recipe.stage_count}"
            over = self.recipe.out_of_time(self.done, self.history) == self.why
            words = f"Ended after generation {k}: {self.why}."
            around.reports.say(words if over else stopped(self.why, k, path, around.origin, around.allow))
            if not over and (note := verdict(self.history[-1], self._constant())):
                around.reports.say(f"note: {note}")  # in no history line: it is that of a run that was not stopped
        for mended in self.folder.finish(self.state, self.opened.manifest):
            around.reports.say(mended)
        around.followers.finish(self.state.archive.best.module())

    def _constant(self) -> float | None:
        task = self.setup.task
        return task.constant_fitness() if isinstance(task, Inspects) else None

    def end_by(self, error: BaseException) -> bool:
        """An error or an interrupt has ended the run. Returns whether the result so far is wanted instead."""
        around, path = self.around, self.folder.path
        self.why = around.watchers.ended_by(error)
        self.state = self._last.again() if self.why else None
        words = farewell(self.done, path, around.origin, around.allow)
        if self.state is not None or isinstance(error, KeyboardInterrupt):
            around.reports.say(words)
        elif self._has_begun and self.done and path is not None:
            error.add_note(words)
        if self.state is not None:
            self.history = list(self.state.history)
        return self.state is not None

    def reached(self) -> tuple[State, str]:
        """The last state, with the history as it was saved, and why there is none after it, if that was early."""
        assert self.state is not None
        why = self.why if self.state.k < self.recipe.stage_count else ""
        return replace(self.state, history=Growing(self.history)), why
