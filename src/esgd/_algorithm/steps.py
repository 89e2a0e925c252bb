"""What the steps of Algorithm 1 are given: policies, the SGD step as an engine sees it, and what competes."""

from __future__ import annotations

from math import inf

from esgd.errors import RecipeError, shown
from esgd.generation import State
from esgd.policies import Policy, check_trainable
from esgd.population import Population
from esgd.protocols import Draw, Role, Species, Step, Trained, continues
from esgd.randomness import Seeds
from esgd.recipe import Recipe, Stage
from esgd.species.auto import found_tops


def pick(stage: Stage, recipe: Recipe, state: State, seeds: Seeds) -> list[Policy]:
    """A policy for every individual, each from a draw of its own."""
    past, stream, population = state.past, seeds.at("policy"), state.population
    standing = zip(population.policies, population.births, population.optimizer_states, strict=True)
    continuing = continues(recipe.baggage) and state.k > 0
    tops = found_tops(stage.species, state.ranges)
    return [
        drawn(
            stage.species,
            Draw(
                k=stage.k,
                j=j,
                generations=recipe.generations,
                stream=stream,
                inherited=inherited,
                newborn=0 < state.k == birth.generation,
                returned=continuing and optimizer_state is None and birth.generation < state.k,
                past=past,
                tops=tops,
            ),
        )
        for j, (inherited, birth, optimizer_state) in enumerate(standing)
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
        total=stage.total,
        keep_ends=stage.evolution_steps > 0 and recipe.wants_ends,
        anchor=recipe.anchor,
        keep_every_end=stage.evolution_steps > 0 and recipe.wants_every_end,
    )


def candidates(trained: Trained, immigrants: Population) -> tuple[Population, list[Role]]:
    """What competes with the offspring: parents, immigrants, and the ends of backed-off trajectories where wanted.

    An immigrant that is in the population already, no worse than it came, does not come again.
    """
    there = dict(
        zip((birth.id for birth in trained.population.births), trained.population.fitness.tolist(), strict=True)
    )
    known = zip((birth.id for birth in immigrants.births), immigrants.fitness.tolist(), strict=True)
    arriving = immigrants[[i for i, (id_, fitness) in enumerate(known) if there.get(id_, inf) > fitness]]
    places = zip(trained.moved.tolist(), trained.passed.tolist(), strict=True)
    parents = [Role.PASSED if moved and passed else Role.MOVED if moved else Role.HELD for moved, passed in places]
    roles = [*parents, *([Role.IMMIGRANT] * len(arriving)), *([Role.END] * len(trained.ends))]
    return trained.population.join(arriving).join(trained.ends), roles
