"""Optimizers for many rows at once: each row takes the very steps that `torch.optim` would take with it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from esgd.engines.batched.optimizers import RowOptimizers, SeparateOptimizers, StackedAdam, StackedSGD, optimizer_family
from esgd.engines.optimizers import build_optimizer, kept_state
from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.population import OptimizerState

SHAPES = ((3, 2), (4,), ())
STEPS = 5
CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}  # in float64: only the order of operations may differ


@st.composite
def sgd(draw: st.DrawFn) -> Policy:
    momentum = draw(st.sampled_from([0.0, 0.5, 0.9]))
    dampening = draw(st.sampled_from([0.0, 0.3, 1.0]))
    hyper: dict[str, Any] = {
        "lr": draw(st.floats(1e-3, 0.5)),
        "momentum": momentum,
        "dampening": dampening,
        "weight_decay": draw(st.sampled_from([0.0, 0.1])),
        "nesterov": bool(momentum) and not dampening and draw(st.booleans()),
    }
    given_ = draw(st.sets(st.sampled_from(sorted(set(hyper) - {"lr"}))))
    needed = {"momentum", "dampening"} if hyper["nesterov"] else set()
    return Policy(optimizer="sgd", hyper={n: v for n, v in hyper.items() if n in {"lr"} | given_ | needed})


@st.composite
def adam(draw: st.DrawFn) -> Policy:
    hyper = {
        "lr": draw(st.floats(1e-4, 0.1)),
        "betas": (draw(st.sampled_from([0.0, 0.5, 0.9])), draw(st.sampled_from([0.0, 0.9, 0.999]))),
        "eps": draw(st.sampled_from([1e-8, 1e-3])),
        "weight_decay": draw(st.sampled_from([0.0, 0.1])),
    }
    given_ = draw(st.sets(st.sampled_from(sorted(set(hyper) - {"lr"}))))
    name = draw(st.sampled_from(["adam", "adamw"]))
    return Policy(optimizer=name, hyper={n: v for n, v in hyper.items() if n == "lr" or n in given_})


class InTorch:
    """The same rows with an optimizer of `torch.optim` each: what must come out."""

    def __init__(
        self, stacks: Sequence[Tensor], policies: Sequence[Policy], carried: Sequence[OptimizerState | None]
    ) -> None:
        self.policies = policies
        self.rows = [[nn.Parameter(stack[row].clone()) for stack in stacks] for row in range(len(policies))]
        parts = zip(self.rows, policies, carried, strict=True)
        self.optimizers = [build_optimizer(row, policy, carried, fused=False) for row, policy, carried in parts]

    def step(self, gradients: Sequence[Tensor], factors: Sequence[float]) -> None:
        for number, (row, optimizer) in enumerate(zip(self.rows, self.optimizers, strict=True)):
            for parameter, gradient in zip(row, gradients, strict=True):
                parameter.grad = gradient[number].clone()
            optimizer.param_groups[0]["lr"] = self.policies[number].hyper["lr"] * factors[number]
            optimizer.step()

    def stacks(self) -> list[Tensor]:
        return [torch.stack([row[i].detach() for row in self.rows]) for i in range(len(self.rows[0]))]

    def kept_state(self, row: int) -> OptimizerState:
        return kept_state(self.policies[row], self.optimizers[row].state_dict())


def stacks_of(n: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, *shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def gradients_of(n: int, seed: int, step: int) -> list[Tensor]:
    return stacks_of(n, 1000 * seed + step + 1)


def factors_of(n: int, step: int) -> list[float]:
    """A schedule that differs from row to row; one row's rate does not change at first."""
    return [1.0 if step < 2 and row == 0 else 1.0 / (1 + step * row) for row in range(n)]


def both(
    policies: list[Policy], seed: int, baggage: Sequence[OptimizerState | None] | None = None
) -> tuple[RowOptimizers, InTorch, list[Tensor]]:
    """The stacked optimizer, the separate ones, and the stacks that the former moves."""
    n = len(policies)
    stacks, carried = stacks_of(n, seed), baggage or [None] * n
    (kind,) = {optimizer_family(policy) for policy in policies}
    return kind(stacks, policies, carried), InTorch(stacks, policies, carried), stacks


def same(found: OptimizerState, expected: OptimizerState) -> None:
    assert found.kind == expected.kind
    assert set(found.tensors) == set(expected.tensors)
    for name, tensor in expected.tensors.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (tensor.dtype, tensor.shape), name
        torch.testing.assert_close(found.tensors[name], tensor, **CLOSE)


POLICIES = st.one_of(st.lists(sgd(), min_size=1, max_size=4), st.lists(adam(), min_size=1, max_size=4))


@settings(max_examples=40)
@given(policies=POLICIES, seed=st.integers(0, 999))
def test_every_step_of_every_row_is_that_of_torch_optim(policies: list[Policy], seed: int) -> None:
    ours, torchs, stacks = both(policies, seed)
    for step in range(STEPS):
        gradients, factors = gradients_of(len(policies), seed, step), factors_of(len(policies), step)
        ours.step(gradients, factors)
        torchs.step(gradients, factors)
        torch.testing.assert_close(stacks, torchs.stacks(), **CLOSE)


@settings(max_examples=40)
@given(policies=POLICIES, seed=st.integers(0, 999))
def test_carried_state_goes_out_and_in_as_torch_optim_would_have_it(policies: list[Policy], seed: int) -> None:
    n = len(policies)
    ours, torchs, stacks = both(policies, seed)
    for row in range(n):
        same(ours.kept_state(ours.snapshot(), row), torchs.kept_state(row))
    for step in range(2):
        for each in (ours, torchs):
            each.step(gradients_of(n, seed, step), factors_of(n, step))
    snapshot = ours.snapshot()
    for row in range(n):
        same(ours.kept_state(snapshot, row), torchs.kept_state(row))
    # Once more with what was carried out of the other: nobody can tell where a state came from.
    carried = [torchs.kept_state(row) for row in range(n)]
    after, expected, moved = both(policies, seed + 1, carried)
    kept = [{name: tensor.clone() for name, tensor in each.tensors.items()} for each in carried]
    for step in range(2):
        for each in (after, expected):
            each.step(gradients_of(n, seed, step), factors_of(n, step))
    torch.testing.assert_close(moved, expected.stacks(), **CLOSE)
    for before, state in zip(kept, carried, strict=True):
        assert all(torch.equal(state.tensors[name], tensor) for name, tensor in before.items()), (
            "what is carried was changed"
        )
    assert stacks


@settings(max_examples=40)
@given(policies=POLICIES, seed=st.integers(0, 999), data=st.data())
def test_some_rows_go_back_to_a_mark_and_the_others_go_on(
    policies: list[Policy], seed: int, data: st.DataObject
) -> None:
    """A row that went back and on is where it would be without the detour; the others never noticed."""
    n = len(policies)
    where = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    marked_after = data.draw(st.integers(0, 2))
    detour, _, moved = both(policies, seed)
    straight, _, never_back = both(policies, seed)
    for step in range(marked_after):
        for each in (detour, straight):
            each.step(gradients_of(n, seed, step), factors_of(n, step))
    snapshot, places = detour.snapshot(), [stack.clone() for stack in moved]
    for step in range(7, 9):
        detour.step(gradients_of(n, seed, step), factors_of(n, step))
    detour.restore(snapshot, where)
    for stack, place in zip(moved, places, strict=True):
        stack[where] = place[where]
    others, _, long_way = both(policies, seed)
    for step in [*range(marked_after), 7, 8, 3]:
        others.step(gradients_of(n, seed, step), factors_of(n, step))
    for each in (detour, straight):
        each.step(gradients_of(n, seed, 3), factors_of(n, 3))
    for found, back, on in zip(moved, never_back, long_way, strict=True):
        torch.testing.assert_close(found[where], back[where], **CLOSE)
        torch.testing.assert_close(found[~where], on[~where], **CLOSE)


@settings(max_examples=20)
@given(policies=POLICIES, seed=st.integers(0, 99))
def test_a_mark_is_a_copy(policies: list[Policy], seed: int) -> None:
    ours, _, _ = both(policies, seed)
    n = len(policies)
    ours.step(gradients_of(n, seed, 0), [1.0] * n)
    snapshot = ours.snapshot()
    before = [ours.kept_state(snapshot, row) for row in range(n)]
    ours.step(gradients_of(n, seed, 1), [1.0] * n)
    for row in range(n):
        same(ours.kept_state(snapshot, row), before[row])


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "nesterov": True}), StackedSGD),
        (Policy(optimizer="SGD", hyper={"lr": 0.1}), StackedSGD),
        (Policy(optimizer="adam", hyper={"lr": 0.1}), StackedAdam),
        (Policy(optimizer="adamw", hyper={"lr": 0.1, "weight_decay": 0.1}), StackedAdam),
        (Policy(optimizer="adam", hyper={"lr": 0.1, "amsgrad": True}), SeparateOptimizers),
        (Policy(optimizer="sgd", hyper={"lr": 0.1, "maximize": True}), SeparateOptimizers),
        (Policy(optimizer="rmsprop", hyper={"lr": 0.1}), SeparateOptimizers),
        (Policy(optimizer="adagrad", hyper={"lr": 0.1}), SeparateOptimizers),
        (Policy(optimizer="tests.small:RecordingSgd", hyper={"lr": 0.1}), SeparateOptimizers),
    ],
    ids=str,
)
def test_what_no_equation_covers_is_left_to_torch(policy: Policy, kind: type[Any]) -> None:
    assert optimizer_family(policy) is kind


@pytest.mark.parametrize(
    "policies",
    [
        [
            Policy(optimizer="rmsprop", hyper={"lr": 0.01, "momentum": 0.5}),
            Policy(optimizer="adagrad", hyper={"lr": 1.0}),
        ],
        [
            Policy(optimizer="adam", hyper={"lr": 0.01, "amsgrad": True}),
            Policy(optimizer="adam", hyper={"lr": 0.1, "maximize": True}),
        ],
        [
            Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "maximize": True}),
            Policy(optimizer="radam", hyper={"lr": 0.1}),
        ],
        [Policy(optimizer="nadam", hyper={"lr": 0.1}), Policy(optimizer="rprop", hyper={"lr": 0.1})],
    ],
    ids=str,
)
def test_other_optimizers_step_mark_and_carry_as_in_torch(policies: list[Policy]) -> None:
    ours, torchs, stacks = both(policies, 0)
    assert isinstance(ours, SeparateOptimizers)
    for step in range(2):
        for each in (ours, torchs):
            each.step(gradients_of(2, 0, step), factors_of(2, step))
    snapshot, places = ours.snapshot(), [stack.clone() for stack in stacks]
    for row in range(2):
        same(ours.kept_state(snapshot, row), torchs.kept_state(row))
    ours.step(gradients_of(2, 0, 9), [1.0, 1.0])
    ours.restore(snapshot, torch.tensor([True, True]))
    for stack, place in zip(stacks, places, strict=True):
        stack.copy_(place)
    for each in (ours, torchs):
        each.step(gradients_of(2, 0, 3), factors_of(2, 3))
    torch.testing.assert_close(stacks, torchs.stacks(), **CLOSE)


def test_state_of_another_kind_is_left_behind() -> None:
    """Switching momentum on, or the optimizer, begins afresh; a new rate or a Nesterov step does not."""
    plain = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9})
    ahead = Policy(optimizer="sgd", hyper={"lr": 0.2, "momentum": 0.5, "nesterov": True})
    decayed = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1})
    ours, torchs, _ = both([plain], 0)
    ours.step(gradients_of(1, 0, 0), [1.0])
    carried = ours.kept_state(ours.snapshot(), 0)
    ours, torchs, stacks = both([ahead, decayed, plain], 1, [carried, carried, None])
    for each in (ours, torchs):
        each.step(gradients_of(3, 0, 1), [1.0] * 3)
    torch.testing.assert_close(stacks, torchs.stacks(), **CLOSE)


def test_a_row_that_explodes_does_not_touch_its_neighbours() -> None:
    for name in ("sgd", "adam"):
        policies = [Policy(optimizer=name, hyper={"lr": rate}) for rate in (0.1, 1e38, 0.2)]
        ours, torchs, stacks = both(policies, 0)
        for step in range(3):
            gradients = gradients_of(3, 0, step)
            gradients[0][1] = torch.nan
            for each in (ours, torchs):
                each.step(gradients, [1.0] * 3)
        expected = torchs.stacks()
        for found, right in zip(stacks, expected, strict=True):
            torch.testing.assert_close(found[[0, 2]], right[[0, 2]], **CLOSE)


def test_hyper_parameters_that_torch_refuses_are_refused() -> None:
    with pytest.raises(RecipeError, match="SGD refuses .*Nesterov.*correct its `hyper` ranges"):
        StackedSGD(stacks_of(1, 0), [Policy(optimizer="sgd", hyper={"lr": 0.1, "nesterov": True})], [None])
    with pytest.raises(RecipeError, match="Adam refuses .*Invalid beta"):
        StackedAdam(stacks_of(1, 0), [Policy(optimizer="adam", hyper={"lr": 0.1, "betas": (1.5, 0.9)})], [None])


def test_float32_rows_equal_torch_to_single_precision() -> None:
    """What runs really use; torch sums in another order there, but no more."""
    policies = [Policy(optimizer="adam", hyper={"lr": rate, "betas": (0.9, 0.99)}) for rate in (0.001, 0.01)]
    stacks = [stack.float() for stack in stacks_of(2, 0)]
    ours, torchs = StackedAdam(stacks, policies, [None, None]), InTorch(stacks, policies, [None, None])
    for step in range(20):
        gradients = [gradient.float() for gradient in gradients_of(2, 0, step)]
        for each in (ours, torchs):
            each.step(gradients, [1.0, 1.0])
    torch.testing.assert_close(stacks, torchs.stacks(), rtol=1e-5, atol=1e-6)
