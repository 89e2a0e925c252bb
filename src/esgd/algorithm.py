"""Algorithm 1 of Cui, Zhang, Tüske and Picheny, "Evolutionary Stochastic Gradient Descent" (NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from esgd._algorithm.initialization import Origin, begin
from esgd._algorithm.recorder import Recorder
from esgd._algorithm.steps import candidates, pick, sgd_step
from esgd.budget import Budget
from esgd.generation import Generation
from esgd.planning import ready
from esgd.protocols import Engine, Setup, Task, Tick
from esgd.randomness import in_turns
from esgd.recipe import Recipe


def evolve(
    task: Task,
    recipe: Recipe | None = None,
    *,
    seed: int,
    budget: Budget | None = None,
    engine: str | Engine = "auto",
    resume: Origin = None,
    tick: Tick = lambda phase, done, total: None,
) -> Iterator[Generation]:
    """Train a population and yield every generation as it ends; without a recipe, by the rules of `esgd.rules.ours`.

    `budget`, a time such as "30m" or an amount of work, sets the epochs. `resume` is the `state` of a generation, from
    which the run continues bit-identically, or a population of your own.
    """
    setup, recipe, engine = ready(task, recipe, budget, engine, seed=seed, resume=resume)
    return in_turns(generations(setup, recipe, engine, resume, tick))


def generations(setup: Setup, recipe: Recipe, engine: Engine, resume: Origin, tick: Tick) -> Generator[Generation]:
    """Algorithm 1 for what is prepared and an engine that is chosen. The comments are the paper's pseudo-code."""
    # Input: generations K, SGD steps K_s, evolution steps K_v, μ, λ and m
    with engine.open(setup, tick) as session:
        # Initialize population Ψ(0) ← {θ_1, …, θ_μ}
        state, immigrants, waiver = begin(session, setup, recipe, resume)
        del resume
        # for k = 1 : K
        while stage := recipe.stage_after(state):
            recorder = Recorder(setup.task, recipe, stage, state, waiver)

            # Pick an optimizer π_j for individual θ_j; select hyper-parameters of π_j and set a learning schedule
            policies = pick(stage, recipe, state, setup.seeds)

            # for s = 1 : K_s  SGD update of θ_j using π_j; if the fitness degrades, back off to the previous step
            trained = session.train(state.population, policies, sgd_step(stage, recipe))
            state = recorder.trained(policies, trained)

            # for v = 1 : K_v
            for v in range(1, stage.evolution_steps + 1):
                # Generate offspring population Ψ_λ
                everyone, roles = candidates(trained, immigrants)
                births = recipe.breed(everyone, roles, stage, state, v=v, session=session, seeds=setup.seeds)

                # Sort the fitness of Ψ_μ ∪ Ψ_λ; select the top m; combine them with μ − m randomly selected others
                scores = session.evaluate(everyone, births, elites=recipe.cutoff_rank(stage))
                chosen = recipe.survive(everyone, roles, scores, stage, setup.seeds("rest", stage.k, v))
                trained = trained.then(session.unite(everyone, births, scores, chosen))
                del everyone  # two populations in memory at a time, not three

            # Ψ(k+1) ← Ψ(k)
            state = (generation := recorder.conclude(trained.population, session.spent())).state
            yield generation
            del generation
