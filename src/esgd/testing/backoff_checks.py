"""Does a strategy steer the SGD step as Algorithm 1's back-off asks?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd.protocols import BackOff
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone

CLIFF = 3.0  # beyond this distance from the origin the fitness is not finite


def check_backoff(backoff: BackOff) -> None:
    """Steer trajectories through a landscape with cliffs: none ends worse than it began if the strategy is `certain`.

    >>> from esgd.operators import PerEpoch
    >>> check_backoff(PerEpoch())
    """
    for seed in range(25):
        for epochs in (1, 2, 4):
            _check_trajectories(backoff, Seeds(seed, ("check_backoff",)), epochs)
    _check_trajectories(backoff, Seeds(0, ("check_backoff",)), epochs=0)


@dataclass(frozen=True)
class Place:
    """A point of a practice trajectory."""

    rows: Tensor
    fitness: Tensor


class PracticeTrajectory:
    """Points in the plane: an epoch is a random step, and the fitness is the distance from the origin."""

    def __init__(self, individuals: list[int], seeds: Seeds) -> None:
        self.individuals, self.seeds, self.epochs = individuals, seeds, 0
        self.at = torch.stack([torch.randn(2, generator=seeds("start", i), dtype=torch.float64) for i in individuals])
        self.measured = landscape(self.at)

    @property
    def fitness(self) -> Float[Tensor, " n"]:
        return self.measured.clone()

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        return self.at.clone()

    def epoch(self) -> None:
        steps = [
            torch.randn(2, generator=self.seeds("step", i, self.epochs), dtype=torch.float64) for i in self.individuals
        ]
        self.at, self.measured = self.at + torch.stack(steps), torch.full_like(self.measured, torch.nan)
        self.epochs += 1

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        while self.epochs < until:  # a part of an epoch is a step like any other here
            self.epoch()
            for average in averages:
                average.take([self.at], epochs=1.0)

    def measure(self) -> Float[Tensor, " n"]:
        self.measured = landscape(self.at)
        return self.fitness

    def measure_scaled(self, scales: Sequence[float]) -> Float[Tensor, "s n"]:
        self.measure()
        return torch.stack([landscape(self.at * scale) for scale in scales])

    @property
    def scalable(self) -> bool:
        return True

    @property
    def samples(self) -> int:
        return 100

    def scale(self, factors: Float[Tensor, " n"]) -> None:
        self.place(self.at * factors[:, None])

    def snapshot(self) -> Place:
        return Place(self.rows, self.fitness)

    def restore(self, snapshot: Place, where: Bool[Tensor, " n"]) -> None:
        self.at = torch.where(where[:, None], snapshot.rows, self.at)
        self.measured = torch.where(where, snapshot.fitness, self.measured)

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        self.at, self.measured = rows.clone(), torch.full_like(self.measured, torch.nan)

    def place_average(self, average: IterateAverage) -> None:
        self.place(average.tensors[0])

    def coin(self, number: int) -> Float[Tensor, " n"]:
        coins = [torch.rand((), generator=self.seeds("coin", i, number), dtype=torch.float64) for i in self.individuals]
        return torch.stack(coins)


def landscape(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """The distance from the origin; +inf beyond the cliff."""
    distance = rows.norm(dim=1)
    return torch.where(distance < CLIFF, distance, torch.inf)


def _check_trajectories(backoff: BackOff, seeds: Seeds, epochs: int) -> None:
    several, before = _steered(backoff, [0, 1, 2], seeds, epochs)
    trajectory, refused = several
    expect(
        not trajectory.fitness.isnan().any(),
        f"after {epochs} epochs the trajectory ends at a point whose fitness was never measured. Call "
        f"trajectory.measure() after the last epoch, or restore a snapshot that was measured.",
    )
    expect(
        not difference(trajectory.fitness, landscape(trajectory.rows)),
        "the trajectory's fitness is not that of the place where it ends. Restore whole snapshots only.",
    )
    expect(
        not backoff.certain or (trajectory.fitness <= before).all(),
        f"the strategy says that it is certain, but with {epochs} epochs trajectories that began at fitness "
        f"{before.tolist()} ended at {trajectory.fitness.tolist()}. Theorem 1 needs them never to end worse: restore a "
        f"snapshot of the start, also when the fitness is +inf; or let `certain` be False.",
    )
    for i in range(3):
        (alone, refused_alone), _ = _steered(backoff, [i], seeds, epochs)
        expect(
            not difference(alone.rows, trajectory.rows[i : i + 1]) and int(refused_alone[0]) == int(refused[i]),
            f"individual {i} ends at {alone.rows[0].tolist()} when it is trained alone, but at "
            f"{trajectory.rows[i].tolist()} among others. Engines train one individual or many at once: compare and "
            f"restore each on its own.",
        )


def _steered(
    backoff: BackOff, individuals: list[int], seeds: Seeds, epochs: int
) -> tuple[tuple[PracticeTrajectory, Tensor], Tensor]:
    trajectory = PracticeTrajectory(individuals, seeds)
    before = trajectory.fitness
    with leaves_global_randomness_alone("the back-off strategy"):
        refused = backoff(trajectory, epochs)
    expect(
        trajectory.epochs <= epochs,
        f"the strategy trained {trajectory.epochs} epochs where {epochs} were asked for. Arms are compared at equal "
        f"epochs.",
    )
    expect(
        isinstance(refused, Tensor) and refused.shape == before.shape and not refused.is_floating_point(),
        f"the strategy returned {refused!r} for {len(before)} individuals. It returns how many updates were refused "
        f"for each: a tensor of {len(before)} whole numbers.",
    )
    checks = backoff.checks(epochs)
    expect(
        bool((refused >= 0).all()) and bool((refused <= max(checks, 0)).all()),
        f"the strategy refused {refused.tolist()} updates, but says that it makes {checks} comparisons in {epochs} "
        f"epochs. The share of refused updates is reported: `checks` must count every comparison.",
    )
    return (trajectory, refused.long()), before
