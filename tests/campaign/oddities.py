"""Odd networks, losses and fitnesses under every engine, with real workers and a real cluster.

Expected: `Loop`, `Pool` and `Ray` end with the same bits, `Vmap` with nearly the same fitness; or all refuse with the
same sentence of ours, and `Vmap` with one that names what it cannot batch.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import esgd
from esgd.errors import EsgdError
from esgd.testing.evidence import contents, difference
from tests.campaign import judge
from tests.campaign.case import Case, Ground, Plan
from tests.campaign.odd_models import ODD, WORKS
from tests.campaign.scenarios import need_ray

PLAN = Plan(full=238, quick=8, suite=1, limit=300.0)

RECIPE = esgd.Recipe(population=4, offspring=6, generations=2, sgd_epochs=1)
ENGINES: dict[str, Any] = {
    "loop": esgd.Loop(threads=1),
    "vmap": esgd.Vmap(chunk=2, threads=1),
    "pool": esgd.Pool(workers=2),
    "ray": esgd.Ray(workers=2),
}
ON_RAY = 8
"""A cluster takes long to begin: so many models are tried on one."""


@dataclass(frozen=True)
class Oddity:
    """Train an odd model under an engine, and under `Loop`, which says what is meant."""

    name: str
    engine: str

    def attack(self, ground: Ground) -> str | None:
        if self.engine == "ray":
            need_ray()
        odd, found = ODD[self.name], _trained(self.name, self.engine)
        expected = odd.expected_of_vmap if self.engine == "vmap" else odd.expected
        refused = isinstance(found, str)
        if refused != (expected != WORKS) or (refused and not re.search(expected, found)):
            return f"expected {expected!r}, but {found if refused else 'it is trained'}"
        return self._compared(found) or judge.left_over(ground)

    def _compared(self, found: Any) -> str | None:
        """How it differs from what `Loop` does."""
        if self.engine == "vmap" and (isinstance(found, str) or not ODD[self.name].near):
            return None
        meant = _trained(self.name, "loop")
        if self.engine == "vmap":
            ours, loops = (torch.stack([each["fitness"] for each in all_]) for all_ in (found, meant))
            close = torch.allclose(ours, loops, rtol=1e-4, atol=1e-4)
            return None if close else f"fitnesses {ours}, under Loop {loops}"
        return difference(found, meant) or None


def _trained(name: str, engine: str) -> Any:
    """The populations of a run, or the sentence that refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of odd models is not judged
        try:
            generations = list(esgd.evolve(ODD[name].task(), RECIPE, seed=0, engine=ENGINES[engine]))
        except EsgdError as error:
            return str(error)
    return [contents(each.population) for each in generations]


def cases(seed: int) -> Iterator[Case]:
    """Every odd model under every engine, a sample of them on a cluster, mixed."""
    drawn = random.Random(seed)
    found = [Oddity(name, engine) for name in ODD for engine in ("vmap", "pool")]
    found += [Oddity(name, "ray") for name in drawn.sample(sorted(ODD), ON_RAY)]
    drawn.shuffle(found)
    yield from found
