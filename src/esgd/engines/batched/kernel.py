"""The kernel that trains and scores many networks in one batched computation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import torch

from esgd.engines.batched.batches import UnstackableError, stack
from esgd.engines.batched.chunk import Chunk, ChunkNetworks
from esgd.engines.batched.network import UNSUPPORTED, BatchedNetwork
from esgd.engines.batched.sgd import BatchedTrajectory
from esgd.engines.computing import Computing
from esgd.engines.contract import NetworkState, Outcome, Parts, Score, Stack
from esgd.engines.fitness import REFUSALS, Scorer
from esgd.engines.network import Network
from esgd.engines.sgd import SequentialTrajectory, checked_loss
from esgd.errors import EngineError, EsgdError
from esgd.genome import Buffers, persistent_buffers
from esgd.ledger import Work
from esgd.policies import Policy
from esgd.protocols import Batch, Rules, Step
from esgd.randomness import Seeds, global_randomness

WAVE = 4
"""Births are scored in waves of so many chunks: those that can be no elite drop out, and the others fill the chunks."""

WAVE_BYTES = 1 << 26  # of rows; larger networks are scored chunk by chunk


class BatchedKernel:
    """Many networks at once. One alone, or one that cannot be batched after all, is trained as `Loop` would."""

    def __init__(self, rules: Rules, computing: Computing, chunk: int) -> None:
        self.rules, self.computing, self.chunk = rules, computing, chunk
        wave = WAVE * chunk * rules.genome.size * rules.genome.dtype.itemsize
        self.rows_at_once = WAVE * chunk if wave <= WAVE_BYTES else chunk
        self.network = Network(rules, replace(computing, compile=False))  # compiled are the batched functions
        self.batched, self.scorer = BatchedNetwork(rules, computing, self.network), Scorer(rules.task)
        self.one_by_one = False  # for a fitness that cannot be batched
        if self.network.sparse:
            raise EngineError(
                "Vmap cannot train an embedding with sparse=True: its gradients cannot be stacked. Use engine='loop', "
                "or Pool(inner=Loop()) for all cores."
            )
        self._try_out()

    def _try_out(self) -> None:
        """One gradient and one fitness of two rows, so that what cannot be batched is refused before anything else."""
        genome, task = self.rules.genome, self.rules.task
        one = NetworkState(*genome.read(genome.template))
        two, seeds = Chunk.of(genome, [one, one], self.computing), self.rules.seeds.at("try out")
        with global_randomness(seeds.integer()):
            task.prepare(self.batched.module, {})
            try:
                batch = next(iter(task.batches(seeds, {})))
                self.batched.unused = self._unused(one, self.computing.to_device(batch))
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
            self.batched.module.train()
            self.batched.try_out(two.stacks, two.copy().buffers, stacked)
            self.batched.module.eval()
            try:
                self.batched.fitness(two.stacks, two.buffers, self.computing.to_device(part))
                self._networks(two).calibrate([0, 1])
            except UNSUPPORTED:
                self.one_by_one = True

    def _unused(self, state: NetworkState, batch: Batch) -> set[str]:
        """Parameters that the loss does not depend on: `torch.optim` leaves them alone, weight decay and all."""
        self.network.load(state.row, state.buffers)
        self.network.module.train()
        before = persistent_buffers(self.network.module)
        with self.computing.autocast(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again where they belong
            loss = checked_loss(self.rules.task.loss(self.network.module, batch))
        for name, buffer in persistent_buffers(self.network.module).items():
            if buffer is not before[name]:
                raise EngineError(
                    f"Vmap would lose what forward assigns to the buffer {name!r}. Change it in place (copy_, mul_, "
                    f"add_), or use engine='loop', or Pool(inner=Loop()) for all cores."
                )
        found = torch.autograd.grad(loss, self.network.parameters, allow_unused=True)
        return {name for name, gradient in zip(self.rules.genome.names, found, strict=True) if gradient is None}

    def train(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Work]:
        if len(starts) == 1:
            return self._train_one_by_one(starts, policies, seeds, step)
        trajectory = BatchedTrajectory(self.batched, starts, policies, seeds, step, score=self._score_chunk)
        try:
            return trajectory.outcome(step.backoff(trajectory, step.epochs))
        except UnstackableError:
            pass
        except torch.OutOfMemoryError:  # on a GPU that others use too, or with a chunk that is too large for it
            del trajectory
            half = len(starts) // 2
            halves = (slice(half), slice(half, None))
            return _joined([self.train(starts[part], policies[part], seeds[part], step) for part in halves])
        except EsgdError:
            raise
        except REFUSALS:
            if not trajectory.chunk.overflowed():  # one row's NaN, refused by network or loss, must not end the others
                raise
        return self._train_one_by_one(starts, policies, seeds, step)

    def _train_one_by_one(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Work]:
        """As `Loop` would; but the fitness is taken by the same arithmetic as that of all others."""
        found = list[tuple[Stack, list[Outcome], Work]]()
        for start, policy, stream in zip(starts, policies, seeds, strict=True):
            trajectory = SequentialTrajectory(self.network, start, policy, stream, step, score=self._score_loaded)
            found.append(trajectory.outcome(step.backoff(trajectory, step.epochs)))
        return _joined(found)

    def _score_loaded(self) -> Score:
        state = NetworkState(self.network.row(), self.network.buffers())
        (score,) = self._score_chunk(Chunk.of(self.rules.genome, [state], self.computing))
        for name, buffer in persistent_buffers(self.network.module).items():
            buffer.copy_(score.buffers[name])
        return score

    def _score_chunk(self, chunk: Chunk, cutoff: float = inf, begun: Sequence[Parts] = ()) -> list[Score]:
        if not self.one_by_one:
            return self.scorer.score(self._networks(chunk), cutoff, begun)
        found = list[Score]()
        for i, parts in enumerate(begun or [{}] * len(chunk)):
            self._load(chunk, i)
            found += self.scorer.score(self.network, cutoff, [parts])
            chunk.set_buffers(i, found[-1].buffers)
        return found

    def score(self, states: Sequence[NetworkState], cutoff: float, begun: Sequence[Parts]) -> list[Score]:
        return self._score_chunk(Chunk.of(self.rules.genome, states, self.computing), cutoff, begun) if states else []

    def calibrate(self, states: Sequence[NetworkState]) -> list[tuple[Buffers, int]]:
        if not states:
            return []
        chunk, samples = Chunk.of(self.rules.genome, states, self.computing), 0
        if self.one_by_one:
            for i in range(len(chunk)):
                self._load(chunk, i)
                samples = self.network.calibrate()
                chunk.set_buffers(i, self.network.buffers())
        else:
            samples = self._networks(chunk).calibrate(range(len(chunk)))
        return [(self._networks(chunk).buffers(i), samples) for i in range(len(chunk))]

    def forget_order(self) -> None:
        self.scorer.forget_order()

    def _networks(self, chunk: Chunk) -> ChunkNetworks:
        return ChunkNetworks(chunk, self.batched, self.chunk)

    def _load(self, chunk: Chunk, i: int) -> None:
        state = chunk.state(i)
        self.network.load(state.row, state.buffers)


def _joined(results: Sequence[tuple[Stack, list[Outcome], Work]]) -> tuple[Stack, list[Outcome], Work]:
    """Several results of training as one."""
    if len(results) == 1:
        return results[0]
    stacks, work = [stack for stack, _, _ in results], Work()
    for _, _, spent in results:
        work += spent
    rows = torch.cat([stack.rows for stack in stacks])
    buffers = {name: torch.cat([stack.buffers[name] for stack in stacks]) for name in stacks[0].buffers}
    return Stack(rows, buffers), [outcome for _, outcomes, _ in results for outcome in outcomes], work
