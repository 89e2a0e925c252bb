"""A study: a task for every seed, a recipe, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from esgd._trust import packages
from esgd.operators import Never
from esgd.policies import Policy
from esgd.protocols import BackOff, Species, Task
from esgd.recipe import Recipe
from esgd.rules import named
from esgd.species import Fixed
from esgd.work import Costs, expected_work

Scale = Literal["mini", "paper"]
"""`mini` runs on two cores in minutes with real data; `paper` has the paper's own networks and tables."""


@dataclass(frozen=True, kw_only=True)
class Single:
    """How one network is trained alone: with a species, and with a back-off if its schedule goes with one."""

    species: Species
    backoff: BackOff = Never()


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Invented data of the right shape: what `explain` measures as long as users have not brought theirs."""

    about: str
    task: Callable[[], Task]
    share: float
    """How much of the real amount of data it has: what a pass over it takes is divided by this."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What `esgd run` and `esgd compare` work on.

    | field        | meaning                                                                                      |
    |--------------|----------------------------------------------------------------------------------------------|
    | `name`       | how it is asked for                                                                          |
    | `about`      | one plain sentence on the data, for the report                                               |
    | `task`       | seed → task; a study whose data do not depend on the seed ignores it                         |
    | `recipe`     | ESGD's; in the paper's experiments, by the paper's literal rules                             |
    | `single`     | the single baseline's species; of several, the fittest on the fitness set is the baseline    |
    | `ours`       | better rules for the same population and the same SGD epochs, where we have some             |
    | `population` | what the population baseline draws from, once; the recipe's own species unless given         |
    | `baseline`   | a run that comes first: its network begins every arm and is ESGD's immigrant (Penn Treebank) |
    | `published`  | the paper's own table for this task: arm → column → figure                                   |
    | `thorough`   | compare with clones, with a soup of the population, and at equal work, too                   |
    | `rehearsal`  | what can be measured without the data, if users have to bring them                           |
    | `rules`      | the rules of `esgd.rules` that `esgd run` trains by if no recipe is given                    |
    | `offered_by` | the package that offers it by an entry point; `find_study` fills it in                       |
    """

    name: str
    about: str
    task: Callable[[int], Task]
    recipe: Recipe
    single: Species | Single | tuple[Species | Single, ...] = Fixed(policy=Policy(optimizer="adam", hyper={"lr": 1e-3}))
    ours: Recipe | None = None
    population: Species | None = None
    baseline: Recipe | None = None
    published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    thorough: bool = False
    rehearsal: Rehearsal | None = None
    rules: str = ""
    offered_by: str = ""

    @property
    def packages(self) -> set[str]:
        """The packages whose values a recipe of this study may name when it is read from a file or a command line:
        those that its own recipe is made of, and the one that offers it."""
        return packages(self.recipe) | ({self.offered_by} if self.offered_by else set())


def with_rules(study: Study, rules: str, work: float | None, seed: int) -> Study:
    """The study with a recipe by the rules of this name; they spend `work`, or what the study's own recipe would."""
    task = study.task(seed)
    spent = expected_work(Costs.of(task, study.recipe), study.recipe) if work is None else work
    return replace(study, recipe=named(rules)(task, spent))
