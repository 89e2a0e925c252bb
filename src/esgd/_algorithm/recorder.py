"""The recorder of a generation: what happened in it, whether the guarantee held, and what should be noted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf, isfinite
from time import perf_counter
from typing import Any

from torch import nn

from esgd.engines.attributes import ModuleModes
from esgd.errors import TaskError, shown
from esgd.generation import Generation, Note, Noted, State
from esgd.guarantee import check
from esgd.health import examine
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Individual, Population
from esgd.protocols import Inspects, Measures, Picks, SearchesData, Setup, Task, Trained
from esgd.randomness import Seeds, global_randomness
from esgd.recipe import Recipe, Stage


class Recorder:
    """Takes down one generation. It remembers of Ψ^(k−1) what can be said of it, not the rows."""

    def __init__(self, task: Task, recipe: Recipe, stage: Stage, state: State, waiver: str) -> None:
        self.task, self.recipe, self.stage, self.waiver = task, recipe, stage, waiver
        self.archive, self.history, self.past = state.archive, state.history, state.past
        self.remark, self.ranges, self.untold = state.remark, state.ranges, state.untold
        picked = state.history[-1].get("pick", {}) if state.history else {}
        self.picked = None if not picked else inf if picked["loss"] is None else picked["loss"]
        self.noted = state.noted or Noted.of(state.history)
        self.ids, self.fitness = [birth.id for birth in state.population.births], state.population.fitness
        self.begun, self.sgd = perf_counter(), dict[str, Any]()
        self.waited = 0.0 if state.mark is None else self.begun - state.mark

    def trained(self, policies: Sequence[Policy], trained: Trained) -> State:
        """What the SGD step did; returns the state it leaves, so that the one before need not be kept."""
        self.sgd = {
            "policies": tuple(policies),
            "before": tuple(zip(self.ids, self.fitness.tolist(), strict=True)),
            "after": tuple(trained.population.fitness.tolist()),
            "accepted": tuple(trained.moved.tolist()),
            "backed_off": int(trained.refused.sum()),
            "checked": self.recipe.backoff.checks(self.stage.sgd_epochs) * len(self.ids),
            "diverged": int(trained.diverged.sum()),
        }
        past = self.history, self.past, self.noted
        return State(self.stage.k - 1, trained.population, self.archive, *past, ranges=self.ranges)

    def conclude(self, population: Population, work: Ledger) -> Generation:
        """Check the guarantee, look at the third split, and write the record."""
        recipe, k, m = self.recipe, self.stage.k, self.stage.elites
        if not self.waiver:
            check(self.fitness, population.fitness, m, k)
        archive, picked, looked = self._choose_returned(population)
        test, metrics = self._measure(archive)
        generation = Generation(
            k=k,
            stage=self.stage.name,
            population=population,
            elites=m,
            offspring_among_elites=_born_among(population, m, k),
            guarantee="waived" if self.waiver else "held",
            waiver=self.waiver,
            test=test,
            pick=picked,
            metrics=metrics,
            select=self.task.select if isinstance(self.task, Measures) else None,
            work=replace(work, fitness_evolution=work.fitness_evolution + looked),
            seconds=perf_counter() - self.begun,
            ranges=self.untold,
            state=State(k, population, archive, self.history, self.past),
            **self.sgd,
        )
        line = generation.record() | self._clock(generation)
        steps, comparable = self.task.steps({}), self.task.nonnegative
        constant = self.task.constant_fitness() if isinstance(self.task, Inspects) else None
        history = self.history.then(line)
        ends = k == recipe.stage_count or bool(recipe.out_of_time(k, history))
        notes = examine(line, self.noted, recipe, steps, comparable=comparable, constant=constant, ends=ends)
        notes = (*self.noted.pending, *notes, *self._searched(notes))
        if self.waiver and "noisy" not in self.noted.kinds and recipe.backoff.certain:
            notes = (Note("noisy", f"No guarantee: {self.waiver}"), *notes)
        if self.remark:
            notes = (Note("extended", self.remark), *notes)
        line["notes"] = [{"kind": note.kind, "text": note.text} for note in notes]
        past = self.past.then(*generation.fared)
        mark = self.begun + generation.seconds
        state = State(k, population, archive, history, past, self.noted.after(line), mark=mark, ranges=self.ranges)
        return replace(generation, notes=notes, state=state)

    def _measure(self, archive: Population) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Metrics on the test split and on the fitness split of what the run would give back. If that is the network of
        the generation before, its metrics are known, unless one of them was not finite."""
        if archive is self.archive and self.history:
            test, metrics = self.history[-1]["test"], self.history[-1].get("metrics", {})
            if test is not None and None not in (*test.values(), *metrics.values()):
                return test, metrics
        network = archive.best.module()
        return self.task.test(network), (self.task.fitness_metrics(network) if isinstance(self.task, Measures) else {})

    def _searched(self, notes: Sequence[Note]) -> Iterator[Note]:
        """Where the training data make all diverge, if the look before training has not found it."""
        known = {*self.noted.kinds, *(note.kind for note in self.noted.pending)}
        if isinstance(self.task, SearchesData) and "nan" not in known and "diverged" in {each.kind for each in notes}:
            yield from (Note(kind, text) for kind, text in self.task.search())

    def _clock(self, generation: Generation) -> dict[str, Any]:
        """Of a run that has a budget of time: when this generation began and ended, and what it was given."""
        timed, stage = self.recipe.clock, self.stage
        if timed is None:
            return {}
        begun = timed.elapsed(self.history) + self.waited
        told = {
            "budget": timed.seconds,
            "begun": begun,
            "elapsed": begun + generation.seconds,
            "epochs": stage.sgd_epochs,
            "reached": (stage.before + stage.sgd_epochs) / stage.total,
            "sgd": generation.work.seconds_sgd,
        }
        return {"clock": told}

    def _choose_returned(self, population: Population) -> tuple[Population, float | None, int]:
        """What the run would give back now: the fittest ever seen or, where the task has a split that picks, the elite
        with the lowest loss on it. With that loss, and the samples that were looked at."""
        looks = self._looks(population)
        if not looks and self.picked is None:
            best = population.champion
            return (best if float(best.fitness[0]) < float(self.archive.fitness[0]) else self.archive), None, 0
        known = inf if self.picked is None else self.picked
        lowest = min(looks, key=lambda i: looks[i][0], default=None)
        samples = sum(samples for _, samples in looks.values())
        if lowest is None or (self.history and looks[lowest][0] >= known):
            return self.archive, known, samples
        return population.alone(lowest), looks[lowest][0], samples

    def _looks(self, population: Population) -> dict[int, tuple[float, int]]:
        """What each elite has on the split that picks, if there is one. One network is filled with one after another;
        what it keeps in plain attributes is each time as it was."""
        task, elites = self.task, population.order[: self.stage.elites]
        if not isinstance(task, Picks):
            return {}
        network, looks = Individual(population, elites[0]).module(), dict[int, tuple[float, int]]()
        modes = ModuleModes(network)
        for elite in (Individual(population, i) for i in elites):
            population.genome.write(elite.row, elite.buffers, network)
            modes.enter(training=False)
            if (look := _look(task, network)) is not None:
                looks[elite.index] = look
        return looks


def measured_names(setup: Setup, line: Mapping[str, Any] | None) -> dict[str, Callable[[], Collection[str]]]:
    """The names of what is measured after each generation, by the tables of a history line: as the last line has them
    or, before the first, as they are found by measuring a network."""
    if line is not None:
        return {table: partial(_names, line, table) for table in ("test", "metrics", "pick")}
    task = setup.task

    @cache
    def network() -> nn.Module:
        return setup.genome.module(*setup.genome.read(setup.genome.template))

    def measured(measure: Callable[[nn.Module], Any]) -> Collection[str]:
        with global_randomness(Seeds(0).integer("measured names")):
            found = measure(network())
        return found if isinstance(found, Mapping) else ("loss",) if found is not None else ()

    return {
        "test": cache(partial(measured, task.test)),
        "metrics": cache(partial(measured, task.fitness_metrics)) if isinstance(task, Measures) else tuple,
        "pick": cache(partial(measured, task.pick_loss)) if isinstance(task, Picks) else tuple,
    }


def _names(line: Mapping[str, Any], table: str) -> Collection[str]:
    return line.get(table) or ()


def _born_among(population: Population, elites: int, k: int) -> float:
    """The share of the m elites that were born in generation k (figure 2)."""
    return sum(population.births[i].generation == k for i in population.order[:elites]) / elites


def _look(task: Picks, network: nn.Module) -> tuple[float, int] | None:
    """The loss on the split that picks, inf where it is not finite, and its samples; None where there is none."""
    look = task.pick_loss(network)
    if look is None:
        return None
    try:
        loss, samples = map(float, look)
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"pick_loss returned {shown(look)}. It must return the mean loss on the split that picks and its samples, "
            f"such as (0.31, 500), or None if there is no such split."
        ) from error
    return loss if isfinite(loss) else inf, int(samples)
