"""Offspring of networks with low-rank adapters: the mean of the updates B·A, not of the factors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd import Recipe, Supervised, fit
from esgd._algorithm.initialization import prepare
from esgd.deploy import greedy_soup
from esgd.engines.contract import Stack
from esgd.engines.jobs import build_offspring
from esgd.genome import Genome
from esgd.operators import LoraProduct, intermediate
from esgd.operators.lora import lora_pairs
from esgd.population import Birth
from esgd.sanity import look
from tests.small import classify

RANK, WIDTH, CLASSES = 2, 8, 6


class Adapted(nn.Module):
    """A frozen layer with an adapter, named as PEFT names it, and a trainable bias."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, CLASSES, bias=False).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(WIDTH, RANK, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(RANK, CLASSES, bias=False)})
        self.bias = nn.Parameter(torch.zeros(CLASSES))
        nn.init.zeros_(self.lora_B["default"].weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B["default"](self.lora_A["default"](x)) + self.bias


def drawn(rho: int, seed: int = 0) -> tuple[Genome, Tensor]:
    """A genome and ρ rows of it."""
    genome = Genome.of(Adapted())
    return genome, torch.randn(rho, genome.size, generator=torch.Generator().manual_seed(seed))


def update(genome: Genome, row: Tensor) -> Tensor:
    views = genome.views(row.double())
    return views["lora_B.default.weight"] @ views["lora_A.default.weight"]


def truncated(matrix: Tensor, rank: int = RANK) -> Tensor:
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ v[:rank]


@pytest.mark.parametrize("weights", [(0.5, 0.5), (1 / 3,) * 3, (-0.5, 0.75, 0.75), (0.125,) * 8], ids=len)
def test_the_update_of_a_child_is_the_truncated_mean_of_the_updates_of_its_mates(weights: Sequence[float]) -> None:
    genome, mates = drawn(len(weights))
    child = LoraProduct()(mates, weights, genome)
    mean = sum(weight * update(genome, mate) for weight, mate in zip(weights, mates, strict=True))
    torch.testing.assert_close(update(genome, child), truncated(mean), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(genome.views(child)["bias"], torch.tensor(weights) @ mates[:, :CLASSES])


def test_the_factors_do_not_depend_on_signs_and_rotations_that_the_product_does_not_see() -> None:
    genome, mates = drawn(2)
    turn = torch.linalg.qr(torch.randn(RANK, RANK, generator=torch.Generator().manual_seed(5))).Q
    turned = mates.clone()
    views = genome.views(turned[1])
    views["lora_A.default.weight"].copy_(turn @ views["lora_A.default.weight"])
    views["lora_B.default.weight"].copy_(views["lora_B.default.weight"] @ turn.T)
    torch.testing.assert_close(LoraProduct()(turned, (0.5, 0.5), genome), LoraProduct()(mates, (0.5, 0.5), genome))


def test_a_child_of_untrained_adapters_can_still_learn() -> None:
    """B is 0 at the beginning, so the product is 0; were A 0 too, no gradient would ever reach either."""
    genome, mates = drawn(2)
    for mate in mates:
        genome.views(mate)["lora_B.default.weight"].zero_()
    child = genome.views(LoraProduct()(mates, (0.5, 0.5), genome))
    assert not child["lora_B.default.weight"].any()
    lengths = child["lora_A.default.weight"].norm(dim=1)
    torch.testing.assert_close(lengths, lengths.mean().expand(RANK))
    torch.testing.assert_close(lengths.mean(), mates.new_tensor(_length(genome, mates)))


def _length(genome: Genome, mates: Tensor) -> float:
    rows = [genome.views(mate)["lora_A.default.weight"] for mate in mates]
    return float(torch.stack(rows).square().sum(dim=2).mean().sqrt())


def test_where_a_is_the_same_or_frozen_b_is_averaged_exactly() -> None:
    genome, mates = drawn(3)
    views = [genome.views(mate) for mate in mates]
    for view in views[1:]:
        view["lora_A.default.weight"].copy_(views[0]["lora_A.default.weight"])
    child = LoraProduct()(mates, (0.25, 0.25, 0.5), genome)
    assert torch.equal(genome.views(child)["lora_A.default.weight"], views[0]["lora_A.default.weight"])
    assert torch.equal(child[-CLASSES * RANK :], torch.tensor((0.25, 0.25, 0.5)) @ mates[:, -CLASSES * RANK :])

    frozen = Adapted()
    frozen.lora_A.requires_grad_(False)
    assert lora_pairs(Genome.of(frozen)) == []


def test_a_mate_that_has_diverged_gives_a_child_that_has() -> None:
    genome, mates = drawn(2)
    mates[1] = torch.inf
    assert not LoraProduct()(mates, (0.5, 0.5), genome).isfinite().any()


def regression(make: type[nn.Module] = Adapted) -> Supervised:
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1))
    y = x @ torch.randn(WIDTH, CLASSES, generator=torch.Generator().manual_seed(2))
    return Supervised(make, F.mse_loss, train=(x, y), fitness=(x, y), batch_size=16)


SHORT = Recipe(population=3, generations=2, sgd_epochs=1)


def test_offspring_of_every_kind_are_made_from_products_where_the_recipe_leaves_it_to_us() -> None:
    setup = prepare(regression(), Recipe(), seed=0)
    _, mates = drawn(3)
    for weights in ((), (0.5, 0.25, 0.25)):  # of drawn mates, and of a mean, a soup or an extrapolation
        born = build_offspring(setup, Stack(mates, {}), Birth("1.1.0", mates=(0, 1, 2), weights=weights))
        mean = sum((1 / 3 if not weights else weights[j]) * update(setup.genome, mates[j]) for j in range(3))
        torch.testing.assert_close(update(setup.genome, born.row), truncated(mean), atol=1e-5, rtol=1e-5)
    asked = prepare(regression(), Recipe(recombination=intermediate), seed=0)
    plain = build_offspring(asked, Stack(mates, {}), Birth("1.1.0", mates=(0, 1, 2)))
    assert torch.equal(plain.row, mates.mean(dim=0))
    assert prepare(classify(), Recipe(), seed=0).recombination is intermediate


def test_a_run_writes_down_what_was_chosen_and_says_so(tmp_path: Path) -> None:
    result = fit(regression(), SHORT, seed=0, engine="loop", progress=False, run=tmp_path, report=False)
    assert json.loads((tmp_path / "manifest.json").read_text())["recipe"]["recombination"] == {"kind": "lora_product"}
    [said] = [note["text"] for note in result.history[0]["notes"] if note["kind"] == "lora"]
    assert "recombination=LoraProduct()" in said
    asked = fit(regression(), replace(SHORT, recombination=intermediate), seed=0, engine="loop", progress=False)
    assert any("is not the mean of the updates" in note["text"] for note in asked.history[0]["notes"])


def test_a_run_that_began_before_there_was_a_choice_continues_bit_identically(tmp_path: Path) -> None:
    before = replace(SHORT, recombination=intermediate)
    whole = fit(regression(), before, seed=0, engine="loop", progress=False)
    at_once = partial(fit, regression(), seed=0, engine="loop", progress=False, run=tmp_path, report=False)
    at_once(before, stop=lambda generation: generation.k == 1)
    continued = at_once(SHORT)
    assert torch.equal(continued.state.population.rows, whole.state.population.rows)


class Adaptive(Adapted):
    """AdaLoRA, whose update is B·diag(E)·A."""

    def __init__(self) -> None:
        super().__init__()
        self.lora_E = nn.ModuleDict({"default": nn.Linear(1, RANK, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.lora_A["default"](x) * self.lora_E["default"].weight[:, 0]
        return self.base(x) + self.lora_B["default"](scaled) + self.bias


def test_adapters_of_adalora_are_averaged_as_rows_and_the_note_says_so() -> None:
    genome = Genome.of(Adaptive())
    mates = torch.randn(2, genome.size, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(LoraProduct()(mates, (0.5, 0.5), genome), mates.mean(dim=0))
    genome.template.get_submodule("lora_E").requires_grad_(False)
    assert lora_pairs(Genome.of(genome.template)) == []
    notes = look(prepare(regression(Adaptive), Recipe(), seed=0))
    assert [note.kind for note in notes if "mean of their mates' updates" in note.text] == []
    assert any("AdaLoRA" in note.text and "not the updates" in note.text for note in notes)


def test_a_soup_of_adapters_averages_products() -> None:
    """Two networks of one product, with factors of opposite signs: the mean of the factors is zero."""
    task = regression()
    result = fit(task, replace(SHORT, sgd_epochs=4), seed=0, engine="loop", progress=False)
    population = result.state.population[[0, 0]]
    rows = population.rows.clone()
    for name, view in population.genome.views(rows[1]).items():
        if "lora" in name:
            view.neg_()
    soup = greedy_soup(task, replace(population, rows=rows), engine="loop")
    assert soup.models in (1, 2)
    torch.testing.assert_close(
        torch.tensor(soup.fitness), torch.tensor(float(population.fitness[0])), rtol=1e-4, atol=0
    )


def test_children_of_trained_networks_are_nearer_to_the_mean_of_their_mates_than_means_of_rows() -> None:
    apart = replace(SHORT, population=4, sgd_epochs=8, generations=1, evolution_steps=0)
    population = fit(regression(), apart, seed=0, engine="loop", progress=False).population
    genome, mates = population.genome, population.rows
    mean = sum(update(genome, mate) for mate in mates) / len(mates)
    before, after = (
        float((update(genome, child) - mean).norm() / mean.norm())
        for child in (intermediate(mates), LoraProduct()(mates, (0.25,) * 4, genome))
    )
    assert after < before / 2
