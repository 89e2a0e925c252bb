"""Health notes: problems of a run that its numbers do not show directly. A note says what was seen, what it means and
what to change.

The thresholds come from trials on small image and sequence tasks. Each has a name here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from esgd.generation import Note, Noted, held_out
from esgd.protocols import continues
from esgd.recipe import Recipe

SHORT_GENERATION = (
    100  # SGD steps; with about 30 the population baseline won 48 of 48 trials, with 105 and more it lost
)
HOT_START = 0.5  # share of generation 1's updates that back off
FROZEN = 0.9  # share of a later generation's updates that back off
FLAT = 1e-4  # spread of the elites' fitness relative to the best
GAP = 0.25  # the excess of the test loss over the fitness, relative to the fitness
DRIFT = 0.02  # relative rise of the test loss while the fitness falls
LEARNED = 0.01  # by how much the fitness must be below that of a constant answer, relative to it

CONSTANT = "constant"
"""The kind of the note that a run is no better than a constant answer."""

BEGIN = (
    "Scale inputs and targets with esgd.scaled(task). If they are scaled already, let learning rates be found "
    "(species='auto'), or try ranges ten times as high and ten times as low."
)
"""What helps a population that has not begun to learn. Which way its ranges are wrong, its numbers do not say."""


def examine(
    line: Mapping[str, Any],
    noted: Noted,
    recipe: Recipe,
    steps: int | None,
    *,
    comparable: bool = False,
    constant: float | None = None,
    ends: bool = False,
) -> tuple[Note, ...]:
    """The notes for the generation `line`. A run has at most one note of each kind, when it first applies. That on a
    constant answer is for the end, and a run that is extended has several.

    `noted` is what the earlier generations have shown. `steps` is the number of SGD steps in an epoch, None if it is
    unknown. `comparable` says that the fitness is the same loss as that of the test split. `constant` is the fitness of
    the best constant answer, None if it is unknown: a population that is no better has not learned anything yet, and
    advice for one that has would be wrong. `ends` says that the run ends with this generation.
    """
    found = [*_short(line, recipe, steps), *_diverged(line)]
    if constant is not None and _untrained(line, constant):
        found += _not_begun(line, constant, ends=ends)
    else:
        found += [*(() if continues(recipe.baggage) else _refused(line)), *_diversity(line, recipe)]
    found += [*_drift(line, noted), *(_gap(line) if comparable else ())]
    return tuple(note for note in found if note.kind not in noted.kinds or note.kind == CONSTANT)


def verdict(line: Mapping[str, Any], constant: float | None) -> Note | None:
    """What is said at the end of a run that is no better than a constant answer; None for any other."""
    if constant is None or not _untrained(line, constant):
        return None
    return Note(
        CONSTANT,
        f"At the end {_seen(line, constant)}: what the networks have learned from their inputs does not help on the "
        f"fitness set. {BEGIN} If the loss on the training set is much lower, they over-fit it, or the two sets "
        f"differ.",
    )


def _short(line: Mapping[str, Any], recipe: Recipe, steps: int | None) -> Iterator[Note]:
    planned = recipe.epochs_of(min(line["k"], recipe.generations))
    epochs = line["clock"]["epochs"] if "clock" in line else planned
    begins_anew = recipe.evolution_steps and not recipe.baggage.keeps
    more = "Give a longer budget, or fewer generations," if recipe.clock else "Raise sgd_epochs"
    if steps is not None and 0 < epochs * steps < SHORT_GENERATION and begins_anew:
        yield Note(
            "short",
            f"A generation has only {round(epochs * steps)} SGD steps. This is too few for a newly drawn optimizer "
            f"to show its effect; a plain population is usually better. {more} until a generation has at "
            f"least {SHORT_GENERATION} steps.",
        )


def _untrained(line: Mapping[str, Any], constant: float) -> bool:
    """Whether the best individual is no better than a constant answer. Of constant targets nothing can be said."""
    return constant > 0 and (line["best"] is None or line["best"] >= (1 - LEARNED) * constant)


def _not_begun(line: Mapping[str, Any], constant: float, *, ends: bool) -> Iterator[Note]:
    """Of a population that is no better than a constant answer: at the end, or when it does not move."""
    if ends and (note := verdict(line, constant)):
        yield note
    elif any(True for _ in (*_refused(line), *_flat(line))):
        yield Note("untrained", f"In generation {line['k']} {_seen(line, constant)}, and it hardly moves. {BEGIN}")


def _seen(line: Mapping[str, Any], constant: float) -> str:
    best = "not finite" if line["best"] is None else f"{line['best']:.4g}"
    return f"the best fitness is {best}, no better than that of a constant answer, {constant:.4g}"


def _all_diverged(line: Mapping[str, Any]) -> bool:
    return bool(line["diverged"] == len(line["fitness"]) > 1)


def _diverged(line: Mapping[str, Any]) -> Iterator[Note]:
    if _all_diverged(line):
        yield Note(
            "diverged",
            f"All {line['diverged']} individuals diverged in the SGD step of generation {line['k']}, so the gradients "
            f"improved nothing. First look for NaN in the training data, and scale inputs and targets to "
            f"about 1 (esgd.scaled). If neither is the reason, lower the learning-rate ranges.",
        )


def _refused(line: Mapping[str, Any]) -> Iterator[Note]:
    k, refused = line["k"], line["backed_off"] / line["checked"] if line["checked"] else 0.0
    if _all_diverged(line):
        return
    if k == 1 and refused > HOT_START:
        yield Note(
            "hot",
            f"{refused:.0%} of the updates of generation 1 made the fitness worse and were backed off. The "
            f"learning-rate ranges do not suit this start. If inputs and targets are of a scale of about 1, lower the "
            f"top of the ranges; if not, scale them first (esgd.scaled).",
        )
    elif refused > FROZEN:
        yield Note(
            "frozen",
            f"{refused:.0%} of the SGD updates of generation {k} were backed off. The population is nearly frozen: "
            f"only selection on the fitness set still improves the fitness. Anneal the learning rate (gamma, "
            f"schedule), enlarge the fitness set, or stop here.",
        )


def _diversity(line: Mapping[str, Any], recipe: Recipe) -> Iterator[Note]:
    yield from _flat(line)
    races = recipe.is_scheduled  # few are meant to be left
    if line["founders"] == 1 and len(line["fitness"]) > 1 and not recipe.start.common and not races:
        yield Note(
            "lineage",
            f"From generation {line['k']} on, all individuals descend from one initial network through their fittest "
            f"mates. The diversity of the random start is lost. Lower elites, or let the rest come from parents "
            "(survival.rest), to keep more of it.",
        )


def _flat(line: Mapping[str, Any]) -> Iterator[Note]:
    elites = sorted(f for f in line["fitness"] if f is not None)[: line["elites"]]
    if len(elites) > 1 and elites[-1] - elites[0] <= FLAT * abs(elites[0]):
        yield Note(
            "flat",
            f"The fitness of the {len(elites)} elites differs by less than {FLAT:.2%}. They are nearly one network, "
            f"and their offspring bring little that is new. If the fitness has fallen since the start, lower elites, "
            f"or stop here. If it has not, the networks have not begun to learn: look at the scale of the data.",
        )


def _gap(line: Mapping[str, Any]) -> Iterator[Note]:
    loss, fitness = line["test"].get("loss"), line.get("pick", {"fitness": line["best"]})["fitness"]
    if loss is not None and fitness is not None and loss > fitness * (1 + GAP):
        yield Note(
            "gap",
            f"In generation {line['k']} the network that is kept has a fitness of {fitness:.4g}, but a loss of "
            f"{loss:.4g} on the test split, which selection never sees. Judge by the test loss. If the fitness is the "
            f"training loss, this is the usual over-fitting. If it is the loss on a validation set, the set is too "
            f"small for so many evaluations.",
        )


def _drift(line: Mapping[str, Any], noted: Noted) -> Iterator[Note]:
    loss, fitness, words = held_out(line), line["best"], _words(line)
    if noted.lowest is None or loss is None or fitness is None:
        return
    lowest, then, when = min(noted.lowest, (loss, fitness, line["k"]))
    if loss > lowest + DRIFT * abs(lowest) and fitness < then:
        what, sign, better, worse = words
        yield Note(
            "overfit",
            f"Since generation {when} the best {what or 'fitness'} {better} from {sign * then:.4g} to "
            f"{sign * fitness:.4g}, but the {what or 'loss'} on the test split, which selection never sees, {worse} "
            f"from {sign * lowest:.4g} to {sign * loss:.4g}. The population over-fits the fitness set. Enlarge the "
            f"fitness set, or stop at {when}.",
        )


def _words(line: Mapping[str, Any]) -> tuple[str, int, str, str]:
    """The metric that selection goes by, its sign, and the words for better and worse."""
    selected = line.get("select", {"metric": "", "mode": "min"})
    return selected["metric"], *((1, "fell", "rose") if selected["mode"] == "min" else (-1, "rose", "fell"))
