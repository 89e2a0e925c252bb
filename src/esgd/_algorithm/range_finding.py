"""Before a generation that draws learning rates which are yet to be found: the range test, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from esgd.generation import Note, Noted, State
from esgd.protocols import FindsRanges, Session, Setup
from esgd.ranges import PROBE, FoundRange, usual_top
from esgd.recipe import Recipe
from esgd.species.auto import auto_pools, settled_range, tested_policy
from esgd.species.optimizer_pools import optimizer_of


def with_ranges(session: Session, setup: Setup, recipe: Recipe, state: State) -> State:
    """The state with a range for every pool whose rates are "auto". What is known already is not tested again.

    The network that is tested is the first of the population: in a new run, a freshly initialised one. A run that has
    begun keeps to one range for each optimizer that it knows: earlier versions tested only the first pool of it.
    """
    known = {each.optimizer for each in state.ranges}
    pools = {name: pool for name, pool in auto_pools(recipe.species).items() if optimizer_of(pool) not in known}
    if not pools:
        return state
    seeds = setup.seeds.at("ranges")
    policies = [
        replace(tested_policy(pool, seeds.at(name)), optimizer=optimizer_of(pool)) for name, pool in pools.items()
    ]
    if isinstance(session, FindsRanges):
        tested = session.find_ranges(state.population[[0]], policies)
    else:
        tested = [
            FoundRange(optimizer=each.optimizer, top=usual_top(each.optimizer), basis="usual", start=0.0, probes=())
            for each in policies
        ]
    found = tuple(
        replace(settled_range(pool, each), pool=[one.optimizer for one in tested[:place]].count(each.optimizer) + 1)
        for place, (pool, each) in enumerate(zip(pools.values(), tested, strict=True))
    )
    noted = state.noted or Noted.of(state.history)
    noted = replace(noted, pending=(*noted.pending, *_notes(found)))
    return replace(state, ranges=(*state.ranges, *found), untold=found, noted=noted)


def _notes(found: Sequence[FoundRange]) -> Iterator[Note]:
    """One note for what the test could not find."""
    stable = [each.name for each in found if each.basis == "stable"]
    usual = [each for each in found if each.basis == "usual"]
    if stable:
        yield Note(
            "ranges",
            f"In the range test no learning rate of {' and '.join(stable)} lowered the training loss within {PROBE} "
            f"steps. The ranges end at the highest rate that did not raise it. If inputs or targets are not of a scale "
            f"of about 1, learning rates cannot repair that: use esgd.scaled(task). If they are, the run may need many "
            f"steps before its loss falls.",
        )
    elif usual and not usual[0].probes and usual[0].start == 0:
        yield Note(
            "ranges",
            f"This engine cannot test learning rates, so those of {' and '.join(each.name for each in usual)} are "
            f"the usual ones. Give ranges yourself: species=Sgd(lr=(0.01, 0.5)).",
        )
    elif usual:
        yield Note(
            "ranges",
            f"In the range test the training loss was not finite or rose with every learning rate of "
            f"{' and '.join(each.name for each in usual)}, so their ranges are the usual ones. Look for NaN in "
            f"the training data, and scale inputs and targets to about 1 (esgd.scaled).",
        )


def told(found: Sequence[FoundRange]) -> str:
    """What was found, in one line."""
    ranges = ", ".join(f"{each.name} {each.low:.2g} … {each.top:.2g}" for each in found)
    return f"learning rates found in {sum(each.steps for each in found)} steps: {ranges}"
