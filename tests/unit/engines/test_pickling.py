"""What travels to a worker lies there as it lay here: the last bits of a product depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import esgd
from esgd._tensors.layout import ALIGNMENT, twin
from esgd.engines.pickling import LARGE
from esgd.testing.evidence import contents, difference
from tests.small import classify
from tests.unit.engines.inline import Inline, through_a_pool, through_ray

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.t(),
    "channels last": lambda x: x.reshape(-1, 2, 2, 3).contiguous(memory_format=torch.channels_last),
    "with gaps": lambda x: x[:, ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 5),
    "from the second row on": lambda x: x[1:],
    "from the second element on": lambda x: x.flatten()[1:],
    "without elements": lambda x: x[:0],
    "without dimensions": lambda x: x[0, 0],
    "double": lambda x: x.double()[1:],
    "boolean": lambda x: (x > 0)[1:],
}


@pytest.mark.parametrize("travel", [through_a_pool, through_ray, twin], ids=lambda travel: travel.__name__)
@pytest.mark.parametrize("rows", [8, LARGE // 24], ids=["small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_keeps_its_strides_and_its_alignment(layout: str, rows: int, travel: Callable[[Any], Any]) -> None:
    given = LAYOUTS[layout](torch.randn(rows, 12))
    came = travel(given)
    assert torch.equal(came, given)
    assert came.dtype == given.dtype
    assert came.stride() == given.stride() or not given.numel()
    assert came.data_ptr() % ALIGNMENT == given.data_ptr() % ALIGNMENT
    came.fill_(1)
    assert not torch.equal(came, given) or not given.numel(), "it is a copy"


class Skewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 6).t())
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(x @ self.weight))


@pytest.mark.slow
@pytest.mark.parametrize("travel", [through_a_pool, through_ray], ids=lambda travel: travel.__name__)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_transposed_parameter_has_the_bits_of_loop_with_any_number_of_workers(workers: int, travel: Any) -> None:
    recipe = esgd.Recipe(population=4, generations=2, sgd_epochs=1)
    loops, ours = (
        [contents(each.population) for each in esgd.evolve(classify(Skewed), recipe, seed=0, engine=engine)]
        for engine in (esgd.Loop(threads=1), Inline(workers=workers, travel=travel))
    )
    assert difference(ours, loops) == ""


@pytest.mark.parametrize("travel", [through_a_pool, through_ray], ids=lambda travel: travel.__name__)
def test_parametrized_layers_travel_and_stay_parametrized(travel: Callable[[Any], Any]) -> None:
    network = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 2)), parametrizations.orthogonal(nn.Linear(2, 2)))
    came, x = travel(network), torch.randn(4, 3)
    assert torch.equal(came(x), network(x))
    with torch.no_grad():
        came[0].parametrizations.weight.original0.mul_(2.0)
    torch.testing.assert_close(came[0].weight, 2 * network[0].weight)
