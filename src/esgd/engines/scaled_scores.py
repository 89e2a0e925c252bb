"""The fitness for several scales of a network's output, from one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from esgd._limits import shortage
from esgd._tensors.batches import copied
from esgd.engines.contract import Score, in_groups
from esgd.engines.fitness import REFUSALS, Networks, Scorer
from esgd.errors import EsgdError, FitnessError, TaskError, shown
from esgd.genome import Buffers
from esgd.protocols import Batch, ScoresOutputs

SAME = 1e-4  # relative: in a low precision two passes of one network need not round alike


class MultipliesOutputs(Networks, Protocol):
    """Networks that may have parameters which multiply their output."""

    @property
    def output_layer(self) -> Sequence[int]:
        """The places of these parameters in the genome; empty if there are none."""
        ...

    def losses_by_scale(self, rows: Sequence[int], batch: Batch, scales: Sequence[float]) -> Sequence[Sequence[float]]:
        """As `losses`, for each row with its output times each of these numbers."""
        ...


def score_scaled(scorer: Scorer, networks: MultipliesOutputs, scales: Sequence[float]) -> list[list[Score]]:
    """For each network its score, and those with its output times each of these numbers.

    The latter are missing if the output cannot be multiplied, or the loss refuses such an output. The pass is counted
    once.
    """
    if scales and networks.output_layer:
        every = (1.0, *scales)
        try:
            return [list(each) for each in in_groups(scorer.score(NetworksByScale(networks, every)), len(every))]
        except FitnessError:
            pass  # of an output that no network has; what is wrong with the networks themselves is said below
        except (EsgdError, torch.OutOfMemoryError):
            raise
        except REFUSALS as error:
            if shortage(error):
                raise
    return [[score] for score in scorer.score(networks)]


def check_outputs(task: Any, module: nn.Module, batch: Batch) -> None:
    """Refuse a task whose fitness of an output is not that of the network which has made it."""
    of_output, of_network = (
        task.output_fitness(task.output(module, copied(batch)), copied(batch)),
        task.fitness(module, copied(batch)),
    )
    if not isinstance(of_output, Tensor) or of_output.dim():
        raise TaskError(f"output_fitness returned {shown(of_output)}. It must return a scalar tensor, as fitness does.")
    if not isclose(float(of_output), float(of_network), rel_tol=SAME):
        raise TaskError(
            f"the fitness of a part is {float(of_network):.6g}, but output_fitness of the network's output is "
            f"{float(of_output):.6g}. Let fitness use output_fitness, or return None from output if the fitness is not "
            f"a function of the output."
        )


def fitness_by_scale(task: ScoresOutputs, scales: Sequence[float]) -> Callable[[nn.Module, Batch], Tensor]:
    """The fitness of a part as a function of network and batch, with the output times each of these numbers: (s,)."""

    def by_scale(module: nn.Module, batch: Batch) -> Tensor:
        output = task.output(module, batch)
        if not isinstance(output, Tensor):
            raise TaskError(f"output returned {shown(output)} for a part of the fitness, and a tensor for another one.")
        return torch.stack([task.output_fitness(output * scale, batch) for scale in scales])

    return by_scale


@dataclass(frozen=True, eq=False)
class NetworksByScale:
    """Each network with its output times each of s numbers, as n × s `Networks` to score: row i · s + j is network i
    with number j."""

    networks: MultipliesOutputs
    scales: Sequence[float]

    def __len__(self) -> int:
        return len(self.networks) * len(self.scales)

    def calibrate(self, rows: Sequence[int]) -> int:
        return self.networks.calibrate(self._networks(rows))

    def losses(self, rows: Sequence[int], batch: Batch) -> list[float]:
        asked = self._networks(rows)
        found = dict(zip(asked, self.networks.losses_by_scale(asked, batch, self.scales), strict=True))
        return [found[row // len(self.scales)][row % len(self.scales)] for row in rows]

    def check_layout(self) -> None:
        self.networks.check_layout()

    def overflowed(self) -> list[int]:
        s = len(self.scales)
        return [i * s + j for i in self.networks.overflowed() for j in range(s)]

    def buffers(self, row: int) -> Buffers:
        return self.networks.buffers(row // len(self.scales))

    def _networks(self, rows: Sequence[int]) -> list[int]:
        return list(dict.fromkeys(row // len(self.scales) for row in rows))
