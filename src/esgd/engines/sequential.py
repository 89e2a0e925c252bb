"""`Loop`: one individual after another in plain PyTorch. This engine is the specification of all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from esgd._limits import within_limits
from esgd.engines.computing import Computing, Precision
from esgd.engines.contract import Kernel, NetworkState, Outcome, Parts, Score, Stack
from esgd.engines.dispatch import Dispatcher
from esgd.engines.fitness import Scorer
from esgd.engines.inline import InlineExecutor
from esgd.engines.network import Network
from esgd.engines.resident import with_data_on_device
from esgd.engines.scaled_scores import score_scaled
from esgd.engines.sgd import SequentialTrajectory
from esgd.engines.without_compiler import without_compiler
from esgd.errors import RecipeError
from esgd.genome import Buffers
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.protocols import Session, Setup, Step, Tick
from esgd.randomness import Seeds


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Train and evaluate in this process, one individual at a time, on one device; the fields are `Computing`'s."""

    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    compile: bool = False
    channels_last: bool = False
    onednn: bool = False

    def __post_init__(self) -> None:
        _ = self.computing  # refuses what cannot be
        if self.onednn and self.compile:
            raise RecipeError("onednn=true and compile=true: compiled layers multiply in their own way. Choose one.")

    @property
    def computing(self) -> Computing:
        return Computing(
            device=self.device,
            threads=self.threads,
            precision=self.precision,
            compile=self.compile,
            channels_last=self.channels_last,
            onednn=self.onednn,
        )

    @property
    def rows_at_once(self) -> int:
        return 1

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]:
        """Each individual alone."""
        return [[j] for j in range(len(policies))]

    def kernel(self, setup: Setup) -> Kernel:
        return SequentialKernel(Network(with_data_on_device(setup, self.computing), self.computing))

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Session]:
        with within_limits():
            executor = InlineExecutor(self.kernel(setup), self.threads)
            yield Dispatcher(setup, executor, grouping=self.groups, rows_at_once=self.rows_at_once, tick=tick)


class SequentialKernel:
    """One network after another."""

    rows_at_once = 1

    def __init__(self, network: Network) -> None:
        self.network, self.setup, self.scorer = network, network.setup, Scorer(network.setup.task)
        self.computing = network.computing

    @without_compiler()
    def train(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Ledger]:
        ((start, policy, stream),) = zip(starts, policies, seeds, strict=True)
        trajectory = SequentialTrajectory(self.network, start, policy, stream, step, score=self._score_loaded)
        return trajectory.outcome(step.backoff(trajectory, step.epochs))

    def _score_loaded(self, scales: Sequence[float]) -> list[Score]:
        return score_scaled(self.scorer, self.network, scales)[0]

    def score(self, states: Sequence[NetworkState], cutoff: float, begun: Sequence[Parts]) -> list[Score]:
        found = list[Score]()
        self.network.unprepare()
        for state, parts in zip(states, begun, strict=True):
            self.network.load(state.row, state.buffers)
            found += self.scorer.score(self.network, cutoff, [parts])
        return found

    def calibrate(self, states: Sequence[NetworkState]) -> list[tuple[Buffers, int]]:
        found = list[tuple[Buffers, int]]()
        self.network.unprepare()
        for state in states:
            self.network.load(state.row, state.buffers)
            samples = self.network.calibrate()
            found.append((self.network.buffers(), samples))
        return found

    def forget_order(self) -> None:
        self.scorer.forget_order()
