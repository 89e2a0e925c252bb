"""A study: a task for every seed, a recipe, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from esgd._names.trust import packages
from esgd.operators import Never, Perturbed
from esgd.policies import Policy
from esgd.protocols import BackOff, Species, Task
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.rules import named
from esgd.species import Fixed
from esgd.work import Costs, expected_work

DRAWING, OF_ONE_SIZE = ("ours", "halving"), ("random_search", "pbt", "papa", "soup")  # rules that take `rates`

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
    | `population` | what the population baseline draws from, once; the recipe's own species unless given. If it  |
    |              | is, rules that draw policies draw from it, too                                               |
    | `alone`      | how rules train one network alone; ADAM 1e-3 unless given. Choose it on other seeds          |
    | `baseline`   | a run that comes first; a recipe names its network "baseline", and rules begin with it       |
    | `published`  | the paper's own table for this task: arm → column → figure                                   |
    | `rehearsal`  | what can be measured without the data, if users have to bring them                           |
    | `rules`      | the rules of `esgd.rules` that `esgd run` trains by if no recipe is given                    |
    | `offered_by` | the package that offers it by an entry point; `find_study` fills it in                       |
    """

    name: str
    about: str
    task: Callable[[int], Task]
    recipe: Recipe
    single: Species | Single | tuple[Species | Single, ...] = Fixed(policy=Policy(optimizer="adam", hyper={"lr": 1e-3}))
    population: Species | None = None
    alone: Policy | None = None
    baseline: Recipe | None = None
    published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rehearsal: Rehearsal | None = None
    rules: str = ""
    offered_by: str = ""

    @property
    def tells_rules(self) -> bool:
        """Whether rules are given more than the task: what to draw from, or a network to begin with."""
        return not (self.population is None and self.alone is None and self.baseline is None)

    @property
    def packages(self) -> set[str]:
        """The packages whose values a recipe of this study may name when it is read from a file or a command line:
        those that its own recipe is made of, and the one that offers it."""
        return packages(self.recipe) | ({self.offered_by} if self.offered_by else set())


def with_rules(study: Study, rules: str, work: float | None, seed: int) -> Study:
    """The study with a recipe by the rules of this name; they spend `work`, or what the study's own recipe would.

    Rules that draw policies draw from what the study's population baseline draws from, if the study has that. Of these,
    those with a population of one size have as many networks as the study's recipe. One network alone is trained by the
    policy `alone`. If a run comes first, every individual begins with its network.
    """
    task = study.task(seed)
    spent = expected_work(Costs.of(task, study.recipe), study.recipe) if work is None else work
    recipe = named(rules)(task, spent, **_inputs(study, rules))
    start = recipe.start if study.baseline is None else Perturbed(network=BASELINE, sigma=0.0)
    return replace(study, recipe=replace(recipe, start=start))


def by_rules(
    study: Study, rules: str | None, *, recipe_given: bool, budget: str | None, work: float | None, seed: int
) -> tuple[Study, bool]:
    """The study with the recipe that rules make, those named or its own, and whether they have made one. For a budget
    they make it when the run begins, unless the study tells them more than its task."""
    chosen = rules or ("" if recipe_given else study.rules or ("ours" if budget else ""))
    if not chosen or (budget is not None and not study.tells_rules):
        return study, False
    return with_rules(study, chosen, work, seed), True


def _inputs(study: Study, rules: str) -> dict[str, Any]:
    """What a study says to the rules of this name."""
    if rules == "single":
        return {} if study.alone is None else {"policy": study.alone}
    if study.population is None or rules not in (*DRAWING, *OF_ONE_SIZE):
        return {}
    size = study.recipe.population_of(1)
    return {"rates": study.population, **({"population": size} if rules in OF_ONE_SIZE and size > 1 else {})}
