"""One network applied to many rows at once: loss and fitness under `torch.func.vmap`, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from esgd.engines.batched.columns import Columns
from esgd.engines.batched.optimizers import BatchedEquations, clipped
from esgd.engines.batched.trace import Traced
from esgd.engines.computing import Computing
from esgd.engines.network import LossFunction, Network
from esgd.engines.scaled_scores import fitness_by_scale
from esgd.engines.sgd import checked_loss
from esgd.errors import EngineError, EsgdError
from esgd.protocols import Batch, ScoresOutputs, Setup
from esgd.randomness import global_randomness

Stacked = Mapping[str, Tensor]
"""Tensors of shape (n, …) by name."""

UNSUPPORTED = (
    *(ArithmeticError, AssertionError, AttributeError, IndexError),
    *(NotImplementedError, RuntimeError, TypeError, ValueError),
)


class BatchedNetwork:
    """The task's functions of (network, batch), for n rows and n batches, or for n rows and one batch."""

    def __init__(self, setup: Setup, computing: Computing, network: Network) -> None:
        self.setup, self.computing, self.network, self.module = setup, computing, network, network.module
        names = {id(layer): name for name, layer in self.module.named_modules()}
        self.normalised = {names[id(layer)]: layer for layer in network.normalised}  # BatchNorm that keeps statistics
        self.unused = set[str]()  # parameters that the loss does not depend on
        loss, fitness = (Function(self.module, each, computing) for each in (setup.task.loss, setup.task.fitness))
        checked = lambda *arguments: checked_loss(loss(*arguments))  # noqa: E731
        self._slope = vmap(grad(checked), in_dims=(0, 0, 0), randomness="different")
        self._fitness = vmap(fitness, in_dims=(0, 0, None), randomness="error")
        slope = lambda *arguments: self._used_slope(*arguments)  # noqa: E731  # a method cannot be recorded
        self._gradients = Traced(slope, self.module, computing)
        self._values = Traced(self._fitness, self.module, computing)
        self._values_by_scale = dict[Sequence[float], Traced]()
        self._steps = dict[Any, Traced]()  # by the equations of an optimizer
        self._forward = vmap(loss, in_dims=(0, 0, None), randomness="error")

    def _used_slope(self, stacks: Stacked, buffers: Stacked, batch: Batch) -> list[Tensor | None]:
        """∂ loss / ∂ parameter for each row on its own batch, or None; buffers change in place (BatchNorm)."""
        slope = self._slope(stacks, buffers, batch)
        return [None if name in self.unused else slope[name] for name in stacks]

    @torch.no_grad()
    def gradients(self, stacks: Stacked, buffers: Stacked, batch: Batch, settings: Any) -> list[Tensor | None]:
        """The gradient of every parameter, in the order of the genome."""
        found: list[Tensor | None] = self._gradients((_count(stacks), repr(settings)), stacks, buffers, batch)
        return found

    @torch.no_grad()
    def steps(
        self,
        stacks: Stacked,
        buffers: Stacked,
        batches: Sequence[Batch],
        settings: Any,
        *,
        equations: BatchedEquations,
        factors: Sequence[Sequence[float]],
        limits: Tensor | None,
    ) -> None:
        """For one batch after another its gradients and the update they lead to, with the factors of that step. All is
        one function: recorded, or compiled, as a whole."""
        used = [index for index, name in enumerate(stacks) if name not in self.unused]
        columns, update = [equations.begin(each, used) for each in factors], equations.update
        if update not in self._steps:
            self._steps[update] = Traced(self._stepping(update), self.module, self.computing)
        forms = tuple((name, column.dim()) for name, column in columns[0].items())
        key = _count(stacks), repr(settings), forms, limits is None
        self._steps[update](key, stacks, buffers, equations.state, _apart(columns), limits, batches)

    def _stepping(self, update: Callable[..., None]) -> Callable[..., None]:
        def steps(
            stacks: Stacked,
            buffers: Stacked,
            state: Any,
            columns: Sequence[Columns],
            limits: Tensor | None,
            batches: Sequence[Batch],
        ) -> None:
            for each, batch in zip(columns, batches, strict=True):
                gradients = self._used_slope(stacks, buffers, batch)
                if limits is not None:
                    gradients = clipped(gradients, limits)
                update(list(stacks.values()), state, gradients, each)

        return steps

    @torch.no_grad()
    def fitness(self, stacks: Stacked, buffers: Stacked, batch: Batch) -> Float[Tensor, " n"]:
        """The fitness of each row, summed over one part."""
        values: Tensor = self._values(_count(stacks), stacks, buffers, batch)
        return values

    @torch.no_grad()
    def fitness_by_scale(
        self, stacks: Stacked, buffers: Stacked, batch: Batch, scales: Sequence[float]
    ) -> Float[Tensor, "n s"]:
        """The same with the output of each row times each of these numbers."""
        if scales not in self._values_by_scale:
            assert isinstance(self.setup.task, ScoresOutputs), "only such a task has an output layer"
            function = Function(self.module, fitness_by_scale(self.setup.task, scales), self.computing)
            values = vmap(function, in_dims=(0, 0, None), randomness="error")
            self._values_by_scale[scales] = Traced(values, self.module, self.computing)
        found: Tensor = self._values_by_scale[scales](_count(stacks), stacks, buffers, batch)
        return found

    @torch.no_grad()
    def forward(self, stacks: Stacked, buffers: Stacked, batch: Batch) -> None:
        """Only for what it does to the buffers."""
        self._forward(stacks, buffers, batch)

    def try_out(self, stacks: Stacked, buffers: Stacked, batch: Batch) -> None:
        """One gradient of a real batch, or an error that names the layer which cannot be batched.

        If tensors are left in attributes, a second gradient finds out whether the next batch would use them.
        """
        entered = self.network.enter(training=True)
        first = self._tried(stacks, buffers, batch)
        left = entered.leaked()
        if not left:
            return
        self.network.enter(training=True)
        for attributes, name, value in left:
            attributes[name] = value
        second = self._tried(stacks, buffers, batch)
        if not all(torch.allclose(first[name], second[name], equal_nan=True) for name in first):
            raise EngineError(
                f"Vmap would mix up what forward keeps in the attribute {left[0][1]!r} from one batch to the next: it "
                f"runs many networks at once, and they have one attribute. Keep it in a buffer that is changed in "
                f"place (copy_), or use engine='loop', or Pool(inner=Loop()) for all cores."
            )

    @torch.no_grad()
    def try_out_fitness(self, stacks: Stacked, buffers: Stacked, part: Batch) -> None:
        """The fitness once, not compiled: these rows are fewer than any that will be scored."""
        self._fitness(stacks, buffers, part)

    def _tried(self, stacks: Stacked, buffers: Stacked, batch: Batch) -> dict[str, Tensor]:
        own = {name: stack.clone() for name, stack in buffers.items()}
        with EnteredLayers(self.module) as entered, global_randomness(0):
            try:
                slope: dict[str, Tensor] = self._slope(stacks, own, batch)
            except EsgdError:
                raise
            except UNSUPPORTED as error:
                raise EngineError(
                    f"Vmap cannot run {entered.where()} for many networks at once: {_first_line(error)} Use "
                    f"engine='loop', or Pool(inner=Loop()) for all cores; they can do whatever PyTorch can."
                ) from error
        return slope


class _Applied(nn.Module):
    """A function of (network, batch) as a module: `functional_call` puts rows into modules only."""

    def __init__(self, network: nn.Module, function: LossFunction) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, batch: Batch) -> Tensor:
        return self.function(self.network, batch)


class Function:
    """The same as a pure function of one row, its buffers and a batch."""

    def __init__(self, network: nn.Module, function: LossFunction, computing: Computing) -> None:
        self._applied, self._computing = _Applied(network, function), computing

    def __call__(self, row: Stacked, buffers: Stacked, batch: Batch) -> Tensor:
        tensors = {f"network.{name}": tensor for name, tensor in (*row.items(), *buffers.items())}
        with self._computing.autocast():
            value: Tensor = functional_call(self._applied, tensors, (batch,))
        return value


class EnteredLayers:
    """Remembers which layers have been entered and not left, to say where an error arose."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._inside, self._hooks = module, list[tuple[str, nn.Module]](), list[Any]()

    def __enter__(self) -> EnteredLayers:
        for name, layer in self._module.named_modules():
            enter = lambda *_, name=name, layer=layer: self._inside.append((name, layer))  # noqa: E731
            self._hooks.append(layer.register_forward_pre_hook(enter))
            self._hooks.append(layer.register_forward_hook(lambda *_: self._inside.pop() and None))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def where(self) -> str:
        """The innermost layer that was entered and not left, or the loss."""
        if not self._inside:
            return "the loss"
        name, layer = self._inside[-1]
        return f"layer {name!r} ({type(layer).__name__})" if name else f"{type(layer).__name__}.forward"


def _apart(columns: Sequence[Columns]) -> Sequence[Columns]:
    """The columns of several steps as tensors of their own: a compiled function is compiled again if two arguments that
    were one tensor are two, as when a schedule begins to fall."""
    if len(columns) == 1:
        return columns
    stacked = {name: torch.stack([each[name] for each in columns]).unbind() for name in columns[0]}
    return [{name: values[number] for name, values in stacked.items()} for number in range(len(columns))]


def _count(stacks: Stacked) -> int:
    return len(next(iter(stacks.values())))


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
