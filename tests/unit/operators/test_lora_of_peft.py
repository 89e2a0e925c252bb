"""Adapters of PEFT whose factors are more, or other, than one product B·A."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from esgd.genome import Genome
from esgd.operators import LoraProduct
from esgd.operators.lora import has_other_adapters, lora_pairs

peft = pytest.importorskip("peft")


class Experts(nn.Module):
    """Three layers in one parameter, as mixtures of experts have them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,eoi->bo", x, self.weight)


def lora(known: str, **more: Any) -> Any:
    """A configuration of PEFT, where its version has that argument."""
    if known not in peft.LoraConfig.__dataclass_fields__:
        pytest.skip(f"this version of PEFT has no {known}")
    return peft.LoraConfig(r=2, **more)


def test_each_expert_of_a_child_has_the_mean_of_the_updates_of_its_mates() -> None:
    """The mates have one update; the factors of one expert have opposite signs."""
    config = lora("target_parameters", target_modules=[], target_parameters=["0.weight"])
    network = peft.get_peft_model(nn.Sequential(Experts()), config)
    (layer,) = [each for each in network.modules() if hasattr(each, "num_experts")]
    genome = Genome.of(network)
    a, b = (layer.get_parameter(f"lora_{each}.default.weight").data for each in "AB")
    b.copy_(torch.randn(b.shape, generator=torch.Generator().manual_seed(0)))
    first, buffers = genome.read(network)
    a.view(3, 2, -1)[1].neg_()
    b.view(len(b), 2, 3)[..., 1].neg_()
    second, _ = genome.read(network)
    update = layer.get_delta_weight("default").detach()
    genome.write(LoraProduct()(torch.stack([first, second]), (0.5, 0.5), genome), buffers, network)
    torch.testing.assert_close(layer.get_delta_weight("default").detach(), update)


@pytest.mark.parametrize("variant", ["use_bdlora", "kasa_config"])
def test_updates_that_are_no_product_of_two_factors_are_not_taken_for_one(variant: str) -> None:
    settings = {"use_bdlora": {"target_modules_bd_a": ["0"], "nblocks": 2}, "kasa_config": {}}[variant]
    config = lora(variant, target_modules=["0"], **{variant: settings})
    genome = Genome.of(peft.get_peft_model(nn.Sequential(nn.Linear(8, 8)), config))
    assert lora_pairs(genome) == []
    assert has_other_adapters(genome)
