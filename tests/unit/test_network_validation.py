"""Networks without a genome are refused by the name of what is in the way; those that only look odd are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import esgd
from esgd._network_validation import check_network
from esgd.errors import DataError, TaskError
from esgd.genome import Genome, build
from esgd.randomness import Seeds
from tests.small import classify, mlp


class Holding(nn.Module):
    """A module with these parameters and buffers."""

    def __init__(self, *parameters: Tensor, buffers: tuple[Tensor, ...] = (), frozen: tuple[Tensor, ...] = ()) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(each) for each in parameters])
        self.fixed = nn.ParameterList([nn.Parameter(each, requires_grad=False) for each in frozen])
        for number, buffer in enumerate(buffers):
            self.register_buffer(f"buffer{number}", buffer)


def flat() -> Tensor:
    return torch.rand(24)


def sharing(*views: Callable[[Tensor], Tensor]) -> list[Tensor]:
    whole = flat()
    return [view(whole) for view in views]


@pytest.mark.parametrize(
    "views",
    [
        (lambda x: x, lambda x: x[:3]),
        (lambda x: x.view(4, 6), lambda x: x.view(4, 6).t()),
        (lambda x: x[:13], lambda x: x[12:]),
        (lambda x: x[::2], lambda x: x[::3]),
        (lambda x: x, lambda x: x[5].expand(3)),
    ],
    ids=["a piece", "the transpose", "one element", "every sixth", "expanded"],
)
def test_tensors_that_torch_would_change_together_are_refused(views: tuple[Callable[[Tensor], Tensor], ...]) -> None:
    one, other = sharing(*views)
    with pytest.raises(TaskError, match="'parts.1' lies in the memory of parameter 'parts.0'.*the two would part.*tie"):
        check_network(Holding(one, other))
    with pytest.raises(TaskError, match="'fixed.0' lies in the memory of parameter 'parts.0'"):
        check_network(Holding(one, frozen=(other,)))
    if other.stride()[0] != 0:
        with pytest.raises(TaskError, match="buffer 'buffer0' lies in the memory of parameter 'parts.0'"):
            check_network(Holding(one, buffers=(other,)))


def test_tensors_of_one_piece_of_memory_that_do_not_meet_are_no_reason() -> None:
    check_network(Holding(*sharing(lambda x: x[:12], lambda x: x[12:])))
    check_network(Holding(*sharing(lambda x: x[::2], lambda x: x[1::2])))
    check_network(Holding(*sharing(lambda x: x.view(4, 6)[:, :3], lambda x: x.view(4, 6)[:, 3:])))
    check_network(Holding(flat(), frozen=tuple(sharing(lambda x: x, lambda x: x[:3]))))


def test_a_buffer_that_nothing_can_be_written_into_is_refused_and_one_of_a_single_row_is_not() -> None:
    with pytest.raises(TaskError, match=r"buffer 'buffer0' is expanded.*tensor.clone\(\)"):
        check_network(Holding(flat(), buffers=(torch.zeros(1).expand(3),)))
    check_network(Holding(flat(), buffers=(torch.arange(3).expand(1, -1),)))


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_gradient_is_refused_because_copies_do_not_have_it(hook: str) -> None:
    network = mlp()
    getattr(network[0].weight, hook)(lambda given: None)
    with pytest.raises(TaskError, match="parameter '0.weight' has a hook on its gradient.*parametrize"):
        check_network(network)


def test_what_has_no_values_is_refused() -> None:
    with pytest.raises(TaskError, match="parameter '0.weight' is on the meta device.*initialise it inside make_model"):
        check_network(nn.Sequential(nn.Linear(2, 2, device="meta")))
    with pytest.raises(TaskError, match="buffer 'buffer0' is on the meta device"):
        check_network(Holding(flat(), buffers=(torch.zeros(2, device="meta"),)))


def test_an_error_in_make_model_is_told_with_what_make_model_is_for() -> None:
    with pytest.raises(TaskError, match="make_model raised ZeroDivisionError: .*by zero.*Call it by hand") as told:
        build(lambda: nn.Linear(2, 1 // 0), Seeds(0))
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_an_error_of_ours_in_make_model_is_left_as_it_is() -> None:
    def make_model() -> nn.Module:
        raise DataError("a file is missing")

    with pytest.raises(DataError, match="^a file is missing$"):
        build(make_model, Seeds(0))


def test_a_network_with_other_buffers_is_refused_with_the_first_difference() -> None:
    genome = Genome.of(Holding(flat(), buffers=(torch.zeros(2),)))
    with pytest.raises(
        TaskError, match=r"buffer 'buffer0' of the network is torch.int64 of shape \(2,\), and torch.float"
    ):
        genome.read(Holding(flat(), buffers=(torch.zeros(2, dtype=torch.int64),)))
    with pytest.raises(TaskError, match="buffer 'buffer1' of the network is .*, and missing in the population"):
        genome.read(Holding(flat(), buffers=(torch.zeros(2), torch.zeros(1))))


def test_a_layer_that_forward_builds_is_refused_before_anything_is_trained() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "second"):
                self.second = nn.Linear(4, 3)
            return self.second(self.first(x))

    with pytest.raises(TaskError, match="parameter 'second.weight' was missing.*Build every layer in __init__"):
        next(esgd.evolve(classify(Late), esgd.Recipe(population=2), seed=0, engine="loop"))
