"""`Vmap(chunk)`: many networks in one batched computation."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from esgd.engines.computing import Computing, Precision, counts
from esgd.engines.jobs import Bench, in_groups
from esgd.engines.seat import Begun, Born, Score, Seat
from esgd.engines.stint import Stint, joined
from esgd.engines.vmap.batches import UnstackableError, stack
from esgd.engines.vmap.chunk import Chunk, Examiner
from esgd.engines.vmap.descent import family
from esgd.engines.vmap.network import UNSUPPORTED, Network
from esgd.engines.vmap.walk import ChunkWalk
from esgd.engines.walk import SingleWalk, Start, checked_loss
from esgd.engines.workshop import HandedOut, Here
from esgd.errors import EngineError, EsgdError, RecipeError
from esgd.genome import Buffers, persistent_buffers
from esgd.policies import Policy, optimizer_class
from esgd.protocols import Batch, Rules, Step, Tick, Workshop
from esgd.randomness import global_randomness

WAVE = 4
"""Births are examined in waves of so many chunks: those that can be no elite drop out, the others close ranks."""

WAVE_BYTES = 1 << 26  # of rows; larger networks are examined chunk by chunk


@dataclass(frozen=True, kw_only=True)
class Vmap:
    """Train and evaluate up to `chunk` individuals at once in this process; the other fields are `Computing`'s.

    Each row has its own batches, its own hyper-parameters and, where settings differ, a group of its own. Equal to
    `Loop` up to rounding, except that networks with dropout draw other random numbers. For many small networks, and
    for GPUs.
    """

    chunk: int = 16
    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        if not counts(self.chunk):
            raise RecipeError(f"chunk={self.chunk!r} is not 1 or more: it is how many networks are trained at once.")
        _ = self.computing  # refuses what cannot be

    @property
    def computing(self) -> Computing:
        return Computing(device=self.device, threads=self.threads, precision=self.precision, compile=self.compile)

    @property
    def seats(self) -> int:
        return WAVE * self.chunk

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]:
        """Rows with the same settings, at most `chunk`; of one family of optimizers, except where two families meet."""
        by_settings = dict[Any, list[int]]()
        for j, policy in enumerate(policies):
            alone = j if _needs_closure(policy) else None
            by_settings.setdefault((alone, repr(sorted(policy.settings.items()))), []).append(j)
        return [
            list(group)
            for members in by_settings.values()
            for group in in_groups(sorted(members, key=lambda j: (family(policies[j]).__name__, j)), self.chunk)
        ]

    def bench(self, rules: Rules) -> Bench:
        return ChunkBench(rules, self.computing, self.chunk)

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        hands = Here(self.bench(rules), self.threads)
        yield HandedOut(rules, hands, grouping=self.groups, seats=self.seats, tick=tick)


def _needs_closure(policy: Policy) -> bool:
    """Whether an optimizer evaluates the loss itself, like L-BFGS: then it has to be alone."""
    step = inspect.signature(optimizer_class(policy.optimizer).step)
    return any(p.name == "closure" and p.default is p.empty for p in step.parameters.values())


class ChunkBench:
    """A bench with many seats. One who sits alone, or cannot be batched after all, is trained as `Loop` would."""

    def __init__(self, rules: Rules, computing: Computing, chunk: int) -> None:
        self.rules, self.computing = rules, computing
        wave = WAVE * chunk * rules.genome.size * rules.genome.dtype.itemsize
        self.seats = WAVE * chunk if wave <= WAVE_BYTES else chunk
        seat = Seat(rules, replace(computing, compile=False))  # what is compiled here are the batched functions
        self.seat, self.network = seat, Network(rules, computing, seat)
        self.examiner = Examiner(rules, computing, self.network, seat, chunk)
        if seat.sparse:
            raise EngineError(
                "Vmap cannot train an embedding with sparse=True: its gradients cannot be stacked. Use engine='loop', "
                "or Pool(inner=Loop()) for all cores."
            )
        self._try_out()

    def _try_out(self) -> None:
        """One gradient and one fitness of two rows, so that what cannot be batched is refused before anything else."""
        genome, task = self.rules.genome, self.rules.task
        one = Born(*genome.read(genome.template))
        two, seeds = Chunk.of(genome, [one, one], self.computing), self.rules.seeds.at("try out")
        with global_randomness(seeds.integer()):
            task.prepare(self.network.module, {})
            try:
                batch = next(iter(task.batches(seeds, {})))
                self.network.unused = self._unused(one, self.computing.to_device(batch))
                part = next(iter(task.parts()))[1]
            except EngineError:
                raise
            except Exception:  # noqa: BLE001  # what is wrong without vmap too, the run itself will say better
                return
            try:
                stacked = self.computing.to_device(stack([batch, batch]))
            except UnstackableError as error:
                raise EngineError(
                    "Vmap cannot stack the batches of this task: they hold something other than tensors. Use "
                    "engine='loop', or Pool(inner=Loop()) for all cores."
                ) from error
            self.network.module.train()
            self.network.try_out(two.stacks, two.copy().buffers, stacked)
            self.network.module.eval()
            try:
                self.network.fitness(two.stacks, two.buffers, self.computing.to_device(part))
                self.examiner.calibrate(two)
            except UNSUPPORTED:
                self.examiner.singly = True

    def _unused(self, born: Born, batch: Batch) -> set[str]:
        """Parameters that the loss does not depend on: `torch.optim` leaves them alone, weight decay and all."""
        self.seat.put(born.row, born.buffers)
        self.seat.module.train()
        before = persistent_buffers(self.seat.module)
        with self.computing.autocast(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again where they belong
            loss = checked_loss(self.rules.task.loss(self.seat.module, batch))
        for name, buffer in persistent_buffers(self.seat.module).items():
            if buffer is not before[name]:
                raise EngineError(
                    f"Vmap would lose what forward assigns to the buffer {name!r}. Change it in place (copy_, mul_, "
                    f"add_), or use engine='loop', or Pool(inner=Loop()) for all cores."
                )
        found = torch.autograd.grad(loss, self.seat.parameters, allow_unused=True)
        return {name for name, gradient in zip(self.rules.genome.names, found, strict=True) if gradient is None}

    def train(self, starts: Sequence[Start], step: Step) -> Stint:
        if len(starts) == 1:
            return self._train_singly(starts, step)
        walk = ChunkWalk(self.examiner, starts, step)
        try:
            return walk.outcome(step.backoff(walk, step.epochs))
        except UnstackableError:
            return self._train_singly(starts, step)
        except torch.OutOfMemoryError:  # on a GPU that others use too, or with a chunk that is too large for it
            del walk
            half = len(starts) // 2
            return joined([self.train(starts[:half], step), self.train(starts[half:], step)])
        except EsgdError:
            raise
        except (ArithmeticError, RuntimeError, ValueError):
            if not walk.chunk.exploded():  # one row's NaN, refused by the network or loss, must not end the others
                raise
            return self._train_singly(starts, step)

    def _train_singly(self, starts: Sequence[Start], step: Step) -> Stint:
        """As `Loop` would; but the fitness is taken by the same arithmetic as everybody's."""
        stints = []
        for start in starts:
            walk = SingleWalk(self.seat, start, step, score=self._score_seated)
            stints.append(walk.outcome(step.backoff(walk, step.epochs)))
        return joined(stints)

    def _score_seated(self) -> Score:
        born = Born(self.seat.row(), self.seat.buffers())
        (score,) = self.examiner.scores(Chunk.of(self.rules.genome, [born], self.computing))
        for name, buffer in persistent_buffers(self.seat.module).items():
            buffer.copy_(score.buffers[name])
        return score

    def scores(self, born: Sequence[Born], cutoff: float, begun: Sequence[Begun]) -> list[Score]:
        if not born:
            return []
        return self.examiner.scores(Chunk.of(self.rules.genome, born, self.computing), cutoff, begun)

    def calibrated(self, born: Sequence[Born]) -> list[tuple[Buffers, int]]:
        if not born:
            return []
        chunk = Chunk.of(self.rules.genome, born, self.computing)
        samples = self.examiner.calibrate(chunk)
        return [
            ({name: stacked[i].cpu().clone() for name, stacked in chunk.buffers.items()}, samples)
            for i in range(len(born))
        ]

    def forget_order(self) -> None:
        self.seat.forget_order()
        self.examiner.forget_order()
