"""Survival: the m best of Ψ_{μ+λ}, then μ − m of the others (§3.3, item 4).

The others are drawn at random *without looking at their fitness* and without replacement. That keeps diversity
(the paper's §4.4), and it makes early abort exact: only the elites need an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._validation import check_flag, check_function
from esgd.protocols import Role

Rest = Callable[[Role], bool]


def anyone(role: Role) -> bool:
    """The paper: the rest comes from all candidates."""
    return role is not Role.END


def parents_only(role: Role) -> bool:
    """The rest comes from the parents: more initial individuals keep descendants."""
    return role in (Role.MOVED, Role.PASSED, Role.HELD)


def trajectories(role: Role) -> bool:
    """The rest continues where SGD ended, backed off or not, so a population cannot freeze; the elites keep the
    guarantee."""
    return role in (Role.MOVED, Role.END)


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Offspring take the places of the least fit parents, whatever their own fitness: population-based training.

    It is m-elitist as long as m and the offspring together fit into the population.
    """

    @property
    def wants_ends(self) -> bool:
        return False

    @property
    def ranks_everyone(self) -> bool:
        return True

    def __call__(
        self,
        fitness: Float[Tensor, " n"],
        roles: Sequence[Role],
        *,
        size: int,
        elites: int,
        generator: torch.Generator,
    ) -> list[int]:
        order = fitness.argsort(stable=True).tolist()
        born = [i for i in order if roles[i] is Role.OFFSPRING][: max(0, size - elites)]
        parents = [i for i in order if roles[i] is not Role.OFFSPRING]
        return parents[: size - len(born)] + born


@dataclass(frozen=True, kw_only=True)
class Elitist:
    """m-elitist survival with a random rest from the candidates that `rest` admits; with `ranked`, the fittest of them.

    Ties go to the earlier candidate, and parents come before offspring. Where `rest` admits too few, the places
    left over go to anyone.
    """

    rest: Rest = anyone
    ranked: bool = False

    def __post_init__(self) -> None:
        check_function(
            "rest", self.rest, "role", meaning="It tells from a Role whether a candidate may fill the rest. Use anyone."
        )
        check_flag(self, "ranked")

    @property
    def wants_ends(self) -> bool:
        return self.rest(Role.END)

    @property
    def wants_every_end(self) -> bool:
        """Whether the end of a trajectory competes also where an earlier place was kept."""
        return self.ranked and self.wants_ends

    @property
    def ranks_everyone(self) -> bool:
        return self.ranked and self.rest(Role.OFFSPRING)

    def __call__(
        self,
        fitness: Float[Tensor, " n"],
        roles: Sequence[Role],
        *,
        size: int,
        elites: int,
        generator: torch.Generator,
    ) -> list[int]:
        order = fitness.argsort(stable=True).tolist()
        chosen, set_aside = order[:elites], set(order[:elites])
        shuffled = torch.randperm(len(roles), generator=generator).tolist()
        others = [i for i in shuffled if i not in set_aside]
        admitted = [i for i in (order if self.ranked else others) if self.rest(roles[i]) and i not in set_aside]
        leftover = [i for i in others if not self.rest(roles[i])]
        return chosen + (admitted + leftover)[: size - elites]
