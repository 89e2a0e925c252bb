"""Linear layers that multiply by oneDNN: the same functions, up to rounding."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Vmap
from esgd._algorithm.initialization import prepare, scored
from esgd.engines.onednn import LARGE, multiply_by_onednn
from esgd.errors import RecipeError
from esgd.genome import build
from esgd.operators import RandomStart
from esgd.randomness import Seeds
from esgd.species import Sgd
from esgd.testing.evidence import contents, difference
from tests.unit.engines.compilers import needs_compiler

WIDE = 300
"""Inputs and outputs of a layer whose products with a batch of 32 are large."""
assert LARGE <= 2 * 32 * WIDE * WIDE


def wide(outputs: int = WIDE) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, outputs, bias=False))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def both(make: Any = wide) -> tuple[nn.Module, nn.Module]:
    plain = build(make, Seeds(0))
    other = deepcopy(plain)
    multiply_by_onednn(other)
    return plain, other


def gradients(network: nn.Module, x: Tensor) -> list[Tensor]:
    loss = network(x).square().mean()
    return list(torch.autograd.grad(loss, [x, *network.parameters()]))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the products that oneDNN is given."""
    seen, real = list[tuple[int, ...]](), torch.ops.mkldnn._linear_pointwise

    def counted(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
        seen.append((*a.shape, len(b)))
        found: Tensor = real(a, b, *rest)
        return found

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counted)
    return seen


@pytest.mark.parametrize("shape", [(32,), (8, 8), (2, 4, 8)], ids=str)
def test_outputs_and_gradients_are_those_of_torch(shape: tuple[int, ...], calls: list[tuple[int, ...]]) -> None:
    plain, other = both()
    x = normal(*shape, WIDE).requires_grad_()
    torch.testing.assert_close(other(x), plain(x))
    for ours, torchs in zip(gradients(other, x), gradients(plain, x), strict=True):
        torch.testing.assert_close(ours, torchs)
    rows = x.numel() // WIDE
    assert calls[:2] == [(rows, WIDE, WIDE)] * 2
    assert len(calls) == 2 + 2 + 4, "outputs, outputs again, and the gradients of inputs and weights"


def test_gradients_can_be_differentiated_again() -> None:
    plain, other = both()
    found = []
    for network in (plain, other):
        x = normal(32, WIDE).requires_grad_()
        (slope,) = torch.autograd.grad(network(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), list(network.parameters())))
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs)


def replaced() -> nn.Module:
    layer = nn.Linear(WIDE, WIDE)
    layer.forward = lambda x: x + layer.bias  # type: ignore[method-assign]
    return layer


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (wide, torch.ones(8, WIDE)),
        (replaced, torch.ones(32, WIDE)),
        (lambda: wide().double(), torch.ones(32, WIDE, dtype=torch.float64)),
        (lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(WIDE, WIDE)), torch.ones(32, WIDE)),
    ],
    ids=["few samples", "forward of its own", "float64", "parametrised"],
)
def test_what_is_small_or_different_is_left_to_torch(make: Any, x: Tensor, calls: list[tuple[int, ...]]) -> None:
    plain, other = both(make)
    assert torch.equal(plain(x), other(x))
    assert not calls


def test_autocast_and_the_transforms_of_torch_func_are_left_to_torch(calls: list[tuple[int, ...]]) -> None:
    plain, other = both()
    x = normal(32, WIDE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain(x), other(x))
    slope = torch.func.grad(lambda x, network: network(x).sum())
    assert torch.equal(slope(x, plain), slope(x, other))
    assert not calls


def test_a_copy_of_such_a_network_computes_with_its_own_parameters() -> None:
    """As a loss makes one for a teacher."""
    _, other = both()
    copy, x = deepcopy(other), torch.ones(32, WIDE)
    with torch.no_grad():
        copy[2].weight.zero_()  # type: ignore[index]
    assert not copy(x).any()
    assert other(x).any()


RECIPE = esgd.Recipe(population=2, offspring=2, generations=1, sgd_epochs=1, species=Sgd(lr=(0.01, 0.02)))
"""Without ADAM, which divides by the size of a gradient: one that is nearly 0 is mostly rounding."""


def task() -> esgd.Supervised:
    x, y = normal(64, WIDE), torch.arange(64) % 4
    return esgd.Supervised(lambda: wide(4), F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=32)


@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=2, threads=1)], ids=["loop", "vmap"])
def test_a_run_is_that_of_torch_up_to_rounding_and_the_same_in_a_pool(engine: Loop | Vmap) -> None:
    given = task()
    with_onednn = replace(engine, onednn=True)
    engines = [engine, with_onednn, Pool(inner=with_onednn, workers=2)]
    plain, alone, pool = (esgd.fit(given, RECIPE, seed=0, engine=each, progress=False) for each in engines)
    torch.testing.assert_close(plain.population.rows, alone.population.rows)
    assert not torch.equal(plain.population.rows, alone.population.rows), "the products were oneDNN's"
    assert not difference(contents(alone.population), contents(pool.population))


def test_a_fitness_is_the_same_in_every_pass(calls: list[tuple[int, ...]]) -> None:
    """A recording is made at the first call: at the second, the last bits would change."""
    prepared = prepare(task(), esgd.Recipe(population=2), 0)
    with Vmap(chunk=2, threads=1, onednn=True).open(prepared, lambda phase, done, total: None) as session:
        population = scored(
            session, RandomStart()(prepared.task, prepared.genome, session, 2, prepared.seeds.at("init"))
        )
        calls.clear()
        again = scored(session, population)
    assert torch.equal(again.fitness, population.fitness)
    assert len(calls) == 2, "two networks with one large layer, and one part"


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_chunks_multiply_by_onednn() -> None:
    given, recipe = task(), replace(RECIPE, offspring=0, sgd_epochs=2, evolution_steps=0)
    compiled, multiplied = (
        esgd.fit(given, recipe, seed=0, engine=Vmap(chunk=2, threads=1, compile=True, onednn=onednn), progress=False)
        for onednn in (False, True)
    )
    torch.testing.assert_close(compiled.population.rows, multiplied.population.rows)
    assert not torch.equal(compiled.population.rows, multiplied.population.rows), "the products were oneDNN's"


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        (Loop, {"precision": "bf16"}, "onednn=true is for products in float32 on the CPU"),
        (Vmap, {"precision": "bf16"}, "onednn=true is for products in float32 on the CPU"),
        (Loop, {"compile": True}, "onednn=true and compile=true"),
    ],
)
def test_what_has_products_of_its_own_is_refused(kind: type[Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        kind(onednn=True, **more)
