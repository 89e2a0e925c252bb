"""Breeding: from candidates to births. An offspring is not built here; a birth describes how to build it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.errors import RecipeError, shown
from esgd.operators.kinds import Mates, OffspringKind, Union
from esgd.population import Birth
from esgd.protocols import Mating, Mutation, Scores
from esgd.randomness import Seeds


def breed(
    everyone: Sequence[Birth],
    fitness: Float[Tensor, " n"],
    *,
    possible: Sequence[int],
    kinds: Sequence[OffspringKind],
    k: int,
    v: int,
    last: bool,
    offspring: int,
    elites: int,
    mates: Mapping[int, float],
    mating: Mating,
    mutation: Mutation,
    score: Callable[[Sequence[Birth]], Scores],
    seeds: Seeds,
) -> list[Birth]:
    """λ births in evolution step v of generation k, each of a kind; the mates of a birth have the fittest first.

    `everyone` and `fitness` describe the candidates, of which the `possible` ones may be mates; `mates` has the
    probability of each number of mates. `last` says that this evolution step is expected to be the run's last.
    """
    candidates = Mates(
        k=k,
        last=last,
        fitness=fitness,
        possible=possible,
        elites=elites,
        sizes=mates,
        mating=mating,
        mutation=mutation,
        score=score,
    )
    births = list[Birth]()
    for kind, here in _kinds(kinds, offspring, seeds.at(k, v)):
        if len(births) == offspring:
            break
        union = kind(candidates, here)
        if union is None:
            continue
        _check_union(union, kind, len(fitness))
        chosen = tuple(map(index, union.mates))  # also numpy's and torch's
        births.append(
            Birth(
                id=f"{k}.{v}.{len(births)}",
                mates=chosen,
                sigma=union.sigma,
                parents=tuple(everyone[j].id.removesuffix(f"@{k}") for j in chosen),  # of an end, its individual
                founder=everyone[chosen[0]].founder,
                kind=kind.name,
                weights=tuple(map(float, union.weights)),
            )
        )
    return births


def _kinds(kinds: Sequence[OffspringKind], offspring: int, seeds: Seeds) -> Iterator[tuple[OffspringKind, Seeds]]:
    """Those of which there is one in every evolution step, then λ that are drawn; each with its address."""
    once = [kind for kind in kinds if kind.share is None]
    drawn = [kind for kind in kinds if kind.share is not None]
    if offspring:
        yield from ((kind, seeds.at(kind.name)) for kind in once)
    wheel = torch.tensor([kind.share for kind in drawn], dtype=torch.float64)
    for i in range(offspring if drawn else 0):
        here = seeds.at(i)
        yield drawn[int(torch.multinomial(wheel, 1, generator=here("kind"))) if len(drawn) > 1 else 0], here


def _check_union(union: Union, kind: OffspringKind, candidates: int) -> None:
    """Refuse what a kind of one's own decided, if no offspring can be built of it."""
    fits = isinstance(union, Union) and union.mates and len(union.weights) in (0, len(union.mates))
    try:
        fits = fits and all(0 <= index(mate) < candidates for mate in union.mates)
    except TypeError:
        fits = False
    if not fits:
        raise RecipeError(
            f"kinds: {shown(kind)} returned {shown(union)} for {candidates} candidates. It returns a Union with the "
            f"numbers of one mate or more, from 0 to {candidates - 1}, and a weight for each or none; or None for no "
            f"offspring."
        )
