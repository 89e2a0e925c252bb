"""What a run gives back: its best network, and more of its population."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from esgd._text.notebook_cards import BLUE, GREY, card, sparkline
from esgd._validation import check_number
from esgd.deploy import Ensemble, candidates, greedy_ensemble, greedy_soup
from esgd.errors import TaskError
from esgd.generation import State
from esgd.policies import phrase
from esgd.population import Individual, Population
from esgd.protocols import Average, Engine, Task
from esgd.recipe import Recipe
from esgd.run.tables import Frame, as_frame

_CURVES = (("best", BLUE, "best"), ("elites", GREY, "elite_mean"))


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run.

    | attribute    | meaning                                                                              |
    |--------------|--------------------------------------------------------------------------------------|
    | `model`      | an ordinary `nn.Module` in eval mode: the fittest individual of the whole run, or    |
    |              | what the task's split picked among the elites. It is one module, yours to change     |
    | `fitness`    | its fitness, as the run measured it                                                  |
    | `population` | the last generation                                                                  |
    | `history`    | a dict for every generation: the lines of `history.jsonl`                            |
    | `run`        | the run folder, if there is one                                                      |
    | `stopped`    | why the run ended before its last generation; empty if it did not                    |
    | `task`, `recipe`, `engine` | what was run; None where a result was loaded without it                |

    All networks of a run share the frozen parameters of `make_model`: copy one with `copy.deepcopy` before you train
    what was frozen.
    """

    state: State
    history: list[dict[str, Any]]
    run: Path | None = None
    stopped: str = ""
    task: Task | None = None
    recipe: Recipe | None = None
    engine: Engine | None = None

    @cached_property
    def model(self) -> nn.Module:
        return self.state.archive.best.module()

    def top(self, k: int) -> list[nn.Module]:
        """k networks: the one that `model` was made from, then the others of the last generation, fittest first. They
        are new modules each time."""
        found = candidates(self.state)
        meaning = f"It is a number of networks, and this run has {len(found)}. Use top({min(5, len(found))})."
        check_number("k", k, at_least=1, at_most=len(found), whole=True, meaning=meaning)
        return [Individual(found, i).module() for i in range(k)]

    def ensemble(
        self, k: int, *, task: Task | None = None, average: Average | None = None, device: str = "cpu"
    ) -> Ensemble:
        """At most k networks as one, which averages their probabilities, or else their outputs.

        It begins with the network of `model`, then adds the one that lowers the fitness of the ensemble most, and ends
        where none does. So its fitness is never worse. The choice takes at most k forward passes of each individual
        over the fitness split; an input to the ensemble takes one of each of its networks. `average` is known for
        torch's losses; see `Ensemble`. A result that was loaded without its `task` needs it here.
        """
        meaning = "It is the largest number of networks in the ensemble. Use ensemble(5)."
        check_number("k", k, at_least=1, whole=True, meaning=meaning)
        data = self._data(task, f"ensemble({k}, task=task)", "or choose yourself: esgd.Ensemble(result.top(5), …)")
        return greedy_ensemble(data, candidates(self.state), k, average=average, device=device)

    def soup(self, *, task: Task | None = None, engine: str | Engine | None = None) -> nn.Module:
        """One network: the average of the weights of several (a greedy soup), as fast as any one of them.

        It begins with the network of `model`, then takes the others in, fittest first, if the average of all is not
        worse. So its fitness is never worse. The choice takes one forward pass of each individual over the fitness
        split. `engine` is the run's own unless given. A result that was loaded without its `task` needs it here.
        """
        found, data = candidates(self.state), self._data(task, "soup(task=task)", "or use result.model")
        buffers = self.recipe.buffers if self.recipe is not None else None
        return greedy_soup(data, found, first=0, buffers=buffers, engine=engine or self.engine or "auto").model

    def _data(self, given: Task | None, call: str, otherwise: str) -> Task:
        data = given or self.task
        if data is None:
            raise TaskError(
                f"this result has no data: it was loaded without its task, and networks are chosen by their fitness "
                f"together, which is measured on data. Give the task: result.{call}; {otherwise}."
            )
        return data

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy, as if loaded from a folder: data and functions of a task stay where they are."""
        return {**self.__dict__, "task": None, "recipe": None, "engine": None}

    @property
    def fitness(self) -> float:
        return self.state.archive.best.fitness

    @property
    def population(self) -> Population:
        return self.state.population

    @property
    def test(self) -> dict[str, float]:
        """Metrics of `model` on the split that selection never saw."""
        return dict(self.history[-1]["test"])

    @property
    def metrics(self) -> dict[str, float]:
        """The task's metrics of `model` on the fitness split."""
        return dict(self.history[-1].get("metrics", {}))

    def frame(self, of: str = "generations") -> Frame:
        """The history as a tidy pandas DataFrame: a row per generation, or, of "individuals", a row per generation
        and individual. `esgd.run.tables` says which columns there are."""
        return as_frame(self.history, of)

    def _repr_html_(self) -> str:
        last = self.history[-1]
        leader = phrase(last["leader"]) if last["leader"] else "untrained"
        facts = {
            "fitness": f"{self.fitness:.6g}",
            **{name: "–" if value is None else f"{value:.4g}" for name, value in self.metrics.items()},
            **{f"test {name}": "–" if value is None else f"{value:.4g}" for name, value in self.test.items()},
            "generations": len(self.history),
            "leader": leader,
            **({"run": self.run} if self.run else {}),
            **({"stopped": self.stopped} if self.stopped else {}),
        }
        curves = ((name, colour, [line[key] for line in self.history]) for name, colour, key in _CURVES)
        return card("Result", facts, sparkline(curves))

    def __repr__(self) -> str:
        where = f", run={str(self.run)!r}" if self.run else ""
        return f"Result(fitness={self.fitness:.6g}, generations={len(self.history)}{where})"
