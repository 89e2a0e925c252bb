"""The small print between the lines of Algorithm 1: what each step is given, and what is written down about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any

from esgd.errors import RecipeError, shown
from esgd.generation import Generation, Note, State
from esgd.guarantee import check
from esgd.health import examine
from esgd.ledger import Work
from esgd.policies import Policy, check_trainable
from esgd.population import Population
from esgd.protocols import Draw, Role, Species, Step, Task, Trained
from esgd.randomness import Seeds
from esgd.recipe import Recipe, Stage


def pick(stage: Stage, recipe: Recipe, state: State, seeds: Seeds) -> list[Policy]:
    """A policy for every individual, each from a draw of its own."""
    past, stream = state.past, seeds.at("policy")
    return [
        drawn(
            stage.species,
            Draw(k=stage.k, j=j, generations=recipe.generations, stream=stream, inherited=inherited, past=past),
        )
        for j, inherited in enumerate(state.population.policies)
    ]


def drawn(species: Species, request: Draw) -> Policy:
    """A policy of the species; one that cannot be trained with is refused before anything is trained."""
    policy = species(request)
    if not isinstance(policy, Policy):
        raise RecipeError(f"species={shown(species)} drew {shown(policy)}, which is no Policy. See esgd.species.")
    check_trainable(policy)
    return policy


def sgd_step(stage: Stage, recipe: Recipe) -> Step:
    """The SGD step of a generation, as an engine sees it."""
    return Step(
        k=stage.k,
        epochs=stage.sgd_epochs,
        backoff=recipe.backoff,
        before=stage.before,
        total=recipe.total_epochs,
        keep_ends=recipe.survival.wants_ends and stage.evolution_steps > 0,
    )


def candidates(trained: Trained, immigrants: Population) -> tuple[Population, list[Role]]:
    """Whoever competes with the offspring: parents, immigrants, and the ends of backed-off trajectories where wanted.

    An immigrant that is in the population already, no worse than it came, does not come again.
    """
    there = dict(
        zip((birth.id for birth in trained.population.births), trained.population.fitness.tolist(), strict=True)
    )
    known = zip((birth.id for birth in immigrants.births), immigrants.fitness.tolist(), strict=True)
    arriving = immigrants[[i for i, (id_, fitness) in enumerate(known) if there.get(id_, inf) > fitness]]
    parents = [Role.MOVED if moved else Role.HELD for moved in trained.moved.tolist()]
    roles = [*parents, *([Role.IMMIGRANT] * len(arriving)), *([Role.END] * len(trained.ends))]
    return trained.population.join(arriving).join(trained.ends), roles


class Chronicle:
    """Takes down one generation. It remembers of Ψ^(k−1) what can be said of it, not the rows."""

    def __init__(self, task: Task, recipe: Recipe, stage: Stage, state: State, waiver: str) -> None:
        self.task, self.recipe, self.stage, self.waiver = task, recipe, stage, waiver
        self.archive, self.history, self.past = state.archive, state.history, state.past
        self.ids, self.fitness = [birth.id for birth in state.population.births], state.population.fitness
        self.begun, self.sgd = perf_counter(), dict[str, Any]()

    def trained(self, policies: Sequence[Policy], trained: Trained) -> State:
        """What the SGD step did; returns the state it leaves, so that nobody need keep the one before."""
        self.sgd = {
            "policies": tuple(policies),
            "before": tuple(zip(self.ids, self.fitness.tolist(), strict=True)),
            "after": tuple(trained.population.fitness.tolist()),
            "accepted": tuple(trained.moved.tolist()),
            "backed_off": int(trained.refused.sum()),
            "checked": self.recipe.backoff.checks(self.stage.sgd_epochs) * len(self.ids),
            "diverged": int(trained.diverged.sum()),
        }
        return State(self.stage.k - 1, trained.population, self.archive, self.history, self.past)

    def conclude(self, population: Population, work: Work) -> Generation:
        """Check the guarantee, look at the third split, and write the record."""
        recipe, k, m = self.recipe, self.stage.k, self.recipe.elite_count
        if not self.waiver:
            check(self.fitness, population.fitness, m, k)
        best = population.champion
        archive = best if float(best.fitness[0]) < float(self.archive.fitness[0]) else self.archive
        generation = Generation(
            k=k,
            stage=self.stage.name,
            population=population,
            elites=m,
            offspring_among_elites=_born_among(population, m, k),
            guarantee="waived" if self.waiver else "held",
            waiver=self.waiver,
            test=self.task.test(archive.best.module()),
            work=work,
            seconds=perf_counter() - self.begun,
            state=State(k, population, archive, self.history, self.past),
            **self.sgd,
        )
        line = generation.record()
        steps, comparable = self.task.steps({}), self.task.nonnegative
        notes = examine(line, self.history, recipe, steps, comparable=comparable)
        said = any(note["kind"] == "noisy" for line in self.history for note in line["notes"])
        if self.waiver and not said and recipe.backoff.certain:
            notes = (Note("noisy", f"No guarantee: {self.waiver}"), *notes)
        line["notes"] = [{"kind": note.kind, "text": note.text} for note in notes]
        state = State(k, population, archive, (*self.history, line), (*self.past, *generation.fared))
        return replace(generation, notes=notes, state=state)


def _born_among(population: Population, elites: int, k: int) -> float:
    """The share of the m elites that were born in generation k (figure 2)."""
    return sum(population.births[i].generation == k for i in population.order[:elites]) / elites
