"""W1 to W4 in JAX, written by hand: parameters, and the loss of a batch in training mode.

A network is `create(rng) -> (parameters, statistics)` and `loss(parameters, statistics, x, y) -> (loss, statistics)`,
where statistics are BatchNorm's running means and variances; an MLP has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax import numpy as jnp

Tree = Any
BLOCKS = ((16, 16, 1), (16, 32, 2), (32, 64, 2))


@dataclass(frozen=True)
class Network:
    create: Callable[[np.random.Generator], tuple[Tree, Tree]]
    loss: Callable[[Tree, Tree, jax.Array, jax.Array], tuple[jax.Array, Tree]]


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def gaussian(rng: np.random.Generator, *shape: int, fan_in: int) -> np.ndarray:
    return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def mlp(*widths: int) -> Network:
    def create(rng: np.random.Generator) -> tuple[Tree, Tree]:
        return [(gaussian(rng, i, o, fan_in=i), np.zeros(o, np.float32)) for i, o in pairwise(widths)], ()

    def loss(layers: Tree, statistics: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Tree]:
        for weight, bias in layers[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        weight, bias = layers[-1]
        return cross_entropy(x @ weight + bias, y), statistics

    return Network(create, loss)


def convolution(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """Channels last, which XLA's CPU convolutions prefer."""
    pad = (kernel.shape[0] - 1) // 2
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def normalised(x: jax.Array, affine: Tree, running: Tree, momentum: float = 0.1) -> tuple[jax.Array, Tree]:
    """BatchNorm in training mode: the batch's own statistics, and the running ones moved towards them."""
    (scale, shift), (mean, variance) = affine, running
    batch_mean, batch_variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = (x - batch_mean) * (lax.rsqrt(batch_variance + 1e-5) * scale) + shift
    unbiased = batch_variance * (x.size / x.shape[-1] / (x.size / x.shape[-1] - 1))
    moved = mean + momentum * (batch_mean - mean), variance + momentum * (unbiased - variance)
    return y, lax.stop_gradient(moved)


def resnet() -> Network:
    def conv(rng: np.random.Generator, size: int, i: int, o: int) -> tuple[Tree, Tree]:
        kernel = gaussian(rng, size, size, i, o, fan_in=size * size * i)
        ones, zeros = np.ones(o, np.float32), np.zeros(o, np.float32)
        return (kernel, (ones, zeros)), (zeros, ones)

    def create(rng: np.random.Generator) -> tuple[Tree, Tree]:
        layers = {"stem": conv(rng, 3, 3, 16)}
        for number, (i, o, stride) in enumerate(BLOCKS):
            layers |= {f"{number}.1": conv(rng, 3, i, o), f"{number}.2": conv(rng, 3, o, o)}
            if stride > 1:
                layers[f"{number}.shortcut"] = conv(rng, 1, i, o)
        parameters = {name: own for name, (own, _) in layers.items()}
        parameters["head"] = gaussian(rng, 64, 10, fan_in=64), np.zeros(10, np.float32)
        return parameters, {name: running for name, (_, running) in layers.items()}

    def loss(parameters: Tree, statistics: Tree, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Tree]:
        moved = {}

        def layer(name: str, x: jax.Array, stride: int = 1) -> jax.Array:
            kernel, affine = parameters[name]
            out, moved[name] = normalised(convolution(x, kernel, stride), affine, statistics[name])
            return out

        x = jax.nn.relu(layer("stem", x))
        for number, (_, _, stride) in enumerate(BLOCKS):
            inner = layer(f"{number}.2", jax.nn.relu(layer(f"{number}.1", x, stride)))
            x = jax.nn.relu(inner + (layer(f"{number}.shortcut", x, stride) if stride > 1 else x))
        weight, bias = parameters["head"]
        return cross_entropy(x.mean((1, 2)) @ weight + bias, y), moved

    return Network(create, loss)


NETWORKS: dict[str, Callable[[], Network]] = {
    "W1": partial(mlp, 64, 32, 10),
    "W2": partial(mlp, 784, 128, 64, 10),
    "W2x100": partial(mlp, 784, 128, 64, 10),
    "W3": partial(mlp, 360, 1024, 1024, 512, 1000),
    "W4": resnet,
}


def as_jax(x: np.ndarray, y: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Data on the device; images channels last."""
    return jnp.asarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x), jnp.asarray(y, jnp.int32)
