"""Optimizer states in a checkpoint: what does not fit the network is damaged, before a kernel of torch believes it."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from torch import Tensor, nn

from esgd.genome import Genome
from esgd.run.checkpoint import _birth, _optimizer_state

GENOME = Genome.of(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
ADAM = {"0/step": torch.tensor(3.0), "0/exp_avg": torch.zeros(2, 3), "1/exp_avg_sq": torch.zeros(2)}
PLACE = {
    "place/row": torch.zeros(GENOME.size),
    "place/buffers/1.running_mean": torch.zeros(2),
    "place/buffers/1.running_var": torch.ones(2),
    "place/buffers/1.num_batches_tracked": torch.tensor(0),
}


def read(tensors: dict[str, Tensor]) -> object:
    stored = {f"population/baggage/0/{key}": tensor for key, tensor in tensors.items()}
    return _optimizer_state(0, "adam", stored, "population", GENOME)


def test_a_state_and_a_place_that_fit_are_read() -> None:
    state = read({**ADAM, **PLACE})
    assert state.of_optimizer.keys() == ADAM.keys()
    row, buffers = state.place
    assert len(row) == GENOME.size
    assert buffers.keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


@pytest.mark.parametrize(
    "changes",
    [
        {"0/exp_avg": torch.ones(1)},
        {"0/exp_avg": torch.zeros(3, 2)},
        {"0/step": torch.zeros(4)},
        {"99/exp_avg": torch.zeros(2)},
        {"place/foo": torch.zeros(1)},
        {"place/row": torch.zeros(GENOME.size + 1)},
        {"place/row": torch.zeros(GENOME.size, dtype=torch.float64)},
        {"place/row": torch.zeros(1, GENOME.size)},
        {"place/buffers/1.running_mean": torch.zeros(())},
        {"place/buffers/unknown": torch.zeros(2)},
    ],
    ids=lambda changes: str({key: tuple(tensor.shape) for key, tensor in changes.items()}),
)
def test_what_does_not_fit_the_network_is_refused(changes: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=r"shape|parameter|number|place|state of an optimizer"):
        read({**ADAM, **PLACE, **changes})


def test_a_place_without_its_row_or_a_buffer_is_refused() -> None:
    for missing in PLACE:
        with pytest.raises(ValueError, match="is no place of this network"):
            read({key: tensor for key, tensor in {**ADAM, **PLACE}.items() if key != missing})


@pytest.mark.parametrize(
    "more",
    [["mean"], ["mean", {}], ["", [0.5, 0.5]], ["mean", [0.5]], ["mean", ["a", "b"]], [3, []], ["mean", [0.5, inf]]],
)
def test_a_birth_of_an_odd_kind_is_refused(more: list[object]) -> None:
    plain = ["1.1.0", [0, 1], 0.0, ["0.0.0", "0.0.1"], 0]
    assert _birth([*plain, "mean", [0.5, 0.5]]).weights == (0.5, 0.5)
    with pytest.raises(ValueError, match=r"is no birth|not enough values"):
        _birth([*plain, *more])


@pytest.mark.parametrize("sigma", [-inf, nan, "0", True])
def test_a_birth_with_an_odd_mutation_is_refused(sigma: object) -> None:
    with pytest.raises(ValueError, match="is no birth"):
        _birth(["1.1.0", [0, 1], sigma, ["0.0.0", "0.0.1"], 0])
