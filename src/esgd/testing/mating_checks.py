"""Does a rule choose mates as §3.3, item 2 asks?"""

from __future__ import annotations

import torch

from esgd.protocols import Mating
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone

DRAWS = 400
NOISE = 50  # three standard deviations of the difference of two counts among 400 fair draws

FITNESS = {
    "spread": [0.9, 0.3, 0.5, 0.7],
    "ties": [0.5, 0.5, 0.2, 0.2],
    "all equal": [0.4, 0.4, 0.4],
    "one individual": [0.8],
    "negative": [-3.0, -1.0, -2.0],
    "zeros": [0.0, 0.0, 1e-12],
    "wide": [1e-300, 1.0, 1e300],
    "some diverged": [torch.inf, 0.5, torch.inf, 0.3, 0.4],
    "one that has not diverged": [torch.inf, 0.5, torch.inf],
    "all diverged": [torch.inf, torch.inf],
}


def check_mating(mating: Mating) -> None:
    """Mates must be distinct and not diverged, chosen by the generator alone; better ones at least as often.

    >>> from esgd.operators import Roulette
    >>> check_mating(Roulette())
    """
    seeds = Seeds(0, ("check_mating",))
    for name, values in FITNESS.items():
        fitness = torch.tensor(values, dtype=torch.float64)
        for mates in range(1, len(values) + 1):
            for number in range(5):
                _check_draw(mating, fitness, mates, seeds.at(name, mates, number), f"fitness={values}, mates={mates}")
    _check_preference(mating, seeds)


def _check_draw(mating: Mating, fitness: torch.Tensor, mates: int, seeds: Seeds, where: str) -> None:
    given = fitness.clone()
    with leaves_global_randomness_alone("the mating rule"):
        chosen = mating(fitness, mates, seeds("draw"))
    expect(not difference(fitness, given), f"the mating rule changed the fitness it was given ({where}).")
    expect(
        isinstance(chosen, list),
        f"the mating rule returned {type(chosen).__name__} {chosen!r} instead of a list ({where}). Breeding sorts it: "
        f"return a list of whole numbers, for example tensor.tolist().",
    )
    expect(
        all(type(i) is int and 0 <= i < len(fitness) for i in chosen),
        f"the mating rule returned {chosen!r}, which are not indices from 0 to {len(fitness) - 1} ({where}).",
    )
    expect(
        len(set(chosen)) == len(chosen),
        f"the mating rule returned {chosen!r}: an individual twice ({where}). Mates of one offspring are distinct; an "
        f"individual averaged with itself is a copy.",
    )
    finite = int(fitness.isfinite().sum())
    most = min(mates, finite or len(fitness))
    expect(
        len(chosen) == most,
        f"the mating rule returned {len(chosen)} mates instead of {most} ({where}). It gives as many as it was asked "
        f"for, or all that have not diverged if those are fewer.",
    )
    expect(
        not finite or all(fitness[i].isfinite() for i in chosen),
        f"the mating rule returned {chosen!r}, of which at least one diverged ({where}). Its offspring are lost: "
        f"leave diverged individuals out while there are others.",
    )
    again = mating(fitness, mates, seeds("draw"))
    expect(
        again == chosen,
        f"the mating rule returned {chosen!r} and then {again!r} for the same generator state ({where}). All its "
        f"randomness must come from the generator.",
    )


def _check_preference(mating: Mating, seeds: Seeds) -> None:
    fitness = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    drawn = [mating(fitness, 1, seeds("preference", number))[0] for number in range(DRAWS)]
    best, worst = drawn.count(1), drawn.count(0)
    expect(
        best >= worst - NOISE,
        f"of {DRAWS} mates drawn from fitness {fitness.tolist()} the best was {best} and the worst {worst}. Fitness is "
        f"minimised: a lower one must not be chosen more rarely. Is the sign turned around?",
    )
