"""Does a rule choose survivors as §3.3, item 4 and Theorem 1 ask?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from esgd.protocols import Role, Survival
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone

PARENTS = [Role.MOVED, Role.HELD, Role.MOVED, Role.HELD]
OFFSPRING = [Role.OFFSPRING] * 6
SIZE = len(PARENTS)


def check_survival(survival: Survival) -> None:
    """m-elitist: the m best first, then others that are chosen without a look at the offspring's fitness.

    The second half is what makes early abort exact: an offspring that cannot be elite has no known fitness.

    >>> from esgd.operators import Elitist
    >>> check_survival(Elitist())
    """
    ends = [Role.END, Role.END] if survival.wants_ends else []
    crowds = [PARENTS + OFFSPRING, PARENTS, [*PARENTS, Role.IMMIGRANT, *ends, *OFFSPRING]]
    for number, roles in enumerate(crowds):
        seeds = Seeds(0, ("check_survival", number))
        spread = torch.rand(len(roles), generator=seeds("fitness"), dtype=torch.float64)
        diverged = torch.where(torch.arange(len(roles)) % 2 == 0, spread, torch.inf)
        for fitness in (spread, diverged, torch.ones_like(spread), torch.full_like(spread, torch.inf)):
            for elites in range(1, SIZE + 1):
                _check_choice(survival, fitness, roles, elites, seeds)


def _check_choice(survival: Survival, fitness: Tensor, roles: Sequence[Role], elites: int, seeds: Seeds) -> None:
    where = f"fitness={[round(f, 3) for f in fitness.tolist()]}, elites={elites}, size={SIZE}"
    given = fitness.clone()
    with leaves_global_randomness_alone("the survival rule"):
        chosen = survival(fitness, roles, size=SIZE, elites=elites, generator=seeds("draw"))
    expect(not difference(fitness, given), f"the survival rule changed the fitness it was given ({where}).")
    expect(
        isinstance(chosen, list) and all(type(i) is int and 0 <= i < len(roles) for i in chosen),
        f"the survival rule returned {chosen!r} instead of a list of indices from 0 to {len(roles) - 1} ({where}).",
    )
    expect(
        len(chosen) == SIZE,
        f"the survival rule returned {len(chosen)} indices ({where}). Algorithm 1 keeps μ the same: return `size`.",
    )
    expect(len(set(chosen)) == SIZE, f"the survival rule returned {chosen}: a candidate twice ({where}).")
    kept = sorted(fitness[chosen[:elites]].tolist())
    expect(
        kept == sorted(fitness.tolist())[:elites],
        f"the first {elites} of {chosen} are not the {elites} best ({where}). Theorem 1 needs the m best to survive; "
        f"they come first in the list.",
    )
    again = survival(fitness, roles, size=SIZE, elites=elites, generator=seeds("draw"))
    expect(
        again == chosen,
        f"the survival rule returned {chosen} and then {again} for the same generator state ({where}). All its "
        f"randomness must come from the generator.",
    )
    _check_early_abort(survival, fitness, roles, chosen, elites, seeds)


def _check_early_abort(
    survival: Survival, fitness: Tensor, roles: Sequence[Role], chosen: list[int], elites: int, seeds: Seeds
) -> None:
    """An engine reports +inf for offspring that are worse than the m-th best; nothing may change by it."""
    last = fitness[chosen[:elites]].max()
    aborted = torch.tensor([role is Role.OFFSPRING for role in roles]) & (fitness > last)
    unseen = torch.where(aborted, torch.inf, fitness)
    blind = survival(unseen, roles, size=SIZE, elites=elites, generator=seeds("draw"))
    expect(
        blind == chosen,
        f"with fitness {fitness.tolist()} and elites={elites} the survival rule chose {chosen}, but {blind} where "
        f"offspring that cannot be elite have fitness +inf. Their evaluation is aborted early, so the rest must be "
        f"chosen without a look at the fitness.",
    )
