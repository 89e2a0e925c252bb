"""The kernel that trains and scores many networks in one batched computation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from esgd.engines.batched.batches import UnstackableError, stack
from esgd.engines.batched.chunk import Chunk, ChunkNetworks
from esgd.engines.batched.network import UNSUPPORTED, BatchedNetwork
from esgd.engines.batched.sgd import BatchedTrajectory
from esgd.engines.computing import Computing
from esgd.engines.contract import NetworkState, Outcome, Parts, Score, Stack
from esgd.engines.fitness import REFUSALS, Scorer
from esgd.engines.network import Network
from esgd.engines.scaled_scores import score_scaled
from esgd.engines.sgd import SequentialTrajectory, checked_loss
from esgd.errors import EngineError, EsgdError
from esgd.genome import Buffers, persistent_buffers
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.protocols import Batch, Settings, Setup, Step
from esgd.randomness import Seeds, global_randomness

WAVE = 4
"""Births are scored in waves of so many chunks: those that can be no elite drop out, and the others fill the chunks."""

WAVE_BYTES = 1 << 26  # of rows; larger networks are scored chunk by chunk


class BatchedKernel:
    """Many networks at once. One alone, or one that cannot be batched after all, is trained as `Loop` would."""

    def __init__(self, setup: Setup, computing: Computing, chunk: int) -> None:
        self.setup, self.computing, self.chunk = setup, computing, chunk
        wave = WAVE * chunk * setup.genome.size * setup.genome.dtype.itemsize
        self.rows_at_once = WAVE * chunk if wave <= WAVE_BYTES else chunk
        self.network = Network(setup, replace(computing, compile=False))  # compiled are the batched functions
        self.batched, self.scorer = BatchedNetwork(setup, computing, self.network), Scorer(setup.task)
        self.one_by_one = False  # for a fitness that cannot be batched
        self._unused_with = {_key({}): set[str]()}  # by a policy's settings, which may freeze layers
        _check_layers(self.network)
        self._try_out()

    def _try_out(self) -> None:
        """One gradient and one fitness of two rows, so that what cannot be batched is refused before anything else."""
        genome, task = self.setup.genome, self.setup.task
        one = NetworkState(*genome.read(genome.template))
        two, seeds = Chunk.of(genome, [one, one], self.computing), self.setup.seeds.at("try out")
        with global_randomness(seeds.integer()):
            self.network.prepare({})
            try:
                batch = next(iter(task.batches(seeds, {})))
                self._unused_with[_key({})] = self.batched.unused = self._unused(one, batch)
                part = next(iter(task.parts()))[1]
                self._score_plainly(part)
            except EsgdError:
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
            self.batched.try_out(two.stacks, two.buffers, stacked)
            self.network.enter(training=False)
            try:
                self.batched.try_out_fitness(two.stacks, two.buffers, self.network.lent(self.computing.to_device(part)))
                self._networks(two).calibrate([0, 1])
            except UNSUPPORTED:
                self.one_by_one = True

    def _unused(self, state: NetworkState, batch: Batch) -> set[str]:
        """Parameters that the loss does not depend on: `torch.optim` leaves them alone, weight decay and all."""
        self.network.load(state.row, state.buffers)
        self.network.enter(training=True)
        before = persistent_buffers(self.network.module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again where they belong
            loss = checked_loss(self.network.judge(self.setup.task.loss, batch))
        self.network.check_layout()
        for name, buffer in persistent_buffers(self.network.module).items():
            if buffer is not before[name]:
                raise EngineError(
                    f"Vmap would lose what forward assigns to the buffer {name!r}. Change it in place (copy_, mul_, "
                    f"add_), or use engine='loop', or Pool(inner=Loop()) for all cores."
                )
        named = zip(self.setup.genome.names, self.network.parameters, strict=True)
        trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        found = dict(zip(trained, torch.autograd.grad(loss, list(trained.values()), allow_unused=True), strict=True))
        return {name for name in self.setup.genome.names if found.get(name) is None}

    def _unused_under(self, settings: Settings) -> set[str]:
        """The same for these settings, found once with the first batch of an epoch."""
        genome, seeds, key = self.setup.genome, self.setup.seeds.at("try out"), _key(settings)
        if key not in self._unused_with:
            with global_randomness(seeds.integer()):
                self.network.prepare(settings)
                batch = next(iter(self.setup.task.batches(seeds, settings)))
                self._unused_with[key] = self._unused(NetworkState(*genome.read(genome.template)), batch)
        return self._unused_with[key]

    @torch.no_grad()
    def _score_plainly(self, part: Batch) -> None:
        """Whether the network changes itself or its input when it is scored: that is seen best without vmap."""
        self.network.enter(training=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.network.judge(self.setup.task.fitness, part)
        self.network.check_layout()

    def train(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Ledger]:
        if len(starts) == 1:
            return self._train_one_by_one(starts, policies, seeds, step)
        self.batched.unused = self._unused_under(policies[0].settings)
        trajectory, short = None, False
        try:
            trajectory = BatchedTrajectory(self.batched, starts, policies, seeds, step, score=self._score_scaled)
            return trajectory.outcome(step.backoff(trajectory, step.epochs))
        except UnstackableError:
            pass
        except torch.OutOfMemoryError:  # on a GPU that others use too, or with a chunk that is too large for it
            short = True
        except EsgdError:
            raise
        except REFUSALS:  # one row's NaN, refused by network or loss, must not end the others
            if trajectory is None or not trajectory.chunk.overflowed():
                raise
        if not short:
            return self._train_one_by_one(starts, policies, seeds, step)
        del trajectory  # and here, outside of `except`, the error does not keep it alive either
        half = len(starts) // 2
        halves = (slice(half), slice(half, None))
        return _joined([self.train(starts[part], policies[part], seeds[part], step) for part in halves])

    def _train_one_by_one(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Ledger]:
        """As `Loop` would; but the fitness is taken by the same arithmetic as that of all others."""
        found = list[tuple[Stack, list[Outcome], Ledger]]()
        for start, policy, stream in zip(starts, policies, seeds, strict=True):
            trajectory = SequentialTrajectory(self.network, start, policy, stream, step, score=self._score_loaded)
            found.append(trajectory.outcome(step.backoff(trajectory, step.epochs)))
        return _joined(found)

    def _score_loaded(self, scales: Sequence[float]) -> list[Score]:
        state = NetworkState(self.network.row(), self.network.buffers())
        (scores,) = self._score_scaled(Chunk.of(self.setup.genome, [state], self.computing), scales)
        for name, buffer in persistent_buffers(self.network.module).items():
            buffer.copy_(scores[0].buffers[name])
        return scores

    def _score_scaled(self, chunk: Chunk, scales: Sequence[float]) -> list[list[Score]]:
        """The score of each row, and those with its output times each of these numbers, if that can be."""
        if not self.one_by_one:
            return score_scaled(self.scorer, self._networks(chunk), scales)
        found = list[list[Score]]()
        for i in range(len(chunk)):
            self._load(chunk, i)
            found += score_scaled(self.scorer, self.network, scales)
            chunk.set_buffers(i, found[-1][0].buffers)
        return found

    def score(self, states: Sequence[NetworkState], cutoff: float, begun: Sequence[Parts]) -> list[Score]:
        if not states:
            return []
        self.network.unprepare()
        chunk = Chunk.of(self.setup.genome, states, self.computing)
        if not self.one_by_one:
            return self.scorer.score(self._networks(chunk), cutoff, begun)
        found = list[Score]()
        for i, parts in enumerate(begun):
            self._load(chunk, i)
            found += self.scorer.score(self.network, cutoff, [parts])
        return found

    def calibrate(self, states: Sequence[NetworkState]) -> list[tuple[Buffers, int]]:
        if not states:
            return []
        self.network.unprepare()
        chunk, samples = Chunk.of(self.setup.genome, states, self.computing), 0
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


def _key(settings: Settings) -> str:
    return repr(sorted(settings.items()))


def _check_layers(network: Network) -> None:
    """Refuse by name what is known not to be batched."""
    if network.sparse:
        raise EngineError(
            "Vmap cannot train an embedding with sparse=True: its gradients cannot be stacked. Use engine='loop', "
            "or Pool(inner=Loop()) for all cores."
        )
    for name, layer in network.module.named_modules():
        if type(layer).__module__.startswith("torch._dynamo"):
            raise EngineError(
                f"Vmap cannot batch {f'layer {name!r}' if name else 'the network'}, which is compiled for one network "
                f"at a time. Return it without torch.compile from make_model and use Vmap(compile=True), which "
                f"compiles the batched step; or use engine='loop'."
            )


def _joined(results: Sequence[tuple[Stack, list[Outcome], Ledger]]) -> tuple[Stack, list[Outcome], Ledger]:
    """Several results of training as one."""
    if len(results) == 1:
        return results[0]
    stacks, work = [stack for stack, _, _ in results], Ledger()
    for _, _, spent in results:
        work += spent
    rows = torch.cat([stack.rows for stack in stacks])
    buffers = {name: torch.cat([stack.buffers[name] for stack in stacks]) for name in stacks[0].buffers}
    return Stack(rows, buffers), [outcome for _, outcomes, _ in results for outcome in outcomes], work
