"""Intermediate recombination."""

import torch

from esgd.operators import intermediate


def test_intermediate_recombination_is_the_mean_of_the_mates() -> None:
    mates = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, -2.0]])
    assert intermediate(mates).tolist() == [3, 2]
    assert intermediate(mates[:2]).tolist() == [2, 4]


def test_one_mate_is_a_clone_and_not_the_mate_itself() -> None:
    mates = torch.tensor([[0.1, 0.2, 0.3]])
    clone = intermediate(mates)
    assert torch.equal(clone, mates[0])
    clone += 1
    assert mates[0, 0] == torch.tensor(0.1)
