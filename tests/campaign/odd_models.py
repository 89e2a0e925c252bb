"""Odd networks, losses and fitnesses: each is trained with the same result by every engine, or refused by name.

`ODD` has them by name. A value says how its task is made, what is expected of every engine, and what of `Vmap`, which
may refuse by name what it cannot batch.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

import esgd
from esgd.protocols import Settings
from tests.small import CLASSES, INPUTS, Data, classify, mlp, random_data

WORKS = "works"


@dataclass(frozen=True)
class Odd:
    """A task, and what is expected: `WORKS`, or a pattern of the sentence that refuses it.

    `vmap` is a pattern of the sentence in which `Vmap` names what it cannot batch, where it refuses what others train.
    `near` says whether its result is that of `Loop` up to rounding: not with random numbers, not with a coarse dtype.
    """

    task: Callable[[], Any]
    expected: str = WORKS
    vmap: str = ""
    near: bool = True

    @property
    def expected_of_vmap(self) -> str:
        return self.vmap or self.expected


def net(*layers: nn.Module) -> nn.Module:
    """Layers of INPUTS features in the middle of a classifier."""
    return nn.Sequential(nn.Linear(INPUTS, INPUTS), *layers, nn.ReLU(), nn.Linear(INPUTS, CLASSES))


def layer(*kinds: Callable[[], nn.Module]) -> Callable[[], esgd.Supervised]:
    """The task with such layers in its network."""
    return lambda: classify(lambda: net(*(kind() for kind in kinds)))


def tokens(make_model: Callable[[], nn.Module]) -> Callable[[], esgd.Supervised]:
    """The task whose inputs are six tokens of a vocabulary of ten."""

    def drawn(samples: int, seed: int) -> Data:
        x, y = random_data(samples, seed=seed)
        return (x.abs() * 3).long().clamp(max=9), y

    return lambda: classify(make_model, train=drawn(48, 0), fitness=drawn(70, 1))


def losing(loss: Callable[[Tensor, Tensor], Any], make_model: Callable[[], nn.Module] = mlp, **changes: Any) -> Any:
    """The task with another loss."""
    given = {"train": random_data(48), "fitness": random_data(70, seed=1), "batch_size": 16, **changes}
    return lambda: esgd.Supervised(make_model, loss, **given)


class Layer(nn.Module):
    """A layer that scales its input by a trained weight; the odd ones differ in how."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(INPUTS))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


# Parameters that lie oddly


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, INPUTS).t())
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(x @ self.weight))


class WideTransposed(nn.Module):
    """Large enough to travel in shared memory, unlike the data."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3000, INPUTS).t() / 10)
        self.out = nn.Linear(3000, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(x @ self.weight))


class Gapped(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(2 * INPUTS)[::2])


class Expanded(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1).expand(INPUTS))


class Neighbours(Layer):
    """Two parameters side by side in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.rand(2, INPUTS)
        self.scale, self.shift = nn.Parameter(both[0]), nn.Parameter(both[1])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


class Overlapping(Neighbours):
    """Two parameters of which torch would change one with the other."""

    def __init__(self) -> None:
        super().__init__()
        self.shift.data = self.scale.data


class AliasedBuffers(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("first", self.seen[:1])

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.add_(1.0)
        return x * self.scale + self.first


def channels_last() -> nn.Module:
    convolution = nn.Conv2d(1, 4, (2, 2)).to(memory_format=torch.channels_last)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), convolution, nn.Flatten(), nn.Linear(8, CLASSES))


class ZeroDimensional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class Empty(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.nothing.sum()


class Dictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.named = nn.ParameterDict({"scale": torch.ones(INPUTS), "shift": torch.zeros(INPUTS)})
        self.listed = nn.ParameterList([torch.ones(INPUTS)])
        self.layers = nn.ModuleList(
            [nn.Linear(INPUTS, INPUTS), nn.ModuleDict({"inner": nn.Linear(INPUTS, INPUTS)})["inner"]]
        )

    def forward(self, x: Tensor) -> Tensor:
        for each in self.layers:
            x = torch.tanh(each(x))
        return x * self.named["scale"] * self.listed[0] + self.named["shift"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, INPUTS)
        self.second = nn.Linear(INPUTS, INPUTS)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Unused(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(INPUTS, INPUTS)


def frozen() -> nn.Module:
    network = mlp()
    network[0].requires_grad_(False)
    return network


def frozen_batchnorm() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7).requires_grad_(False), nn.Linear(7, CLASSES))


def frozen_half() -> nn.Module:
    class Cast(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.half()).float()

    return nn.Sequential(Cast(INPUTS, 7).half().requires_grad_(False), nn.Linear(7, CLASSES))


class FrozenInteger(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2), requires_grad=False)
        self.mask = nn.Parameter(torch.arange(INPUTS) > 1, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale * self.factor * self.mask


class Interleaved(Neighbours):
    """Two parameters whose elements take turns in memory."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.rand(INPUTS, 2)
        self.scale, self.shift = nn.Parameter(both[:, 0]), nn.Parameter(both[:, 1])


# Buffers


class ExpandedBuffer(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.zeros(1).expand(INPUTS))


class Counting(Layer):
    """Integer and boolean buffers that change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("flags", torch.zeros(3, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.batches.add_(1)
            self.flags.logical_not_()
        return x * self.scale / (1 + self.batches) + self.flags.sum()


class Complex(Layer):
    """A complex buffer, and a spectrum on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.polar(torch.ones(INPUTS), torch.rand(INPUTS)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x * self.phase).real * self.scale


class Constant(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.rand(INPUTS), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.offset


class ChangingConstant(Constant):
    """A buffer that is not saved, and that changes."""

    def forward(self, x: Tensor) -> Tensor:
        self.offset.mul_(0.9)
        return super().forward(x)


class Caching(Layer):
    """A table that is made when it is first needed."""

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "table"):
            self.register_buffer("table", torch.arange(float(INPUTS)), persistent=False)
        return x * self.scale + self.table


class Reassigning(Layer):
    """A buffer that forward assigns anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(INPUTS))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.detach().mean(dim=0)
        return x * self.scale - self.average


class Growing(Layer):
    """A buffer that becomes longer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.memory = torch.cat([self.memory, torch.ones(1)])
        return x * self.scale + self.memory.mean()


# State that is neither a parameter nor a buffer


class Counter(Layer):
    """A Python number that changes what forward computes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.scale / self.calls


class LateCounter(Counter):
    """One that changes it after a while."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x * self.scale * (2.0 if self.calls > 1 else 1.0)


class Listing(Layer):
    """A list and a dict that grow."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.sums = list[int](), {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        self.sums["calls"] += 1
        return x * self.scale / (len(self.seen) + self.sums["calls"])


class PlainTensor(Layer):
    """A tensor that is no buffer and is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(1.0)
        return x * self.scale / self.total


class Stateful(Layer):
    """What one batch leaves to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        before = torch.zeros(INPUTS) if self.state is None else self.state
        self.state = (0.5 * before + x.mean(dim=0)).detach()
        return x * self.scale + before


class Remembering(Layer):
    """What forward leaves for the loss, or for whoever wants to look: written before it is read."""

    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * self.scale
        return self.last


class KnowingItsMode(Layer):
    """A layer that is told its mode and writes it down."""

    factor = 1.0

    def train(self, mode: bool = True) -> Self:
        self.factor = 2.0 if mode else 3.0
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale * self.factor


class Teacher(Layer):
    """A network that hides in a list, so that its parameters are nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(INPUTS, INPUTS).requires_grad_(False)]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.hidden[0](x)


class OwnGenerator(Layer):
    """Noise from a generator of the layer's own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + (torch.randn(INPUTS, generator=self.generator) if self.training else 0.0)


class NoisyEvaluation(OwnGenerator):
    """Noise in the fitness too."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + torch.randn(INPUTS, generator=self.generator)


class SharedGenerators(nn.Module):
    """Two layers with one generator, and more of them in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = OwnGenerator(), OwnGenerator()
        self.second.generator = self.first.generator
        self.others = [torch.Generator(), torch.Generator().manual_seed(3)]

    def forward(self, x: Tensor) -> Tensor:
        noise = sum(torch.randn(INPUTS, generator=each) for each in self.others)
        return self.second(self.first(x)) + (noise if self.training else 0.0)


class Locked(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class OtherGenerators(Layer):
    """Generators of NumPy and of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.numpy, self.python = np.random.default_rng(1), random.Random(1)
        self.legacy = np.random.RandomState(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x * self.numpy.random() + self.python.random() + self.legacy.rand()
        return x * self.scale


class GlobalGenerators(Layer):
    """Numbers of the three global generators."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x * np.random.rand() + random.random() + torch.randn(INPUTS)  # noqa: NPY002
        return x * self.scale


# What forward does to the network


class Clamping(Layer):
    """A weight that forward keeps in its bounds."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.clamp_(0.9, 1.1)
        return x * self.scale


class Toggling(Layer):
    """A layer that freezes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.scale.requires_grad_(self.calls % 2 == 0)
        return x * self.scale


class Late(Layer):
    """A parameter that has no gradient in the first step of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.scale if self.calls > 1 else x


class Adding(Layer):
    """A layer that is built when its first batch comes."""

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(INPUTS, INPUTS)
        return self.late(x) * self.scale


class AddingBuffer(Layer):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.register_buffer("late", torch.ones(INPUTS))
        return self.late * x * self.scale


class AddingInTraining(Adding):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else x * self.scale


class Reshaping(Layer):
    """A parameter that becomes another one."""

    def forward(self, x: Tensor) -> Tensor:
        self.scale.data = torch.ones(1)
        return x * self.scale


class Scribbling(nn.Module):
    """A layer that writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5).add_(1.0)


def scribbling() -> nn.Module:
    return nn.Sequential(Scribbling(), mlp())


class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


# Gradients


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


class OwnFunction(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(x * self.scale)


class Checkpointed(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda y: torch.tanh(y * self.scale), x, use_reentrant=False)


class Differentiating(Layer):
    """A gradient in forward."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            slope = torch.autograd.grad((y**3).sum(), y)[0]
        return x * self.scale + slope


class Hooked(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(lambda module, given, out: out + 1)
        self.register_forward_pre_hook(lambda module, given: (given[0] * 2,))


class BackwardHooked(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_full_backward_hook(lambda module, given, out: (given[0] * 0.5,))


class GradientHooked(Layer):
    """A gradient that is masked, as in pruning."""

    def __init__(self) -> None:
        super().__init__()
        self.scale.register_hook(lambda gradient: gradient * (torch.arange(INPUTS) > 1))


class ComplexWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(INPUTS, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).abs()


class Cubed(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight**3


def parametrized() -> nn.Module:
    linear = nn.Linear(INPUTS, INPUTS)
    nn.utils.parametrize.register_parametrization(linear, "weight", Cubed())
    return linear


def pruned() -> nn.Module:
    linear = nn.Linear(INPUTS, INPUTS)
    prune.l1_unstructured(linear, "weight", amount=0.5)
    return linear


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells, self.out = kind(1, 5, batch_first=True), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x[..., None])[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.into, self.out = nn.Linear(1, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inside(self.into(x[..., None])).mean(dim=1))


def embedded(**options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Embedding(10, 4, **options), nn.Flatten(), nn.Linear(24, CLASSES))


def images(*layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, 2),
        *(each() for each in layers),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


# Networks that are none


def raising() -> nn.Module:
    raise ZeroDivisionError("no network today")


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return mlp()


def partly_on_meta() -> nn.Module:
    return net(nn.Linear(INPUTS, INPUTS, device="meta").requires_grad_(False))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(mlp())


def compiled() -> nn.Module:
    return torch.compile(mlp(), backend="eager")


def compiled_in_place() -> nn.Module:
    network = mlp()
    network[0].compile(backend="eager")
    return network


def normalised(track: bool) -> nn.Module:
    return net(nn.BatchNorm1d(INPUTS, track_running_stats=track))


def same_network() -> esgd.Supervised:
    network = mlp()
    return classify(lambda: network)


class Changing:
    """Networks that differ from call to call."""

    def __init__(self, *makers: Callable[[], nn.Module]) -> None:
        self.makers, self.calls = makers, 0

    def __call__(self) -> nn.Module:
        self.calls += 1
        return self.makers[self.calls % len(self.makers)]()


class Twice(esgd.Supervised):
    """A task whose steps take every sample through the network twice."""

    def repeats(self, settings: Settings) -> int:
        return 2

    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        return (super().loss(module, batch) + super().loss(module, batch)) / 2


def twice() -> Twice:
    return Twice(mlp, F.cross_entropy, train=random_data(48), fitness=random_data(70, seed=1), batch_size=16)


def data(change: Callable[[Tensor, Tensor], Data], samples: int = 48) -> dict[str, Any]:
    """Training and fitness data, changed."""
    return {"train": change(*random_data(samples)), "fitness": change(*random_data(samples + 22, seed=1))}


def cast(make_model: Callable[[], nn.Module], dtype: torch.dtype) -> Callable[[], esgd.Supervised]:
    return lambda: classify(lambda: make_model().to(dtype), **data(lambda x, y: (x.to(dtype), y)))


def same_batches() -> Callable[[], Any]:
    x, y = random_data(48)
    batches = [(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 32)]
    return lambda: batches


def image_task(*layers: Callable[[], nn.Module]) -> Callable[[], esgd.Supervised]:
    return lambda: classify(images(*layers))


LOST = "Vmap would lose what forward assigns to the buffer"
UNBATCHED = r"Vmap cannot run layer '1.*' \({}\) for many networks at once"
LAYOUT = "forward has changed the network: {} was .* and is .*Build every layer in __init__"
NO_LOSS = r"the training loss is .* of shape \(.*\), with requires_grad=.*Check that the loss uses the network's output"

PARAMETERS = {
    "transposed": Odd(lambda: classify(Transposed)),
    "transposed and large": Odd(lambda: classify(WideTransposed)),
    "channels last": Odd(lambda: classify(channels_last)),
    "with gaps": Odd(layer(Gapped)),
    "expanded": Odd(layer(Expanded)),
    "neighbours in memory": Odd(layer(Neighbours)),
    "interleaved in memory": Odd(layer(Interleaved)),
    "overlapping": Odd(layer(Overlapping), "parameter '1.shift' lies in the memory of parameter '1.scale'.*tie them"),
    "without dimensions": Odd(layer(ZeroDimensional)),
    "without elements": Odd(layer(Empty)),
    "in containers": Odd(layer(Dictionary)),
    "tied": Odd(layer(Tied)),
    "unused": Odd(layer(Unused)),
    "all but one frozen": Odd(lambda: classify(frozen)),
    "frozen batchnorm": Odd(lambda: classify(frozen_batchnorm)),
    "frozen in half precision": Odd(lambda: classify(frozen_half)),
    "frozen integers": Odd(layer(FrozenInteger)),
    "double": Odd(cast(mlp, torch.float64)),
    "half": Odd(cast(mlp, torch.float16), near=False),
    "bfloat16": Odd(cast(mlp, torch.bfloat16), near=False),
    "complex": Odd(layer(ComplexWeight), "'1.weight' is torch.complex64.*real-valued vector.*view_as_complex"),
    "of two dtypes": Odd(
        layer(lambda: nn.Linear(INPUTS, INPUTS).half()), "'1.weight' is torch.float16 while '0.weight'"
    ),
    "integer": Odd(lambda: classify(lambda: nn.Linear(INPUTS, 3, dtype=torch.int64)), "make_model raised RuntimeError"),
    "lazy": Odd(layer(lambda: nn.LazyLinear(INPUTS)), "parameter '1.weight' has no shape yet.*Run one batch"),
    "lazy, with statistics": Odd(layer(nn.LazyBatchNorm1d), "'1.weight' has no shape yet"),
    "on the meta device": Odd(lambda: classify(on_meta), "'0.weight' is on the meta device.*to_empty"),
    "frozen on the meta device": Odd(lambda: classify(partly_on_meta), "'1.weight' is on the meta device"),
    "none": Odd(lambda: classify(nn.Flatten), "Flatten has no trainable parameters.*Unfreeze"),
    "all frozen": Odd(lambda: classify(lambda: mlp().requires_grad_(False)), "no trainable parameters"),
}

BUFFERS = {
    "integer and boolean": Odd(layer(Counting)),
    "complex": Odd(layer(Complex)),
    "constant": Odd(layer(Constant)),
    "constant that changes": Odd(layer(ChangingConstant), vmap=UNBATCHED.format("ChangingConstant")),
    "made when needed": Odd(layer(Caching)),
    "assigned anew": Odd(layer(Reassigning), vmap=LOST),
    "growing": Odd(layer(Growing), LAYOUT.format("buffer '1.memory'")),
    "aliased": Odd(layer(AliasedBuffers), "buffer '1.first' lies in the memory of buffer '1.seen'"),
    "expanded": Odd(layer(ExpandedBuffer), "buffer '1.offset' is expanded.*clone"),
    "batchnorm": Odd(layer(lambda: nn.BatchNorm1d(INPUTS))),
    "batchnorm without momentum": Odd(
        layer(lambda: nn.BatchNorm1d(INPUTS, momentum=None)), vmap=UNBATCHED.format("BatchNorm1d")
    ),
    "batchnorm without statistics": Odd(layer(lambda: nn.BatchNorm1d(INPUTS, track_running_stats=False))),
    "batchnorm of images": Odd(image_task(lambda: nn.BatchNorm2d(4))),
    "instance norm": Odd(image_task(lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True))),
    "group norm": Odd(image_task(lambda: nn.GroupNorm(2, 4))),
}

ATTRIBUTES = {
    "counter": Odd(layer(Counter)),
    "counter with a threshold": Odd(layer(LateCounter)),
    "list and dict": Odd(layer(Listing)),
    "tensor": Odd(layer(PlainTensor), vmap=UNBATCHED.format("PlainTensor")),
    "state from batch to batch": Odd(layer(Stateful), vmap="Vmap would mix up .* the attribute 'state'"),
    "written before it is read": Odd(layer(Remembering)),
    "mode": Odd(layer(KnowingItsMode)),
    "hidden network": Odd(layer(Teacher)),
    "generator": Odd(layer(OwnGenerator), near=False),
    "generator in evaluation": Odd(layer(NoisyEvaluation), near=False),
    "generators that are shared": Odd(layer(SharedGenerators), near=False),
    "generators of Python and NumPy": Odd(layer(OtherGenerators), near=False),
    "none, but global generators": Odd(layer(GlobalGenerators), near=False),
    "lock": Odd(layer(Locked), "Sequential cannot be copied: cannot pickle"),
}

FORWARD = {
    "clamps its weights": Odd(layer(Clamping)),
    "freezes itself": Odd(layer(Toggling), vmap=UNBATCHED.format("Toggling")),
    "uses a parameter later": Odd(layer(Late), vmap=WORKS, near=False),
    "adds a layer": Odd(layer(Adding), LAYOUT.format("parameter '1.late.weight'")),
    "adds a layer in training": Odd(layer(AddingInTraining), LAYOUT.format("parameter '1.late.weight'")),
    "adds a buffer": Odd(layer(AddingBuffer), LAYOUT.format("buffer '1.late'")),
    "reshapes a parameter": Odd(layer(Reshaping), LAYOUT.format("parameter '1.scale'")),
    "writes into its input": Odd(lambda: classify(scribbling)),
    "writes into the same batches": Odd(lambda: classify(scribbling, train=same_batches())),
    "has a function of its own": Odd(layer(OwnFunction), vmap=UNBATCHED.format("OwnFunction")),
    "is checkpointed": Odd(layer(Checkpointed), vmap=UNBATCHED.format("Checkpointed")),
    "differentiates": Odd(layer(Differentiating), vmap=UNBATCHED.format("Differentiating")),
    "has hooks": Odd(layer(Hooked)),
    "has a backward hook": Odd(layer(BackwardHooked), vmap=UNBATCHED.format("BackwardHooked")),
    "has a hook on a gradient": Odd(layer(GradientHooked), "parameter '1.scale' has a hook on its gradient"),
    "detaches": Odd(lambda: classify(lambda: nn.Sequential(mlp(), Detached())), NO_LOSS),
    "raises": Odd(lambda: classify(lambda: nn.Linear(INPUTS + 1, CLASSES)), "cannot be scored: RuntimeError"),
}

LAYERS = {
    "weight norm": Odd(layer(lambda: parametrizations.weight_norm(nn.Linear(INPUTS, INPUTS)))),
    "spectral norm": Odd(
        layer(lambda: parametrizations.spectral_norm(nn.Linear(INPUTS, INPUTS))), vmap=UNBATCHED.format("_SpectralNorm")
    ),
    "orthogonal": Odd(layer(lambda: parametrizations.orthogonal(nn.Linear(INPUTS, INPUTS)))),
    "parametrized": Odd(layer(parametrized)),
    "pruned": Odd(layer(pruned), "Sequential cannot be copied.*torch.nn.utils.prune.*mask"),
    "dropout": Odd(layer(lambda: nn.Dropout(0.3)), near=False),
    "alpha dropout": Odd(layer(lambda: nn.AlphaDropout(0.3)), near=False),
    "LSTM": Odd(lambda: classify(lambda: Recurrent(nn.LSTM))),
    "GRU": Odd(lambda: classify(lambda: Recurrent(nn.GRU))),
    "transformer": Odd(lambda: classify(Attending)),
    "embedding": Odd(tokens(embedded())),
    "embedding with padding": Odd(tokens(embedded(padding_idx=0))),
    "embedding with a largest norm": Odd(tokens(embedded(max_norm=1.0))),
    "sparse embedding": Odd(tokens(embedded(sparse=True)), vmap="Vmap cannot train an embedding with sparse=True"),
    "embedding bag": Odd(tokens(lambda: nn.Sequential(nn.EmbeddingBag(10, 4), nn.Linear(4, CLASSES)))),
    "data parallel": Odd(lambda: classify(lambda: nn.DataParallel(mlp()))),
    "scripted": Odd(lambda: classify(scripted), "is a torch.jit.ScriptModule.*Return the nn.Module"),
    "compiled": Odd(lambda: classify(compiled), vmap=r"Vmap cannot batch the network.*Vmap\(compile=True\)"),
    "compiled in place": Odd(lambda: classify(compiled_in_place)),
}

LOSSES = {
    "detached": Odd(losing(lambda output, target: F.cross_entropy(output.detach(), target)), NO_LOSS),
    "without the network": Odd(losing(lambda output, target: torch.tensor(1.0)), NO_LOSS),
    "integer": Odd(losing(lambda output, target: output.sum().long()), NO_LOSS),
    "complex": Odd(losing(lambda output, target: F.cross_entropy(output, target) * (1 + 1j)), "the loss is complex"),
    "number": Odd(losing(lambda output, target: 1.0), "the loss returned float 1.0"),
    "of another shape": Odd(losing(lambda output, target: output.sum(dim=0)), r"the loss returned .* of shape \(3,\)"),
    "NaN": Odd(losing(lambda output, target: F.cross_entropy(output, target) * torch.nan), "all \\d .* NaN or inf"),
    "per sample": Odd(losing(lambda output, target: F.cross_entropy(output, target, reduction="none"))),
    "fitness of inf": Odd(lambda: classify(fitness=lambda network: torch.inf), "all \\d individuals .* NaN or inf"),
    "fitness that is complex": Odd(lambda: classify(fitness=lambda network: 1j), "your fitness returned 1j"),
    "fitness of the weights": Odd(
        lambda: classify(fitness=lambda network: sum(p.square().sum() for p in network.parameters()))
    ),
}

TASKS = {
    "plain": Odd(classify),
    "passes batches twice": Odd(twice),
    "transposed data": Odd(
        lambda: classify(**data(lambda x, y: (x.t().contiguous().t(), y.repeat_interleave(2)[::2])))
    ),
    "data from the second sample on": Odd(lambda: classify(**data(lambda x, y: (x[1:], y[1:])))),
    "large data from the second sample on": Odd(
        lambda: classify(**data(lambda x, y: (x[1:], y[1:]), samples=5000), batch_size=1000)
    ),
    "make_model raises": Odd(lambda: classify(raising), "make_model raised ZeroDivisionError: no network today"),
    "make_model makes no network": Odd(lambda: classify(lambda: 3), "make_model returned int, not an nn.Module"),
    "make_model makes one network": Odd(same_network, "make_model returned the same network twice"),
    "make_model changes the layers": Odd(
        lambda: classify(Changing(mlp, lambda: nn.Linear(INPUTS, CLASSES))), "no trainable parameter .*same layers"
    ),
    "make_model changes the buffers": Odd(
        lambda: classify(Changing(*(partial(normalised, track) for track in (True, False)))), "buffer '1.running_mean'"
    ),
}

ODD: dict[str, Odd] = {
    f"{kind}: {name}": odd
    for kind, table in {
        "parameters": PARAMETERS,
        "buffers": BUFFERS,
        "attributes": ATTRIBUTES,
        "forward": FORWARD,
        "layers": LAYERS,
        "losses": LOSSES,
        "tasks": TASKS,
    }.items()
    for name, odd in table.items()
}
