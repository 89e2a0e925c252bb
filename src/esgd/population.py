"""The population Ψ_μ: rows, their fitness and where each individual came from. Values; nothing here mutates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from esgd._text.notebook_cards import card, remark
from esgd.errors import RecipeError
from esgd.genome import Buffers, Genome
from esgd.policies import Policy

SHOWN = 5  # individuals in a notebook's card

# For the diversity: torch uses one thread for up to so many numbers. They stay in its cache, and neither the number nor
# the time depends on what the other cores do.
_TOGETHER = 32_000

_ROW, _BUFFERS = "place/row", "place/buffers/"


@dataclass(frozen=True, slots=True)
class Birth:
    """An offspring before it is built: its mates, the strength of its mutation, and its random address.

    | field     | meaning                                                                          |
    |-----------|----------------------------------------------------------------------------------|
    | `id`      | "k.v.i": generation, evolution step, number; the address of its mutation noise   |
    | `mates`   | indices into the parent population, the fittest first                            |
    | `sigma`   | mutation strength σ_k, a standard deviation                                      |
    | `parents` | the ids of the mates, for the family tree                                        |
    | `founder` | the initial individual it descends from through its fittest mates                |
    | `kind`    | how it came about, if not by recombination of drawn mates: "clone", "soup", …    |
    | `weights` | of the mates in its row, if these are not recombined                             |
    """

    id: str
    mates: tuple[int, ...] = ()
    sigma: float = 0.0
    parents: tuple[str, ...] = ()
    founder: int = 0
    kind: str = ""
    weights: tuple[float, ...] = ()

    @property
    def generation(self) -> int:
        """k of the generation it was born in; 0 for the initial population."""
        return int(self.id.split(".")[0])

    def record(self) -> dict[str, Any]:
        """The birth as it is written to the history."""
        told = {"id": self.id, "parents": list(self.parents), "sigma": self.sigma, "founder": self.founder}
        return {**told, "kind": self.kind} if self.kind else told


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """An optimizer's state, kept with an individual: tensors by "parameter/name", and the kind of state it is.

    Where SGD is not interrupted, it is also where SGD stands: "place/row", and its buffers as "place/buffers/name".
    """

    kind: str
    tensors: Mapping[str, Tensor]

    def at(self, row: Tensor, buffers: Mapping[str, Tensor]) -> OptimizerState:
        """The same, standing at this place."""
        place = {_ROW: row, **{_BUFFERS + name: value for name, value in buffers.items()}}
        return OptimizerState(self.kind, {**self.of_optimizer, **place})

    @property
    def of_optimizer(self) -> dict[str, Tensor]:
        """What belongs to the optimizer."""
        return {name: value for name, value in self.tensors.items() if name != _ROW and not name.startswith(_BUFFERS)}

    @property
    def place(self) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Row and buffers where SGD stands, if that is not where the individual is."""
        if _ROW not in self.tensors:
            return None
        named = {name: value for name, value in self.tensors.items() if name.startswith(_BUFFERS)}
        return self.tensors[_ROW], {name.removeprefix(_BUFFERS): value for name, value in named.items()}


@dataclass(frozen=True, eq=False)
class Population:
    """μ individuals of one architecture.

    | field      | shape      | meaning                                                              |
    |------------|------------|----------------------------------------------------------------------|
    | `rows`     | (n, d)     | trainable parameters                                                 |
    | `buffers`  | (n, …) each | persistent buffers, stacked                                         |
    | `fitness`  | (n,) f64   | lower is better; +inf for a diverged individual                      |
    | `births`   | n          | the birth of each individual                                         |
    | `policies` | n          | the last *accepted* policy of each; for offspring, the fittest mate's; |
    |            |            | where SGD is not interrupted, the policy that it trains by            |
    | `optimizer_states` | n  | the optimizer state that each keeps between generations, if any      |
    """

    genome: Genome
    rows: Float[Tensor, "n d"]
    buffers: Buffers
    fitness: Float[Tensor, " n"]
    births: tuple[Birth, ...]
    policies: tuple[Policy | None, ...]
    optimizer_states: tuple[OptimizerState | None, ...]

    @staticmethod
    def founders(genome: Genome, rows: Float[Tensor, "n d"], buffers: Buffers, step: int = 0) -> Population:
        """An initial population Ψ^(0); its fitness is not known yet (NaN)."""
        n = len(rows)
        births = tuple(Birth(f"0.{step}.{j}", founder=j if step == 0 else -1 - j) for j in range(n))
        nothing = (None,) * n
        unknown = torch.full((n,), torch.nan, dtype=torch.float64)
        return Population(genome, rows, buffers, unknown, births, nothing, nothing)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: int | slice | Sequence[int] | Tensor) -> Population:
        chosen = torch.arange(len(self))[indices].reshape(-1)
        pick = chosen.tolist()
        return Population(
            genome=self.genome,
            rows=self.rows[chosen],
            buffers={name: stacked[chosen] for name, stacked in self.buffers.items()},
            fitness=self.fitness[chosen],
            births=tuple(self.births[i] for i in pick),
            policies=tuple(self.policies[i] for i in pick),
            optimizer_states=tuple(self.optimizer_states[i] for i in pick),
        )

    def __repr__(self) -> str:
        best = f", best {float(self.fitness.min()):.4g}" if len(self) else ""
        return f"Population({len(self)} × {self.genome.size} parameters{best})"

    def _repr_html_(self) -> str:
        ranks = self.order[:SHOWN]
        facts = {f"{self.fitness[i]:.6g}": f"{self.births[i].id}, {self.policies[i] or 'untrained'}" for i in ranks}
        rest = len(self) - len(ranks)
        more = [remark(f"and {rest} more, up to {float(self.fitness.max()):.6g}")] if rest else []
        return card(f"Population of {len(self)}, {self.genome.size:,} parameters each", facts, *more)

    def join(self, other: Population) -> Population:
        """Ψ ∪ Ψ': the individuals of both, in this order."""
        if not len(other):
            return self
        return replace(
            self,
            rows=torch.cat([self.rows, other.rows]),
            buffers={name: torch.cat([stacked, other.buffers[name]]) for name, stacked in self.buffers.items()},
            fitness=torch.cat([self.fitness, other.fitness]),
            births=self.births + other.births,
            policies=self.policies + other.policies,
            optimizer_states=self.optimizer_states + other.optimizer_states,
        )

    @property
    def order(self) -> list[int]:
        """Indices from the fittest to the least fit; the earlier one wins a tie (Eq. 8)."""
        return torch.argsort(self.fitness, stable=True).tolist()

    @property
    def ranked(self) -> Population:
        """The same individuals, fittest first."""
        return self[self.order]

    @property
    def best(self) -> Individual:
        """θ_{1:μ}, the fittest individual."""
        return Individual(self, self.order[0])

    @property
    def champion(self) -> Population:
        """The fittest individual as a population of one, without its optimizer's state."""
        return self.alone(self.order[0])

    def alone(self, i: int) -> Population:
        """Individual i as a population of one, without its optimizer's state."""
        return replace(self[[i]], optimizer_states=(None,))

    def elite_mean(self, m: int) -> float:
        """J_{m̄:μ}, the m-elitist average fitness (Definition 1, Eq. 9)."""
        if not 1 <= m <= len(self):
            raise RecipeError(f"m={m} does not fit a population of {len(self)}. Definition 1 has 1 ≤ m ≤ μ.")
        return float(self.fitness.sort().values[:m].mean())

    @property
    def founders_alive(self) -> int:
        """How many individuals of Ψ^(0) still have descendants along the line of fittest mates."""
        return len({birth.founder for birth in self.births})

    @property
    def diversity(self) -> float:
        """Root mean square distance of two individuals, among those with a finite fitness; 0 if there is only one.

        The n² pairs are not needed: the mean of ‖θ_i − θ_j‖² over i ≠ j is twice the sum of the parameters' variances.
        """
        alive = self.fitness.isfinite()
        n = int(alive.sum())
        if n < 2:
            return 0.0
        parts = (part if n == len(self) else part[alive] for part in self.rows.split(max(1, _TOGETHER // n), dim=1))
        copies = (part.to(torch.float64, copy=True) for part in parts)
        columns = torch.cat([part.sub_(part.mean(dim=0)).square_().sum(dim=0) for part in copies])
        squares = (float(part.sum()) for part in columns.split(_TOGETHER))
        return float((2.0 * sum(squares) / (n - 1)) ** 0.5)


@dataclass(frozen=True, eq=False)
class Individual:
    """One member of a population."""

    population: Population = field(repr=False)
    index: int

    @property
    def fitness(self) -> float:
        return float(self.population.fitness[self.index])

    @property
    def birth(self) -> Birth:
        return self.population.births[self.index]

    @property
    def policy(self) -> Policy | None:
        """The last policy whose update this individual, or the mate it descends from, accepted."""
        return self.population.policies[self.index]

    @property
    def row(self) -> Float[Tensor, " d"]:
        return self.population.rows[self.index]

    @property
    def buffers(self) -> dict[str, Tensor]:
        return {name: stacked[self.index] for name, stacked in self.population.buffers.items()}

    def module(self) -> nn.Module:
        """An ordinary network with this individual's parameters, in eval mode."""
        return self.population.genome.module(self.row, self.buffers)
