"""Health notes: what a run shows about itself that its numbers hide. One sentence each; what it means, what to change.

The thresholds come from trials on small image and sequence tasks, and each is named here once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esgd.generation import Note
from esgd.recipe import Recipe

SHORT_GENERATION = (
    100  # SGD steps; with about 30 the population baseline won 48 of 48 trials, with 105 and more it lost
)
HOT_START = 0.5  # share of generation 1's updates that back off
FROZEN = 0.9  # share of a later generation's updates that back off
FLAT = 1e-4  # spread of the elites' fitness relative to the best
GAP = 0.25  # by how much the test loss exceeds the fitness, relative to it
DRIFT = 0.02  # relative rise of the test loss while the fitness falls


def examine(
    line: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    recipe: Recipe,
    steps: int | None,
    *,
    comparable: bool = False,
) -> tuple[Note, ...]:
    """The notes that generation `line` deserves; each kind is said once in a run, when it first applies.

    `steps` are those of an epoch; `comparable` says that the fitness is the same loss as the test split's.
    """
    said = {note["kind"] for earlier in history for note in earlier["notes"]}
    found = [*_notes(line, history, recipe, steps), *(_gap(line) if comparable else ())]
    return tuple(note for note in found if note.kind not in said)


def _notes(
    line: Mapping[str, Any], history: Sequence[Mapping[str, Any]], recipe: Recipe, steps: int | None
) -> Iterator[Note]:
    k, mu = line["k"], len(line["fitness"])
    refused = line["backed_off"] / line["checked"] if line["checked"] else 0.0
    if steps is not None and 0 < recipe.sgd_epochs * steps < SHORT_GENERATION and recipe.evolution_steps:
        yield Note(
            "short",
            f"A generation has only {recipe.sgd_epochs * steps} SGD steps, too few for a redrawn optimizer to show "
            f"what it can do; plain populations win such races. Raise sgd_epochs until a generation has "
            f"{SHORT_GENERATION} steps and more.",
        )
    if line["diverged"] == mu > 1:
        yield Note(
            "diverged",
            f"All {mu} individuals diverged in the SGD step of generation {k}, so nothing was learnt from gradients. "
            f"Lower the learning-rate ranges, or look for NaN in the training data.",
        )
    elif k == 1 and refused > HOT_START:
        yield Note(
            "hot",
            f"{refused:.0%} of the updates of generation 1 made the fitness worse and were backed off: the "
            f"learning-rate ranges are too hot for this start. Lower their top.",
        )
    elif refused > FROZEN:
        yield Note(
            "frozen",
            f"{refused:.0%} of the SGD updates of generation {k} were backed off: the population is nearly frozen, "
            f"and what still improves is selection on the fitness set. Anneal the learning rate (gamma, schedule), "
            f"enlarge the fitness set, or stop here.",
        )
    yield from _diversity(line, recipe)
    yield from _drift(line, history)


def _diversity(line: Mapping[str, Any], recipe: Recipe) -> Iterator[Note]:
    elites = sorted(f for f in line["fitness"] if f is not None)[: line["elites"]]
    if len(elites) > 1 and elites[-1] - elites[0] <= FLAT * abs(elites[0]):
        yield Note(
            "flat",
            f"The {len(elites)} elites differ by less than {FLAT:.2%} in fitness: they are nearly one network, and "
            f"breeding them brings little that is new. Lower elites, raise the mutation's sigma, or stop here.",
        )
    if line["founders"] == 1 and len(line["fitness"]) > 1 and not recipe.start.common:
        yield Note(
            "lineage",
            f"From generation {line['k']} on everybody descends from one initial network through its fittest mates; "
            f"the diversity of the random start is used up. Lower elites or let the rest come from parents "
            "(survival.rest) to keep more.",
        )


def _gap(line: Mapping[str, Any]) -> Iterator[Note]:
    loss, fitness = line["test"].get("loss"), line["best"]
    if loss is not None and fitness is not None and loss > fitness * (1 + GAP):
        yield Note(
            "gap",
            f"In generation {line['k']} the fittest has a fitness of {fitness:.4g} but a loss of {loss:.4g} on the "
            f"split that selection never sees: judge by the latter. If the fitness is the training loss that is "
            f"over-fitting as usual; if it is a validation set, it is too small for so many looks at it.",
        )


def _drift(line: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Iterator[Note]:
    measured = [(each["test"].get("loss"), each["best"], each["k"]) for each in (*history, line)]
    known = [(loss, fitness, k) for loss, fitness, k in measured if loss is not None and fitness is not None]
    if len(known) < 2:
        return
    lowest, then, when = min(known)
    loss, fitness, _ = known[-1]
    if loss > lowest * (1 + DRIFT) and fitness < then:
        yield Note(
            "overfit",
            f"Since generation {when} the best fitness fell from {then:.4g} to {fitness:.4g}, but on the split that "
            f"selection never sees the loss rose from {lowest:.4g} to {loss:.4g}: the fitness set is being "
            f"over-fitted. Enlarge it, or stop at {when}.",
        )
