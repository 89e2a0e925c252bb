"""`explain()`: what a recipe says in the paper's notation, and what it will cost on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from esgd._algorithm.initialization import prepare
from esgd._text.notebook_cards import card
from esgd._text.wording import duration
from esgd.budget import Budget, is_budget, seconds_in
from esgd.costs import cost, in_symbols
from esgd.engines import choose
from esgd.engines.auto import in_brief
from esgd.planning import check_recipe, plan, recipe_of_work
from esgd.protocols import Engine, Task
from esgd.recipe import Recipe
from esgd.rules import ours

PARTS = {"sgd": "for SGD", "breeding": "for evolution", "driver": "for the driver", "network": "for the network"}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A recipe and its cost. It prints as sentences.

    | field     | meaning                                                                    |
    |-----------|----------------------------------------------------------------------------|
    | `recipe`  | the recipe; of a budget, the one that was made for it                      |
    | `engine`  | what it is measured on; None for networks that are trained one by one      |
    | `cost`    | all that was counted and measured, by name                                 |
    | `name`    | of the study, if it is one                                                 |
    """

    recipe: Recipe
    cost: Mapping[str, Any] = field(repr=False)
    engine: Engine | None = None
    name: str = "recipe"

    @property
    def generations(self) -> int:
        """K, and one more for fine-tuning."""
        return int(self.cost["generations"])

    @property
    def seconds(self) -> float:
        """Of the whole run on this machine: the budget, or as measured."""
        return float(self.cost["seconds"])

    @property
    def samples(self) -> float:
        """Work as the ledger counts it: a sample forward is 1, backward 2."""
        return float(self.cost["samples"])

    @property
    def memory(self) -> int:
        """Bytes of all rows that are in memory at a time, without data, activations and states of optimizers."""
        return int(self.cost["memory_bytes"])

    @property
    def disk(self) -> int:
        """Bytes of the checkpoints in a run folder."""
        return int(self.cost["checkpoint_bytes"])

    def to_dict(self) -> dict[str, Any]:
        """Plain tables, for JSON."""
        return {
            "task": self.name,
            "recipe": self.recipe.described(),
            "symbols": in_symbols(self.recipe),
            "cost": dict(self.cost),
        }

    def __str__(self) -> str:
        costs, symbols = self.cost, in_symbols(self.recipe)
        tables = {name: value for name, value in self.recipe.described().items() if isinstance(value, dict)}
        return "\n".join(
            [
                f"{self.name}: {', '.join(f'{name} = {value}' for name, value in symbols.items())}",
                *(f"  {name:<14}{_spelt(value)}" for name, value in tables.items()),
                f"An individual has {costs['parameters']:,} parameters.",
                f"The individuals are trained for {costs['sgd_epochs']:,.6g} epochs in total.",
                f"The fitness is evaluated {costs['fitness_evaluations']:,} times{_aborted(self.recipe)}.",
                f"Work: {costs['samples']:.3g} samples, forward 1 and backward 2.",
                f"Memory for rows: {_bytes(self.memory)}; on disk: {_bytes(self.disk)}.",
                self._time(),
                *_before(costs),
                *_on_gpus(costs),
                *_on_cluster(costs.get("cluster")),
            ]
        )

    def _time(self) -> str:
        measured = (
            f"An epoch takes {self.cost['seconds_per_epoch']:.3g} s, a fitness "
            f"{self.cost['seconds_per_evaluation']:.3g} s (just measured)."
        )
        if clock := self.recipe.clock:
            return f"Time: {duration(clock.seconds)}, which the epochs follow. {measured}"
        where = "" if self.engine is None else f" with {in_brief(self.engine)}"
        return f"Time on this machine{where}: about {duration(self.seconds)}. {measured}"

    def _repr_html_(self) -> str:
        return card(
            "Explanation",
            {
                "generations": self.generations,
                "time": duration(self.seconds),
                "samples": f"{self.samples:.3g}",
                "memory": _bytes(self.memory),
                "disk": _bytes(self.disk),
                **in_symbols(self.recipe),
            },
        )


def explain(
    task: Task, recipe: Recipe | Budget | None = None, budget: Budget | None = None, engine: str | Engine = "auto"
) -> Explanation:
    """What `fit` would do with the same arguments, and what it would cost: time, work, memory and disk.

    Some steps and a fitness are measured on the engine; nothing is trained. `print` it, or take its numbers. A budget
    may stand in place of the recipe: `explain(task, "30m")`.
    """
    if budget is None and is_budget(recipe):
        recipe, budget = None, recipe
    recipe = check_recipe(recipe)
    if budget is not None and seconds_in(budget) is not None:
        made = plan(task, budget, engine, recipe=recipe)
        costs = cost(task, made.recipe, engine=made.engine.engine) | {"seconds": seconds_in(budget)}
        return Explanation(recipe=made.recipe, cost=costs, engine=made.engine.engine)
    recipe = recipe_of_work(task, recipe, budget) if budget is not None else recipe or ours(task)
    chosen = choose(engine, prepare(task, recipe, seed=0), recipe.load).engine
    return Explanation(recipe=recipe, cost=cost(task, recipe, engine=chosen), engine=chosen)


def _before(costs: Mapping[str, Any]) -> list[str]:
    before = costs.get("seconds_before")
    return [f"The network that all individuals start from takes another {duration(before)}."] if before else []


def _on_gpus(costs: Mapping[str, Any]) -> list[str]:
    if "gpus" not in costs:
        return []
    return [
        f"At best {duration(costs['seconds_on_gpus'])} on {costs['gpus']} GPUs of {costs['gpu_tflops']:g} TFLOP/s each,"
        " by the ratio of matrix rates",
        f"(this machine: {costs['matrix_tflops_here']:.2g} TFLOP/s). Small networks take much longer than this.",
        f"While it trains, an individual needs about {_bytes(costs['bytes_on_gpu'])} of a GPU, "
        f"{_bytes(costs['activation_bytes'])} of them saved activations of a batch. "
        f"{costs['individuals_on_gpu']:,} fit into {costs['gpu_memory']:g} GB at once (vmap:chunk=…).",
    ]


def _on_cluster(costs: dict[str, Any] | None) -> list[str]:
    if costs is None:
        return []
    shares = ", ".join(f"{duration(costs[part])} {words}" for part, words in PARTS.items())
    return [
        f"A generation takes about {duration(costs['seconds'])} on {costs['workers']} workers, one core each: "
        f"{shares}.",
        f"It moves {_bytes(costs['bytes_moved'])}. {costs['per_node']} workers on a node need "
        f"{_bytes(costs['memory_per_node'])} there, without data and activations.",
    ]


def _spelt(value: Any) -> str:
    if not isinstance(value, dict):
        return ", ".join(_spelt(item) for item in value) if isinstance(value, list) else str(value)
    fields = ", ".join(f"{name}={_spelt(item)}" for name, item in value.items() if name != "kind" and item != {})
    kind = str(value.get("kind", "")).rpartition(":")[2]
    return f"{kind}({fields})" if fields else kind


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _aborted(recipe: Recipe) -> str:
    aborts = recipe.cutoff_rank(next(recipe.stages())) is not None
    return " (early abort can save samples)" if aborts else ""
