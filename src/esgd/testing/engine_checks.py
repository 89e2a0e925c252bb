"""Does an engine do what `Loop` does? `Loop` is the specification; every other engine must equal it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from esgd._algorithm.initialization import prepare, scored
from esgd.algorithm import evolve
from esgd.engines import Loop
from esgd.operators import Anchor, BestOfLooks, CarriedByMate, PerEpoch, PerGeneration, RandomStart
from esgd.population import Birth, Population
from esgd.protocols import Engine, Scores, Session, Setup, Step, Trained
from esgd.testing.evidence import contents, difference, expect, leaves_global_randomness_alone
from esgd.testing.miniature import POLICIES, RECIPE, SEED, births, dropping, miniature, normalised, perceptron

LOOP = Loop(threads=1)
STEPS = (
    Step(k=1, epochs=2, backoff=PerEpoch(), before=0, total=4),
    Step(k=2, epochs=2, backoff=PerGeneration(), before=2, total=4, keep_ends=True),
    Step(
        k=3,
        epochs=1.5,
        backoff=BestOfLooks(looks=(0.3,), ema=1.0, rescale=0.5),
        before=2.5,
        total=4,
        keep_ends=True,
        keep_every_end=True,
        anchor=Anchor(every=2),
    ),
)


def check_engine(engine: Engine, *, tolerance: float = 0.0) -> None:
    """Train, evaluate, unite and run with the engine and with `Loop`, and compare.

    `tolerance` is absolute and relative; 0 asks for bit-identical results, also of a network with dropout.

    >>> check_engine(Loop(threads=1))
    """
    for name, make_model in {"a perceptron": perceptron, "a network with BatchNorm": normalised}.items():
        setup = replace(prepare(miniature(make_model), RECIPE, SEED), baggage=CarriedByMate())
        progress = Progress([])
        with LOOP.open(setup, Progress([])) as loop, engine.open(setup, progress) as session:
            start = scored(loop, RandomStart()(setup.task, setup.genome, loop, len(POLICIES), setup.seeds.at("init")))
            bout = Bout(name, setup, loop, session, start, tolerance)
            with leaves_global_randomness_alone("the engine"):
                bout.check_train()
                bout.check_evaluate()
                bout.check_unite()
            bout.check_spent()
        progress.check(len(start))
    for make_model in (normalised, dropping) if tolerance == 0.0 else (normalised,):
        _check_run(engine, make_model, tolerance)


@dataclass(frozen=True)
class Progress:
    """Notes down what an engine says of its progress."""

    ticks: list[tuple[str, int, int]]

    def __call__(self, phase: str, done: int, total: int) -> None:
        self.ticks.append((phase, done, total))

    def check(self, n: int) -> None:
        within = all(1 <= done <= total for _, done, total in self.ticks)
        expect(
            within and ("sgd", n, n) in self.ticks,
            f"the engine's progress does not end at ('sgd', {n}, {n}): {self.ticks}. Call tick(phase, done, total) "
            f"after each individual, with the phases 'sgd' and 'evolution'.",
        )


@dataclass(frozen=True, eq=False)
class Bout:
    """The engine beside `Loop` on one network."""

    name: str
    setup: Setup
    loop: Session
    engine: Session
    start: Population
    tolerance: float

    def check_train(self) -> None:
        for step in STEPS:
            ours = self._unchanged(partial(self.engine.train, self.start, POLICIES, step), "train")
            self._same(_outcome(ours), _outcome(self.loop.train(self.start, POLICIES, step)), f"train with {step}")
            again = self.engine.train(self.start, POLICIES, step)
            self._same(_outcome(again), _outcome(ours), f"train with {step}, the second time,", tolerance=0.0)

    def check_evaluate(self) -> None:
        bred, elites = births(self.start, self.loop, self.setup.seeds), RECIPE.elites_of(1)
        full = self._unchanged(partial(self.engine.evaluate, self.start, bred), "evaluate")
        expect(full.complete.all(), "evaluate without `elites` left an evaluation incomplete. It may abort none.")
        self._same(full.fitness, self.loop.evaluate(self.start, bred).fitness, "the fitness of evaluate")
        early = self._unchanged(partial(self.engine.evaluate, self.start, bred, elites=elites), "evaluate")
        done = early.complete
        expect((early.fitness[~done] == torch.inf).all(), "evaluate gave an aborted birth a fitness other than +inf.")
        self._same(early.fitness[done], full.fitness[done], "the fitness of evaluate with `elites`")
        everyone = torch.cat([self.start.fitness, full.fitness]).sort().values
        expect(
            (full.fitness[~done] > everyone[elites - 1]).all(),
            f"evaluate aborted births of fitness {full.fitness[~done].tolist()}, though the {elites} best reach up to "
            f"{float(everyone[elites - 1])}. Only one that cannot be elite may be aborted; selection would change.",
        )
        none = self.engine.evaluate(self.start, [], elites=elites)
        expect(len(none.fitness) == len(none.complete) == 0, "evaluate of no births returned scores for some.")
        lost = replace(self.start, rows=torch.full_like(self.start.rows, torch.nan))
        diverged = self.engine.evaluate(lost, [Birth("9.1.0", mates=(0,))])
        expect(
            diverged.fitness.tolist() == [torch.inf],
            f"a network whose parameters are NaN has fitness {diverged.fitness.tolist()} instead of [inf].",
        )

    def check_unite(self) -> None:
        parents = self.loop.train(self.start, POLICIES, STEPS[0]).population
        bred, n = births(self.start, self.loop, self.setup.seeds), len(parents)
        full = self.engine.evaluate(parents, bred)
        early = self.engine.evaluate(parents, bred, elites=RECIPE.elites_of(1))
        chosen = [n + 3, 2, n, n + 7, 0, n + 11]
        for scores in (full, early, Scores.unknown(len(bred))):
            united = self._unchanged(partial(self.engine.unite, parents, bred, scores, chosen), "unite")
            expected = self.loop.unite(parents, bred, scores, chosen)
            self._same(contents(united), contents(expected), "unite")
            self._same(united.fitness[[0, 2, 3, 5]], full.fitness[[3, 0, 7, 11]], "the offspring's fitness in unite")
            self._same(contents(united[[1, 4]]), contents(parents[[2, 0]]), "the parents in unite", tolerance=0.0)
        none = self.engine.unite(self.start[[]], [], Scores.unknown(0), [])
        expect(len(none) == 0, f"unite of no individuals has {len(none)} of them. A recipe may have no immigrants.")

    def check_spent(self) -> None:
        self.engine.spent()
        self.engine.train(self.start, POLICIES, STEPS[0])
        samples = 2 * len(POLICIES) * 60  # two epochs of the sixty training samples for each
        spent = self.engine.spent().samples
        expect(
            spent["sgd_forward"] == spent["sgd_backward"] == samples and spent["fitness_sgd"] > 0,
            f"after training {samples} samples the engine has spent {spent}. Count every sample, and of each fitness.",
        )
        again = self.engine.spent().samples
        expect(not any(again.values()), f"asked again, the engine has spent {again}: spent() starts over each time.")

    def _same(self, found: Any, expected: Any, what: str, tolerance: float | None = None) -> None:
        allowed = self.tolerance if tolerance is None else tolerance
        text = difference(found, expected, tolerance=allowed)
        expect(
            not text,
            f"{what} on {self.name} is not what it must be: {text} (tolerance {allowed}). An engine decides where the "
            f"work is done, never what comes out.",
        )

    def _unchanged(self, act: partial[Any], what: str) -> Any:
        """The outcome of an act that must leave the population it is given, its first argument, as it was."""
        given: Population = act.args[0]
        before = contents(given)
        outcome = act()
        text = difference(contents(given), before)
        expect(not text, f"{what} changed the population it was given: {text}. Populations are values; work on copies.")
        return outcome


def _check_run(engine: Engine, make_model: Callable[[], nn.Module], tolerance: float) -> None:
    """Two whole generations."""
    recipe = replace(RECIPE, sgd_epochs=1)
    ours, loops = (
        [contents(each.population) for each in evolve(miniature(make_model), recipe, seed=SEED, engine=one)]
        for one in (engine, LOOP)
    )
    text = difference(ours, loops, tolerance=tolerance)
    expect(not text, f"a run with {make_model.__name__} networks differs from Loop's: {text} (tolerance {tolerance}).")


def _outcome(trained: Trained) -> Sequence[Any]:
    return [contents(trained.population), trained.moved, trained.refused, trained.diverged, contents(trained.ends)]
